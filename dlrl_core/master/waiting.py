"""Bounded waits with names: whoever is missing at the end is said."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray

from dlrl_core.errors import ClusterError


async def answers_of(refs: Mapping[str, Any], *, doing: str, timeout_s: float) -> dict[str, Any]:
    """The answer of each named workload; the first failure at once; ClusterError naming who did not answer."""
    tasks = {name: asyncio.ensure_future(_answer(ref)) for name, ref in refs.items()}
    try:
        _, pending = await asyncio.wait(tasks.values(), timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
        failed = next((task for task in tasks.values() if task.done() and task.exception()), None)
        if failed is not None:
            failed.result()
        if pending:
            missing = [name for name, task in tasks.items() if not task.done()]
            raise ClusterError(_said_nothing(missing, len(tasks), doing, timeout_s))
        return {name: task.result() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


async def _answer(ref: Any) -> Any:
    return await ref


def _said_nothing(missing: list[str], total: int, doing: str, timeout_s: float) -> str:
    names = ", ".join(f"'{name}'" for name in missing[:8]) + (", ..." if len(missing) > 8 else "")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return (
        f"{len(missing)} of {total} processes did not answer '{doing}' within {timeout_s:g} s: {names}; "
        f"{len(nodes)} nodes of the cluster are alive; see their Ray logs for these actors"
    )
