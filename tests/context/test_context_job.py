"""JobContext: one record, changed in transactions, written before it is seen."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from context_samples import job_record, stored_text, survives_pickle, workload_record

from dlrl_core.context import JobContext, JobState, ProgressRecord, Store, TrainerState, WorkloadState
from dlrl_core.context.records import SCHEMA
from dlrl_core.errors import (
    ContextError,
    DlrlError,
    JobExistsError,
    JobNotFoundError,
    SchemaError,
    StoreConflictError,
    StoreError,
)
from dlrl_core.roles import RoleType
from dlrl_sqlite.store import SqliteStore


@pytest.fixture
def context(store: Store) -> JobContext:
    actors = [workload_record(rank=rank) for rank in range(3)]
    return JobContext.create(store, job_record(plan_json='{"workloads": 3}'), actors)


def assert_same(one: JobContext, other: JobContext) -> None:
    assert one.record == other.record
    assert dict(one.workloads) == dict(other.workloads)
    assert list(one.workloads) == list(other.workloads)
    assert (one.version, one.last_seq) == (other.version, other.last_seq)


# ---- create and load


def test_created_job_is_loaded_as_it_was(store: Store, context: JobContext) -> None:
    assert_same(JobContext.load(store, "my-ppo"), context)
    assert [event.message for event in context.journal()] == ["job 'my-ppo' was submitted"]


def test_workloads_come_by_role_and_rank(store: Store) -> None:
    ranks = [workload_record(RoleType.ROLLOUT, rank) for rank in (10, 9)] + [workload_record(rank=2)]

    context = JobContext.create(store, job_record(), ranks)

    assert list(context.workloads) == ["actor-2", "rollout-9", "rollout-10"]


def test_unknown_job_is_not_found_and_the_known_ones_are_listed(store: Store, context: JobContext) -> None:
    with pytest.raises(JobNotFoundError, match="no job is named 'other'; known jobs: 'my-ppo'") as caught:
        JobContext.load(store, "other")
    assert survives_pickle(caught.value)


def test_live_job_is_not_replaced(store: Store, context: JobContext) -> None:
    with pytest.raises(JobExistsError, match=r"job 'my-ppo' is 'submitted' since .*dlrl stop my-ppo") as caught:
        JobContext.create(store, job_record())

    assert survives_pickle(caught.value)
    assert_same(JobContext.load(store, "my-ppo"), context)


def test_ended_job_is_replaced_with_nothing_left_of_it_but_its_journal(store: Store, context: JobContext) -> None:
    with context.change() as change:
        change.job(state=JobState.FAILED, why="actor-0 died")

    new = JobContext.create(store, job_record(), [workload_record(RoleType.CRITIC)])

    assert new.record.run_id != context.record.run_id
    assert (new.record.plan_json, new.record.why, list(new.workloads)) == (None, None, ["critic-0"])
    assert set(stored_text(store)) == {"job", "spec", "trainer", "progress", "workload/critic-0"}
    assert [event.kind for event in new.journal()] == ["submitted"]
    assert len(new.journal(after_seq=0)) == 2
    assert new.journal()[0].data["replaced_run"] == context.record.run_id
    assert_same(JobContext.load(store, "my-ppo"), new)


def test_takeover_replaces_a_live_job_and_refuses_its_old_writer(store: Store, context: JobContext) -> None:
    new = JobContext.create(store, job_record(), takeover=True)

    with pytest.raises(StoreError, match="somebody else wrote"), context.change() as change:
        change.job(state=JobState.RESERVING)
    assert JobContext.load(store, "my-ppo").record == new.record


def test_two_workloads_of_one_name_are_refused(store: Store) -> None:
    with pytest.raises(ContextError, match="job 'my-ppo' has 2 workloads named 'actor-0'"):
        JobContext.create(store, job_record(), [workload_record(), workload_record()])


def test_run_id_is_not_used_twice(store: Store, context: JobContext) -> None:
    with pytest.raises(ContextError, match="already has a run"):
        JobContext.create(store, context.record, takeover=True)


class SlowStoreStandIn(SqliteStore):
    """Lets another process create the job between this one's look and its commit."""

    def commit(self, job: str, **rest: Any) -> int:
        if rest["expected_version"] == 0 and job not in self.jobs():
            with SqliteStore(self.path) as faster:
                JobContext.create(faster, job_record(job))
        return super().commit(job, **rest)


