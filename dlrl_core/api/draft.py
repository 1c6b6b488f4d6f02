"""What a builder has been told so far, with everything that is already known to be wrong."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, VisibleDevices
from dlrl_core.spec.job_spec import CommitSpec, RestartBudget, validation_problems
from dlrl_core.spec.survival import FailoverScope

_Choice = TypeVar("_Choice", bound=enum.StrEnum)
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(kw_only=True)
class RequestDraft:
    """Counts and places as told. None means: not told, so a framework's or our own default counts."""

    owner: str
    """What to call it in a sentence, such as "role 'actor'"."""
    total: int | None = None
    min_total: int | None = None
    per_node: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    resource: dict[str, float] = field(default_factory=dict)
    node_labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    spread_over: str | None = None
    pack_into: str | None = None


@dataclass(kw_only=True)
class RoleDraft(RequestDraft):
    """One role as told."""

    role: RoleType
    cls: ClassRef | None = None
    visible_devices: VisibleDevices | None = None
    failover: FailoverScope | None = None
    hang_limit: float | None = None
    concurrency: int | None = None
    parts: dict[str, RequestDraft] = field(default_factory=dict)

    @classmethod
    def of(cls, role: RoleType) -> RoleDraft:
        return cls(role=role, owner=f"role '{role}'")

    def part(self, name: str) -> RequestDraft:
        return self.parts.setdefault(name, RequestDraft(owner=f"part '{self.role}.{name}'"))


@dataclass
class JobDraft:
    """A whole job as told."""

    framework: str | None = None
    config: Any = None
    overrides: list[str] = field(default_factory=list)
    node_num: int | None = None
    device_per_node: int | None = None
    device_type: str | None = None
    spare_nodes: int | None = None
    budget: RestartBudget | None = None
    commits: CommitSpec | None = None
    allow_chaos: bool = False
    policy: str | None = None
    global_env: dict[str, str] = field(default_factory=dict)
    trainer: ClassRef | None = None
    roles: dict[RoleType, RoleDraft] = field(default_factory=dict)
    with_collocation: list[tuple[str, ...]] = field(default_factory=list)
    with_host_collocation: list[tuple[str, ...]] = field(default_factory=list)
    without_collocation: list[tuple[str, ...]] = field(default_factory=list)
    collocate_all: bool = False
    problems: list[str] = field(default_factory=list)

    def role(self, role: RoleType) -> RoleDraft:
        """What has been told of this role."""
        return self.roles.setdefault(role, RoleDraft.of(role))

    def count(self, name: str, value: Any) -> int | None:
        """A whole number; anything else is a problem. Its range is checked with the whole spec."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.problems.append(f"{name} is {value!r}; it must be a whole number")
        return None

    def text(self, name: str, value: Any) -> str | None:
        if isinstance(value, str) and value:
            return value
        self.problems.append(f"{name} is {value!r}; it must be a text that is not empty")
        return None

    def class_ref(self, owner: str, module: Any, class_name: Any) -> ClassRef | None:
        module_text = self.text(f"module of {owner}", module)
        class_text = self.text(f"class of {owner}", class_name)
        if module_text is None or class_text is None:
            return None
        return ClassRef(module=module_text, class_name=class_text)

    def environment(self, owner: str, env: Any) -> dict[str, str]:
        """Environment variables: names and texts; numbers are written out, anything else is a problem."""
        if not isinstance(env, Mapping):
            self.problems.append(f"{owner} is a {type(env).__name__}; it must be a mapping of names to texts")
            return {}
        kept = {}
        for key, value in env.items():
            if not isinstance(key, str):
                self.problems.append(f"{owner} has the key {key!r}; a name of an environment variable is a text")
            elif isinstance(value, bool) or not isinstance(value, str | int | float):
                self.problems.append(
                    f"{owner} has a {type(value).__name__} for '{key}'; an environment variable is a text or a number"
                )
            else:
                kept[key] = str(value)
        return kept

    def resources(self, owner: str, resource: Any) -> dict[str, float]:
        if not isinstance(resource, Mapping):
            self.problems.append(f"{owner} is a {type(resource).__name__}; it must be a mapping such as {{'CPU': 2}}")
            return {}
        kept = {}
        for name, said in resource.items():
            amount = _number(said)
            is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not isinstance(name, str) or not is_number or math.isnan(amount):
                self.problems.append(f"{owner} has {name!r}: {said!r}; it must be a resource's name and a number")
            else:
                kept[name] = float(amount)
        return kept

    def labels(self, owner: str, labels: Any) -> dict[str, tuple[str, ...]]:
        """Node labels: of each, the value or the values that will do."""
        if not isinstance(labels, Mapping):
            self.problems.append(f"{owner} is a {type(labels).__name__}; it must be a mapping such as {{'rack': 'r7'}}")
            return {}
        kept = {}
        for label, said in labels.items():
            values = tuple(said) if isinstance(said, list | tuple | set) else (said,)
            if not isinstance(label, str) or not values or not all(isinstance(value, str) for value in values):
                self.problems.append(f"{owner} has {label!r}: {said!r}; it must be a label and a text, or several")
            else:
                kept[label] = values
        return kept

    def choice(self, name: str, value: Any, choices: type[_Choice]) -> _Choice | None:
        try:
            return choices(str(value).lower())
        except ValueError:
            known = ", ".join(f"'{one}'" for one in choices)
            self.problems.append(f"{name} is {value!r}; it must be one of {known}")
            return None

    def seconds(self, name: str, value: Any) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
        self.problems.append(f"{name} is {value!r}; it must be a number of seconds greater than 0")
        return None

    def model(self, name: str, model: type[_Model], fields: Mapping[str, Any]) -> _Model | None:
        """A part of the spec that is told by its fields."""
        try:
            return model(**fields)
        except ValidationError as error:
            self.problems += [f"{name}: {problem}" for problem in validation_problems(error)]
            return None

    def seat_named(self, name: Any) -> str | None:
        """The full name of a role, or of a part of one, such as 'rollout.decode'."""
        role, dot, part = str(name).partition(".")
        found = self.role_named(role)
        return None if found is None else f"{found.value}{dot}{part.lower()}"

    def role_named(self, name: Any) -> RoleType | None:
        import difflib

        try:
            return RoleType(str(name).lower())
        except ValueError:
            roles = [str(role) for role in RoleType]
            close = difflib.get_close_matches(str(name).lower(), roles, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"roles are: {', '.join(roles)}"
            self.problems.append(f"unknown role '{name}'; {hint}")
            return None


def _number(said: Any) -> Any:
    """A number, also where it is written as a fraction, such as '1/3'."""
    if not isinstance(said, str):
        return said
    try:
        return float(Fraction(said))
    except (ValueError, ZeroDivisionError):
        return said
