"""OpenRLHF's own checkpoints, looked at before they are resumed from.

Actor and critic each have a folder with a `latest` of its own. A death between the two saves leaves them a step
apart, and one during a save leaves files missing. Training resumed from such a pair goes on with an actor and a
critic of different steps, in silence.
"""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

_LATEST = "latest"
_ZERO = re.compile(r"zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt$")
_LOG = logging.getLogger(__name__)


def align_checkpoints(path: str, *, has_critic: bool) -> str | None:
    """Let every role's `latest` name the newest checkpoint that all roles have whole. Returns its tag, or None.

    If there is none, `latest` is taken away, and training starts from the beginning.
    """
    folders = [Path(path) / "_actor", *([Path(path) / "_critic"] if has_critic else [])]
    if not folders[0].exists():
        return None
    common = set.intersection(*(set(_whole_tags(folder)) for folder in folders))
    tag = max(common, key=_step_of, default=None)
    for folder in folders:
        _point(folder, tag)
    return tag


def _whole_tags(folder: Path) -> Iterator[str]:
    """The regular checkpoints in a folder that no death has left incomplete."""
    for one in folder.iterdir() if folder.exists() else ():
        if one.is_dir() and one.name.startswith("global_step") and _is_whole(one):
            yield one.name


def _is_whole(checkpoint: Path) -> bool:
    """Whether the model is there, and each rank's part of the optimizer. An interrupted file is no zip archive."""
    files = list(checkpoint.glob("*.pt"))
    ranks = {int(found[1]) for file in files if (found := _ZERO.search(file.name))}
    has_model = any(file.name.endswith("_model_states.pt") for file in files)
    is_gapless = ranks == set(range(_world_size(checkpoint, default=len(ranks))))
    return has_model and is_gapless and all(zipfile.is_zipfile(file) for file in files)


def _world_size(checkpoint: Path, default: int) -> int:
    """How many ranks wrote, as the other checkpoints of the same folder show."""
    counts = [len(list(other.glob("*zero_pp_rank_*_optim_states.pt"))) for other in checkpoint.parent.iterdir()]
    return max(counts, default=default)


def _step_of(tag: str) -> int:
    digits = tag.removeprefix("global_step")
    return int(digits) if digits.isdigit() else -1


def _point(folder: Path, tag: str | None) -> None:
    latest = folder / _LATEST
    found = latest.read_text().strip() if latest.exists() else None
    if found == tag:
        return
    if tag is None:
        _LOG.warning("no checkpoint below '%s' is whole in all roles: training starts from the beginning", folder)
        latest.unlink(missing_ok=True)
        return
    _LOG.warning("'%s' named checkpoint '%s'; the newest that all roles have whole is '%s'", latest, found, tag)
    part = latest.with_suffix(".part")
    part.write_text(tag)
    part.replace(latest)