def test_loser_of_a_race_to_create_is_told_that_the_job_exists(store_path) -> None:
    with SlowStoreStandIn(store_path) as store, pytest.raises(JobExistsError):
        JobContext.create(store, job_record())


# ---- change


def test_change_is_seen_here_and_in_the_store_when_the_block_ends(store: Store, context: JobContext) -> None:
    version = context.version

    with context.change() as change:
        change.job(state=JobState.RESERVING, address="10.0.0.1:6379")
        change.workload("actor-1", state=WorkloadState.STARTING, pid=4711)
        change.trainer(state="starting")
        change.progress(step=3, metrics={"loss": math.inf, "reward": 1})
        change.event("state", "reserving 3 bundles", subject="job", bundles=3)
        assert (context.record.state, context.version) == ("submitted", version)
        assert change.record.state is JobState.RESERVING

    assert context.record.state is JobState.RESERVING
    assert context.record.trainer.state is TrainerState.STARTING
    assert context.record.progress.metrics == {"loss": math.inf, "reward": 1.0}
    assert (context.workloads["actor-1"].pid, context.workloads["actor-0"].pid) == (4711, None)
    assert context.version > version
    assert context.last_seq == 2
    assert_same(JobContext.load(store, "my-ppo"), context)
    event = context.journal()[-1]
    assert (event.seq, event.kind, event.subject, event.data) == (2, "state", "job", {"bundles": 3})


def test_block_that_raises_changes_nothing(store: Store, context: JobContext) -> None:
    before = (context.record, dict(context.workloads), context.version)

    with pytest.raises(ZeroDivisionError), context.change() as change:
        change.job(state=JobState.RESERVING)
        change.workload("actor-0", pid=1)
        change.event("state", "never")
        _ = 1 / 0

    assert (context.record, dict(context.workloads), context.version) == before
    assert_same(JobContext.load(store, "my-ppo"), context)
    assert len(context.journal()) == 1


def test_block_that_changes_nothing_writes_nothing(context: JobContext) -> None:
    version = context.version

    with context.change() as change:
        change.workload("actor-0", state=WorkloadState.PENDING)
        change.job(state=JobState.SUBMITTED)

    assert context.version == version


def test_refused_commit_leaves_memory_as_it_was(store: Store, context: JobContext) -> None:
    other = JobContext.load(store, "my-ppo")
    with other.change() as change:
        change.job(master_incarnation=2)

    with pytest.raises(StoreError), context.change() as change:
        change.job(master_incarnation=1)

    assert context.record.master_incarnation == 0


def test_state_sets_its_times(context: JobContext) -> None:
    with context.change() as change:
        change.job(state_since=1.0)
    with context.change() as change:
        change.job(state="reserving")
    assert context.record.state_since > 1.0
    assert context.record.ended_at is None

    with context.change() as change:
        change.job(state="failed", why="no GPU")
        change.workload("actor-0", since=1.0)
        change.workload("actor-0", state="ended")
    assert context.record.ended_at == context.record.state_since
    assert context.workloads["actor-0"].since > 1.0


def test_workloads_are_added_and_removed(store: Store, context: JobContext) -> None:
    with context.change() as change:
        change.remove_workload("actor-1")
        change.add_workload(workload_record(RoleType.CRITIC, 0))
        change.workload("critic-0", pid=5)
        change.remove_workload("actor-0")
        change.add_workload(workload_record(rank=0, incarnation=7))

    assert list(context.workloads) == ["actor-0", "actor-2", "critic-0"]
    assert (context.workloads["critic-0"].pid, context.workloads["actor-0"].incarnation) == (5, 7)
    assert "workload/actor-1" not in stored_text(store)
    assert_same(JobContext.load(store, "my-ppo"), context)


def test_workload_that_was_added_and_removed_at_once_leaves_no_trace(store: Store, context: JobContext) -> None:
    with context.change() as change:
        change.add_workload(workload_record(RoleType.CRITIC, 0))
        change.remove_workload("critic-0")

    assert_same(JobContext.load(store, "my-ppo"), context)


