"""What can be said of an adapter without running a job: each function lists what is wrong with it."""

from __future__ import annotations

import copy
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from dlrl_core.plugin import API_VERSION, FrameworkAdapter, FrameworkDefaults
from dlrl_core.plugin.loading import normalised
from dlrl_core.spec import ConfigValue, JobSpec
from dlrl_core.spec.role_values import FailoverScope

UNKNOWN_KEY = "no_such_key"


def identity_problems(adapter: FrameworkAdapter, framework: str) -> list[str]:
    """The adapter's class attributes."""
    problems = []
    if adapter.name != framework:
        problems.append(f"name is '{adapter.name}'; the framework is registered as '{framework}'")
    if adapter.api_version != API_VERSION:
        problems.append(f"api_version is {adapter.api_version}; this dlrl speaks {API_VERSION}")
    if not adapter.description.strip():
        problems.append("description is empty; say in one line what the framework does")
    if adapter.distribution is not None and not _is_specifier(adapter.versions):
        problems.append(f"versions is '{adapter.versions}'; it must be a PEP 440 specifier, such as '>=1.2,<2'")
    if adapter.extra is not None and adapter.extra not in (extras := _extras_of_dlrl()):
        problems.append(f"extra is '{adapter.extra}'; dlrl has {', '.join(extras)}: leave it out if none is yours")
    return problems


def _is_specifier(versions: str) -> bool:
    try:
        return bool(len(SpecifierSet(versions)))
    except InvalidSpecifier:
        return False


def _extras_of_dlrl() -> list[str]:
    return importlib.metadata.metadata("dlrl").get_all("Provides-Extra") or []


def modules_of_framework(adapter: FrameworkAdapter) -> frozenset[str]:
    """The top-level modules of the adapter's framework; none if it comes with the adapter."""
    if adapter.distribution is None:
        return frozenset()
    wanted = normalised(adapter.distribution)
    owners = importlib.metadata.packages_distributions().items()
    found = {module for module, names in owners if wanted in map(normalised, names)}
    return frozenset(found or {wanted.replace("-", "_")}) - {type(adapter).__module__.partition(".")[0]}


def read_plain(adapter: FrameworkAdapter, config: Any) -> dict[str, Any]:
    """What `fill` is given for a config in any form that the builder takes."""
    from dlrl_core.api.assemble import config_source

    return ConfigValue.of(adapter.read_config(config_source(config))).plain()


def config_problems(config: ConfigValue, spec: JobSpec) -> list[str]:
    """Whether the config, and the spec with it, come through JSON and OmegaConf as they are."""
    from omegaconf import OmegaConf

    problems = []
    if JobSpec.from_json(spec.to_json()) != spec:
        problems.append("the spec is another one after JSON")
    opened = OmegaConf.to_container(config.open(), resolve=False)
    plain = config.plain()
    if opened != plain:
        lost = [str(key) for key in plain if not isinstance(opened, dict) or opened.get(key) != plain[key]]
        problems.append(f"the config that workloads get differs in: {', '.join(lost)}")
    return problems


def fill_problems(adapter: FrameworkAdapter, config: Mapping[str, Any]) -> list[str]:
    """Whether `fill` gives the same for the same config, and changes neither that nor the environment."""
    given, environment = copy.deepcopy(dict(config)), dict(os.environ)
    first, second = adapter.fill(given), adapter.fill(given)
    problems = []
    if given != config:
        changed = sorted(str(key) for key in {*given, *config} if given.get(key) != config.get(key))
        problems.append(f"fill changed the config it was given, in: {', '.join(changed)}")
    if dict(os.environ) != environment:
        problems.append("fill changed os.environ; that is for prepare_process")
    if differing := _differing(first, second):
        problems.append(f"fill returned something else the second time, in: {', '.join(differing)}")
    return problems


def _differing(one: FrameworkDefaults, other: FrameworkDefaults) -> list[str]:
    names = [name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)]
    return names or (["the order of roles"] if list(one.roles) != list(other.roles) else [])


def role_problems(filled: FrameworkDefaults) -> list[str]:
    """Classes, counts and scopes. Classes are looked up in the source of their modules, which are not imported."""
    from dlrl_core.api.assemble import source_problems

    problems = source_problems("the trainer", filled.trainer)
    if not filled.roles:
        problems.append("fill names no role")
    for role, item in filled.roles.items():
        problems += source_problems(f"role '{role}'", item.cls)
        if item.total < 1:
            problems.append(f"role '{role}' has total={item.total}; it must be at least 1")
        if item.failover is not None and item.failover not in list(FailoverScope):
            scopes = ", ".join(f"'{scope}'" for scope in FailoverScope)
            problems.append(f"role '{role}' declares '{item.failover}'; the scopes are {scopes}")
    return problems


def with_unknown_key(config: Any) -> Any:
    """The config with one more key, in its own form: a mapping, a file, flags or `key=value` words."""
    from omegaconf import OmegaConf

    if isinstance(config, Path) or (isinstance(config, str) and config.endswith((".yaml", ".yml"))):
        config = OmegaConf.load(config)
    if isinstance(config, Mapping):
        plain: Any = OmegaConf.to_container(OmegaConf.create(dict(config)), resolve=False)
        return {**plain, UNKNOWN_KEY: 1}
    words = config.split() if isinstance(config, str) else [*config]
    are_flags = any(word.startswith("--") for word in words)
    added = [f"--{UNKNOWN_KEY}", "1"] if are_flags else [f"{UNKNOWN_KEY}=1"]
    return f"{config} {' '.join(added)}" if isinstance(config, str) else [*words, *added]
