"""All checks of a spec that need neither a cluster nor the user's classes.

Each rule is a generator of problems; `problems_of` runs them all, so that a user sees everything at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from dlrl_core.roles import RoleType
from dlrl_core.spec.job_spec import JobSpec
from dlrl_core.spec.placement_rules import PLACEMENT_RULES

DEVICE_TYPES = ("GPU", "NPU", "CPU")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def problems_of(spec: JobSpec) -> list[str]:
    """Every problem of the spec, in the order a reader of the job would meet them; empty if there is none."""
    rules = (_shape, _mandatory_parts, _roles, *PLACEMENT_RULES, _environments)
    return [problem for rule in rules for problem in rule(spec)]


def check_name(name: str) -> list[str]:
    """Problems of a job's name. Names end up in actor names, paths and keys."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    return [f"job name {name!r} is not allowed; use 1 to 63 letters, digits, '.', '_', '-', a letter or digit first"]


def _shape(spec: JobSpec) -> Iterator[str]:
    if spec.node_num < 1:
        yield f"node_num is {spec.node_num}; it must be at least 1"
    if spec.device_per_node < 1:
        yield f"device_per_node is {spec.device_per_node}; it must be at least 1"
    if spec.spare_nodes < 0:
        yield f"spare_nodes is {spec.spare_nodes}; it must be at least 0"
    if spec.device_type not in DEVICE_TYPES:
        yield f"device_type is '{spec.device_type}'; it must be one of {', '.join(DEVICE_TYPES)}"


def _mandatory_parts(spec: JobSpec) -> Iterator[str]:
    if spec.trainer is None:
        yield "the job has no trainer; call .trainer(module, class) or .framework(name)"
    if spec.role(RoleType.ACTOR) is None:
        yield "the job has no role 'actor', which is mandatory; call .actor(module, class) or .framework(name)"


def _roles(spec: JobSpec) -> Iterator[str]:
    for role, times in Counter(role.role for role in spec.roles).items():
        if times > 1:
            yield f"role '{role}' is given {times} times; give it once"


def _environments(spec: JobSpec) -> Iterator[str]:
    yield from _environment("global_env", spec.global_env)
    for role in spec.roles:
        yield from _environment(f"env of role '{role.role}'", role.env)
        for part in role.parts:
            yield from _environment(f"env of part '{role.role}.{part.name}'", part.env)


def _environment(owner: str, env: dict[str, str]) -> Iterator[str]:
    for key, value in env.items():
        if not key or "=" in key or "\0" in key:
            yield f"{owner} has the key {key!r}; a name of an environment variable is not empty and has no '='"
        if "\0" in value:
            yield f"{owner} has a NUL character in '{key}'"
