"""Calls of `async def` methods: side by side, and over when training goes back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from checks import wait_until

from dlrl_core.errors import DlrlError
from dlrl_core.workload.coroutines import Coroutines


@pytest.fixture
def coroutines() -> Coroutines:
    return Coroutines()


def call(coroutines: Coroutines, coroutine) -> None:
    """As a workload's thread does it."""
    one = coroutines.begin("generate")
    try:
        coroutines.run(coroutine, one)
    finally:
        coroutines.end(one)


def test_running_calls_have_ended_when_cancelling_returns(coroutines):
    states: list[str] = []

    async def generate():
        states.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            states.append("ended")

    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(call, coroutines, generate()) for _ in range(3)]
        wait_until(lambda: states.count("begun") == 3, "all have begun")
        assert coroutines.oldest()[0] == "generate"
        assert coroutines.cancel_all(5.0)
        assert states.count("ended") == 3
        assert all("CancelledError" in type(one.exception(5)).__name__ for one in calls)
    assert coroutines.oldest() is None
    assert not coroutines.cancel_all(5.0)


def test_a_call_whose_arguments_come_too_late_never_begins(coroutines):
    began = threading.Event()

    async def generate():
        began.set()

    one = coroutines.begin("generate")
    assert not coroutines.cancel_all(5.0)
    with pytest.raises(CancelledError):
        coroutines.run(generate(), one)
    coroutines.end(one)
    assert not began.is_set()


def test_a_call_that_does_not_let_itself_be_cancelled_is_named(coroutines):
    release, begun = threading.Event(), threading.Event()

    async def generate():
        begun.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue

    with ThreadPoolExecutor() as pool:
        pool.submit(call, coroutines, generate())
        begun.wait()
        with pytest.raises(DlrlError, match="'generate' has not ended 0.1 s after it was cancelled"):
            coroutines.cancel_all(0.1)
        release.set()


def test_background_tasks_of_the_users_own_are_left_alone(coroutines):
    """Such as the loop of an engine, which later calls need."""
    tasks: list[asyncio.Task] = []

    async def start():
        tasks.append(asyncio.create_task(asyncio.sleep(60)))

    async def generate():
        await asyncio.sleep(60)

    call(coroutines, start())
    with ThreadPoolExecutor() as pool:
        pool.submit(call, coroutines, generate())
        wait_until(lambda: coroutines.oldest() is not None, "it has begun")
        wait_until(lambda: coroutines.cancel_all(5.0), "it was cancelled")
    assert not tasks[0].done()
