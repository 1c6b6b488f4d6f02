"""A process whose node is lost must not live on: somebody else does its work by now."""

from __future__ import annotations

import os
import select
import threading
import time

_LOOK_S = 1.0


def end_with_node() -> None:
    """End this process at once, without a word, when its raylet is gone. Ray's own watch may take much longer."""
    raylet = os.getppid()

    def watch() -> None:
        while os.getppid() == raylet:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="dlrl-orphan", daemon=True).start()


def end_with_process(pid: int) -> None:
    """End this process at once when that one is gone: for those that a workload starts, such as an engine."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)

    def watch() -> None:
        select.select([process], [], [])  # readable when it has ended
        os._exit(1)

    threading.Thread(target=watch, name="dlrl-orphan", daemon=True).start()
