"""How many steps OpenRLHF's training has. It tells only how often its optimizers step, for their schedules."""

from __future__ import annotations

import math
from typing import Any


def most_steps(args: Any, *, prompts: int) -> int:
    """The steps of all episodes over so many prompts: a step is one batch of them, the last one may be smaller.

    With dynamic filtering, prompts whose answers are dropped are replaced by the next ones: then there are fewer.
    """
    batch: int = args.rollout.batch_size
    at_once: int = args.rollout.vllm_generate_batch_size or batch
    # What is generated beyond a batch is kept for the next ones; less than a batch is trained on as it is.
    steps: int = args.train.num_episodes * math.ceil(prompts / min(batch, at_once))
    return steps
