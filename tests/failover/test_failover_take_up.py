"""A Master that was restarted asks for its record for as long as it takes, and never writes over a running job."""

from __future__ import annotations

import asyncio

import pytest
from master_parts import Call, launch_of, nodes, plan_on, small_job

from dlrl_core.context import JobContext
from dlrl_core.errors import StoreError, StoreUnavailableError
from dlrl_core.master import beginning_and_end as load_module
from dlrl_core.master.beginning_and_end import load_or_create, until_loaded
from dlrl_sqlite.store import SqliteStore


class TrainerStandIn:
    def __init__(self, *, is_running: bool) -> None:
        self.is_running = Call(lambda: is_running)


@pytest.fixture
def launch():
    spec = small_job()
    return launch_of(spec, plan_on(spec, nodes("a")))


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "context.db") as store:
        yield store


def there_are(monkeypatch, processes: dict[str, object]) -> None:
    monkeypatch.setattr(load_module, "processes_of", lambda _job: processes)
    monkeypatch.setattr(load_module.ray, "get", lambda answer, timeout: answer)


@pytest.mark.parametrize(
    "processes", [{"trainer": TrainerStandIn(is_running=True), "actor-0": None}, {"actor-0": None}]
)
def test_a_successor_without_a_record_refuses_a_job_that_is_under_way_and_writes_nothing(
    launch, store, monkeypatch, processes
):
    there_are(monkeypatch, processes)
    with pytest.raises(StoreError, match="is under way, and the store .* has no record of its run 'run'"):
        load_or_create(store, launch, "address", is_successor=True)
    with SqliteStore(store.path) as again:
        assert again.load("small") is None


@pytest.mark.parametrize("processes", [{}, {"trainer": TrainerStandIn(is_running=False), "actor-0": None}])
def test_a_successor_of_a_master_that_died_before_it_wrote_begins_the_job(launch, store, monkeypatch, processes):
    there_are(monkeypatch, processes)
    assert load_or_create(store, launch, "address", is_successor=True).record.master_incarnation == 1


def test_a_successor_goes_on_with_the_record(launch, store):
    load_or_create(store, launch, "address")
    load_or_create(store, launch, "address", is_successor=True)
    assert JobContext.load(store, "small").record.master_incarnation == 2


def test_it_asks_again_until_the_store_is_back(monkeypatch):
    monkeypatch.setattr(load_module, "_FIRST_PAUSE_S", 0.01)
    left = [StoreUnavailableError("away"), StoreError("no record"), None]
    said: list[str] = []

    async def attempt() -> None:
        if (error := left.pop(0)) is not None:
            raise error

    async def run() -> bool:
        return await until_loaded(
            attempt, job="small", stop=asyncio.Event(), on_failure=lambda error: said.append(str(error))
        )

    assert asyncio.run(run())
    waits = "the master of job 'small' was restarted and can't take it up yet; nothing of the job is touched"
    assert [sentence.startswith(waits) for sentence in said] == [True, True]
    assert [sentence.rpartition(": ")[2] for sentence in said] == ["away", "no record"]


def test_a_stop_ends_the_asking():
    async def attempt() -> None:
        raise StoreUnavailableError("away")

    async def run() -> bool:
        stop = asyncio.Event()
        return await until_loaded(attempt, job="small", stop=stop, on_failure=lambda _error: stop.set())

    assert not asyncio.run(run())
