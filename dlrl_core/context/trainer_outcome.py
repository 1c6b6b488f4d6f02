"""TrainerOutcome: how a trainer's process says that it ended. It needs nothing but the standard library."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import ErrorIdentity, RemoteCause

if TYPE_CHECKING:
    from dlrl_core.trainer.progress import ProgressReport


_LARGEST_JSON = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class TrainerResult:
    """What `fit` returned. The driver that waits gets it pickled; a record keeps JSON alone, which can't execute."""

    type_name: str
    json_text: str | None = None
    """None for a value that JSON does not give back as it was, such as a tuple or a tensor, or of over a megabyte."""
    pickled: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Any, pickled: bytes) -> TrainerResult:
        try:
            text = json.dumps(value) if _is_plain(value) else None
        except (ValueError, RecursionError):  # it contains itself
            text = None
        is_small = text is not None and len(text) <= _LARGEST_JSON
        return cls(type_name=type(value).__name__, json_text=text if is_small else None, pickled=pickled)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


@dataclass(frozen=True, kw_only=True)
class TrainerOutcome:
    """How the trainer ended."""

    is_success: bool
    result: TrainerResult | None = None
    why: str | None = None
    cause: RemoteCause | None = None
    failed_workload: str | None = None
    """The workload whose method raised; None if the trainer's own code did, or a process died."""
    is_death: bool = False
    """A workload's process is gone: no error of user code."""
    is_commit_lost: bool = False
    """There is no commit left that all ranks hold."""
    error_identity: ErrorIdentity | None = None
    """Of an error of user code."""
    incarnation: int = 0
    """Of the trainer's process."""
    progress: ProgressReport | None = None
    """Where the trainer was at its end; reports on their way may arrive too late to tell."""
