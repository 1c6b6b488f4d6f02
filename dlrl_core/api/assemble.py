"""From the words of the builder to a checked JobSpec: the config is read, and a framework fills what was not said."""

from __future__ import annotations

import ast
import copy
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TypeVar

from dlrl_core.errors import PluginError, SpecError
from dlrl_core.hints import did_you_mean
from dlrl_core.plugin import ConfigKind, ConfigSource, FrameworkAdapter, plugin_host
from dlrl_core.spec import ClassRef, ConfigValue, JobSpec, problems_of
from dlrl_core.spec.config_value import kind_of, read_yaml
from dlrl_core.spec.job_spec import FrameworkDefaults, RefusedDefaults, merged
from dlrl_core.spec.validation import Problem, ProblemKind, Words, validated_job

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
        return ConfigValue.of(adapter.read_config(source))
    if said.framework is not None:
        return ConfigValue({})  # without its adapter, the framework's own config can't be judged
    if isinstance(source.value, Path):
        return ConfigValue.of(read_yaml(source.value))
    if isinstance(source.value, tuple):
        words = " ".join(source.value)
        raise SpecError([f"config is '{words}'; without a framework it must be a dict, an OmegaConf or a YAML file"])
    return ConfigValue.of(source.value)


def _fill(adapter: FrameworkAdapter, config: ConfigValue) -> FrameworkDefaults:
    try:
        return adapter.fill(config.plain())
    except RefusedDefaults as error:
        begin = f"framework '{adapter.name}' gives defaults that can't be"
        raise SpecError([f"{begin}: {text}" for text in error.problems]) from error


def _words_of(defaults: FrameworkDefaults | None) -> Words:
    """What the adapter said, in the form of the job file; options that it left open are not in it."""
    if defaults is None:
        return {}
    words = defaults.model_dump(exclude_unset=True, exclude_none=True)
    roles = {str(role): {**_class_words(options.pop("cls")), **options} for role, options in words["roles"].items()}
    return {**words, "trainer": _class_words(words["trainer"]), "roles": roles}


def _class_words(cls: Mapping[str, str]) -> Words:
    return {"module": cls["module"], "class": cls["class_name"]}


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


_log = logging.getLogger("dlrl")
_ABSENT = object()


def config_source(config: Any) -> ConfigSource:
    """What was given to `.config(...)`, sorted by its form. Raises SpecError if it has none that is known."""
    from omegaconf import OmegaConf

    if config is None:
        return ConfigSource(kind=ConfigKind.MAPPING, value={})
    if isinstance(config, Mapping) or OmegaConf.is_config(config):
        return ConfigSource(kind=ConfigKind.MAPPING, value=config)
    if isinstance(config, Path) or (isinstance(config, str) and config.endswith((".yaml", ".yml"))):
        return ConfigSource(kind=ConfigKind.YAML, value=Path(config))
    if isinstance(config, str):
        import shlex

        try:
            return ConfigSource(kind=ConfigKind.WORDS, value=tuple(shlex.split(config)))
        except ValueError as error:  # the text is not shown, it may have a secret in it
            raise SpecError([f"config is a text that no shell could split into words: {error}"]) from error
    if isinstance(config, list | tuple) and all(isinstance(word, str) for word in config):
        return ConfigSource(kind=ConfigKind.WORDS, value=tuple(config))
    raise SpecError(
        [f"config is {kind_of(config)}; it must be a dict, an OmegaConf, a YAML file or a framework's words"]
    )


def overridden(source: ConfigSource, overrides: Sequence[str], *, is_whole: bool) -> ConfigSource:
    """The config with the overrides in it; the user's own object stays as it is.

    Values are read as YAML. `is_whole` says that no framework adds defaults later: a key that the config does not have
    is then likely a typo, and is logged.
    """
    if not overrides:
        return source
    if wrong := [word for word in overrides if not isinstance(word, str)]:
        raise SpecError([f"override is {kind_of(word)}; it must be a text such as 'lr=0.1'" for word in wrong])
    if isinstance(source.value, tuple):
        key = overrides[0].partition("=")[0]
        raise SpecError([f"override of '{key}' can't be laid over a framework's own words; write it among those words"])
    config = _opened(read_yaml(source.value) if isinstance(source.value, Path) else source.value)
    problems = [problem for word in overrides if (problem := _apply(config, word, is_whole=is_whole))]
    if problems:
        raise SpecError(problems)
    return ConfigSource(kind=ConfigKind.MAPPING, value=config)


