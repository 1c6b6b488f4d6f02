"""Who is in a verl job: trainer, roles, counts, and who shares devices, as verl's own task runner would have it.

verl has one pool of devices for actor, critic and rollout servers. Rewards are computed by a function, without any
device, or by a reward model, whose servers share that pool or have one of their own.
The reference has no processes of its own: it is a second model in the actor's, or the actor without its adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlrl_core.plugin import FrameworkDefaults, RoleDefaults
from dlrl_core.roles import RoleType
from dlrl_core.spec.role_values import ClassRef, FailoverScope
from dlrl_verl.config import Settings
from dlrl_verl.config.environment import env_of
from dlrl_verl.state_size import ACTOR, CRITIC, state_size

_CALLS_AT_ONCE = 1000
"""Of one server: each prompt is a call. verl gives its servers as many."""

_HANG_LIMIT = 4 * 3600.0
"""Longer than any call. verl gives up a collective after its `nccl_timeout`, but a server's engine has no limit."""

_DEVICES = {"npu": "NPU"}
"""verl's words for devices that Ray does not call GPU. Without any, Ray's GPUs are counted all the same."""


def job_of(config: Mapping[str, Any]) -> FrameworkDefaults:
    """The whole job for a config that `read` returned."""
    settings = Settings(config)
    shared = _shared(settings)
    own_nodes, own_devices = settings.reward_pool
    apart = {} if RoleType.REWARD in shared else {RoleType.REWARD: _rewards(settings)}
    return FrameworkDefaults(
        trainer=ClassRef(module="dlrl_verl.trainer", class_name="VerlTrainer"),
        roles={**shared, **apart},
        node_num=settings.number("trainer.nnodes") + own_nodes,
        device_per_node=max(settings.number("trainer.n_gpus_per_node"), own_devices),
        device_type=_device_type(settings),
        with_collocation=(tuple(role.value for role in shared),),
        global_env=env_of(settings),
    )


def _shared(settings: Settings) -> dict[RoleType, RoleDefaults]:
    """Roles of the global pool: one workload for each device, rank i of each role on the same one."""
    roles = {RoleType.ACTOR: _model(settings, ACTOR, "dlrl_verl.policy", "ActorWorkload")}
    if settings.has_critic:
        roles[RoleType.CRITIC] = _model(settings, CRITIC, "dlrl_verl.workloads", "CriticWorkload")
    per_node = settings.number("trainer.n_gpus_per_node")
    roles[RoleType.ROLLOUT] = _servers("RolloutWorkload", settings.devices, per_node)
    if settings.has_reward_model and not settings.reward_pool[0]:
        roles[RoleType.REWARD] = _servers("RewardModelWorkload", settings.devices, per_node)
    return roles


def _model(settings: Settings, section: str, module: str, class_name: str) -> RoleDefaults:
    """The ranks of a trained model are one group, and have a state."""
    return RoleDefaults(
        cls=ClassRef(module=module, class_name=class_name),
        total=settings.devices,
        per_node=settings.number("trainer.n_gpus_per_node"),
        failover=FailoverScope.ROLE,
        hang_limit=_HANG_LIMIT,
        state_size=state_size(settings, section),
    )


def _servers(class_name: str, total: int, per_node: int) -> RoleDefaults:
    """A server over several devices is run by the first workload of its devices."""
    return RoleDefaults(
        cls=ClassRef(module="dlrl_verl.rollout", class_name=class_name),
        total=total,
        per_node=per_node,
        failover=FailoverScope.WORKLOAD,
        hang_limit=_HANG_LIMIT,
        concurrency=_CALLS_AT_ONCE,
    )


def _rewards(settings: Settings) -> RoleDefaults:
    """Those who compute rewards by a function need no device; a model with a pool of its own has that."""
    nodes, each = settings.reward_pool
    if nodes:
        return _servers("RewardModelWorkload", nodes * each, each)
    return RoleDefaults(
        cls=ClassRef(module="dlrl_verl.reward", class_name="RewardWorkload"),
        total=settings.number("reward.num_workers"),
        resource={_device_type(settings): 0},
        failover=FailoverScope.WORKLOAD,
        concurrency=_CALLS_AT_ONCE,
    )


def _device_type(settings: Settings) -> str:
    return _DEVICES.get(str(settings["trainer.device"]), "GPU")
