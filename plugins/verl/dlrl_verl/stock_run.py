"""verl's own `TaskRunner.run(config)`, up to the point where it would train, with workloads in the place of workers.

It makes tokenizer, data sets and trainer, and has every model loaded, in its own order and with its own arguments.
What it would start is here already: each name by which it starts something gives it a role instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig
from verl.checkpoint_engine import base as checkpoint_engine
from verl.experimental.agent_loop import agent_loop
from verl.experimental.reward_loop import reward_loop
from verl.trainer import main_ppo_v0
from verl.trainer.ppo import ray_trainer
from verl.trainer.ppo.utils import need_critic, need_reference_policy, need_reward_model
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device
from verl.workers.rollout import llm_server, router

from dlrl_adapter_kit.framework_seam import Member, PatchedRay, RemoteStub, replaced
from dlrl_core.roles import RoleType
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.workload.invocation import undecorated
from dlrl_verl.helpers import RestartingRay, carried
from dlrl_verl.ppo import CommittingPPOTrainer, Steps
from dlrl_verl.reward_model import RewardModel
from dlrl_verl.servers import replica_class
from dlrl_verl.steady_handle import SteadyHandle
from dlrl_verl.worker_group import WorkerGroups

TaskRunner: Any = undecorated(main_ppo_v0.TaskRunner)

_ROLES = {
    "actor_rollout": RoleType.ACTOR,
    "actor_rollout_ref": RoleType.ACTOR,
    "critic": RoleType.CRITIC,
}
"""verl's names of those that have workers."""


class StockRun:
    """What verl's `run` has set up."""

    def __init__(self, groups: Mapping[RoleType, RoleGroup], config: DictConfig, steps: Steps) -> None:
        self.groups = groups
        self.config = config
        self._steps = steps
        self._job, _ = groups[RoleType.ACTOR].job_and_run()[0]
        self.reward_model = RewardModel(self._job, groups[RoleType.REWARD]) if need_reward_model(config) else None
        self.trainer: CommittingPPOTrainer

    def set_up(self) -> None:
        """Run it until every model is loaded and every server answers."""
        config = self.config
        auto_set_device(config)
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
        workers = WorkerGroups({name: self.groups[role] for name, role in _ROLES.items() if role in self.groups})
        with (
            self.through_roles(),
            replaced(main_ppo_v0, RayPPOTrainer=self._make_trainer(workers)),
            replaced(ray_trainer, ResourcePoolManager=_PlacedPools, create_colocated_worker_cls=_class_dict),
            replaced(llm_server, get_rollout_replica_class=self._replica_class),
            self._rewards(),
            replaced(agent_loop, ray=RestartingRay()),
            replaced(router, ray=RestartingRay()),
            carried(router),
        ):
            TaskRunner().run(config)
        if self.reward_model is not None:
            self.reward_model.manager = self.trainer.reward_loop_manager.reward_model_manager
        for call in workers.building:
            call.get()

    @contextlib.contextmanager
    def through_roles(self) -> Iterator[None]:
        """verl's trainer code calls role groups."""
        with replaced(checkpoint_engine, ray=PatchedRay()):
            yield

    def _make_trainer(self, workers: WorkerGroups) -> Any:
        def make(**kwargs: Any) -> _TrainerAtStart:
            self.trainer_kwargs = {**kwargs, "ray_worker_group_cls": workers}
            self.trainer = CommittingPPOTrainer(steps=self._steps, **self.trainer_kwargs)
            return _TrainerAtStart(self.trainer)

        return make

    def _rewards(self) -> AbstractContextManager[None]:
        """The reward role is the servers of a model, or those who call a function."""
        if self.reward_model is not None:
            return self.reward_model.in_the_role()
        return replaced(reward_loop, ray=_RewardRay(self._job, self.groups[RoleType.REWARD]))

    def _replica_class(self, rollout: str, disaggregation_enabled: bool = False) -> type:
        if rollout != "vllm" or disaggregation_enabled:
            raise ValueError(f"dlrl runs verl's rollouts on 'vllm' in one piece, not on '{rollout}'")
        places = self.groups[RoleType.ACTOR].place()
        return replica_class(self._job, self.groups[RoleType.ROLLOUT], places)


class _PlacedPools(ray_trainer.ResourcePoolManager):  # type: ignore[misc]
    """verl's resource pools, which dlrl has placed."""

    def create_resource_pool(self) -> None:
        self.resource_pool_dict = {name: _Pool(name, sum(each)) for name, each in self.resource_pool_spec.items()}


@dataclass(frozen=True)
class _Pool:
    name: str
    world_size: int


def _class_dict(class_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stands for what makes one class of all workers of a pool: here each has a process of its own."""
    return class_dict


class _RewardRay(PatchedRay):
    """Ray, as verl's reward loop uses it: its workers are the reward role."""

    def __init__(self, job: str, rewards: RoleGroup) -> None:
        self._job = job
        self._rewards = rewards
        self._started = 0

    def remote(self, _: Any) -> RemoteStub:
        return RemoteStub(self._start)

    def _start(self, *args: Any) -> Any:
        member = Member(self._rewards, self._started)
        self._started += 1
        member.build.remote(*args).get()
        return SteadyHandle(member.handle.name, self._job)


class _TrainerAtStart:
    """The trainer as `run` sees it: it starts its workers, and then it would train."""

    def __init__(self, trainer: CommittingPPOTrainer) -> None:
        self.init_workers = trainer.init_workers

    def fit(self) -> None: ...
