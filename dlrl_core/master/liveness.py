"""Whether processes live: asked, with a limit, where a pending call has not told yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from ray.exceptions import RayTaskError

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
    """The first of them that turns out to be gone in that time, and why; None if none does.

    The death of a process may be heard of after what it did to others.
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
    """Whose call has failed because its process is gone."""
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


async def answer(ref: Any) -> Any:
    return await ref


async def quiet(ref: Awaitable[Any]) -> None:
    """Wait for a last word that may never come."""
    try:
        await ref
    except (RayTaskError, *GONE):
        return
