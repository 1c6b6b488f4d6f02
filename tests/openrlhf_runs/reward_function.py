"""A reward function as OpenRLHF takes it: by file, with `--reward.remote_url`."""

import torch


def reward_func(queries, prompts, labels):
    """More digits, more reward."""
    scores = torch.tensor([float(sum(letter.isdigit() for letter in query)) for query in queries])
    return {"rewards": scores, "scores": scores, "extra_logs": {"digits": scores}}
