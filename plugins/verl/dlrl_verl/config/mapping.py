"""A config as a mapping: whole, with hydra's `defaults`, or only what differs from verl's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.hints import did_you_mean
from dlrl_core.spec.config_value import read_yaml
from dlrl_verl.config.composition import ConfigFiles, composed
from dlrl_verl.config.key_tree import KeyTree
from dlrl_verl.config.packaged import config_folder
from dlrl_verl.config.settings import RUNTIME_ENV

_WHOLE = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm", "critic", "data", "reward", "trainer")
"""A config that has all of these was composed."""
_ENGINE = "model_engine"
"""Which of verl's config files are taken; not a value of the config."""


def of_file(path: Path) -> dict[str, Any]:
    """From a YAML file; one with `defaults` may name files beside it and files of verl. Raises SpecError."""
    config = read_yaml(path)
    if "defaults" not in config:
        return of_mapping(config, path.name)
    files = ConfigFiles(main=str(path.parent.absolute()), name=path.stem, also=(str(config_folder()),))
    return _composed(files, path.name)


def of_mapping(config: Mapping[Any, Any], place: str) -> dict[str, Any]:
    """From a dict or an OmegaConf. Raises SpecError."""
    plain = _plain(config, place)
    if "defaults" in plain:
        return _of_text(plain, place)
    tree = KeyTree(plain)
    if all(key in tree for key in _WHOLE):
        return plain
    return _over_defaults(plain, place)


def _plain(config: Mapping[Any, Any], place: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        opened = config if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
        plain: Any = OmegaConf.to_container(opened, resolve=False)
    except OmegaConfBaseException as error:
        raise SpecError([f"{place} can't be held by OmegaConf: {str(error).splitlines()[0]}"]) from error
    tree = KeyTree({})
    for key, value in plain.items():
        tree.set(str(key), value)  # keys may have dots themselves
    return tree.config


def _of_text(config: dict[str, Any], place: str) -> dict[str, Any]:
    """As a file that hydra reads."""
    from omegaconf import OmegaConf

    with tempfile.TemporaryDirectory(prefix="dlrl-verl-") as folder:
        OmegaConf.save(OmegaConf.create(config), Path(folder, "config.yaml"))
        return _composed(ConfigFiles(main=folder, name="config", also=(str(config_folder()),)), place)


def _over_defaults(config: dict[str, Any], place: str) -> dict[str, Any]:
    """What is not said is as verl has it. A key that verl does not know is added only if it has a '+'."""
    from omegaconf import OmegaConf

    engine = config.pop(_ENGINE, None)
    kept = {RUNTIME_ENV: config.pop(RUNTIME_ENV)} if RUNTIME_ENV in config else {}
    files = ConfigFiles(main=str(config_folder()), name="ppo_trainer")
    base = _composed(files, place, [f"{_ENGINE}={engine}"] if engine else [])
    known, problems = KeyTree(base), list[str]()
    said = _known(config, "", known, place, problems)
    if problems:
        raise SpecError(problems)
    merged: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(base), OmegaConf.create(said)))
    return {**merged, **kept}


def _known(config: Mapping[str, Any], above: str, known: KeyTree, place: str, problems: list[str]) -> dict[str, Any]:
    """The config without the '+' of keys; unknown keys go to the problems."""
    said: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{above}{name}"
        is_open = name.startswith("+") or (above and not known.get(above[:-1]))
        if not is_open and key not in known:
            hint = did_you_mean(key, known)
            advice = hint if hint.endswith("?") else f"; to add a key that verl does not know, write '+{name}'"
            problems.append(f"unknown key '{key}' ({place}){advice}")
            continue
        is_section = isinstance(value, Mapping) and isinstance(known.get(key), Mapping)
        said[name.removeprefix("+")] = _known(value, f"{key}.", known, place, problems) if is_section else value
    return said


def _composed(files: ConfigFiles, place: str, overrides: list[str] | None = None) -> dict[str, Any]:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain: Any = OmegaConf.to_container(composed(files, overrides or []), resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("Config search path:")[0].split())
        raise SpecError([f"hydra refuses {place}: {reason}"]) from error
    return dict(plain)
