"""verl's own checkpoints: one that was not finished is never resumed from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from dlrl_verl.config import Settings

_log = logging.getLogger("dlrl")

_LATEST = "latest_checkpointed_iteration.txt"
_STEP = "global_step_"
_MANIFEST = "ckpt_contents.json"
"""What Megatron's checkpoint manager in verl writes last."""


def align_checkpoints(config: Any) -> int | None:
    """Have verl's tracker name the newest checkpoint that is whole; its step, or None if there is none.

    verl writes the tracker last, unless it saves in the background: then the actor's part names a step of which the
    critic's may be missing. And a checkpoint can lose a part later. One that is newer than the tracker says is left
    alone: verl does it again.
    """
    folder = Path(config.trainer.default_local_dir)
    tracker = folder / _LATEST
    if config.trainer.resume_mode != "auto" or not tracker.exists():
        return None
    named = int(tracker.read_text())
    whole = [step for step in _steps(folder) if step <= named and is_whole(folder / f"{_STEP}{step}", config)]
    if named in whole:
        return named
    if not whole:
        raise FileNotFoundError(
            f"'{tracker}' names step {named}, but neither that checkpoint nor an older one in '{folder}' is whole; "
            "say trainer.resume_mode=disable to start from the beginning"
        )
    _log.warning("checkpoint %s%d in '%s' is not whole; resuming from step %d", _STEP, named, folder, max(whole))
    tracker.write_text(str(max(whole)))
    return max(whole)


def is_whole(checkpoint: Path, config: Any) -> bool:
    """Whether every role that is trained has its part, and the data its place."""
    settings = Settings(config)
    ranks = settings.devices
    parts = [("actor", config.actor_rollout_ref.actor)]
    if settings.has_critic:
        parts.append(("critic", config.critic))
    return (checkpoint / "data.pt").exists() and all(
        _has_all(checkpoint / name, part.strategy, ranks) for name, part in parts
    )


def _has_all(folder: Path, strategy: str, ranks: int) -> bool:
    if strategy == "megatron":
        return (folder / _MANIFEST).exists()
    files = [folder / f"model_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks)]
    return all(file.exists() and file.stat().st_size > 0 for file in files)


def _steps(folder: Path) -> list[int]:
    found = [one.name.removeprefix(_STEP) for one in folder.glob(f"{_STEP}*")]
    return [int(step) for step in found if step.isdigit()]
