"""JobSpec: the one declaration of everything a user can say about a job.

A field here is an option everywhere, under the same name: a method of the builder, a key of the job file, a field of
the defaults that a framework's adapter gives, a row of the reference pages, and a key of the job's record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dlrl_core.errors import SchemaError, SpecError
from dlrl_core.hints import did_you_mean
from dlrl_core.roles import RoleType
from dlrl_core.spec.config_value import ConfigValue, kind_of
from dlrl_core.spec.frozen import Frozen, validation_problems
from dlrl_core.spec.role_values import ClassRef, FailoverScope, VisibleDevices
from dlrl_core.spec.state_size import StateSize

SCHEMA = 3
"""Number of the JobSpec format; raised when a reader of the old one would misunderstand the new one."""
DEVICE_TYPES = ("GPU", "NPU", "CPU")


# ---- types of values, with the rules that a value alone can break
# An error of type "predicate" reads after the name of the place, one of type "sentence" stands alone.


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _device_type(value: str) -> str:
    if value.upper() in DEVICE_TYPES:
        return value.upper()
    known = ", ".join(DEVICE_TYPES)
    raise PydanticCustomError("predicate", "is '{said}'; it must be one of {known}", {"said": value, "known": known})


def _amount(value: object) -> object:
    """A number, also where it is written as a fraction, such as '1/3'."""
    try:
        return float(Fraction(value)) if isinstance(value, str) else value
    except (ValueError, ZeroDivisionError, OverflowError):
        return value


def _env_name(value: str) -> str:
    if value and "=" not in value and "\0" not in value:
        return value
    raise PydanticCustomError(
        "predicate", "is no name of an environment variable; such a name is not empty and has no '='"
    )


def _env_text(value: object) -> str:
    """The value as text. A value that is refused may be a secret, so only its type is named."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = {"kind": kind_of(value)}
        raise PydanticCustomError("predicate", "is {kind}; an environment variable is a text or a number", kind)
    if "\0" in str(value):
        raise PydanticCustomError("predicate", "has a NUL character; an environment variable can't have one")
    return str(value)


def _several(value: object) -> object:
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        kind = {"kind": kind_of(value)}
        raise PydanticCustomError("predicate", "is {kind}; it must be a text, or a list of texts", kind)
    return (value,) if isinstance(value, str) else value


def _role_type(value: object) -> RoleType:
    try:
        return RoleType(str(value).lower())
    except ValueError:
        roles = [str(role) for role in RoleType]
        text = f"unknown role '{value}'{did_you_mean(str(value), roles)} roles are: {', '.join(roles)}"
        raise PydanticCustomError("sentence", "{text}", {"text": text}) from None


def _full_name(value: object) -> str:
    """The full name of a role, or of a part of one, such as 'rollout.decode'."""
    role, dot, part = str(value).partition(".")
    return f"{_role_type(role)}{dot}{part.lower()}"


def _named_class(value: ClassRef) -> ClassRef:
    if value.module and value.class_name:
        return value
    raise PydanticCustomError("predicate", "is '{name}'; module and class must not be empty", {"name": str(value)})


def _config(value: object) -> ConfigValue:
    return value if isinstance(value, ConfigValue) else ConfigValue(value)


Text = Annotated[str, Field(strict=True, min_length=1)]
Count = Annotated[int, Field(strict=True, ge=1)]
CountFrom0 = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Amount = Annotated[float, BeforeValidator(_amount), Field(strict=True, ge=0, allow_inf_nan=False)]
Env = dict[Annotated[str, Field(strict=True), AfterValidator(_env_name)], Annotated[str, BeforeValidator(_env_text)]]
Labels = dict[Text, Annotated[tuple[Text, ...], BeforeValidator(_several), Field(min_length=1)]]
Groups = tuple[tuple[Annotated[str, BeforeValidator(_full_name)], ...], ...]
"""Groups of roles, or of parts of roles by their full names, such as ("actor", "rollout.decode")."""
ClassField = Annotated[ClassRef, AfterValidator(_named_class)]
ConfigField = Annotated[
    ConfigValue, BeforeValidator(_config), PlainSerializer(lambda value: value.encoded, return_type=Any)
]


# ---- roles


