"""The reward of the benchmark with larger models, as OpenRLHF takes one by file: more digits, more reward."""

from __future__ import annotations

import torch


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, object]:
    scores = torch.tensor([float(sum(letter.isdigit() for letter in query)) for query in queries])
    return {"rewards": scores, "scores": scores, "extra_logs": {"digits": scores}}
