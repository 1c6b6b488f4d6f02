"""JobSpec and RoleSpec: what the user asked, as frozen values that survive JSON."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from dlrl_core.errors import SchemaError, SpecError
from dlrl_core.roles import RoleType
from dlrl_core.spec.class_ref import ClassRef
from dlrl_core.spec.config_value import ConfigValue
from dlrl_core.spec.survival import FailoverScope

SCHEMA = 2
"""Number of the JobSpec format; raised when a reader of the old one would misunderstand the new one."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class VisibleDevices(enum.StrEnum):
    """Which devices a workload's process sees, as CUDA_VISIBLE_DEVICES or its relative."""

    OWN = "own"
    """Those it was given alone: its first device has index 0, whatever its local_rank."""
    ROLE = "role"
    """Those of its role on its node, in the order of local_rank: the device of index local_rank is its own."""
    NODE = "node"
    """All of the node: neither Ray nor dlrl touches the variable."""


class PlacementRequest(_Frozen):
    """How many workloads, what each of them gets, and on which nodes they may sit."""

    total: int = 1
    """How many are wanted."""
    min_total: int | None = None
    """How few will do when the cluster has no room for all; None: all or nothing."""
    per_node: int | None = None
    """Workloads on each node that has any; None leaves it to the planner."""
    env: dict[str, str] = {}
    resource: dict[str, float] = {}
    """Ray resources of one workload, such as {"CPU": 2, "GPU": 0.5}; the planner fills what is not named."""
    node_labels: dict[str, tuple[str, ...]] = {}
    """Only nodes with these labels; of each label, one of the values."""
    spread_over: str | None = None
    """A node label, such as a rack: as evenly as possible over its values."""
    pack_into: str | None = None
    """A node label: all workloads on nodes with one and the same value."""


class RestartBudget(_Frozen):
    """How often something may be restarted within a time, before more of the job is restarted instead."""

    workload: int = Field(default=3, ge=0)
    role: int = Field(default=3, ge=0)
    job: int = Field(default=3, ge=0)
    """After this many restarts of the whole job, the next one stops it."""
    node: int = Field(default=3, ge=0)
    """A node on which this many processes died is not used again; 0: it always is."""
    window_s: float = Field(default=3600.0, gt=0)
    backoff_s: float = Field(default=1.0, ge=0)
    """Wait before the second restart of the same process; doubled with each further one."""


class CommitSpec(_Frozen):
    """How commits are kept."""

    durable_every: int = Field(default=10, ge=1)
    """Each so many commits are copied to durable storage."""
    state_folder: str | None = None
    """Durable storage that all nodes reach; None: below DLRL_HOME."""


class PartSpec(PlacementRequest):
    """A named part of a role, such as 'prefill' of a rollout, with its own count and place."""

    name: str


class RoleSpec(PlacementRequest):
    """One role: its class, how many workloads, and what each of them gets."""

    role: RoleType
    cls: ClassRef
    parts: tuple[PartSpec, ...] = ()
    """If there are any, each workload of the role is in one of them, and `total` is their sum."""
    visible_devices: VisibleDevices = VisibleDevices.OWN
    failover: FailoverScope | None = None
    """How much restarts when one of its processes dies; None: the whole job."""
    hang_limit: float | None = None
    """A call that takes longer than this is taken for dead; None: it may take as long as it likes."""
    concurrency: int = Field(default=32, ge=1)
    """How many calls of `async def` methods one workload runs side by side; more wait."""

    @property
    def placement_requests(self) -> dict[str, PlacementRequest]:
        """The role's parts by their full names, such as 'rollout.prefill'; a role without parts by its own.

        What a part does not say is as the role says it.
        """
        if not self.parts:
            return {self.role.value: self}
        return {f"{self.role.value}.{part.name}": _filled(part, self) for part in self.parts}


def _filled(part: PartSpec, role: RoleSpec) -> PlacementRequest:
    return part.model_copy(
        update={
            "per_node": part.per_node if part.per_node is not None else role.per_node,
            "env": {**role.env, **part.env},
            "resource": {**role.resource, **part.resource},
            "node_labels": {**role.node_labels, **part.node_labels},
            "spread_over": part.spread_over or role.spread_over,
            "pack_into": part.pack_into or role.pack_into,
        }
    )


def _config_in(value: Any) -> ConfigValue:
    return value if isinstance(value, ConfigValue) else ConfigValue(value)


ConfigField = Annotated[
    ConfigValue, BeforeValidator(_config_in), PlainSerializer(lambda value: value.encoded, return_type=Any)
]


Groups = tuple[tuple[str, ...], ...]
"""Groups of roles, or of parts of roles by their full names, such as ("actor", "rollout.decode")."""


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
    with_collocation: Groups = ()
    """Device collocation: these roles share devices, rank i of each is on the same one."""
    with_host_collocation: Groups = ()
    """Host collocation: rank i of each is on the same node, on devices of its own."""
    without_collocation: Groups = ()
    """No collocation: no two of these roles are on one node."""
    restart_budget: RestartBudget = RestartBudget()
    commits: CommitSpec = CommitSpec()
    allow_chaos: bool = False
    """Whether `dlrl chaos` may break it."""
    spare_nodes: int = 0
    """Nodes held back, besides `node_num`, to replace one that fails."""

    def role(self, role: RoleType) -> RoleSpec | None:
        return next((spec for spec in self.roles if spec.role is role), None)

    @property
    def placement_requests(self) -> dict[str, PlacementRequest]:
        """Everything that is placed by itself, in order: parts by their full names, and roles without parts."""
        return {name: request for role in self.roles for name, request in role.placement_requests.items()}

    def collocation_of(self, name: str) -> tuple[str, ...]:
        """The roles that share devices with this one, itself included; empty if it shares none."""
        return next((group for group in self.with_collocation if name in group), ())

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
