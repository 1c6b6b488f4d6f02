"""From what the builder was told to a checked JobSpec: the framework's defaults, and the user's words over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from dlrl_core.api.class_check import class_problems, source_problems
from dlrl_core.api.config_input import config_source, overridden
from dlrl_core.errors import PluginError, RemoteCause, SpecError
from dlrl_core.plugin import FrameworkAdapter, plugin_host
from dlrl_core.spec import ConfigValue, JobSpec, problems_of
from dlrl_core.spec.config_value import read_yaml
from dlrl_core.spec.job_spec import FrameworkDefaults, RoleDefaults, merged
from dlrl_core.spec.validation import Problem, ProblemKind, Words, refused_texts, validated_job

T = TypeVar("T")


@dataclass(kw_only=True)
class Said:
    """What a user said about a job, by builder or job file, unchecked."""

    words: Words = field(default_factory=dict)
    """Options by their names in JobSpec, in the form of the job file."""
    config: Any = None
    overrides: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Mistakes that are not in a value, such as an option that belongs to no role."""
    source: str = "the job"
    """What to call it in a sentence."""

    @property
    def framework(self) -> str | None:
        name = self.words.get("framework")
        return name if isinstance(name, str) and name else None


def assemble(said: Said, *, import_classes: bool = True) -> JobSpec:
    """The spec, or SpecError with every problem; PluginError if the framework's adapter itself fails."""
    texts = list(said.problems)
    name = said.framework
    adapter = _collect(texts, lambda: plugin_host().framework(name)) if name else None
    config = _collect(texts, lambda: _config(said, adapter)) or ConfigValue({})
    defaults = _collect(texts, lambda: _fill(adapter, config)) if adapter is not None and not texts else None
    words = merged(_words_of(defaults), _completed(said.words))
    spec, refused = validated_job({**words, "config": config}, said.source)
    if spec.with_collocation_all:
        groups = (*spec.with_collocation, tuple(spec.placement_requests))
        spec = spec.model_copy(update={"with_collocation": groups})
    spec = _collect(texts, lambda: plugin_host().policy(spec.policy)(spec)) or spec
    texts += _told(refused, problems_of(spec), is_unfilled=name is not None and defaults is None)
    texts += _class_problems(said.words, spec, import_classes=import_classes)
    if texts:
        raise SpecError(list(dict.fromkeys(texts)))
    return spec


def _collect(texts: list[str], step: Callable[[], T]) -> T | None:
    try:
        return step()
    except SpecError as error:
        texts += error.problems
    except PluginError as error:
        if error.cause is not None:
            raise
        texts.append(str(error))
    return None


def _config(said: Said, adapter: FrameworkAdapter | None) -> ConfigValue:
    source = overridden(config_source(said.config), said.overrides, is_whole=said.framework is None)
    if adapter is not None:
        return ConfigValue.of(_asked(adapter, "read_config", lambda: adapter.read_config(source)))
    if said.framework is not None:
        return ConfigValue({})  # without its adapter, the framework's own config can't be judged
    if isinstance(source.value, Path):
        return ConfigValue.of(read_yaml(source.value))
    if isinstance(source.value, tuple):
        words = " ".join(source.value)
        raise SpecError([f"config is '{words}'; without a framework it must be a dict, an OmegaConf or a YAML file"])
    return ConfigValue.of(source.value)


def _fill(adapter: FrameworkAdapter, config: ConfigValue) -> FrameworkDefaults:
    return _asked(adapter, "fill", lambda: _filled(adapter, config))


def _filled(adapter: FrameworkAdapter, config: ConfigValue) -> FrameworkDefaults:
    try:
        return adapter.fill(config.plain())
    except ValidationError as error:
        if error.title != RoleDefaults.__name__:
            raise
        texts = refused_texts(RoleDefaults, error)
        raise SpecError([f"framework '{adapter.name}' fills a role that can't be: {text}" for text in texts]) from error


def _asked(adapter: FrameworkAdapter, method: str, step: Callable[[], T]) -> T:
    """What a method of the adapter returns; an exception that is none of ours is a defect of the adapter."""
    try:
        return step()
    except (SpecError, PluginError):
        raise
    except Exception as error:
        shown = str(error).partition("\n")[0]
        raised = PluginError(
            f"framework '{adapter.name}' can't be used with this config: its adapter's {method} raised "
            f"{type(error).__name__}: {shown}"
        )
        raised.cause = RemoteCause.of(error)
        raise raised from error


def _words_of(defaults: FrameworkDefaults | None) -> Words:
    """What the adapter said, in the form of the job file; options that it left open are not in it."""
    if defaults is None:
        return {}
    words = defaults.model_dump(exclude_unset=True, exclude_none=True)
    return {**words, "roles": {str(role): options for role, options in words["roles"].items()}}


def _completed(words: Words) -> Words:
    """The words, with what follows from them and wins over a framework's defaults."""
    roles = {name: _with_total(role) for name, role in words.get("roles", {}).items()}
    groups: Words = {"with_collocation": []} if words.get("with_collocation_all") else {}
    return {**groups, **words, "roles": roles}


def _with_total(role: Any) -> Any:
    """A role with parts has their sum as its total, unless a total is said."""
    parts = role.get("parts") if isinstance(role, Mapping) else None
    if not isinstance(parts, Mapping) or not parts or "total" in role:
        return role
    totals = [part.get("total", 1) for part in parts.values() if isinstance(part, Mapping)]
    return {**role, "total": sum(total for total in totals if type(total) is int and total > 0) or 1}


def _told(refused: list[Problem], problems: list[Problem], *, is_unfilled: bool) -> list[str]:
    """Those worth telling: not what a framework that failed would have filled, nor what follows from another one."""
    places = frozenset(place for problem in refused for place in problem.about)
    kept = refused + [problem for problem in problems if not problem.about & places]
    return [problem.text for problem in kept if not (is_unfilled and problem.kind is ProblemKind.MISSING)]


def _class_problems(words: Words, spec: JobSpec, *, import_classes: bool) -> list[str]:
    """Only of classes the user named: those of an adapter may need its framework to be imported."""
    named = [("the trainer", spec.trainer)] if "trainer" in words else []
    for role in spec.roles:
        if "module" in words.get("roles", {}).get(role.role, {}):
            named.append((f"role '{role.role}'", role.cls))
    problems: list[str] = []
    for owner, cls in named:
        if cls is not None and import_classes:
            problems += class_problems(owner, cls, is_trainer=cls is spec.trainer)
        elif cls is not None:
            problems += source_problems(owner, cls)
    return problems
