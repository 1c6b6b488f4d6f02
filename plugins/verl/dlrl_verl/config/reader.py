"""From what the user gave to the config of the job: as verl's own command would have it, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigSource
from dlrl_verl.config.command import HydraWords, command_of, hydra_words
from dlrl_verl.config.composition import ConfigFiles
from dlrl_verl.config.contradictions import contradictions
from dlrl_verl.config.ignored import warn_of_ignored
from dlrl_verl.config.mapping import of_file, of_mapping
from dlrl_verl.config.overrides import laid_over
from dlrl_verl.config.packaged import config_folder
from dlrl_verl.config.places import Places
from dlrl_verl.config.settings import RUNTIME_ENV, Settings

_OWN_FILES = "pkg://verl.trainer.config"


def read(source: ConfigSource) -> dict[str, Any]:
    """The config as nested values, interpolations unresolved. Raises SpecError with every problem."""
    match source.value:
        case tuple():
            config, places = _of_words(source.value)
        case Path() if source.value.suffix not in (".yaml", ".yml"):
            config, places = _of_words((str(source.value),))
        case Path():
            config, places = of_file(source.value), Places({}, f"in {source.value.name}")
        case _:
            config, places = of_mapping(source.value, "config"), Places({}, "in the config")
    settings = Settings(config)
    if problems := contradictions(settings, places):
        raise SpecError(problems)
    warn_of_ignored(settings)
    return config


def _of_words(words: Sequence[str]) -> tuple[dict[str, Any], Places]:
    from omegaconf import OmegaConf

    command = command_of(words)
    said = hydra_words(command.flags)
    config: Any = OmegaConf.to_container(laid_over(_files(said), said.overrides), resolve=False)
    places = Places({word.text.lstrip("+").partition("=")[0]: word.where for word in said.overrides}, "the default")
    return {**config, RUNTIME_ENV: {"env_vars": dict(command.env)}} if command.env else config, places


def _files(said: HydraWords) -> ConfigFiles:
    """A relative path starts at the folder of verl's command, as hydra has it."""
    own = config_folder()
    main = str(own)
    if said.path is not None and said.path != _OWN_FILES:
        main = said.path if said.path.startswith("pkg://") else str((own.parent / said.path).resolve())
    return ConfigFiles(main=main, name=said.name, also=(said.folder,) if said.folder else ())
