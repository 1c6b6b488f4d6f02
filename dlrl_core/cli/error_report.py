"""Errors as the command shows them, without a traceback of dlrl's own code, and the exit code of each."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import typer

from dlrl_core.errors import (
    ClusterError,
    ContextError,
    DlrlError,
    JobError,
    JobExistsError,
    JobNotFoundError,
    JobStoppedError,
    JobTimeoutError,
    PlanError,
    PluginError,
    RemoteCause,
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
    """The code for an error that reached the command; a job that failed by a plugin's error ends as that error does."""
    error = error.__cause__ if isinstance(error.__cause__, PluginError) else error
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)


@contextmanager
def errors_shown(as_json: bool) -> Iterator[None]:
    """A context: an error of dlrl, or Ctrl-C, in the block ends the command with a message and its exit code."""
    try:
        yield
    except (DlrlError, KeyboardInterrupt) as error:
        fail(error, as_json=as_json)


def fail(
    error: BaseException, *, as_json: bool, also: Mapping[str, Any] | None = None, stdout: IO[str] | None = None
) -> None:
    """Show the error and end the command. With `as_json`, the object has the fields of `also` too."""
    if as_json:
        from dlrl_core.cli.output import print_json

        print_json({**(also or {}), "error": described(error)}, stdout)
    else:
        _print(error)
    raise typer.Exit(exit_code_of(error)) from None


def described(error: BaseException) -> dict[str, Any]:
    """The error as plain values for --json."""
    cause = _cause(error)
    return {
        "type": type(error).__name__,
        "message": headline(error),
        "exit_code": int(exit_code_of(error)),
        "job": getattr(error, "job", None),
        "problems": list(error.problems) if isinstance(error, SpecError) else [],
        "cause": cause and {"type": cause.type_name, "message": cause.message, "traceback": cause.traceback},
    }


def headline(error: BaseException) -> str:
    """The error without the traceback it may carry."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    cause = _cause(error)
    text = str(error)
    return text.removesuffix(cause.traceback).rstrip() if cause else text


def _cause(error: BaseException) -> RemoteCause | None:
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, RemoteCause) else None


def _print(error: BaseException) -> None:
    from rich.text import Text

    from dlrl_core.cli.output import console
    from dlrl_core.context import redact

    stderr = console(sys.stderr)
    stderr.print(Text.assemble(("error: ", "bold red"), redact(headline(error))), soft_wrap=True)
    if (cause := _cause(error)) and not isinstance(error, PluginError):  # --json has it
        stderr.print(Text(f"\n{redact(cause.traceback).rstrip()}", style="dim"), soft_wrap=True)
