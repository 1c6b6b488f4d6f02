"""verl's own PPO trainer, with each step committed to dlrl and resumed from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from omegaconf import open_dict
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils import tracking

from dlrl_adapter_kit.framework_seam import replaced
from dlrl_adapter_kit.plain_json import from_plain, to_plain

_LOOK_S = 1.0
_SHOWN = {
    "critic/score/mean": "reward",
    "actor/pg_loss": "policy_loss",
    "critic/vf_loss": "critic_loss",
    "actor/grad_norm": "grad_norm",
    "response_length/mean": "response_length",
    "timing_s/step": "seconds",
}


class Steps(Protocol):
    """What the PPO trainer tells the job of."""

    @property
    def resumed(self) -> Mapping[str, Any]: ...

    def began(self, global_step: int) -> None: ...

    def done(self, global_step: int, shown: Mapping[str, float], progress: dict[str, Any]) -> None: ...


class CommittingPPOTrainer(RayPPOTrainer):  # type: ignore[misc]
    """verl's trainer: where it would log a step, the step is also committed."""

    def __init__(self, *args: Any, steps: Steps, **kwargs: Any) -> None:
        self.steps = steps
        self._tracking: _StepTracking | None = None
        super().__init__(*args, **kwargs)

    def fit(self) -> None:
        """As verl's. It validates before training once, not whenever it is entered again."""
        with self._logging_to_steps(), self._validating_once():
            super().fit()

    def _load_checkpoint(self) -> Any:
        """Where training goes on: after the last commit; without one, where verl's own checkpoint says."""
        progress = self.steps.resumed
        found = None if progress else super()._load_checkpoint()
        if progress:
            self.global_steps = progress["global_step"]
            self._load_data_order(from_plain(progress["data"]))
            if self.config.algorithm.use_kl_in_reward:
                self.kl_ctrl_in_reward.value = progress["kl_coefficient"]
        self.steps.began(self.global_steps)
        return found

    def logged(self, metrics: Mapping[str, Any], step: int) -> None:
        """A step was logged, or a validation before the first."""
        if "training/global_step" not in metrics:
            return
        shown = {name: float(metrics[key]) for key, name in _SHOWN.items() if key in metrics}
        progress = {"global_step": step, "data": to_plain(self._data_order())}
        if self.config.algorithm.use_kl_in_reward:
            progress["kl_coefficient"] = float(self.kl_ctrl_in_reward.value)
        self.steps.done(step, shown, progress)
        self.steps.began(step)

    # ---- the order of the data

    def _data_order(self) -> dict[str, Any]:
        """Where in the data this step ends. At the end of a round, only the next one's order is of interest."""
        generator = getattr(self.train_dataloader.sampler, "generator", None)
        chance = None if generator is None else generator.get_state()
        if self.global_steps % len(self.train_dataloader) == 0:
            return {"chance": chance}
        return {"loader": self.train_dataloader.state_dict(), "chance": chance}

    def _load_data_order(self, order: dict[str, Any]) -> None:
        generator = getattr(self.train_dataloader.sampler, "generator", None)
        if "loader" in order:
            self.train_dataloader.load_state_dict(order["loader"])
        elif generator is not None:
            generator.set_state(order["chance"])

    # ---- what verl's `fit` meets on its way

    @contextmanager
    def _logging_to_steps(self) -> Iterator[None]:
        def make(*args: Any, **kwargs: Any) -> _StepTracking:
            if self._tracking is None:  # one log, however often this is entered
                self._tracking = _StepTracking(tracking_class(*args, **kwargs), self.logged)
            return self._tracking

        tracking_class = tracking.Tracking
        with replaced(tracking, Tracking=make):
            yield

    @contextmanager
    def _validating_once(self) -> Iterator[None]:
        settings = self.config.trainer
        before = settings.get("val_before_train", True)
        with open_dict(settings):
            settings.val_before_train = before and not self.steps.resumed
        try:
            yield
        finally:
            settings.val_before_train = before


class _StepTracking:
    """verl's loggers, and the job."""

    def __init__(self, loggers: Any, logged: Callable[[Mapping[str, Any], int], None]) -> None:
        self._loggers = loggers
        self._logged = logged

    def log(self, data: Mapping[str, Any], step: int, **kwargs: Any) -> None:
        self._loggers.log(data=data, step=step, **kwargs)
        self._logged(data, step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loggers, name)


class Watched:
    """A manager of verl's. While its long call goes on, the job looks after those whom other processes call for it."""

    def __init__(self, manager: Any, method: str, look_after: Callable[[], None]) -> None:
        self._manager = manager
        self._method = method
        self._look_after = look_after
        self.is_running = False
        self._working: Future[Any] | None = None
        self.abandon()

    def __getattr__(self, name: str) -> Any:
        return self._watched if name == self._method else getattr(self._manager, name)

    def abandon(self) -> None:
        """Whatever still goes on is of no use: another thread does what comes next."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"dlrl-{self._method}")

    def finish(self) -> None:
        """Wait for what still goes on; how it ends is of no interest."""
        while self._working is not None and not _is_done(self._working):
            self._look_after()

    def _watched(self, batch: Any) -> Any:
        self.is_running = True
        try:
            self._look_after()
            self._working = self._thread.submit(getattr(self._manager, self._method), batch)
            while not _is_done(self._working):
                self._look_after()
            return self._working.result()
        finally:
            self.is_running = False


def _is_done(future: Future[Any]) -> bool:
    try:
        future.exception(timeout=_LOOK_S)
    except TimeoutError:
        return False
    return True
