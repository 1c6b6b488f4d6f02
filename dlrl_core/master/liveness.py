"""Asking processes whether they live, and waiting for their replies with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.errors import ClusterError
from dlrl_core.workload.death_reason import GONE, death_reason

_PING_S = 5.0
_LOOK_AGAIN_S = 0.1


async def answers(host: Any) -> bool:
    """Whether the process is alive."""
    try:
        await asyncio.wait_for(answer(host.ping.remote()), _PING_S)
    except (TimeoutError, RayTaskError, *GONE):
        return False
    return True


async def stacks_of(host: Any) -> str:
    """The stacks of the process's threads; why there are none if there are none."""
    try:
        stacks: str = await asyncio.wait_for(answer(host.stacks.remote()), _PING_S)
    except (TimeoutError, RayTaskError, *GONE) as error:
        return f"it does not answer: {type(error).__name__}"
    return stacks


async def gone_within(hosts: Mapping[str, Any], grace_s: float) -> tuple[str, str] | None:
    """The first process that is found to be gone within that time, and why; None if none is.

    The death of a process may become known after the errors that it caused in others.
    """
    deadline = time.monotonic() + grace_s
    while hosts:
        pings = {name: asyncio.ensure_future(answer(host.ping.remote())) for name, host in hosts.items()}
        await asyncio.wait(pings.values(), timeout=max(_LOOK_AGAIN_S, deadline - time.monotonic()))
        for name, ping in pings.items():
            error = ping.exception() if ping.done() else None
            ping.cancel()
            if isinstance(error, GONE):
                return name, death_reason(error)
        if time.monotonic() >= deadline:
            return None
        await asyncio.sleep(_LOOK_AGAIN_S)
    return None


async def first_gone(refs: Mapping[str, Any]) -> str:
    """The name of a process whose call failed because it is gone."""
    for name, ref in refs.items():
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ref.future())), timeout=0.01)
        except TimeoutError:
            continue
        except GONE:
            return name
        except RayTaskError:
            continue
    return next(iter(refs))


async def replies_of(refs: Mapping[str, Any], *, doing: str, timeout_s: float) -> dict[str, Any]:
    """The reply of each named process.

    Raises the first failure at once; ClusterError with the processes that did not reply within the limit.
    """
    tasks = {name: asyncio.ensure_future(answer(ref)) for name, ref in refs.items()}
    try:
        _, pending = await asyncio.wait(tasks.values(), timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
        failed = next((task for task in tasks.values() if task.done() and task.exception()), None)
        if failed is not None:
            failed.result()
        if pending:
            missing = [name for name, task in tasks.items() if not task.done()]
            raise ClusterError(_no_reply(missing, len(tasks), doing, timeout_s))
        return {name: task.result() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


def _no_reply(missing: list[str], total: int, doing: str, timeout_s: float) -> str:
    names = ", ".join(f"'{name}'" for name in missing[:8]) + (", ..." if len(missing) > 8 else "")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return (
        f"{len(missing)} of {total} processes did not answer '{doing}' within {timeout_s:g} s: {names}; "
        f"{len(nodes)} nodes of the cluster are alive; see their Ray logs for these actors"
    )


async def answer(ref: Any) -> Any:
    return await ref


async def quiet(ref: Awaitable[Any]) -> None:
    """Wait for a reply; a process that is gone sends none, and that is no error here."""
    try:
        await ref
    except (RayTaskError, *GONE):
        return
