"""verl's own config files, found without importing verl."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from dlrl_core.errors import FrameworkUnavailableError

_CONFIG = Path("trainer", "config")


def config_folder() -> Path:
    """Raises FrameworkUnavailableError, with what to do instead, if verl or hydra is missing here."""
    folder = _package()
    missing = [
        name
        for name, is_there in (("verl", folder is not None), ("hydra-core", importlib.util.find_spec("hydra")))
        if not is_there
    ]
    if missing or folder is None:
        raise FrameworkUnavailableError(
            f"overrides are laid over verl's own config files by hydra, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed here; run: pip install 'dlrl[verl]', or give the "
            "composed YAML that 'python -m verl.trainer.main_ppo ... --cfg job' prints"
        )
    return folder / _CONFIG


def _package() -> Path | None:
    """The folder of the installed package; a clone in the current folder is not it, unless it is installed so."""
    try:
        installed = Path(str(importlib.metadata.distribution("verl").locate_file("verl")))
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = None if (installed / _CONFIG).is_dir() else importlib.util.find_spec("verl")
    found = [installed, *map(Path, (spec.submodule_search_locations or ()) if spec else ())]
    return next((folder for folder in found if (folder / _CONFIG).is_dir()), None)
