"""Composing a config with hydra's own machinery, as `hydra.main` does it, and without touching its global state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class ConfigFiles:
    """Where hydra looks for config files."""

    main: str
    """A folder, or 'pkg://...'."""
    name: str
    also: tuple[str, ...] = ()
    """Folders that are looked in afterwards."""


def composed(files: ConfigFiles, overrides: Sequence[str]) -> Any:
    """The config as an OmegaConf that refuses new keys. Raises HydraException, or an error of OmegaConf."""
    from hydra.types import RunMode
    from omegaconf import open_dict

    with _hydra_of_today():
        config = loader_of(files).load_configuration(files.name, list(overrides), RunMode.RUN)
    with open_dict(config):
        del config["hydra"]
    return config


def loader_of(files: ConfigFiles) -> Any:
    """hydra's loader for these files."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery

    search_path = create_config_search_path(files.main)
    for folder in files.also:
        if not Path(folder).is_dir():
            raise SpecError([f"config folder '{folder}' is not there"])
        search_path.prepend("command-line", f"file://{Path(folder).absolute()}", SearchPathQuery(provider="schema"))
    return ConfigLoaderImpl(search_path)


@contextlib.contextmanager
def _hydra_of_today() -> Iterator[None]:
    """verl's command says `version_base=None`: the rules of the hydra that is installed."""
    from hydra import version

    before = version.VersionBase.instance().version_base
    version.setbase(None)
    try:
        yield
    finally:
        version.VersionBase.instance().version_base = before
