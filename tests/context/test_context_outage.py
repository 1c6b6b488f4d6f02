"""A store that is away for a while: the job goes on, and what it did is written in order when the store is back."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import short_temp_folder, wait_until
from context_samples import job_record, run_python, survives_pickle, workload_record
from redis_front_stand_in import RedisFrontStandIn
from redis_server import RedisServer

from dlrl_core.context import JobContext, JobState, OutageLimits, Store, open_store
from dlrl_core.context.store import sqlite_url
from dlrl_core.errors import ContextError, SchemaError, StoreConflictError, StoreError, StoreUnavailableError
from dlrl_sqlite.store import SqliteStore

# A machine that is slow for a moment is no outage: only an error of the store begins one.
QUICK = OutageLimits(patience_s=30, first_pause_s=0.02, longest_pause_s=0.05)


@pytest.fixture
def server(own_redis_server: RedisServer) -> RedisServer:
    return own_redis_server


@pytest.fixture
def store(server: RedisServer) -> Iterator[Store]:
    with open_store(server.url) as opened:
        yield opened


@pytest.fixture
def context(store: Store) -> JobContext:
    return JobContext.create(store, job_record(), [workload_record(rank=rank) for rank in range(3)], limits=QUICK)


def note(context: JobContext, message: str) -> None:
    with context.change() as change:
        change.job(master_incarnation=change.record.master_incarnation + 1)
        change.event("note", message)


def messages(context: JobContext, kind: str = "note") -> list[str]:
    return [event.message for event in context.journal() if event.kind == kind]


def writers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "dlrl-store-of-one"]


def is_back(context: JobContext) -> None:
    wait_until(lambda: not context.degraded, "the store is back, and all is written", pause_s=0.005)


def assert_stored(context: JobContext, store: Store) -> None:
    """What is in the store is what is in memory."""
    context.close()
    loaded = JobContext.load(store, context.record.name)
    assert loaded.record == context.record
    assert dict(loaded.workloads) == dict(context.workloads)
    assert (loaded.version, loaded.last_seq) == (context.version, context.last_seq)
    assert [event.seq for event in loaded.journal(0)] == list(range(1, loaded.last_seq + 1))


# ---- Redis, killed and stopped


def test_changes_of_an_outage_are_written_in_order_when_the_server_is_back(
    server: RedisServer, store: Store, context: JobContext
) -> None:
    note(context, "before")
    server.kill()
    for number in range(20):
        note(context, f"during {number}")
    with context.change() as change:
        change.job(state=JobState.RESERVING)
        change.remove_workload("actor-1")
        change.workload("actor-0", pid=7)

    assert context.record.state is JobState.RESERVING
    assert list(context.workloads) == ["actor-0", "actor-2"]
    assert context.degraded
    with pytest.raises(StoreUnavailableError):
        context.journal()
    server.start()
    is_back(context)
    note(context, "after")

    assert messages(context) == ["before", *(f"during {number}" for number in range(20)), "after"]
    assert_stored(context, store)


def test_degraded_job_says_since_when_and_how_much_waits(server: RedisServer, context: JobContext) -> None:
    assert (context.degraded, context.snapshot()["degraded"]) == (None, None)
    server.kill()
    note(context, "one")
    silence = rf"the store {server.url} has not answered for \d+ s; "
    assert re.fullmatch(f"{silence}1 change waits", context.snapshot()["degraded"] or "")
    note(context, "two")

    assert re.fullmatch(f"{silence}2 changes wait", context.snapshot()["degraded"] or "")
    json.dumps(context.snapshot(), allow_nan=False)
    server.start()
    is_back(context)
    assert (context.degraded, context.snapshot()["degraded"]) == (None, None)


def test_journal_tells_when_the_outage_began_and_ended(server: RedisServer, context: JobContext) -> None:
    server.kill()
    start = time.time()
    note(context, "one")
    note(context, "two")
    server.start()
    is_back(context)
    context.close()

    first, lost, second, back = context.journal()[1:]
    assert (first.message, second.message) == ("one", "two")
    assert (lost.kind, back.kind) == ("store_lost", "store_back")
    assert lost.message == f"the store {server.url} can't be reached; the job goes on, its changes wait in memory"
    assert "does not answer" in str(lost.data["cause"])
    assert lost.at == pytest.approx(start, abs=1)
    assert back.message.startswith(f"the store {server.url} answers again after ")
    assert back.message.endswith(" s; 2 changes were written")
    assert back.data["changes"] == 2
    assert lost.at < back.at


def test_event_loop_waits_once_for_the_patience_and_not_again(server: RedisServer, store: Store) -> None:
    limits = OutageLimits(patience_s=0.3, first_pause_s=0.02, longest_pause_s=0.05)
    context = JobContext.create(store, job_record(), limits=limits)

    async def pauses() -> list[float]:
        async def one() -> float:
            start = time.perf_counter()
            note(context, "still going")
            return time.perf_counter() - start

        return [await one() for _ in range(51)]

    server.pause()
    first, *others = asyncio.run(pauses())
    server.resume()
    is_back(context)

    assert limits.patience_s <= first < 3
    assert sum(others) < 1
    assert len(messages(context)) == 51
    assert_stored(context, store)


def test_several_outages_in_a_row(server: RedisServer, store: Store, context: JobContext) -> None:
    for number in range(3):
        server.kill()
        note(context, f"{number} down")
        server.start()
        is_back(context)
        note(context, f"{number} up")

    assert messages(context) == ["0 down", "0 up", "1 down", "1 up", "2 down", "2 up"]
    assert_stored(context, store)
    assert len(messages(context, "store_lost")) == len(messages(context, "store_back")) == 3


def test_answers_lost_on_the_way_lose_and_double_nothing(server: RedisServer) -> None:
    with RedisFrontStandIn(server.port) as front, open_store(front.url) as store:
        context = JobContext.create(store, job_record(), limits=QUICK)
        front.answers_to_lose = 9
        for number in range(6):
            note(context, str(number))
        is_back(context)

        assert front.answers_lost == 9
        assert messages(context) == [str(number) for number in range(6)]
        assert_stored(context, store)


def test_job_does_not_start_on_a_store_that_is_down(server: RedisServer, store: Store, context: JobContext) -> None:
    server.kill()

    with pytest.raises(StoreUnavailableError, match=f"the store {server.url} does not answer"):
        JobContext.create(store, job_record("other"))
    with pytest.raises(StoreUnavailableError, match=f"the store {server.url} does not answer"):
        JobContext.load(store, "my-ppo")


def test_commits_that_a_crash_of_the_server_lost_are_written_again() -> None:
    """A server that syncs once a second may lose what it confirmed last, while its disk is busy."""
    with RedisServer(short_temp_folder(), "--appendfsync", "everysec") as server, open_store(server.url) as store:
        context = JobContext.create(store, job_record(), limits=QUICK)
        for number in range(5):
            for one in range(100):
                note(context, f"{number}.{one}")
            server.kill()
            server.start()
        is_back(context)

        assert messages(context) == [f"{number}.{one}" for number in range(5) for one in range(100)]
        assert_stored(context, store)


def keys_of(server: RedisServer) -> dict[str, bytes]:
    client = server.client()
    return {key: client.dump(key) for key in client.scan_iter()}


def go_back_to(server: RedisServer, keys: dict[str, bytes]) -> None:
    client = server.client()
    client.flushall()
    for key, value in keys.items():
        client.restore(key, 0, value)


@pytest.mark.parametrize("commits_kept", [0, 1, 3])
def test_store_that_went_back_to_an_earlier_commit_of_ours_is_brought_forward(
    server: RedisServer, store: Store, context: JobContext, commits_kept: int
) -> None:
    for number in range(commits_kept):
        note(context, f"kept {number}")
    earlier = keys_of(server)
    note(context, "lost 0")
    with context.change() as change:
        change.remove_workload("actor-1")
        change.event("note", "lost 1")
    go_back_to(server, earlier)
    note(context, "next")

    kept = [f"kept {number}" for number in range(commits_kept)]
    assert messages(context) == [*kept, "lost 0", "lost 1", "next"]
    # The event is a commit of its own after "next", for which `note` does not wait.
    (rewound,) = wait_until(lambda: messages(context, "store_rewound"), "the journal tells of it")
    assert rewound == f"the store {server.url} came back without the last 2 commits it had confirmed; written again"
    assert_stored(context, store)


# ---- what must never happen


def test_store_that_went_back_and_was_written_to_by_a_newer_master_is_never_overwritten(
    server: RedisServer, store: Store, context: JobContext
) -> None:
    """The newer one may have made as many commits as were lost."""
    note(context, "kept")
    earlier = keys_of(server)
    note(context, "lost")
    go_back_to(server, earlier)
    newer = JobContext.load(store, "my-ppo")
    for _ in range(3):
        note(newer, "newer")
        with pytest.raises(StoreError, match="somebody else wrote"):
            note(context, "older")

    assert messages(newer) == ["kept", "newer", "newer", "newer"]
    assert_stored(newer, store)


def test_newer_master_that_wrote_meanwhile_is_never_overwritten(
    server: RedisServer, store: Store, context: JobContext, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    note(context, "old master")
    note(context, "old master")
    context.fail_for(3600)  # it is cut off; the server is not
    server.start()
    newer = JobContext.load(store, "my-ppo")
    with newer.change() as change:
        change.job(master_incarnation=100)
    with caplog.at_level(logging.ERROR):
        told: list[str] = []
        context.on_conflict(lambda: told.append("somebody else has the job"))
        context.fail_for(0)
        wait_until(lambda: "can't be written any more" in (context.degraded or ""), "the old master is refused")

    assert told == ["somebody else has the job"]
    words = "job 'my-ppo' can't be written any more by this process, 2 of its changes are lost.*somebody else wrote"
    for _ in range(2):
        with pytest.raises(StoreConflictError, match=words) as caught:
            note(context, "late")
        assert survives_pickle(caught.value)
    with pytest.raises(StoreConflictError, match=words):
        context.close()
    assert context.degraded
    assert "somebody else wrote" in caplog.text
    assert JobContext.load(store, "my-ppo").record == newer.record
    assert messages(newer) == []


def test_server_that_came_back_without_its_data_is_never_written_to(
    server: RedisServer, store: Store, context: JobContext
) -> None:
    server.kill()
    note(context, "one")
    for path in server.folder.rglob("*.aof"):
        path.unlink()
    for path in server.folder.rglob("*.manifest"):
        path.unlink()
    server.start()
    wait_until(lambda: "the store lost it" in (context.degraded or ""), "the loss is noticed")

    with pytest.raises(StoreError, match="somebody deleted it, or the store lost it"):
        note(context, "two")
    assert server.client().keys() == []


def test_newer_dlrl_that_came_by_meanwhile_is_never_overwritten(
    server: RedisServer, store: Store, context: JobContext
) -> None:
    server.kill()
    note(context, "one")
    context.fail_for(3600)
    server.start()
    server.client().set("dlrl:schema", "7")
    context.fail_for(0)
    wait_until(lambda: "schema 7" in (context.degraded or ""), "the newer dlrl is noticed")

    with pytest.raises(SchemaError, match="schema 7, this dlrl reads up to 1"):
        note(context, "two")


def test_queue_is_bounded_and_progress_takes_one_place_of_it(server: RedisServer, store: Store) -> None:
    limits = OutageLimits(first_pause_s=0.02, longest_pause_s=0.05, most_changes=6)
    context = JobContext.create(store, job_record(), limits=limits)
    server.kill()
    note(context, "first")
    for step in range(100):
        with context.change() as change:
            change.progress(step=step)
    while len(context._queue._line) < limits.most_changes:
        note(context, "more")
    before = context.record

    with pytest.raises(StoreUnavailableError, match=r"10\d changes wait; no more may wait, so this change was refused"):
        note(context, "too much")

    assert context.record == before
    server.start()
    is_back(context)
    note(context, "room again")
    assert context.record.progress.step == 99
    assert_stored(context, store)


def test_text_that_waits_is_bounded(server: RedisServer, store: Store) -> None:
    limits = OutageLimits(first_pause_s=0.02, longest_pause_s=0.05, most_characters=10_000)
    context = JobContext.create(store, job_record(), limits=limits)
    note(context, "x" * 20_000)  # all is well while it need not wait
    server.kill()
    note(context, "first")
    with pytest.raises(StoreUnavailableError, match="no more may wait"):
        note(context, "x" * 20_000)
    note(context, "second")
    server.start()
    is_back(context)

    assert messages(context)[1:] == ["first", "second"]


def test_durable_change_does_not_wait_in_line(server: RedisServer, store: Store, context: JobContext) -> None:
    with context.change(is_durable=True) as change:
        change.job(master_incarnation=1)
    server.kill()
    start = time.monotonic()
    with (
        pytest.raises(StoreUnavailableError, match="a change that must be written was not"),
        context.change(is_durable=True) as change,
    ):
        change.job(master_incarnation=2)

    assert time.monotonic() - start < 1
    assert context.record.master_incarnation == 1
    server.start()
    with pytest.raises(StoreUnavailableError, match="a change that must be written was not"):
        note(context, "nobody knows whether that was written")
    assert JobContext.load(store, "my-ppo").record.master_incarnation == 1


def test_durable_change_can_t_join_those_that_wait(server: RedisServer, context: JobContext) -> None:
    server.kill()
    note(context, "waits")
    with pytest.raises(StoreUnavailableError, match="can't join them"), context.change(is_durable=True) as change:
        change.job(master_incarnation=7)
    server.start()
    is_back(context)

    assert messages(context) == ["waits"]
    with context.change(is_durable=True) as change:
        change.job(master_incarnation=7)


# ---- the end


def test_close_writes_what_waits(server: RedisServer, store: Store, context: JobContext) -> None:
    server.kill()
    note(context, "last words")
    closing = threading.Thread(target=context.close, args=(30,))
    closing.start()
    server.start()
    closing.join()
    context.close()

    assert messages(context) == ["last words"]
    with pytest.raises(StoreError, match="the context of job 'my-ppo' is closed"):
        note(context, "later")
    assert_stored(context, store)


def test_close_gives_up_in_time_and_says_what_is_lost(server: RedisServer, store: Store) -> None:
    context = JobContext.create(store, job_record("of-one"), limits=QUICK)
    server.kill()
    note(context, "one")
    note(context, "two")
    start = time.monotonic()

    with pytest.raises(StoreUnavailableError) as caught:
        context.close(timeout_s=0.3)

    assert time.monotonic() - start < 2
    silence = rf"job 'of-one': the store {server.url} has not answered for \d+ s; 2 changes wait; "
    assert re.match(f"{silence}given up after 0.3 s, they are lost: ", str(caught.value))
    wait_until(lambda: not writers(), "no thread goes on")


def test_context_that_is_idle_has_no_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlrl_core.context.write_queue._IDLE_S", 0.05)
    context = JobContext.create(store, job_record("of-one"))
    for number in range(2):
        note(context, str(number))
        wait_until(lambda: not writers(), "the writer is gone")

    assert messages(context) == ["0", "1"]


def test_chaos_keeps_the_store_out_of_reach_for_a_while(store: Store, context: JobContext) -> None:
    context.fail_for(0.3)
    note(context, "in chaos")
    assert context.degraded
    is_back(context)

    assert "by chaos" in str(context.journal()[2].data["cause"])
    assert_stored(context, store)


# ---- SQLite


@pytest.fixture
def file_store(store_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(store_path, lock_timeout_s=0.2) as opened:
        yield opened


def test_locked_file_is_an_outage(file_store: SqliteStore) -> None:
    context = JobContext.create(file_store, job_record(), limits=QUICK)
    blocker = sqlite3.connect(file_store.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    for number in range(5):
        note(context, str(number))
    wait_until(lambda: context.degraded, "the lock is noticed")
    assert f"the store {sqlite_url(file_store.path)} has not answered" in (context.degraded or "")
    blocker.close()
    is_back(context)

    assert messages(context) == ["0", "1", "2", "3", "4"]
    assert "stayed locked for 0.2 s" in str(next(e for e in context.journal() if e.kind == "store_lost").data["cause"])
    assert_stored(context, file_store)


def test_lock_that_lasts_a_moment_is_no_word_in_the_journal(store_path: Path) -> None:
    limits = OutageLimits(patience_s=0.05)
    with SqliteStore(store_path) as store:
        context = JobContext.create(store, job_record(), limits=limits)
        blocker = sqlite3.connect(store_path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        note(context, "one")
        assert context.degraded
        blocker.close()
        is_back(context)

        assert [event.kind for event in context.journal()] == ["submitted", "note"]
        assert_stored(context, store)


def test_folder_that_goes_away_is_an_outage(file_store: SqliteStore, tmp_path: Path) -> None:
    context = JobContext.create(file_store, job_record(), limits=QUICK)
    file_store.path.parent.rename(tmp_path / "away")
    note(context, "one")
    note(context, "two")
    assert context.degraded
    assert not file_store.path.parent.exists()
    (tmp_path / "away").rename(file_store.path.parent)
    is_back(context)

    assert messages(context) == ["one", "two"]
    assert_stored(context, file_store)


def test_folder_that_is_replaced_is_never_written_to(file_store: SqliteStore, tmp_path: Path) -> None:
    context = JobContext.create(file_store, job_record(), limits=QUICK)
    file_store.path.parent.rename(tmp_path / "away")
    note(context, "one")
    with SqliteStore(tmp_path / "new.db") as other:
        new = JobContext.create(other, job_record())
    file_store.path.parent.mkdir()
    (tmp_path / "new.db").rename(file_store.path)
    wait_until(lambda: "was replaced while in use" in (context.degraded or ""), "the other file is noticed")

    with pytest.raises(ContextError, match="was replaced while in use"):
        note(context, "two")
    with SqliteStore(file_store.path) as other:
        assert JobContext.load(other, "my-ppo").record == new.record


def test_full_disk_is_an_outage(store_path: Path) -> None:
    output = run_python(
        """
        import resource, signal, sys, time
        from pathlib import Path
        from dlrl_core.context import JobContext, JobRecord, OutageLimits
        from dlrl_sqlite.store import SqliteStore
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with SqliteStore(Path(sys.argv[1])) as store:
            record = JobRecord(name="a", spec_json="{}", store_url="unused")
            context = JobContext.create(store, record, limits=OutageLimits(first_pause_s=0.02))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
            for number in range(3):
                with context.change() as change:
                    change.event("note", str(number) * 300_000)
            print(context.degraded is not None)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            while context.degraded:
                time.sleep(0.01)
            context.close()
            print(*(event.kind for event in JobContext.load(store, "a").journal()))
            print(*(event.message[0] for event in context.journal() if event.kind == "note"))
        """,
        store_path,
    )

    assert output.splitlines() == ["True", "submitted note store_lost note note store_back", "0 1 2"]