REFUSED = [
    (lambda change: change.job(state="running"), "'submitted' can't become 'running'"),
    (lambda change: change.job(state="happy"), "'happy' is no state of a job"),
    (lambda change: change.job(name="other"), "job 'my-ppo' can't change 'name'"),
    (lambda change: change.job(run_id="1", submitted_at=2.0), "can't change 'run_id', 'submitted_at'"),
    (lambda change: change.job(colour="red"), "'colour': extra inputs are not permitted"),
    (lambda change: change.job(address=5), "job 'my-ppo' can't be changed: 'address'"),
    (lambda change: change.job(plan_json="{"), "plan_json of job 'my-ppo' is not JSON"),
    (lambda change: change.trainer(pid="x"), "trainer of job 'my-ppo' can't be changed: 'pid'"),
    (lambda change: change.progress(step="x"), "progress of job 'my-ppo' can't be changed: 'step'"),
    (lambda change: change.workload("actor-9", pid=1), "job 'my-ppo' has no workload 'actor-9'"),
    (lambda change: change.workload("actor-0", rank=1), "workload 'actor-0' can't change 'rank'"),
    (lambda change: change.workload("actor-0", state="x"), "workload 'actor-0' can't be changed: 'state'"),
    (lambda change: change.remove_workload("actor-9"), "job 'my-ppo' has no workload 'actor-9'"),
    (lambda change: change.add_workload(workload_record()), "has a workload 'actor-0' already"),
]


@pytest.mark.parametrize(("act", "words"), REFUSED)
def test_change_that_makes_no_sense_is_refused(store: Store, context: JobContext, act: Any, words: str) -> None:
    with pytest.raises(ContextError, match=words) as caught, context.change() as change:
        change.event("never", "seen")
        act(change)

    assert survives_pickle(caught.value)
    assert_same(JobContext.load(store, "my-ppo"), context)


def test_ended_job_can_t_come_back(context: JobContext) -> None:
    with context.change() as change:
        change.job(state="failed")

    with pytest.raises(ContextError, match="'failed', which is final"), context.change() as change:
        change.job(state="running")


def test_change_is_of_no_use_after_its_block(context: JobContext) -> None:
    with context.change() as change:
        pass

    with pytest.raises(ContextError, match="is over"):
        change.job(state=JobState.RESERVING)


def test_change_within_a_change_is_refused_not_waited_for(context: JobContext) -> None:
    """Two asyncio tasks of a Master share a thread: a lock would stop both for ever."""

    async def hold() -> None:
        with context.change() as change:
            change.event("x", "y")
            await asyncio.sleep(0.01)

    async def both() -> list[BaseException | None]:
        return await asyncio.gather(hold(), hold(), return_exceptions=True)

    first, second = asyncio.run(both())

    assert first is None
    assert isinstance(second, ContextError)
    assert "already open in this thread" in str(second)


