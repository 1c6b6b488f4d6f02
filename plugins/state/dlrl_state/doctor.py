"""What `dlrl doctor` tells about committed state: that of runs that are over, in the memory of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning
from dlrl_state.run_memory import dead_runs, memory_roots

_SUBJECT = "memory"


def check(request: DoctorRequest) -> Iterator[Verdict]:
    """A verdict for the committed state of each run that is over; with `clean` it is removed."""
    dead = dead_runs()
    if not dead:
        yield ok(_SUBJECT, f"no state of dead runs in {' or '.join(map(repr, map(str, memory_roots())))}")
    for folder in dead:
        yield _removed(folder) if request.clean else _found(folder)


def _found(folder: Path) -> Verdict:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return warning(_SUBJECT, f"'{folder}' has {size / 1e9:.2f} GB of a run that is over", "run: dlrl doctor --clean")


def _removed(folder: Path) -> Verdict:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return problem(_SUBJECT, f"'{folder}' can't be removed: {error.strerror}", f"run: rm -r '{folder}'")
    return ok(_SUBJECT, f"'{folder}' was removed")
