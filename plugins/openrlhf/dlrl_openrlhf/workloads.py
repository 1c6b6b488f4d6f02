"""OpenRLHF's own models as workloads: each is the framework's class and a BaseWorkload."""

from __future__ import annotations

from typing import Any, ClassVar

import ray
from openrlhf.trainer.ray import launcher, ppo_actor, ppo_critic

from dlrl_adapter_kit.framework_seam import replaced
from dlrl_core import BaseWorkload
from dlrl_core.trainer import WorkloadHandle
from dlrl_core.workload.actors import GONE
from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_core.workload.invocation import undecorated
from dlrl_openrlhf import cpu, deepspeed_state
from dlrl_openrlhf.weight_group import end_group

PolicyModelActor: Any = undecorated(ppo_actor.PolicyModelActor)
CriticModelActor: Any = undecorated(ppo_critic.CriticModelActor)
ReferenceModelActor: Any = undecorated(launcher.ReferenceModelActor)
RewardModelActor: Any = undecorated(launcher.RewardModelActor)


class ModelWorkload(BaseWorkload):
    """A model on DeepSpeed: one rank of its role's process group."""

    reading_methods: ClassVar[frozenset[str]] = frozenset(
        {
            "forward",
            "append",  # to the replay buffer, which no commit holds
            "execute_batch",
            "empty_cache",
            "save_model",
            "save_checkpoint",
            "get_master_addr_port",
            "lacks_gpu",
            "job_and_run",
        }
    )
    """Methods that leave the trained state as it is, OpenRLHF's own included: a commit's copy goes on beside them."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        BaseWorkload.__init__(self, master_handle, config)
        launcher.BaseDistributedActor.__init__(
            self, self.world_size, self.rank, self.torch_master_addr, self.torch_master_port
        )

    def execute_batch(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """OpenRLHF's own: one call for each item of a batch, of 'forward' or 'append'."""
        if method_name not in self.reading_methods:
            raise ValueError(f"execute_batch of '{method_name}', which may change the state that is being copied")
        return super().execute_batch(method_name, *args, **kwargs)  # type: ignore[misc]

    def lacks_gpu(self) -> bool:
        """Whether the models of this job run without a GPU; the trainer's process never has one."""
        return cpu.is_needed()

    def job_and_run(self) -> tuple[str, str]:
        """The job's name, and what tells this run of it from all others."""
        return self._identity.job, self._identity.run_id


class ReferenceWorkload(ModelWorkload, ReferenceModelActor):  # type: ignore[misc]
    """The reference policy."""


class RewardWorkload(ModelWorkload, RewardModelActor):  # type: ignore[misc]
    """The reward model."""


class CriticWorkload(ModelWorkload, CriticModelActor):  # type: ignore[misc]
    """The critic. A commit holds what OpenRLHF's own checkpoint would, and the random states."""

    def capture_state(self) -> CapturedState:
        return deepspeed_state.capture(self.critic)

    def restore_state(self, saved: SavedState) -> None:
        deepspeed_state.restore(self.critic, saved, sleeps=self.strategy.args.ds.enable_sleep)
        self.trainer.replay_buffer.clear()


class ActorWorkload(ModelWorkload, PolicyModelActor):  # type: ignore[misc]
    """The policy. Rank 0 gives its weights to the engines, and gets along without one that dies meanwhile."""

    reading_methods = ModelWorkload.reading_methods | {"broadcast_to_vllm", "meet_engines", "get_checkpoint_states"}
    _met: tuple[str, ...] = ()

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        super().init_model_from_pretrained(*args, **kwargs)
        self._met = _ids(self.vllm_engines or [])

    def meet_engines(self, engines: list[WorkloadHandle]) -> bool:
        """Make one group with these engines, for weights to go through; False if it is there already."""
        if self._met == _ids(engines):
            return False
        self._leave_engines()
        self.vllm_engines = self.trainer.vllm_engines = engines
        if self.rank == 0 and not self.trainer.use_cuda_ipc:
            with _EngineDeath(engines) as death:
                self.trainer._init_vllm_sync_group(self.strategy.args.vllm.sync_backend)
            if death.happened:
                self._leave_engines()
                return True
        self._met = _ids(engines)
        return True

    def _leave_engines(self) -> None:
        """There is no group with engines any more, and nobody to give weights to."""
        end_group(getattr(self.trainer, "_model_update_group", None))
        self.trainer._model_update_group = None
        self.trainer.vllm_engines = []
        self._met = ()

    def broadcast_to_vllm(self) -> None:
        """Give the weights to all engines. One that dies on the way is noticed by whoever calls it next."""
        if self.rank != 0 or self.trainer.use_cuda_ipc:
            super().broadcast_to_vllm()
            return
        way = _WayToEngines(self)
        try:
            with replaced(ppo_actor, ray=way):
                super().broadcast_to_vllm()
        finally:
            way.leave()

    def capture_state(self) -> CapturedState:
        return deepspeed_state.capture(self.actor.model, ema=self.ema_model)

    def restore_state(self, saved: SavedState) -> None:
        sleeps = self.strategy.args.ds.enable_sleep
        deepspeed_state.restore(self.actor.model, saved, ema=self.ema_model, sleeps=sleeps)
        self.trainer.replay_buffer.clear()


class _EngineDeath:
    """Errors in here are forgiven if an engine died; else they are raised."""

    def __init__(self, engines: list[WorkloadHandle]) -> None:
        self._engines = engines
        self.happened = False

    def __enter__(self) -> _EngineDeath:
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> bool:
        self.happened = error is not None and any(_is_gone(engine) for engine in self._engines)
        return self.happened


class _WayToEngines:
    """The group that weights go through, and Ray as OpenRLHF's policy uses it meanwhile.

    When an engine is lost, the group is left: those that wait for weights in it fail at once. The other ranks go on
    through all parameters, so rank 0 does too, with nobody to give them to.
    """

    def __init__(self, actor: ActorWorkload) -> None:
        self._actor = actor
        self._engines = actor.trainer.vllm_engines
        self._group, actor.trainer._model_update_group = actor.trainer._model_update_group, self

    def broadcast(self, *args: Any, **kwargs: Any) -> None:
        with _EngineDeath(self._engines) as death:
            if self._group is not None:
                self._group.broadcast(*args, **kwargs)
        self._note(death)

    def get(self, refs: Any) -> Any:
        results = None
        with _EngineDeath(self._engines) as death:
            results = ray.get(refs)
        self._note(death)
        return results

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def _note(self, death: _EngineDeath) -> None:
        if death.happened:
            end_group(self._group)
            self._group = None
            self._actor.trainer.vllm_engines = []
            self._actor._met = ()

    def leave(self) -> None:
        self._actor.trainer._model_update_group = self._group


def _ids(engines: list[WorkloadHandle]) -> tuple[str, ...]:
    return tuple(engine.ray_actor._actor_id.hex() for engine in engines)


def _is_gone(engine: WorkloadHandle) -> bool:
    try:
        ray.get(engine.ray_actor.ping.remote(), timeout=10)
    except GONE:
        return True
    except ray.exceptions.GetTimeoutError:
        return False
    return False
