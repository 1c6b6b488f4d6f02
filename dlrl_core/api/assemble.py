"""From what the builder was told to a checked JobSpec: framework's defaults below, the user's words on top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrl_core.api.class_check import class_problems
from dlrl_core.api.class_source import source_problems
from dlrl_core.api.config_override import overridden
from dlrl_core.api.draft import JobDraft, RequestDraft, RoleDraft
from dlrl_core.errors import PluginError, SpecError
from dlrl_core.plugin import (
    ConfigKind,
    ConfigSource,
    FrameworkAdapter,
    FrameworkDefaults,
    RoleDefaults,
    plugin_host,
)
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, ConfigValue, JobSpec, PartSpec, RoleSpec, VisibleDevices, problems_of
from dlrl_core.spec.job_spec import CommitSpec, RestartBudget, read_yaml


def assemble(draft: JobDraft, *, import_classes: bool = True) -> JobSpec:
    """The spec, or SpecError with every problem found on the way."""
    problems = list(draft.problems)
    adapter = _collect(problems, lambda: _adapter(draft)) if draft.framework else None
    config = _collect(problems, lambda: _config(draft, adapter)) or ConfigValue({})
    defaults = None
    if adapter is not None and not problems:
        defaults = _collect(problems, lambda: adapter.fill(config.plain()))
    spec = _spec(draft, defaults, config)
    spec = _collect(problems, lambda: plugin_host().policy(spec.policy)(spec)) or spec
    is_unfilled = draft.framework is not None and defaults is None
    problems += [problem for problem in problems_of(spec) if not (is_unfilled and " has no " in problem)]
    problems += _class_problems(draft) if import_classes else _source_problems(draft)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return spec


def _collect(problems: list[str], step: Any) -> Any:
    try:
        return step()
    except SpecError as error:
        problems += error.problems
    except PluginError as error:
        problems.append(str(error))
    return None


def _adapter(draft: JobDraft) -> FrameworkAdapter:
    assert draft.framework is not None
    return plugin_host().framework(draft.framework)


def _config(draft: JobDraft, adapter: FrameworkAdapter | None) -> ConfigValue:
    source = overridden(_config_source(draft.config), draft.overrides, is_whole=draft.framework is None)
    if adapter is not None:
        return ConfigValue.of(adapter.read_config(source))
    if draft.framework is not None:
        return ConfigValue({})  # the framework itself is the problem; its words can't be judged
    if isinstance(source.value, Path):
        return ConfigValue.of(read_yaml(source.value))
    if isinstance(source.value, tuple):
        words = " ".join(source.value)
        raise SpecError([f"config is '{words}'; without a framework it must be a dict, an OmegaConf or a YAML file"])
    return ConfigValue.of(source.value)


def _config_source(config: Any) -> ConfigSource:
    from omegaconf import OmegaConf

    if config is None:
        return ConfigSource(kind=ConfigKind.MAPPING, value={})
    if isinstance(config, Mapping) or OmegaConf.is_config(config):
        return ConfigSource(kind=ConfigKind.MAPPING, value=config)
    if isinstance(config, Path) or (isinstance(config, str) and config.endswith((".yaml", ".yml"))):
        return ConfigSource(kind=ConfigKind.YAML, value=Path(config))
    if isinstance(config, str):
        import shlex

        return ConfigSource(kind=ConfigKind.WORDS, value=tuple(shlex.split(config)))
    if isinstance(config, list | tuple) and all(isinstance(word, str) for word in config):
        return ConfigSource(kind=ConfigKind.WORDS, value=tuple(config))
    raise SpecError(
        [f"config is a {type(config).__name__}; it must be a dict, an OmegaConf, a YAML file or a framework's words"]
    )


def _spec(draft: JobDraft, defaults: FrameworkDefaults | None, config: ConfigValue) -> JobSpec:
    roles = _roles(draft, defaults)
    return JobSpec(
        framework=draft.framework,
        node_num=_first(draft.node_num, defaults and defaults.node_num, 1),
        device_per_node=_first(draft.device_per_node, defaults and defaults.device_per_node, 1),
        spare_nodes=_first(draft.spare_nodes, 0),
        restart_budget=draft.budget or RestartBudget(),
        commits=draft.commits or CommitSpec(),
        allow_chaos=draft.allow_chaos,
        device_type=_first(draft.device_type, defaults and defaults.device_type, "GPU"),
        policy=draft.policy or "separate_sync",
        config=config,
        global_env={**(defaults.env if defaults else {}), **draft.global_env},
        trainer=draft.trainer or (defaults.trainer if defaults else None),
        roles=roles,
        with_collocation=_collocations(draft, defaults, roles),
        with_host_collocation=tuple(
            draft.with_host_collocation or (defaults.with_host_collocation if defaults else ())
        ),
        without_collocation=tuple(draft.without_collocation or (defaults.without_collocation if defaults else ())),
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _roles(draft: JobDraft, defaults: FrameworkDefaults | None) -> tuple[RoleSpec, ...]:
    filled = defaults.roles if defaults else {}
    names = [*draft.roles, *(role for role in filled if role not in draft.roles)]
    specs = [_role(role, draft.roles.get(role), filled.get(role)) for role in names]
    return tuple(spec for spec in specs if spec is not None)


def _role(role: RoleType, told: RoleDraft | None, filled: RoleDefaults | None) -> RoleSpec | None:
    told = told or RoleDraft.of(role)
    cls: ClassRef | None = told.cls or (filled.cls if filled else None)
    if cls is None:
        return None
    parts = tuple(PartSpec(name=name, **_request(part, None)) for name, part in told.parts.items())
    request = _request(told, filled)
    if parts and told.total is None:
        request["total"] = sum(part.total for part in parts)
    visible = told.visible_devices or (filled.visible_devices if filled else None) or VisibleDevices.OWN
    return RoleSpec(
        role=role,
        cls=cls,
        parts=parts,
        visible_devices=visible,
        failover=told.failover or (filled.failover if filled else None),
        hang_limit=told.hang_limit or (filled.hang_limit if filled else None),
        concurrency=_first(told.concurrency, filled.concurrency if filled else None, 32),
        **request,
    )


def _request(told: RequestDraft, filled: RoleDefaults | None) -> dict[str, Any]:
    return {
        "total": _first(told.total, filled.total if filled else None, 1),
        "min_total": told.min_total,
        "per_node": told.per_node if told.per_node is not None else (filled.per_node if filled else None),
        "env": {**(filled.env if filled else {}), **told.env},
        "resource": {**(filled.resource if filled else {}), **told.resource},
        "node_labels": told.node_labels,
        "spread_over": told.spread_over,
        "pack_into": told.pack_into,
    }


def _collocations(
    draft: JobDraft, defaults: FrameworkDefaults | None, roles: tuple[RoleSpec, ...]
) -> tuple[tuple[str, ...], ...]:
    if draft.collocate_all:
        return (*draft.with_collocation, tuple(name for role in roles for name in role.placement_requests))
    if draft.with_collocation:
        return tuple(draft.with_collocation)
    return tuple(defaults.with_collocation) if defaults else ()


def _class_problems(draft: JobDraft) -> list[str]:
    """Only classes the user named: an adapter's are its own affair, and importing them may need its framework."""
    problems = []
    if draft.trainer is not None:
        problems += class_problems("the trainer", draft.trainer, is_trainer=True)
    for role in draft.roles.values():
        if role.cls is not None:
            problems += class_problems(f"role '{role.role}'", role.cls, is_trainer=False)
    return problems


def _source_problems(draft: JobDraft) -> list[str]:
    named = [("the trainer", draft.trainer), *((f"role '{role.role}'", role.cls) for role in draft.roles.values())]
    return [problem for owner, cls in named if cls is not None for problem in source_problems(owner, cls)]