def test_threads_change_one_after_the_other(store: Store, context: JobContext) -> None:
    def restart() -> None:
        for _ in range(20):
            with context.change() as change:
                change.job(master_incarnation=change.record.master_incarnation + 1)

    threads = [threading.Thread(target=restart) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert context.record.master_incarnation == 80
    assert_same(JobContext.load(store, "my-ppo"), context)


def test_mapping_of_workloads_is_of_one_commit_and_read_only(context: JobContext) -> None:
    before = context.workloads
    with context.change() as change:
        change.workload("actor-0", pid=1)

    assert before["actor-0"].pid is None
    with pytest.raises(TypeError):
        before["actor-0"] = workload_record()  # type: ignore[index]


# ---- what is written


class CountingStoreStandIn(SqliteStore):
    """Remembers the keys of the last commit."""

    keys: Sequence[str] = ()

    def commit(
        self,
        job: str,
        *,
        expected_version: int,
        puts: Mapping[str, str],
        deletes: Collection[str] = (),
        events: Sequence[str] = (),
        commit_id: str | None = None,
    ) -> int:
        self.keys = [*puts, *deletes]
        return super().commit(
            job, expected_version=expected_version, puts=puts, deletes=deletes, events=events, commit_id=commit_id
        )


@pytest.mark.parametrize(
    ("act", "keys"),
    [
        (lambda change: change.workload("actor-5000", pid=1), ["workload/actor-5000"]),
        (lambda change: change.progress(step=1), ["progress"]),
        (lambda change: change.trainer(phase="fit"), ["trainer"]),
        (lambda change: change.job(state="reserving"), ["job"]),
        (lambda change: change.job(plan_json="[]"), ["plan"]),
        (lambda change: change.job(plan_json=None), ["plan"]),
        (lambda change: change.event("x", "y"), []),
    ],
)
def test_one_change_among_ten_thousand_workloads_writes_only_itself(
    ten_thousand: Any, act: Any, keys: list[str]
) -> None:
    store, context = ten_thousand

    start = time.process_time()
    with context.change() as change:
        act(change)
    seconds = time.process_time() - start

    assert store.keys == keys
    assert seconds < 0.5


@pytest.fixture(scope="module")
def ten_thousand(tmp_path_factory: pytest.TempPathFactory) -> Any:
    workloads = [workload_record(rank=rank) for rank in range(10_000)]
    with CountingStoreStandIn(tmp_path_factory.mktemp("many") / "context.db") as store:
        yield store, JobContext.create(store, job_record(plan_json=json.dumps("p" * 1_000_000)), workloads)


def test_ten_thousand_workloads_are_created_changed_and_loaded_in_seconds(store: Store) -> None:
    start = time.process_time()
    context = JobContext.create(store, job_record(), (workload_record(rank=rank) for rank in range(10_000)))
    with context.change() as change:
        for name in context.workloads:
            change.workload(name, state=WorkloadState.READY, pid=1)
    loaded = JobContext.load(store, "my-ppo")

    assert time.process_time() - start < 10
    assert all(workload.state is WorkloadState.READY for workload in loaded.workloads.values())


def test_everything_in_the_store_is_json(store: Store, context: JobContext) -> None:
    with context.change() as change:
        change.progress(metrics={"loss": math.nan})
        change.event("odd", "path \udcff", data_of_any_kind={"when": object(), "loss": math.nan, 1: (2, 3)})

    texts = [*stored_text(store).values(), *(event.text for event in store.journal("my-ppo"))]

    for text in texts:
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert math.isnan(JobContext.load(store, "my-ppo").record.progress.metrics["loss"])


def test_free_text_is_redacted_before_it_is_written(store: Store, context: JobContext) -> None:
    with context.change() as change:
        change.job(why="login with HF_TOKEN=hunter2 failed")
        change.workload("actor-0", detail="redis://u:hunter2@h is gone")
        change.event("died", "--hf-token hunter2 was refused", env={"HF_TOKEN": "hunter2", "LR": "1"})

    written = json.dumps([stored_text(store), [event.text for event in store.journal("my-ppo")]])

    assert "hunter2" not in written
    assert context.journal()[-1].data == {"env": {"HF_TOKEN": "***", "LR": "1"}}
    assert_same(JobContext.load(store, "my-ppo"), context)


def test_spec_keeps_its_secrets_or_a_restarted_workload_would_miss_them(store: Store) -> None:
    spec = '{"global_env": {"HF_TOKEN": "hunter2"}}'
    JobContext.create(store, job_record(spec_json=spec))

    assert JobContext.load(store, "my-ppo").record.spec_json == spec


def test_who_no_longer_owns_the_record_is_told_before_the_change_raises(store: Store) -> None:
    old = JobContext.create(store, job_record())
    told: list[str] = []
    old.on_conflict(lambda: told.append("somebody else wrote"))
    with JobContext.load(store, "my-ppo").change() as change:
        change.job(master_incarnation=2)
    with pytest.raises(StoreConflictError), old.change() as change:
        change.job(master_incarnation=3)
    assert told == ["somebody else wrote"]


# ---- what can't be read


NEWER = f"schema {SCHEMA + 1}, this dlrl reads up to {SCHEMA}; resume"


def newer(text: str) -> str:
    return json.dumps({**json.loads(text), "record_schema": SCHEMA + 1, "field_of_the_future": 1})


UNREADABLE = [
    *((key, newer, f"{NEWER}.*'{key}'") for key in ("job", "trainer", "progress")),
    ("workload/actor-1", newer, f"{NEWER}.*'workload/actor-1'"),
    ("job", lambda text: text[:-5], "document 'job' of job 'my-ppo' can't be read as a record: not JSON"),
    ("job", lambda text: "[]", "document 'job'.*no record_schema"),
    (
        "job",
        lambda text: text.replace('"submitted"', '"hunter2"'),
        "document 'job'.*'state': input should be",
    ),
    ("workload/actor-1", lambda text: text.replace("rank", "ranks"), "document 'workload/actor-1'.*'rank'"),
    ("spec", lambda text: "{", "document 'spec'.*not JSON"),
    ("plan", lambda text: "", "document 'plan'.*not JSON"),
    ("progress", None, "job 'my-ppo' has no document 'progress'"),
    ("spec", None, "document 'job'.*'spec_json'"),
]


@pytest.mark.parametrize(("key", "damage", "words"), UNREADABLE)
def test_document_that_can_t_be_read_is_named_and_never_overwritten(
    store: Store, context: JobContext, key: str, damage: Any, words: str
) -> None:
    deletes, puts = ([key], {}) if damage is None else ([], {key: damage(stored_text(store)[key])})
    store.commit("my-ppo", expected_version=context.version, puts=puts, deletes=deletes)
    before = stored_text(store)

    with pytest.raises(SchemaError, match=words) as caught:
        JobContext.load(store, "my-ppo")
    if not key.startswith("workload/"):
        with pytest.raises(DlrlError):
            JobContext.create(store, job_record())

    assert "hunter2" not in str(caught.value)
    assert survives_pickle(caught.value)
    assert stored_text(store) == before


def test_event_that_can_t_be_read_is_named(store: Store, context: JobContext) -> None:
    store.commit("my-ppo", expected_version=context.version, puts={}, events=["[]"])

    with pytest.raises(SchemaError, match="event 2 in the journal of job 'my-ppo' can't be read"):
        context.journal()


def test_event_of_a_newer_dlrl_is_still_shown(store: Store, context: JobContext) -> None:
    text = json.dumps({"at": 1.0, "kind": "x", "message": "y", "colour": "red"})
    store.commit("my-ppo", expected_version=context.version, puts={}, events=[text])

    assert context.journal()[-1].message == "y"


def test_spec_that_is_no_json_is_refused_at_once(store: Store) -> None:
    with pytest.raises(ContextError, match="spec_json of job 'my-ppo' is not JSON"):
        JobContext.create(store, job_record(spec_json="{'a': 1}"))
    assert store.jobs() == []


def test_records_are_frozen() -> None:
    for record in (job_record(), workload_record(), ProgressRecord()):
        with pytest.raises(ValueError, match="frozen"):
            record.record_schema = 2  # type: ignore[misc]


def test_record_does_not_print_its_spec() -> None:
    record = job_record(spec_json='"hunter2"', store_url="redis://:hunter2@h")

    assert "hunter2" not in repr(record)


def test_a_record_of_schema_3_is_read_and_written_on_as_one_of_today(store):
    JobContext.create(store, job_record(), [workload_record()])
    documents = {key: json.loads(text) for key, text in stored_text(store).items()}
    documents["job"] |= {
        "epoch": 2,
        "restarts": [],
        "last_error": "x",
        "ending": {"record_schema": 3, "state": "failed"},
    }
    documents["trainer"] |= {"state": "ready"}
    documents["workload/actor-0"] |= {"restarts": 1, "incarnation": 1}
    old = {key: {**one, "record_schema": 3} for key, one in documents.items() if "record_schema" in one}
    puts = {key: json.dumps(one) for key, one in old.items()}
    store.commit("my-ppo", expected_version=store.load("my-ppo").version, puts=puts)
    read = JobContext.load(store, "my-ppo")

    assert (read.record.ending.state, read.record.trainer.state) == ("failed", "starting")
    assert (read.record.incidents, read.record.epoch, read.workloads["actor-0"].incarnation) == ((), 0, 1)
    with read.change() as change:
        change.trainer(state="running")
    assert json.loads(stored_text(store)["trainer"])["record_schema"] == SCHEMA