def _opened(config: Mapping[Any, Any]) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        opened: Any = copy.deepcopy(config) if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
    except OmegaConfBaseException as error:
        raise SpecError([f"config can't be held by OmegaConf: {str(error).strip().splitlines()[0]}"]) from error
    OmegaConf.set_struct(opened, False)
    OmegaConf.set_readonly(opened, False)
    return opened


def _apply(config: Any, word: str, *, is_whole: bool) -> str | None:
    """Change the config by one override; returns the problem if it can't be applied."""
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    key, equals, _ = word.partition("=")
    if not equals or not key:
        return f"override '{word}' is not written as key=value"
    is_new = is_whole and not _has(config, key)
    try:
        config.merge_with_dotlist([word])
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError) as error:
        return f"override of '{key}' can't be applied: {str(error).strip().splitlines()[0]}"
    if is_new:
        _log.warning("override adds '%s', which the config did not have", key)
    return None


def _has(config: Any, key: str) -> bool:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.select(config, key, default=_ABSENT) is not _ABSENT
    except OmegaConfBaseException:
        return True  # it is there, and can't be resolved yet


def class_problems(owner: str, ref: ClassRef, *, is_trainer: bool) -> list[str]:
    """Problems of a class, which is imported. A module whose own dependency is missing here is left for the workers."""
    from dlrl_core.workload.invocation import load_class

    if ref.module == "__main__":
        return [f"{owner} is '{ref}': other processes can't import '__main__'; put the class into a module"]
    try:
        found = load_class(ref)
    except ModuleNotFoundError as error:
        if error.name is not None and (ref.module == error.name or ref.module.startswith(f"{error.name}.")):
            return [f"{owner} is '{ref}': there is no module '{error.name}'"]
        _log.info("%s is '%s', not checked here: module '%s' is missing", owner, ref, error.name)
        return []
    except Exception as error:  # noqa: BLE001 - importing runs user code: whatever it raises is the problem
        return [f"{owner} is '{ref}', which can't be imported: {type(error).__name__}: {error}"]
    return _base_problems(owner, ref, found, is_trainer=is_trainer)


def _base_problems(owner: str, ref: ClassRef, found: type, *, is_trainer: bool) -> list[str]:
    from dlrl_core.trainer import BaseTrainer
    from dlrl_core.workload import BaseWorkload

    base = BaseTrainer if is_trainer else BaseWorkload
    if not issubclass(found, base):
        return [f"{owner} is '{ref}', which does not extend dlrl_core.{base.__name__}"]
    missing = ", ".join(f"{name!r}" for name in sorted(getattr(found, "__abstractmethods__", ())))
    return [f"{owner} is '{ref}', which does not define {missing}"] if missing else []


def source_problems(owner: str, ref: ClassRef) -> list[str]:
    """Problems of a class, as far as the source of its module shows them; nothing of the user's is imported."""
    missing, spec = _find(ref.module)
    if missing is not None:
        return [f"{owner} is '{ref}': there is no module '{missing}'"]
    try:
        source = spec.loader.get_source(ref.module) if spec and isinstance(spec.loader, InspectLoader) else None
        tree = ast.parse(source) if source is not None else None
    except (OSError, ImportError, SyntaxError, ValueError) as error:
        return [f"{owner} is '{ref}', which can't be imported: {type(error).__name__}: {error}"]
    if tree is None:
        return []
    names = set(_bound_names(tree.body))
    if names & {ref.class_name, "*", "__getattr__"}:
        return []
    hint = did_you_mean(ref.class_name, names).rstrip(";")
    return [f"{owner} is '{ref}': module '{ref.module}' has no class '{ref.class_name}'{hint}"]


def _find(module: str) -> tuple[str | None, ModuleSpec | None]:
    """The first package or module of the dotted name that is missing, else None, and the module's spec."""
    spec, path = None, None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = _spec(name, path)
        if spec is None:
            return name, None
        path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return f"{name}.{parts[count]}", None
    return None, spec


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements at the top of a module bind; '*' where that can't be told."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                yield from _bound_names([node for node in ast.walk(statement) if isinstance(node, ast.stmt)][1:])
