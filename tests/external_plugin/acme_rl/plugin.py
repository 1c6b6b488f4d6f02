"""Registers acme with dlrl."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dlrl_core import RoleType, hookimpl
from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigSource, FrameworkAdapter, FrameworkDefaults, RoleDefaults
from dlrl_core.spec import ClassRef, JobSpec
from dlrl_core.spec.role_values import FailoverScope

DLRL_API_VERSION = 2

PREPARED_FOR = "ACME_PREPARED_FOR"

DEFAULTS = {
    "steps": 20,
    "lr": 0.5,
    "batch": 8,
    "goal": 2.0,
    "pull_s": 0.0,
    "save_to": None,
    "resume": False,
    "roles": {"actor": 1, "rollout": 1},
}

SCOPES = {RoleType.ACTOR: FailoverScope.ROLE, RoleType.ROLLOUT: FailoverScope.WORKLOAD}


@hookimpl
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    return [AcmeAdapter]


@hookimpl
def dlrl_policies() -> dict[str, Callable[[JobSpec], JobSpec]]:
    return {"acme_pair": acme_pair}


@hookimpl
def dlrl_commands() -> dict[str, str]:
    return {"acme-defaults": "acme_rl.extras:defaults"}


@hookimpl
def dlrl_detectors() -> dict[str, str]:
    return {"acme": "acme_rl.extras:no_findings"}


@hookimpl
def dlrl_event_sinks() -> dict[str, str]:
    return {"acme": "acme_rl.extras:keep_event"}


@hookimpl
def dlrl_doctor_checks() -> dict[str, str]:
    return {"acme goal": "acme_rl.extras:check_goal"}


@hookimpl
def dlrl_plan_formats() -> dict[str, str]:
    return {"csv": "acme_rl.extras:csv_of"}


@hookimpl
def dlrl_plan_advisers() -> dict[str, str]:
    return {"acme": "acme_rl.extras:rent"}


def acme_pair(spec: JobSpec) -> JobSpec:
    """Each rollout on the device of its actor; other roles have devices of their own."""
    pair = (RoleType.ACTOR, RoleType.ROLLOUT)
    if spec.with_collocation or any(spec.role(role) is None for role in pair):
        return spec
    return spec.model_copy(update={"with_collocation": (pair,)})


class AcmeAdapter(FrameworkAdapter):
    """acme comes with its adapter, so it names no other distribution and is always available."""

    name = "acme"
    description = "policy gradient on a bandit with one arm for each real number"

    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        """The user's values over acme's own, from a mapping, a YAML file or words such as `steps=3`."""
        base = OmegaConf.create(DEFAULTS)
        OmegaConf.set_struct(base, True)
        try:
            merged = OmegaConf.merge(base, _given(source))
            config = cast(dict[str, Any], OmegaConf.to_container(merged, resolve=True))
        except (OSError, ValueError, OmegaConfBaseException) as error:
            raise SpecError([f"acme can't read its config: {str(error).splitlines()[0]}"]) from error
        if problems := list(_problems(config)):
            raise SpecError(problems)
        return config

    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        totals = {RoleType(role): total for role, total in config["roles"].items()}
        return FrameworkDefaults(
            trainer=_ref("AcmeTrainer"),
            roles={
                role: RoleDefaults(cls=_ref(f"Acme{role.value.title()}"), total=total, failover=SCOPES[role])
                for role, total in totals.items()
            },
            node_num=1,
            device_per_node=sum(totals.values()),
            device_type="CPU",
        )

    def prepare_process(self, role: RoleType | None) -> None:
        os.environ[PREPARED_FOR] = role.value if role else "trainer"


def _given(source: ConfigSource) -> Any:
    if isinstance(source.value, Path):
        return OmegaConf.load(source.value)
    if isinstance(source.value, tuple):
        return OmegaConf.from_dotlist(list(source.value))
    return source.value


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    counts = {"steps": config["steps"], "batch": config["batch"]}
    counts |= {f"roles.{role}": total for role, total in config["roles"].items()}
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            yield f"acme has {name}={count!r}; it must be a number from 1 on"


def _ref(name: str) -> ClassRef:
    return ClassRef(module="acme_rl.roles", class_name=name)
