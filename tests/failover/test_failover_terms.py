"""A trainer that may live on is waited for no longer than its lease, and what an older process says is dropped."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from master_parts import Call, context_of, launch_of, nodes, plan_on, small_job

from dlrl_core.context import ProcessReport, WorkloadState
from dlrl_core.context.records import TrainerRecord
from dlrl_core.master import trainer_process
from dlrl_core.master.control_loop import ControlLoop
from dlrl_core.master.master import Master
from dlrl_core.master.trainer_process import TrainerProcess
from dlrl_core.trainer.progress import ProgressReport


def report(**fields) -> ProgressReport:
    made = {"phase": "fit", "step": 3, "total_steps": 9, "metrics": {}, "phase_seconds": {}, "edges": ()}
    return ProgressReport(**made | fields)


@pytest.fixture
def parts(tmp_path):
    """A launch, and a record whose third trainer is to be started after the second was given up."""
    spec = small_job()
    launch = launch_of(spec, plan_on(spec, nodes("a")))
    trainer = TrainerRecord(state="running", incarnation=1, actor_id="second")
    return launch, spec, context_of(tmp_path, launch, trainer=trainer, master_incarnation=1)


def replaced(parts, *, grants: bool = True) -> TrainerProcess:
    launch, spec, context = parts
    process = TrainerProcess(launch, spec, context, on_end=lambda _: None)
    if grants:
        assert process.record_progress(report(incarnation=1))
    with context.change() as change:
        change.trainer(state="starting", incarnation=2)
    return process


def is_waiting(process: TrainerProcess) -> bool:
    async def wait() -> bool:
        try:
            await asyncio.wait_for(process.until_alone(), 0.5)
        except TimeoutError:
            return True
        return False

    return asyncio.run(wait())


@pytest.mark.parametrize(
    ("knows", "waits"),
    [
        ({}, True),
        ({"has_ended": True}, False),
        ({"left": {"second"}}, False),
        ({"left": {"first"}}, True),
        ({"lease_s": 0.0}, False),
        ({"grants": False}, False),
        ({"grants": False, "masters": 2}, True),
    ],
)
def test_the_successor_waits_only_while_the_old_trainer_may_hold_a_lease(parts, monkeypatch, knows, waits):
    monkeypatch.setattr(trainer_process, "is_known_to_have_ended", lambda _: knows.get("has_ended", False))
    monkeypatch.setattr(trainer_process, "LEASE_S", knows.get("lease_s", 20.0))
    with parts[2].change() as change:
        change.job(master_incarnation=knows.get("masters", 1))
    process = replaced(parts, grants=knows.get("grants", True))
    process.left |= knows.get("left", set())
    assert is_waiting(process) == waits


def test_a_trainer_that_was_replaced_is_refused_and_its_commit_never_counts(parts):
    process = replaced(parts)
    assert process.record_progress(report(incarnation=1, commit='{"step": 8}')) is False
    assert parts[2].record.progress.commit_json is None
    assert process.record_progress(report(incarnation=2, commit='{"step": 4}')) is True
    assert parts[2].record.progress.commit_json == '{"step": 4}'


def test_a_trainer_whose_progress_can_not_be_written_may_go_on(parts):
    process = replaced(parts)
    parts[2].close()  # every change is refused now
    assert process.record_progress(report(incarnation=2, commit='{"step": 4}')) is True
    assert process.record_progress(report(incarnation=1)) is False


class TrainerStandIn:
    """A trainer that runs, as a new Master finds it."""

    def __init__(self, incarnation: int) -> None:
        where = {"node_id": "b", "address": "1.1.1.1", "pid": 5, "memory_bytes": 0, "sent_at": time.time()}
        who = {"name": "trainer", "run_id": "run", "incarnation": incarnation, "actor_id": "third"}
        self._report = ProcessReport(**who, **where, state=WorkloadState.READY)
        self.facts, self.is_running = Call(self._facts), Call(self._is_running)

    async def _facts(self) -> ProcessReport:
        return self._report

    async def _is_running(self) -> bool:
        return True


def test_a_trainer_that_is_newer_than_the_record_is_adopted_and_heard(parts):
    launch, spec, context = parts
    process = TrainerProcess(launch, spec, context, on_end=lambda _: None)
    assert process.record_progress(report(incarnation=2)) is True  # before it is adopted, too
    assert context.record.trainer.incarnation == 1
    assert asyncio.run(process.is_adopted(TrainerStandIn(2)))
    trainer = context.record.trainer
    assert (trainer.incarnation, trainer.actor_id, trainer.pid, trainer.node_id) == (2, "third", 5, "b")
    assert process.record_progress(report(incarnation=2)) is True


@pytest.mark.parametrize(("term", "is_heard"), [(1, True), (2, True), (0, False), (None, False)])
def test_only_the_trainer_of_the_record_can_have_more_restarted(parts, term, is_heard):
    launch, _, context = parts

    async def run() -> tuple[int, bool]:
        loop = ControlLoop(launch, context)
        loop._become_stable()
        loop.escalate("actor-0", "charge", term)
        return loop._seen.qsize(), loop.detection.is_paused

    assert asyncio.run(run()) == (int(is_heard), is_heard)


def test_a_refused_trainer_gets_no_more_time(parts, monkeypatch):
    monkeypatch.setattr(trainer_process, "LEASE_S", 0.0)
    process = replaced(parts)
    monkeypatch.setattr(trainer_process, "LEASE_S", 20.0)
    assert process.record_progress(report(incarnation=1)) is False
    assert not is_waiting(process)


@pytest.mark.parametrize(
    ("incarnation", "actor_id", "is_current"),
    [(1, "new", True), (0, "old", False), (1, "other", False), (2, "new", True)],
)
def test_a_workload_that_was_replaced_is_told_so_and_its_report_is_dropped(parts, incarnation, actor_id, is_current):
    ended, loaded = asyncio.Event(), asyncio.Event()
    loaded.set()
    heard: list[ProcessReport] = []
    loop = SimpleNamespace(detection=SimpleNamespace(hear=heard.append))
    master = SimpleNamespace(_loaded=loaded, _ended=ended, _loop=loop, _context=parts[2])
    with parts[2].change() as change:
        change.workload("actor-0", incarnation=1, actor_id="new")
    where = {"node_id": "a", "address": "1.1.1.1", "pid": 1, "memory_bytes": 0, "sent_at": time.time()}
    who = {"name": "actor-0", "run_id": "run", "incarnation": incarnation, "actor_id": actor_id}
    told = ProcessReport(**who, **where, state=WorkloadState.READY)
    assert asyncio.run(Master.report(master, told)) == is_current
    assert bool(heard) == is_current


def test_a_master_without_its_record_prolongs_a_lease_and_gives_no_new_one():
    async def ask(*, has_lease: bool) -> bool | None:
        async def is_present() -> None:
            return None

        master = SimpleNamespace(_loaded=asyncio.Event(), _check_is_present=is_present)
        try:
            return await asyncio.wait_for(Master.trainer_progress(master, report(has_lease=has_lease)), 0.1)
        except TimeoutError:
            return None

    assert asyncio.run(ask(has_lease=True)) is True
    assert asyncio.run(ask(has_lease=False)) is None


@pytest.mark.parametrize(
    ("is_loaded", "degraded", "restarts", "ends"),
    [(True, None, 5, False), (True, "it is away", 5, True), (False, None, 5, True), (True, "it is away", 1, False)],
)
def test_without_its_store_a_master_asks_ray_whether_it_was_replaced(monkeypatch, is_loaded, degraded, restarts, ends):
    ended = []
    monkeypatch.setattr("dlrl_core.master.master._vanish", lambda: ended.append(True))
    loaded = asyncio.Event()
    if is_loaded:
        loaded.set()
    master = SimpleNamespace(
        _loaded=loaded, _restarts=1, _restarts_of=lambda: restarts, _context=SimpleNamespace(degraded=degraded)
    )
    asyncio.run(Master._check_is_present(master))
    assert bool(ended) == ends