class PlacementRequest(Frozen):
    """How many workloads, what each of them gets, and on which nodes they may be placed: options of a role or part."""

    total: Count = Field(1, description="how many workloads; of a role with parts, their sum")
    min_total: Count | None = Field(
        None, description="how few will do where the cluster has no room for all; without it, all or nothing"
    )
    per_node: Count | None = Field(
        None, description="workloads on each node that has any; without it, on as few nodes as possible"
    )
    env: Env = Field(
        {},
        description="environment variables; they win over global_env, those of a part over those of its role",
        examples=[{"LOG_LEVEL": "info"}],
    )
    resource: dict[Text, Amount] = Field(
        {},
        description="Ray resources of one workload; without it, 1 CPU and one device or an even share",
        examples=[{"CPU": 2, "GPU": 0.5}],
    )
    node_labels: Labels = Field(
        {},
        description="only nodes with these labels; of each label, one of the values",
        examples=[{"zone": ["a", "b"]}],
    )
    spread_over: Text | None = Field(
        None, description="a node label, such as a rack: as evenly as possible over its values"
    )
    pack_into: Text | None = Field(None, description="a node label: all on nodes with one and the same value")


class RoleOptions(PlacementRequest):
    """All options of a role; those that are not of PlacementRequest hold for the whole role, parts included."""

    visible_devices: Annotated[VisibleDevices, BeforeValidator(_lower)] = Field(
        VisibleDevices.OWN,
        description="which devices each process sees: its 'own', those of its 'role' on its node, or all of its 'node'",
    )
    failover: Annotated[FailoverScope, BeforeValidator(_lower)] | None = Field(
        None,
        description="what restarts when a process of the role dies: 'workload', 'role', 'subgraph', 'job' or 'stop'; "
        "without it, the whole job",
    )
    hang_limit: Seconds | None = Field(
        None, description="seconds; a call that takes longer is taken for dead; without it, no limit"
    )
    silence_limit: Seconds = Field(
        30.0, description="seconds within which a frozen process is known; one that only holds Python's lock is not"
    )
    concurrency: Count = Field(
        32, description="how many calls of async def methods one workload runs side by side; more wait"
    )
    state_size: StateSize | None = Field(
        None, description="bytes of each rank's committed state, for the plan; a framework computes them"
    )


class PartSpec(PlacementRequest):
    """A named part of a role, such as 'prefill' of a rollout, with its own count and place."""

    name: Annotated[str, Field(strict=True)]

    @classmethod
    def keys(cls) -> list[str]:
        return list(PlacementRequest.model_fields)


class RoleSpec(RoleOptions):
    """One role: its class and its options."""

    role: Annotated[RoleType, BeforeValidator(_role_type)]
    cls: ClassField
    parts: tuple[PartSpec, ...] = ()
    """If there are any, each workload of the role is in one of them, and `total` is their sum."""

    @classmethod
    def keys(cls) -> list[str]:
        return ["module", "class", *RoleOptions.model_fields, "parts"]

    @property
    def placement_requests(self) -> dict[str, PlacementRequest]:
        """The role's parts by their full names, such as 'rollout.prefill'; a role without parts by its own.

        An option that a part leaves open is that of the role.
        """
        if not self.parts:
            return {self.role.value: self}
        return {f"{self.role.value}.{part.name}": _filled(part, self) for part in self.parts}


class RefusedDefaults(SpecError):
    """An adapter gave defaults that can't be; each problem names the field and its value."""


class _Defaults(Frozen):
    """What an adapter gives. Raises RefusedDefaults, as an adapter can take a wrong value from the user's config."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> Self:
        from dlrl_core.spec.validation import refused_texts

        try:
            made: Self = handler(given)
        except ValidationError as error:
            raise RefusedDefaults(refused_texts(cls, error)) from error
        return made


class RoleDefaults(RoleOptions, _Defaults):
    """One role as the framework would run it. Whatever the user says wins."""

    cls: ClassField


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, where what is above wins; mappings are merged key by key."""
    both = {**below, **above}
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping):
            both[key] = merged(below[key], value)
    return both


def _filled(part: PartSpec, role: RoleSpec) -> PlacementRequest:
    shared = PlacementRequest.model_fields.keys() - {"total", "min_total"}
    said = {name: value for name in shared if (value := getattr(part, name)) is not None}
    return part.model_copy(update=merged({name: getattr(role, name) for name in shared}, said))


# ---- the job


class RestartBudget(Frozen):
    """How often something may be restarted within a time, before more of the job is restarted instead."""

    workload: CountFrom0 = 3
    role: CountFrom0 = 3
    job: CountFrom0 = 3
    """After this many restarts of the whole job, the next one stops it."""
    node: CountFrom0 = 3
    """A node on which this many processes died is not used again; 0: it always is."""
    window_s: Seconds = 3600.0
    backoff_s: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 1.0
    """Wait before the second restart of the same process; doubled with each further one."""


