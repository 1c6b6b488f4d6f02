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

from dlrl_core.errors import DlrlError

_LATEST = "latest"
_TAG = re.compile(r"(best_)?global_step(\d+)")
"""What OpenRLHF calls a checkpoint: a regular one, and the best by evaluation so far. `latest` may name either."""
_ZERO = re.compile(r"zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt$")
_LOG = logging.getLogger(__name__)


def align_checkpoints(path: str, *, has_critic: bool) -> str | None:
    """Let every role's `latest` name the same checkpoint, one that all roles have whole. Returns its tag.

    That is the one they name already, else the newest. None if there are no checkpoints at all. Raises DlrlError if
    there are some, and none is whole in all roles: whoever asks to go on does not want to begin again in silence.
    """
    folders = [Path(path) / "_actor", *([Path(path) / "_critic"] if has_critic else [])]
    named = [_named(folder) for folder in folders]
    common = set.intersection(*(set(_whole_tags(folder)) for folder in folders))
    is_agreed = len({*named}) == 1 and named[0] in common
    tag = named[0] if is_agreed else max(filter(_TAG.fullmatch, common), key=_age, default=None)
    if tag is None and any(named):
        said = ", ".join(
            f"'{folder / _LATEST}' names '{one}'" for folder, one in zip(folders, named, strict=True) if one
        )
        raise DlrlError(
            f"no checkpoint below '{path}' is whole in all roles ({said}); name another '--ckpt.path', or leave "
            "'--ckpt.load_enable' out to begin again"
        )
    if tag is not None:
        for folder in folders:
            _point(folder, tag)
    return tag


def _whole_tags(folder: Path) -> Iterator[str]:
    """The checkpoints in a folder that no death has left incomplete."""
    for one in folder.iterdir() if folder.exists() else ():
        if one.is_dir() and _is_whole(one):
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


def _age(tag: str) -> tuple[int, bool]:
    """For sorting, oldest first: of one step, the best is written after the regular one."""
    found = _TAG.fullmatch(tag)
    assert found is not None
    return int(found[2]), found[1] is not None


def _named(folder: Path) -> str | None:
    latest = folder / _LATEST
    return latest.read_text().strip() if latest.exists() else None


def _point(folder: Path, tag: str) -> None:
    latest, found = folder / _LATEST, _named(folder)
    if found == tag:
        return
    _LOG.warning("'%s' named checkpoint '%s'; the newest that all roles have whole is '%s'", latest, found, tag)
    part = latest.with_suffix(".part")
    part.write_text(tag)
    part.replace(latest)
