"""For workloads that have an inference engine with processes of its own: neither outlives the other.

vLLM loads `attach` in every process of an engine as one of its plugins, through an entry point. Without it, the
engine's processes would live on when the workload is killed: they would keep their memory, and a process that sends
weights would wait for them. With `end_with_engine`, a workload whose engine has died dies too, and is restarted.
Shared memory and temporary files of both are removed by the one that ends last: see `owned_files`.
"""

from __future__ import annotations

import os
import select
import time
from importlib import import_module

from dlrl_core.workload.process import call_at_end, exit_after
from dlrl_vllm.owned_files import share_with_engine, use_files_of_owner

_OWNER = "DLRL_ENGINE_OWNER"
"""The process id of the workload that has the engine."""
_PREPARE = "DLRL_ENGINE_PREPARE"
"""The adapter's module whose `prepare()` each process of the engine calls first."""
_TITLE = "VLLM::"
"""The beginning of the names that vLLM gives to its processes."""
_END_S = 2.0
"""How long a workload outlives its engine, so that an orderly end, in which the engine ends first, is not cut short."""

_attached: list[int] = []


def own_engine(prepare: str) -> None:
    """Called by a workload before it starts an engine, whose processes will call `prepare()` of that module."""
    os.environ[_OWNER] = str(os.getpid())
    os.environ[_PREPARE] = prepare
    share_with_engine()


def attach() -> None:
    """Called in each process of an engine: it ends with the workload, and is prepared. No effect outside of dlrl."""
    owner = os.environ.get(_OWNER)
    if owner is None or int(owner) == os.getpid() or os.getpid() in _attached:
        return
    _attached.append(os.getpid())
    use_files_of_owner()
    _end_with(int(owner))
    import_module(os.environ[_PREPARE]).prepare()


def _end_with(owner: int) -> None:
    try:
        process = os.pidfd_open(owner)
    except ProcessLookupError:
        call_at_end()
        os._exit(1)
    exit_after(lambda: select.select([process], [], []))  # readable when the process has ended


def end_with_engine() -> None:
    """Called in the workload when the engine has started: the workload ends when a process of the engine does."""
    import psutil

    engine = [os.pidfd_open(one.pid) for one in psutil.Process().children(recursive=True) if _is_engine(one)]

    def wait() -> None:
        select.select(engine, [], [])  # readable when one has ended
        time.sleep(_END_S)

    if engine:
        exit_after(wait)


def _is_engine(process: object) -> bool:
    import psutil

    try:
        return " ".join(process.cmdline()).startswith(_TITLE)  # type: ignore[attr-defined]
    except psutil.Error:
        return False