class CommitSpec(Frozen):
    """How often steps are committed, and how commits are kept."""

    every: Count | None = None
    """Commit each so many steps; None: as often as the budget allows."""
    budget: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.03
    """The share of training time that commits may take."""
    at_least_s: Seconds = 600.0
    """Commit after this time whatever it costs."""
    durable_every: Count = 10
    """Each so many commits are copied to durable storage."""
    state_folder: Text | None = None
    """Durable storage that all nodes reach, a path or a URL such as s3://bucket/folder; None: below DLRL_HOME."""
    neighbours: bool = Field(True, strict=True)
    """On several nodes: keep each commit in the memory of another node, too."""
    failure_domain: Text | None = None
    """A node label, such as a rack: a neighbour has another value of it, where there is one."""
    keeper: Text = "node_memory"
    """What keeps committed state; plugins add others."""


class JobOptions(Frozen):
    """What both a user and a framework can say about the whole job."""

    node_num: Count = Field(1, description="nodes the job uses, at most")
    device_per_node: Count = Field(1, description="devices it uses on each node, at most")
    device_type: Annotated[Text, AfterValidator(_device_type)] = Field("GPU", description="'GPU', 'NPU' or 'CPU'")
    global_env: Env = Field(
        {}, description="environment variables of every process of the job", examples=[{"LOG_LEVEL": "info"}]
    )
    with_collocation: Groups = Field(
        (), description="device collocation: groups of roles that share devices, rank i of each on the same one"
    )
    with_host_collocation: Groups = Field(
        (),
        description="host collocation: groups of roles, rank i of each on the same node, on devices of its own",
    )
    without_collocation: Groups = Field(
        (), description="no collocation: groups of roles of which no two are on one node"
    )


class FrameworkDefaults(JobOptions, _Defaults):
    """A whole job as the framework would run it with a config. A field that is not given leaves the job's default."""

    trainer: ClassField
    roles: dict[RoleType, RoleDefaults]


class JobSpec(JobOptions):
    """A whole job as asked, by builder or job file over the framework's defaults; nothing in it is placed yet."""

    spec_schema: int = SCHEMA
    framework: Text | None = Field(None, description="fill trainer, roles and counts from this adapter")
    policy: Text = Field("separate_sync", description="the distribution policy")
    config: ConfigField = Field(ConfigValue({}), description="the training config")
    trainer: ClassField | None = Field(None, description="module and class of the trainer")
    roles: tuple[RoleSpec, ...] = Field((), description="the roles of the job, each with its class and options")
    with_collocation_all: bool = Field(False, strict=True, description="all roles share devices")
    restart_budget: RestartBudget = Field(
        RestartBudget(),
        description="how often within window_s a workload, a role, the job or a node may fail, and backoff_s",
        examples=[{"workload": 5}],
    )
    commits: CommitSpec = Field(
        CommitSpec(),
        description="how often: every so many steps, or budget, at_least_s; where: neighbours, failure_domain, "
        "durable_every, state_folder, keeper",
        examples=[{"every": 1}],
    )
    allow_chaos: bool = Field(False, strict=True, description="let dlrl chaos break this job")
    spare_nodes: CountFrom0 = Field(0, description="nodes held back besides node_num, to replace one that fails")

    @classmethod
    def keys(cls) -> list[str]:
        return [name for name in cls.model_fields if name != "spec_schema"]

    def role(self, role: RoleType) -> RoleSpec | None:
        return next((spec for spec in self.roles if spec.role is role), None)

    @property
    def placement_requests(self) -> dict[str, PlacementRequest]:
        """Everything that is placed by itself, in order: parts by their full names, and roles without parts."""
        return {name: request for role in self.roles for name, request in role.placement_requests.items()}

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read a record. Raises SchemaError if a newer dlrl wrote it, SpecError if it is not a job spec."""
        try:
            plain = json.loads(text)
        except ValueError as error:
            raise SpecError([f"the job spec is not valid JSON: {error}"]) from error
        # Before anything else: what a newer dlrl wrote may have fields that would look like mistakes here.
        schema = plain.get("spec_schema", SCHEMA) if isinstance(plain, dict) else SCHEMA
        if isinstance(schema, int) and schema > SCHEMA:
            raise SchemaError(f"job spec has schema {schema}, this dlrl reads up to {SCHEMA}; use a newer dlrl")
        try:
            return cls.model_validate(_from_schema_2(plain) if schema == 2 else plain)
        except ValidationError as error:
            raise SpecError(validation_problems(error)) from error


OLD_KEYS = {
    "collocations": "with_collocation",
    "host_collocations": "with_host_collocation",
    "separations": "without_collocation",
    "collocate_all": "with_collocation_all",
}
"""Keys of older job files and records, with today's names."""


def renamed(words: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in words.items()}


def _from_schema_2(plain: dict[str, Any]) -> dict[str, Any]:
    job = renamed(plain, {**OLD_KEYS, "budget": "restart_budget", "allows_chaos": "allow_chaos"})
    roles = [renamed(role, {"hang_s": "hang_limit"}) for role in job.get("roles", [])]
    return {**job, "roles": roles, "spec_schema": SCHEMA}
