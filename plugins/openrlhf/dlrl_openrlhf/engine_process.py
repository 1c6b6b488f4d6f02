"""Runs in every process of a vLLM engine: vLLM loads it as one of its plugins, through an entry point.

An engine has processes of its own, which nobody ends when the workload is killed: they would keep their memory, and
those who send weights would wait for them.
"""

from __future__ import annotations

import os

OWNER = "DLRL_ENGINE_OWNER"
"""The process id of the workload that has the engine."""

_attached: list[int] = []


def attach() -> None:
    """End with the workload, and get ready to run without a GPU where there is none. Nothing to do outside of dlrl."""
    owner = os.environ.get(OWNER)
    if owner is None or int(owner) == os.getpid() or os.getpid() in _attached:
        return
    from dlrl_core.workload.orphan import end_with_process
    from dlrl_openrlhf import cpu

    _attached.append(os.getpid())
    end_with_process(int(owner))
    cpu.prepare()
