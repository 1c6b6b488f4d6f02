"""OpenRLHF's own PPO trainers, with each step committed to dlrl and resumed from there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from openrlhf.trainer import ppo_trainer, ppo_trainer_async

from dlrl_adapter_kit.plain_json import from_plain, to_plain
from dlrl_core.workload.invocation import undecorated

PPOTrainer: Any = undecorated(ppo_trainer.PPOTrainer)
TrainingActor: Any = undecorated(ppo_trainer_async.TrainingActor)
GenerateSamplesActor: Any = undecorated(ppo_trainer_async.GenerateSamplesActor)
PPOTrainerAsync: Any = undecorated(ppo_trainer_async.PPOTrainerAsync)

_UNFINISHED = "samples_made_ahead"

_SHOWN = {
    "rollout/reward_mean": "reward",
    "policy_loss": "policy_loss",
    "critic_loss": "critic_loss",
    "kl": "kl",
    "rollout/response_length_mean": "response_length",
}


class Steps(Protocol):
    """What the PPO trainers tell the job of."""

    def began(self, global_step: int) -> None: ...

    def done(self, global_step: int, status: Mapping[str, Any], seconds: float) -> None: ...

    def commit_step(self, global_step: int, progress: dict[str, Any]) -> None: ...

    @property
    def resumed(self) -> Mapping[str, Any]: ...


class Committing:
    """A mixin for OpenRLHF's trainers: where they would save a checkpoint, the step is also committed."""

    _states: dict[str, Any] | None = None
    """What to resume from after the last step; None if there is no such place."""

    def __init__(self, *args: Any, steps: Steps, **kwargs: Any) -> None:
        self.steps = steps
        super().__init__(*args, **kwargs)

    def init_checkpoint_states(self) -> Any:
        """Where training goes on: after the last commit; without one, where OpenRLHF's own checkpoint says."""
        progress = self.steps.resumed
        if not progress:
            states = super().init_checkpoint_states()  # type: ignore[misc]
        else:
            states = from_plain(progress["client_states"])
            self.kl_ctl.value = progress["kl_coefficient"]  # type: ignore[attr-defined]
        self._step_began = time.time()
        self.steps.began(states["global_step"])
        return states

    def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any = None, client_states: Any = None) -> None:
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)  # type: ignore[misc]
        shown = {
            name: float(logs_dict[key])
            for key, name in _SHOWN.items()
            if isinstance((logs_dict or {}).get(key), int | float)
        }
        self.steps.done(global_step, shown, time.time() - self._step_began)
        self._states = self._resumable(client_states)
        if not self._is_evaluated_now(global_step):
            self._end_step(global_step)

    def save_best_checkpoint(self, eval_metrics: Any, global_step: int, client_states: Any = None) -> None:
        """An evaluation is over: what it found is committed with the step that it belongs to."""
        super().save_best_checkpoint(eval_metrics, global_step, client_states)  # type: ignore[misc]
        if self._is_evaluated_now(global_step):
            self._end_step(global_step)
        elif eval_metrics:
            self._commit()

    def _end_step(self, global_step: int) -> None:
        self._commit()
        self._step_began = time.time()
        self.steps.began(global_step)

    def _commit(self) -> None:
        if self._states is None:
            return
        states = {
            **self._states,
            "best_eval_metric_key": self.best_eval_metric_key,  # type: ignore[attr-defined]
            "best_eval_metric_value": self.best_eval_metric_value,  # type: ignore[attr-defined]
            "latest_eval_metric_value": self._latest_eval_metric_value,  # type: ignore[attr-defined]
        }
        kl = float(self.kl_ctl.value)  # type: ignore[attr-defined]
        self.steps.commit_step(states["global_step"], {"client_states": to_plain(states), "kl_coefficient": kl})

    def _is_evaluated_now(self, global_step: int) -> bool:
        """Whether OpenRLHF evaluates before it goes on after this step: then the step ends with that."""
        return bool(global_step % self.args.eval.steps == 0 and self.eval_dataloader)  # type: ignore[attr-defined]

    def _resumable(self, client_states: dict[str, Any]) -> dict[str, Any] | None:
        """What to resume from after this step; None if samples were made ahead that a commit does not hold."""
        return resumable(client_states, self.samples_generator)  # type: ignore[attr-defined]


class CommittingPPOTrainer(Committing, PPOTrainer):  # type: ignore[misc]
    """OpenRLHF's PPO trainer: one process drives all roles, step by step."""


class CommittingTrainingActor(Committing, TrainingActor):  # type: ignore[misc]
    """The training half of OpenRLHF's asynchronous trainer. What the generating half has ready is made again."""

    def _is_evaluated_now(self, global_step: int) -> bool:
        """The generating half evaluates, some steps later."""
        return False

    def _resumable(self, client_states: dict[str, Any]) -> dict[str, Any] | None:
        return None if client_states.pop(_UNFINISHED, False) else client_states


class MarkingGenerateSamplesActor(GenerateSamplesActor):  # type: ignore[misc]
    """The generating half. With each batch it says where to resume from after that batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_queue: Any = _MarkingQueue(kwargs["rollout_queue"], self.samples_generator)


class _MarkingQueue:
    """The queue to the training half, as the generating half sees it."""

    def __init__(self, queue: Any, generator: Any) -> None:
        self._queue = queue
        self._generator = generator

    def put(self, payload: Any, block: bool = True) -> None:
        if isinstance(payload, tuple) and isinstance(payload[1], dict) and payload[0] != "eval":
            samples, states, *rest = payload
            found = resumable(states, self._generator)
            payload = (samples, {**states, _UNFINISHED: True} if found is None else found, *rest)
        self._queue.put(payload, block=block)


def resumable(client_states: dict[str, Any], generator: Any) -> dict[str, Any] | None:
    """What to resume from after a step; None if samples were made ahead of it.

    A data loader that was read to its end starts its next round where it is loaded: that is the next episode.
    """
    if generator._sample_buffer:
        return None
    is_over = generator._dataloader_iter is None
    return {**client_states, "episode": client_states["episode"] + 1} if is_over else client_states
