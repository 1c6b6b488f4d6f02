"""For workloads that have an inference engine with processes of its own: neither outlives the other.

vLLM loads `attach` in every process of an engine as one of its plugins, through an entry point. Nobody ends these
processes when the workload is killed: they would keep their memory, and those who send weights would wait for them.
And when one of them dies, the workload could not do anything any more, but would be taken for well.
"""

from __future__ import annotations

import os
import select
import threading
import time
from importlib import import_module

from dlrl_core.workload.process import end_with_process

_OWNER = "DLRL_ENGINE_OWNER"
"""The process id of the workload that has the engine."""
_PREPARE = "DLRL_ENGINE_PREPARE"
"""A module whose `prepare()` each process of the engine calls first; of the adapter."""
_TITLE = "VLLM::"
"""With it begin the names that vLLM gives to its processes."""
_END_S = 2.0
"""For an orderly end, in which the engine goes first."""

_attached: list[int] = []


def own_engine(prepare: str) -> None:
    """This workload is about to start an engine, whose processes are to call `prepare()` of that module."""
    os.environ[_OWNER] = str(os.getpid())
    os.environ[_PREPARE] = prepare


def attach() -> None:
    """In a process of an engine: end with the workload, and get ready. Nothing to do outside of dlrl."""
    owner = os.environ.get(_OWNER)
    if owner is None or int(owner) == os.getpid() or os.getpid() in _attached:
        return
    _attached.append(os.getpid())
    end_with_process(int(owner))
    import_module(os.environ[_PREPARE]).prepare()


def end_with_engine() -> None:
    """In the workload, when the engine has started: end when a process of the engine does."""
    import psutil

    engine = [os.pidfd_open(one.pid) for one in psutil.Process().children(recursive=True) if _is_engine(one)]

    def watch() -> None:
        select.select(engine, [], [])  # readable when one has ended
        time.sleep(_END_S)
        os._exit(1)

    if engine:
        threading.Thread(target=watch, name="dlrl-engine", daemon=True).start()


def _is_engine(process: object) -> bool:
    import psutil

    try:
        return " ".join(process.cmdline()).startswith(_TITLE)  # type: ignore[attr-defined]
    except psutil.Error:
        return False
