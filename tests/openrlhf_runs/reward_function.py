"""A reward function as OpenRLHF takes it: by file, with `--reward.remote_url`."""

import os
from pathlib import Path

import torch


def reward_func(queries, prompts, labels):
    """More digits, more reward. The prompts are noted in the file that `SEEN_PROMPTS` names."""
    if seen := os.environ.get("SEEN_PROMPTS"):
        with Path(seen).open("a") as file:
            file.writelines(f"{prompt}\n" for prompt in prompts)
    scores = torch.tensor([float(sum(letter.isdigit() for letter in query)) for query in queries])
    return {"rewards": scores, "scores": scores, "extra_logs": {"digits": scores}}
