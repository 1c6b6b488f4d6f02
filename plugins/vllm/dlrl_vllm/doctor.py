"""The doctor check of what killed engines left: shared memory, semaphores and temporary files."""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, warning
from dlrl_vllm.owned_files import left_files, searched_folders, sweep

_SUBJECT = "engines"


def check(request: DoctorRequest) -> Iterator[Verdict]:
    """A verdict for each file of a process that is gone; with `clean` it is removed."""
    left = sweep() if request.clean else left_files()
    if not left:
        searched = " or ".join(f"'{folder}'" for folder in searched_folders())
        yield ok(_SUBJECT, f"nothing of killed engines in {searched}")
    for path in left:
        if request.clean:
            yield ok(_SUBJECT, f"'{path}' was removed")
        else:
            yield warning(_SUBJECT, f"'{path}' is of an engine that was killed", "run: dlrl doctor --clean")
