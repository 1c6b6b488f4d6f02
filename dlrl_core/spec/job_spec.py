"""JobSpec and RoleSpec: what the user asked, as frozen values that survive JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from dlrl_core.errors import SchemaError, SpecError
from dlrl_core.roles import RoleType
from dlrl_core.spec.class_ref import ClassRef
from dlrl_core.spec.config_value import ConfigValue

SCHEMA = 1
"""Number of the JobSpec format; raised when a reader of the old one would misunderstand the new one."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class RoleSpec(_Frozen):
    """One role: its class, how many workloads, and what each of them gets."""

    role: RoleType
    cls: ClassRef
    total: int = 1
    per_node: int | None = None
    """Workloads on each node that has any; None leaves it to the planner."""
    env: dict[str, str] = {}
    resource: dict[str, float] = {}
    """Ray resources of one workload, such as {"CPU": 2, "GPU": 0.5}; the planner fills what is not named."""


def _config_in(value: Any) -> ConfigValue:
    return value if isinstance(value, ConfigValue) else ConfigValue(value)


ConfigField = Annotated[
    ConfigValue, BeforeValidator(_config_in), PlainSerializer(lambda value: value.encoded, return_type=Any)
]


class JobSpec(_Frozen):
    """A whole job as asked. Built by RLJobBuilder or read from YAML; nothing in it is resolved yet."""

    spec_schema: int = SCHEMA
    framework: str | None = None
    node_num: int = 1
    device_per_node: int = 1
    device_type: str = "GPU"
    policy: str = "separate_sync"
    config: ConfigField = ConfigValue({})
    global_env: dict[str, str] = {}
    trainer: ClassRef | None = None
    roles: tuple[RoleSpec, ...] = ()
    collocations: tuple[tuple[RoleType, ...], ...] = ()
    """Groups of roles that share devices: rank i of each is on the same device."""

    def role(self, role: RoleType) -> RoleSpec | None:
        return next((spec for spec in self.roles if spec.role is role), None)

    def collocation_of(self, role: RoleType) -> tuple[RoleType, ...]:
        """The roles that share devices with this one, itself included; empty if it shares none."""
        return next((group for group in self.collocations if role in group), ())

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        try:
            plain = json.loads(text)
        except ValueError as error:
            raise SpecError([f"the job spec is not valid JSON: {error}"]) from error
        # Before anything else: what a newer dlrl wrote may have fields that would look like mistakes here.
        schema = plain.get("spec_schema", SCHEMA) if isinstance(plain, dict) else SCHEMA
        if isinstance(schema, int) and schema > SCHEMA:
            raise SchemaError(f"job spec has schema {schema}, this dlrl reads up to {SCHEMA}; use a newer dlrl")
        try:
            return cls.model_validate(plain)
        except ValidationError as error:
            raise SpecError(validation_problems(error)) from error


def validation_problems(error: ValidationError) -> list[str]:
    """Pydantic's findings in our words: where, and what is wrong there; values are left out, they may be secret."""
    return [
        f"'{'.'.join(str(part) for part in item['loc']) or 'the job'}': {item['msg'][:1].lower()}{item['msg'][1:]}"
        for item in error.errors(include_input=False, include_url=False)
    ]


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file as a plain mapping, interpolations unresolved; every failure names the file."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except OSError as error:
        raise SpecError([f"can't read '{path}': {error.strerror or error}"]) from error
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        where = " ".join(str(error).split())
        raise SpecError([f"'{path}' is not valid YAML: {where}"]) from error
    if not isinstance(plain, dict):
        raise SpecError([f"'{path}' holds a {type(plain).__name__}; it must be a mapping at the top"])
    return {str(key): value for key, value in plain.items()}
