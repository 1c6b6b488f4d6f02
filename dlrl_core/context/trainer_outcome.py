"""TrainerOutcome: how a trainer's process says that it ended. It needs nothing but the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrl_core.errors import ErrorIdentity, RemoteCause

if TYPE_CHECKING:
    from dlrl_core.trainer.progress import ProgressReport


@dataclass(frozen=True, kw_only=True)
class TrainerOutcome:
    """How the trainer ended. The result travels pickled: only the driver, which asked, opens it."""

    is_success: bool
    result: bytes | None = None
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
