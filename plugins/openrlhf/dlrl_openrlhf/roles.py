"""Who is in an OpenRLHF job: trainer, roles, counts, and who shares devices, as its own `train` would have it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from dlrl_core.plugin import FrameworkDefaults, RoleDefaults
from dlrl_core.roles import RoleType
from dlrl_core.spec.role_values import ClassRef, FailoverScope
from dlrl_openrlhf.config import RUNTIME_ENV, Settings, flat, known_flags
from dlrl_openrlhf.state_size import state_size

_ROLES = {
    "actor": RoleType.ACTOR,
    "ref": RoleType.REFERENCE,
    "critic": RoleType.CRITIC,
    "reward": RoleType.REWARD,
    "vllm": RoleType.ROLLOUT,
}
"""OpenRLHF's words for the roles."""

_PROMPTS_AT_ONCE = 512
"""Of one engine: each prompt is a call. vLLM itself takes 256 sequences at a time, unless told otherwise."""

_HANG_LIMIT = 4 * 3600.0
"""Longer than any call. OpenRLHF gives up a collective after an hour, but the group for weights has no limit."""

_ENV = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}

_USUAL_NODE = 8
"""Devices of a node where the config does not tell; also OpenRLHF's default for each model."""


def job_of(config: Mapping[str, Any]) -> FrameworkDefaults:
    """The whole job for a config that `read` returned."""
    settings = Settings(known_flags(), flat(config))
    groups = [[_ROLES[name] for name in group] for group in settings.shared_devices]
    totals = _totals(settings)
    is_engine_alone = not any(RoleType.ROLLOUT in group for group in groups)
    devices = sum(totals.values()) - sum(totals[role] for group in groups for role in group[1:])
    per_node = _devices_of_a_node(settings, devices)
    env = {**_usual_env(), **config.get(RUNTIME_ENV, {}).get("env_vars", {})}
    return FrameworkDefaults(
        trainer=ClassRef(module="dlrl_openrlhf.trainer", class_name="OpenRLHFTrainer"),
        roles={role: _role(settings, role, total) for role, total in totals.items() if role is not RoleType.ROLLOUT}
        | {RoleType.ROLLOUT: _engines(settings, is_alone=is_engine_alone)},
        node_num=math.ceil(devices / per_node),
        device_per_node=per_node,
        with_collocation=tuple(tuple(role.value for role in group) for group in groups),
        global_env=env,
    )


def _usual_env() -> dict[str, str]:
    """What OpenRLHF's `train` gives to all processes, unless whoever starts it has it otherwise."""
    return {name: os.environ.get(name, value) for name, value in _ENV.items()}


def _totals(settings: Settings) -> dict[RoleType, int]:
    """How many devices each role has."""
    trained = {_ROLES[section]: settings.processes(section) for section in settings.sections}
    return {**trained, RoleType.ROLLOUT: settings.engine_devices}


def _engines(settings: Settings, *, is_alone: bool) -> RoleDefaults:
    """One workload for each engine; where engines share devices with models, one for each device of an engine."""
    devices, engines = settings.engine_devices, int(settings["vllm.num_engines"])
    size = devices // engines
    return RoleDefaults(
        cls=ClassRef(module="dlrl_openrlhf.rollout", class_name="RolloutWorkload"),
        total=engines if is_alone else devices,
        resource={"GPU": size} if is_alone and size > 1 else {},
        failover=FailoverScope.WORKLOAD,
        hang_limit=_HANG_LIMIT,
        concurrency=_PROMPTS_AT_ONCE,
    )


def _role(settings: Settings, role: RoleType, total: int) -> RoleDefaults:
    is_trained = role in (RoleType.ACTOR, RoleType.CRITIC)
    return RoleDefaults(
        cls=ClassRef(module="dlrl_openrlhf.workloads", class_name=f"{role.value.title()}Workload"),
        total=total,
        failover=_scope(role, total),
        hang_limit=_HANG_LIMIT,
        state_size=state_size(settings, role.value) if is_trained else None,
    )


def _scope(role: RoleType, total: int) -> FailoverScope:
    """A model of several ranks is one group of DeepSpeed, and what is trained has a state."""
    is_alone = total == 1 and role in (RoleType.REFERENCE, RoleType.REWARD)
    return FailoverScope.WORKLOAD if is_alone else FailoverScope.ROLE


def _devices_of_a_node(settings: Settings, devices: int) -> int:
    """A model on several nodes fills them. Else one node if it is of a usual size, or usual nodes."""
    largest = max(int(settings[f"{section}.num_gpus_per_node"]) for section in settings.sections)
    is_spread = any(settings[f"{section}.num_nodes"] > 1 for section in settings.sections)
    return largest if is_spread else max(largest, min(devices, _USUAL_NODE))
