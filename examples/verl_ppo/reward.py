"""A reward that a tiny model can learn; verl takes it as `reward.custom_reward_function.path`."""

from __future__ import annotations

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """How much of the answer are digits, from 0 to 1."""
    return sum(letter.isdigit() for letter in solution_str) / max(1, len(solution_str))
