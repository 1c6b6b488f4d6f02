"""Which processes hang: judged by their reports, or by their absence, and restarted like any other failure."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from master_parts import Call, context_of, launch_of, nodes, plan_on, small_job

from dlrl_core.context import FindingKind, ProcessReport, WorkloadState
from dlrl_core.failover import WorkloadHangs
from dlrl_core.failover.finding import JobLook, find_hangs
from dlrl_core.master import detection
from dlrl_core.master.control_loop import ControlLoop
from dlrl_core.plugin import reset_plugin_host

NOW = 1_000_000.0
SPEC = small_job(role={"hang_limit": 10.0})


class HostStandIn:
    def __init__(self, stacks: str) -> None:
        self._text = stacks
        self.stacks = Call(self._stacks)

    async def _stacks(self) -> str:
        return self._text


@pytest.fixture
def launch():
    return launch_of(SPEC, plan_on(SPEC, nodes("a")))


@pytest.fixture
def context(tmp_path, launch):
    context = context_of(tmp_path, launch)
    with context.change() as change:
        change.workload("actor-0", state=WorkloadState.READY, pid=7, actor_id="first")
    return context


def report(**fields) -> ProcessReport:
    who = {"name": "actor-0", "run_id": "r", "incarnation": 0, "actor_id": "x", "pid": 7}
    where = {"node_id": "a", "address": "10.0.0.1", "state": WorkloadState.READY}
    return ProcessReport(**{**who, **where, "memory_bytes": 0, "sent_at": time.time(), **fields})


def look_at(context, said: ProcessReport | None, *, heard=0.0, since=100.0, spec=SPEC, more=None) -> JobLook:
    """`heard` and `since` are seconds ago."""
    reports, times = ({said.name: said}, {said.name: NOW - heard}) if said else ({}, {})
    known = {"spec": spec, "workloads": context.workloads, "trainer": context.record.trainer}
    return JobLook(now=NOW, since=NOW - since, reports=reports, heard=times | (more or {}), **known)


@pytest.mark.parametrize(
    ("said", "heard", "since", "reason", "is_silent"),
    [
        (report(), 0, 100, None, False),
        (report(call="add", call_s=9.0), 0, 100, None, False),
        (report(call="add", call_s=9.0), 4, 100, None, False),
        (report(call="add", call_s=11.0), 0, 100, "its call 'add' has run for 11 s (limit 10 s)", False),
        (report(call="add", call_s=1.0), 28, 100, "its call 'add' has run for 29 s (limit 10 s)", False),
        (report(), 26, 100, None, False),
        (report(), 28, 100, "it sent no report for 28 s", True),
        (report(), 28, 5, None, False),
        (report(), 31, 100, "it sent no report for 31 s", False),
        (None, 0, 28, "it sent no report for 28 s", True),
        (None, 0, 5, None, False),
        (report(pid=8, call="add", call_s=60.0), 0, 5, None, False),
    ],
)
def test_silence_counts_from_the_last_report_or_from_when_there_should_have_been_one(
    context, said, heard, since, reason, is_silent
):
    found = list(find_hangs(look_at(context, said, heard=heard, since=since)))
    hang = WorkloadHangs(name="actor-0", reason=reason or "", actor_id="first", is_silent=is_silent)
    assert found == ([] if reason is None else [hang])


def test_a_frozen_process_is_looked_at_before_its_own_limit_is_over_however_long_a_call_may_take(context):
    spec = small_job(role={"hang_limit": 4 * 3600.0, "silence_limit": 10.0})
    assert list(find_hangs(look_at(context, report(), heard=6, spec=spec))) == []
    assert [one.is_silent for one in find_hangs(look_at(context, report(), heard=8, spec=spec))] == [True]


def test_a_workload_that_is_being_constructed_is_not_judged(context):
    with context.change() as change:
        change.workload("actor-0", state=WorkloadState.STARTING)
    assert list(find_hangs(look_at(context, None))) == []


def test_a_call_of_a_role_without_a_limit_is_not_judged(context):
    assert list(find_hangs(look_at(context, report(call="add", call_s=9_000.0), spec=small_job()))) == []


def test_a_process_of_a_role_without_a_limit_that_is_silent_is_looked_at_however_long(context):
    look = look_at(context, report(), heard=90_000, since=90_000, spec=small_job())
    assert [one.is_silent for one in find_hangs(look)] == [True]


@pytest.fixture
def with_trainer(context):
    with context.change() as change:
        change.trainer(state="running", pid=9, actor_id="trains", node_id="a")
    return context


@pytest.mark.parametrize(("limits", "silent_s", "is_found"), [((), 26, False), ((), 28, True), ((60.0,), 56, False)])
def test_a_trainer_may_be_silent_for_as_long_as_the_role_with_the_largest_limit(
    with_trainer, limits, silent_s, is_found
):
    spec = small_job(role={"silence_limit": limits[0]} if limits else {})
    look = look_at(with_trainer, report(), spec=spec, more={"trainer": NOW - silent_s})
    hang = WorkloadHangs(
        name="trainer", reason=f"it sent no report for {silent_s} s", actor_id="trains", is_silent=True
    )
    assert list(find_hangs(look)) == ([hang] if is_found else [])


def test_a_trainer_that_is_being_started_is_not_judged(with_trainer):
    with with_trainer.change() as change:
        change.trainer(state="starting")
    assert list(find_hangs(look_at(with_trainer, report(), more={"trainer": NOW - 90}))) == []


def test_a_frozen_trainer_is_an_incident_that_restarts_it_alone(launch, with_trainer, monkeypatch):
    async def why_frozen(node_id: str, pids: list[int]) -> dict[int, str]:
        assert (node_id, pids) == ("a", [9])
        return {9: "its process is stopped"}

    monkeypatch.setattr(detection, "why_frozen", why_frozen)
    monkeypatch.setattr(detection, "_LOOK_S", 0.01)
    with with_trainer.change() as change:
        change.progress(step=4, commit_json='{"step": 2}')

    async def run() -> None:
        loop = ControlLoop(launch, with_trainer)
        loop.detection.hear(report())
        loop._become_stable()
        loop.detection._since = time.monotonic() - 60
        [seen] = await observed(loop, 1)
        assert loop._is_news(seen)
        incident, recovery, _ = loop.decided(seen)
        assert (incident.kind, incident.subject, incident.node_id) == (FindingKind.HUNG, "trainer", None)
        assert (
            incident.message
            == "the trainer hangs at step 4: it sent no report for 60 s, does not answer, and its process is stopped"
        )
        assert recovery.with_trainer and not recovery.names

    asyncio.run(run())


async def observed(loop: ControlLoop, count: int) -> list:
    """The first observations that the detectors lead to."""
    task = asyncio.ensure_future(loop.detection.run())
    try:
        return [await asyncio.wait_for(loop._seen.get(), 10) for _ in range(count)]
    finally:
        task.cancel()


def hanging_loop(launch, context, monkeypatch, **fields) -> ControlLoop:
    monkeypatch.setattr(detection, "_LOOK_S", 0.01)
    loop = ControlLoop(launch, context)
    loop.detection.hear(report(call="add", call_s=60.0, **fields))
    loop._become_stable()
    return loop


def test_while_something_is_restarted_no_hang_is_judged(launch, context, monkeypatch):
    async def run() -> None:
        loop = hanging_loop(launch, context, monkeypatch)
        loop.detection.is_paused = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(observed(loop, 1), 0.5)
        loop._become_stable()
        [seen] = await observed(loop, 1)
        assert seen.name == "actor-0"

    asyncio.run(run())


@pytest.mark.parametrize("found", ["a text", WorkloadHangs(name="no-such-0", reason="it hangs", actor_id="x")])
def test_what_a_detector_of_others_must_not_return_is_named_and_ends_nothing(
    launch, context, monkeypatch, capfd, found
):
    monkeypatch.setattr("dlrl_core.failover.finding.find_hangs", lambda look: [found])
    reset_plugin_host()

    async def run() -> None:
        loop = hanging_loop(launch, context, monkeypatch)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(observed(loop, 1), 0.5)

    asyncio.run(run())
    reset_plugin_host()
    assert (
        "detector 'hang' failed: TypeError: it must yield WorkloadHangs of workloads of the job or its trainer"
        in capfd.readouterr().err
    )


def test_a_hang_is_observed_once_and_again_after_a_restart(launch, context, monkeypatch):
    async def run() -> list:
        loop = hanging_loop(launch, context, monkeypatch)
        [first] = await observed(loop, 1)
        assert loop._is_news(first)
        with context.change() as change:
            change.workload("actor-0", actor_id="second", pid=8, incarnation=1)
        loop.detection.hear(report(pid=8, incarnation=1, call="add", call_s=60.0))
        [second] = await observed(loop, 1)
        assert loop._seen.empty() and not loop._is_news(first)
        return [first.actor_id, second.actor_id]

    assert asyncio.run(run()) == ["first", "second"]


def test_a_hang_is_an_incident_with_the_stacks_of_the_process(launch, context, monkeypatch):
    async def run() -> None:
        loop = hanging_loop(launch, context, monkeypatch)
        loop._workloads._hosts["actor-0"] = HostStandIn("its stacks")
        attempted: list[frozenset[str]] = []

        async def attempt(names: frozenset[str], **_: bool) -> None:
            attempted.append(names)

        loop._attempt = attempt  # the processes themselves are Ray's
        [seen] = await observed(loop, 1)
        assert await loop._handle(seen) is None
        assert attempted == [frozenset({"actor-0", "actor-1"})]

    asyncio.run(run())
    [incident] = context.record.incidents
    assert (incident.kind, incident.subject, incident.stacks) == (FindingKind.HUNG, "actor-0", "its stacks")
    assert re.match(r"workload 'actor-0' hangs: its call 'add' has run for \d+ s \(limit 10 s\)", incident.message)
    assert context.workloads["actor-0"].state is WorkloadState.STARTING


def test_a_process_that_was_replaced_after_it_was_judged_is_left_alone(launch, context, monkeypatch):
    async def run() -> None:
        loop = hanging_loop(launch, context, monkeypatch)
        [seen] = await observed(loop, 1)
        with context.change() as change:
            change.workload("actor-0", state=WorkloadState.STARTING, actor_id=None, pid=None)
        assert await loop._handle(seen) is None

    asyncio.run(run())
    assert context.record.incidents == ()


def test_a_detector_that_fails_does_not_end_the_watch(launch, context, monkeypatch, capfd):
    calls = []

    def broken_first(look):
        calls.append(look)
        if len(calls) == 1:
            raise OSError("no thread to be had")
        return find_hangs(look)

    monkeypatch.setattr("dlrl_core.failover.finding.find_hangs", broken_first)
    reset_plugin_host()

    async def run() -> list:
        return await observed(hanging_loop(launch, context, monkeypatch), 1)

    assert [one.name for one in asyncio.run(run())] == ["actor-0"]
    assert "dlrl: detector 'hang' failed: OSError: no thread to be had" in capfd.readouterr().err
