"""What the exit code of `dlrl` says."""

from __future__ import annotations

import enum

from dlrl_core.errors import (
    ClusterError,
    ContextError,
    JobError,
    JobExistsError,
    JobNotFoundError,
    JobStoppedError,
    JobTimeoutError,
    PlanError,
    PluginError,
    SpecError,
)


class ExitCode(enum.IntEnum):
    """Part of the command's contract: a number never changes its meaning."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CLUSTER = 3
    NO_SUCH_JOB = 4
    STOPPED = 130


MEANINGS = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "the job failed, or doctor found a problem",
    ExitCode.USAGE: "bad usage, or the job can't be built from what was given",
    ExitCode.CLUSTER: "the cluster or the store can't be reached, or the job does not fit",
    ExitCode.NO_SUCH_JOB: "no such job",
    ExitCode.STOPPED: "the job was stopped, or the command was interrupted",
}

# The first that fits counts, so that a subclass stands before its base.
_BY_ERROR: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (KeyboardInterrupt, ExitCode.STOPPED),
    (JobStoppedError, ExitCode.STOPPED),
    (JobNotFoundError, ExitCode.NO_SUCH_JOB),
    (JobExistsError, ExitCode.USAGE),
    (JobTimeoutError, ExitCode.CLUSTER),
    (JobError, ExitCode.FAILED),
    (SpecError, ExitCode.USAGE),
    (PluginError, ExitCode.USAGE),
    (PlanError, ExitCode.CLUSTER),
    (ClusterError, ExitCode.CLUSTER),
    (ContextError, ExitCode.CLUSTER),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """The code for an error that reached the command."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)
