"""What a driver shows of its job's processes: their own output, without Ray's chatter and without foreign colours.

Ray sends the output of all processes to the driver, and mixes in messages of its raylets and of its autoscaler. Those
are in Ray's log files too, and what matters of them is in the job's record.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from typing import Any

_FROM_RAY = ("raylet", "autoscaler", "gcs_server")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Print = Callable[[dict[str, Any], bool], None]


class DriverOutput:
    """Ray's printing in this process, between `filter` and `restore` without Ray's own messages."""

    def __init__(self) -> None:
        self._original: Print | None = None

    def filter(self) -> None:
        """To be called before `ray.init`. Does nothing with a Ray that prints in another way."""
        from ray._private import worker

        original: Print | None = getattr(worker, "print_to_stdstream", None)
        if self._original is not None or original is None:
            return
        if not _is_terminal():
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        self._original = original
        worker.print_to_stdstream = functools.partial(_show, original)

    def restore(self) -> None:
        """Ray prints as before; for a process that goes on with a Ray of its own."""
        if self._original is not None:
            from ray._private import worker

            worker.print_to_stdstream = self._original  # type: ignore[assignment]
            self._original = None


def _show(original: Print, data: dict[str, Any], ignore_prefix: bool) -> None:
    if data.get("pid") in _FROM_RAY:
        return
    if not _is_terminal():
        data = {**data, "lines": [_COLOUR.sub("", str(line)) for line in data.get("lines", ())]}
    original(data, ignore_prefix)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty()


driver_output = DriverOutput()
