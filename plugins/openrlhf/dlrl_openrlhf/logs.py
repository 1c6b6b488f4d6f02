"""What OpenRLHF logs to W&B and tensorboard: one run of each, however often training is entered again."""

from __future__ import annotations

from typing import Any

from dlrl_adapter_kit.framework_seam import keep_one_wandb_run


def keep_one_log(args: Any, *, job: str, run_id: str, is_named: bool) -> None:
    """Give the run a name that stays, unless the user did (`is_named`), and let W&B go on with it.

    OpenRLHF's own default has the minute of its start in it, and W&B begins a new run at each start.
    """
    if not is_named:
        args.logger.wandb.run_name = f"{job}_{run_id[:8]}"
    keep_one_wandb_run(run_id)


def close_logs(trainer: Any) -> None:
    """Of a trainer that is left in the middle too; the next one opens them again."""
    for logger in (trainer.wandb_logger, trainer.tensorboard_logger):
        if logger is not None:
            logger.close()
