"""A reward function as verl takes it, which notes the prompts in the file that `SEEN_PROMPTS` names."""

import os
from pathlib import Path


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    with Path(os.environ["SEEN_PROMPTS"]).open("a") as file:
        file.write(f"{extra_info['index']}\n")
    return sum(letter.isdigit() for letter in solution_str) / max(1, len(solution_str))
