"""Faults that pass: errors while something is restarted, errors of the Master itself, a silent process, wrong clocks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from checks import wait_until
from master_parts import Call, context_of, launch_of, nodes, plan_on, small_job
from ray.exceptions import ActorDiedError, RaySystemError, RayTaskError

from dlrl_core.context import FindingKind, JobContext, JobEnding, ProcessReport, WorkloadState
from dlrl_core.context import job_context as context_module
from dlrl_core.errors import ClusterError, RemoteCause, ReservationError, StoreError, WorkloadStartError
from dlrl_core.failover import TrainerGone, WorkloadHangs
from dlrl_core.master import beginning_and_end, detection
from dlrl_core.master.control_loop import ControlLoop
from dlrl_core.master.workload_processes import ProcessDiedError, replies_of
from dlrl_core.scheduler import cluster_probe
from dlrl_core.spec.job_spec import RestartBudget
from dlrl_core.spec.role_values import FailoverScope
from dlrl_core.trainer.progress import CallLog, Progress
from dlrl_core.workload.coroutines import Coroutines
from dlrl_core.workload.process import started_at
from dlrl_core.workload.workload_host import WorkloadLaunch
from dlrl_sqlite.store import SqliteStore

DAY_S = 86_400.0
SPEC = small_job(restart_budget=RestartBudget(backoff_s=0.0), role={"failover": "role"})


class WallClockStandIn:
    """The wall clock of a machine that somebody sets; its monotonic clock is the real one."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.step_s = 0.0

    def time(self) -> float:
        return time.time() + self.step_s


@pytest.fixture
def launch():
    return launch_of(SPEC, plan_on(SPEC, nodes("a")))


@pytest.fixture
def context(tmp_path, launch) -> JobContext:
    context = context_of(tmp_path, launch)
    with context.change() as change:
        for rank in range(2):
            change.workload(
                f"actor-{rank}",
                state=WorkloadState.READY,
                pid=7 + rank,
                started=70 + rank,
                actor_id=f"id{rank}",
                node_id="a",
                incarnation=1,
            )
    return context


@pytest.fixture
def committed(context) -> JobContext:
    with context.change() as change:
        change.progress(commit_json='{"step": 2}')
    return context


# ---- errors while something is restarted


def start_error(rank: int) -> WorkloadStartError:
    cause = RemoteCause.of(MemoryError("CUDA out of memory"))
    return WorkloadStartError("workload could not start", role="actor", rank=rank, cause=cause)


async def attempted(launch, context, error: Exception, *, is_first: bool = False) -> list:
    """What is observed when starting raises this."""
    loop = ControlLoop(launch, context)

    async def carry_out(names: frozenset[str], **_: bool) -> None:
        raise error

    loop._carry_out = carry_out
    await loop._attempt(frozenset({"actor-0", "actor-1"}), is_first=is_first)
    return [loop._seen.get_nowait() for _ in range(loop._seen.qsize())]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (start_error(1), "actor-1"),
        (ClusterError("2 of 2 processes did not answer 'start' within 300 s"), "actor-0"),
        (RayTaskError("construct", "a traceback", ValueError("x"), proctitle="p", pid=1, ip="1.1.1.1"), "actor-0"),
        (RaySystemError("the GCS can't be reached"), "actor-0"),
        (ConnectionError("reset by peer"), "actor-0"),
        (TimeoutError("no answer from the GCS"), "actor-0"),
    ],
)
def test_an_error_while_something_is_restarted_is_a_finding(launch, committed, error, name):
    [seen] = asyncio.run(attempted(launch, committed, error))
    assert seen.name == name

    async def decide():
        return ControlLoop(launch, committed).decided(seen)

    incident, recovery, _ = asyncio.run(decide())
    assert JobEnding(state="failed", cause=seen.cause).cause is seen.cause
    assert (incident.kind, incident.scope) == (FindingKind.START_FAILED, FailoverScope.ROLE)
    assert recovery.names == {"actor-0", "actor-1"}
    assert incident.message.startswith(f"'{name}' could not be started again: ")


@pytest.mark.parametrize("error", [start_error(1), ClusterError("a slow start"), RaySystemError("no GCS")])
def test_the_same_error_at_the_first_start_of_a_job_is_raised(launch, context, error):
    with pytest.raises(type(error)):
        asyncio.run(attempted(launch, context, error, is_first=True))


@pytest.mark.parametrize("error", [ReservationError("no node"), StoreError("the store is gone"), KeyError("x")])
def test_what_is_no_fault_of_a_start_is_raised_on_a_restart_too(launch, context, error):
    with pytest.raises(type(error)):
        asyncio.run(attempted(launch, context, error))


def test_a_class_that_was_never_constructed_before_is_the_users_error(launch, context):
    with context.change() as change:
        change.workload("actor-1", incarnation=0)
    with pytest.raises(WorkloadStartError):
        asyncio.run(attempted(launch, context, start_error(1)))


def test_starts_that_fail_again_and_again_wait_longer_escalate_and_end_with_the_cause(tmp_path):
    spec = small_job(restart_budget=RestartBudget(role=2, job=1, backoff_s=0.001), role={"failover": "role"})
    launch = launch_of(spec, plan_on(spec, nodes("a")))
    context = context_of(tmp_path, launch)
    with context.change() as change:
        change.progress(commit_json='{"step": 2}')
        for rank in range(2):
            change.workload(f"actor-{rank}", incarnation=1)

    async def run() -> tuple[JobEnding, list[float]]:
        loop, waits = ControlLoop(launch, context), []

        async def carry_out(names: frozenset[str], **_: bool) -> None:
            raise start_error(0)

        loop._carry_out = carry_out
        await loop._attempt(frozenset({"actor-0"}))
        while True:
            seen = loop._seen.get_nowait()
            waits.append(loop.decided(seen)[2].wait_s)
            if (ending := await loop._handle(seen)) is not None:
                return ending, waits

    ending, waits = asyncio.run(run())
    assert [str(one.scope) for one in context.record.incidents] == ["role", "role", "job", "stop"]
    assert waits == [0.0, 0.001, 0.002, 0.004]
    assert ending.cause.type_name == "MemoryError" and "could not be started again" in ending.why


# ---- errors of the Master itself


async def run_of(launch, context, error: Exception) -> JobEnding:
    loop = ControlLoop(launch, context)

    async def bring_up() -> None:
        raise error

    loop._bring_up = bring_up
    try:
        return await loop.run()
    finally:
        loop._detecting.cancel()


def test_an_error_that_the_master_does_not_know_restarts_it_a_few_times_and_then_ends_the_job(launch, context):
    for _ in range(3):
        with pytest.raises(KeyError):
            asyncio.run(run_of(launch, context, KeyError("x")))
    ending = asyncio.run(run_of(launch, context, KeyError("x")))
    assert (ending.state, ending.why, ending.cause.type_name) == (
        "failed",
        "the master failed: KeyError: 'x'",
        "KeyError",
    )
    incidents = context.record.incidents
    assert [str(one.scope) for one in incidents] == ["workload"] * 3 + ["stop"]
    assert {(one.kind, one.subject, one.restarts) for one in incidents} == {("master_failed", "master", ())}
    assert context.record.ending == ending.kept()


def test_an_error_that_can_not_be_counted_ends_the_job(launch, context, monkeypatch):
    """Else the Master would be restarted for it again and again, without a limit."""

    def no_incident(*_args: object, **_more: object) -> None:
        raise RuntimeError("no incident can be made of it")

    monkeypatch.setattr(ControlLoop, "decided", no_incident)
    ending = asyncio.run(run_of(launch, context, KeyError("x")))
    assert (ending.state, ending.why, ending.cause.type_name) == ("failed", "KeyError: 'x'", "KeyError")


def test_an_error_that_the_master_knows_ends_the_job_at_once(launch, context):
    ending = asyncio.run(run_of(launch, context, ReservationError("no room")))
    assert (ending.state, ending.why) == ("failed", "no room")
    assert context.record.incidents == ()


# ---- the end


def test_each_part_of_the_end_is_done_whatever_the_others_raise(launch, context, monkeypatch):
    done = []

    def failing(what: str):
        def part(*_args: object) -> None:
            done.append(what)
            raise RaySystemError(f"{what} failed")

        return part

    monkeypatch.setattr(beginning_and_end.workload_launcher, "processes_of", failing("processes"))
    monkeypatch.setattr(beginning_and_end, "end_all", failing("end all"))
    monkeypatch.setattr("dlrl_state.keeper.NodeMemoryKeeper.forget_run", failing("forget"))
    with pytest.raises(RaySystemError, match="forget failed"):
        asyncio.run(beginning_and_end.tear_down(launch, context, JobEnding(state="failed", why="it broke")))
    assert done == ["processes", "end all", "forget"]
    assert (context.record.state, context.record.ending.why) == ("failed", "it broke")


# ---- silence


class HostStandIn:
    """A process that answers after so many seconds."""

    def __init__(self, after_s: float, *, report: ProcessReport | None = None) -> None:
        self.after_s = after_s
        self.facts = Call(lambda: self._answer(report or report_of("actor-0")))
        self.method_table = Call(lambda: self._answer(b"table"))

    async def _answer(self, value: object) -> object:
        await asyncio.sleep(self.after_s)
        return value


def report_of(name: str, **fields) -> ProcessReport:
    rank = int(name[-1])
    who = {"name": name, "run_id": "r", "incarnation": 1, "actor_id": f"id{rank}", "pid": 7 + rank}
    where = {"node_id": "a", "address": "10.0.0.1", "state": WorkloadState.READY, "memory_bytes": 0, "sent_at": 0.0}
    return ProcessReport(**{**who, **where, **fields})


@pytest.mark.parametrize(
    ("after_s", "frozen", "reasons"),
    [
        (0.0, "it is stopped", []),
        (60.0, None, []),
        (60.0, "it is stopped", ["no report for 20 s, does not answer, and it is stopped"]),
    ],
)
def test_a_silent_process_that_answers_or_runs_is_left_alone(launch, context, monkeypatch, after_s, frozen, reasons):
    async def why_frozen(node_id: str, pids: list[int]) -> dict[int, str]:
        assert (node_id, pids) == ("a", [7])
        return {7: frozen} if frozen else {}

    monkeypatch.setattr(detection, "why_frozen", why_frozen)
    monkeypatch.setattr("dlrl_core.master.workload_processes._PING_S", 0.05)

    async def run() -> list[str]:
        loop = ControlLoop(launch, context)
        loop._workloads._hosts["actor-0"] = HostStandIn(after_s)
        hang = WorkloadHangs(name="actor-0", reason="no report for 20 s", actor_id="id0", is_silent=True)
        await loop.detection._observe([hang])
        await loop.detection._observe([hang])
        return [loop._seen.get_nowait().reason for _ in range(loop._seen.qsize())]

    assert asyncio.run(run()) == reasons


def test_a_node_is_asked_once_for_all_of_its_silent_processes(launch, context, monkeypatch):
    asked: list[tuple[str, list[int]]] = []

    async def why_frozen(node_id: str, pids: list[int]) -> dict[int, str]:
        asked.append((node_id, pids))
        return {8: "it is stopped"}

    monkeypatch.setattr(detection, "why_frozen", why_frozen)

    async def run() -> list[str]:
        loop = ControlLoop(launch, context)
        hangs = [
            WorkloadHangs(name=f"actor-{at}", reason="no report", actor_id=f"id{at}", is_silent=True) for at in (0, 1)
        ]
        await loop.detection._observe(hangs)
        return [loop._seen.get_nowait().name for _ in range(loop._seen.qsize())]

    assert asyncio.run(run()) == ["actor-1"]
    assert asked == [("a", [7, 8])]


def test_of_processes_of_a_node_those_that_are_stopped_are_told(monkeypatch):
    monkeypatch.setattr(cluster_probe, "_IDLE_S", 0.1)
    waits = "import time\nwhile True: time.sleep(0.01)"
    stopped, runs = (subprocess.Popen([sys.executable, "-c", waits]) for _ in range(2))
    try:
        psutil.Process(stopped.pid).suspend()
        found = cluster_probe._frozen_states([stopped.pid, runs.pid, 2**22 + 1])
        assert found == {stopped.pid: "its process is stopped (SIGSTOP)"}
    finally:
        for one in (stopped, runs):
            one.kill()
            one.wait()


def test_after_a_pause_of_the_master_itself_no_process_counts_as_silent(launch, context, monkeypatch):
    """Its own process was stopped: what was reported meanwhile waits to be read."""
    looked: list[float] = []
    monkeypatch.setattr(detection, "_LOOK_S", 0.01)
    monkeypatch.setattr(detection, "_OWN_PAUSE_S", 0.2)
    monkeypatch.setattr(
        "dlrl_core.failover.finding.find_hangs", lambda look: looked.append(look.now - look.since) or []
    )
    from dlrl_core.plugin import reset_plugin_host

    reset_plugin_host()

    async def run() -> None:
        loop = ControlLoop(launch, context)
        loop._become_stable()
        task = asyncio.ensure_future(loop.detection.run())
        while len(looked) < 30:
            await asyncio.sleep(0.01)
        before = looked[-1]
        time.sleep(0.5)  # blocks the event loop
        del looked[:]
        while not looked:
            await asyncio.sleep(0.01)
        task.cancel()
        assert looked[0] < before

    asyncio.run(run())
    reset_plugin_host()


@pytest.mark.parametrize(("limit_s", "period_s"), [(30.0, 5.0), (60.0, 5.0), (6.0, 1.0)])
def test_workloads_report_often_enough_for_the_limit_of_their_role(limit_s, period_s):
    from dlrl_core.master.process_launches import _workload

    spec = small_job(role={"silence_limit": limit_s})
    plan = plan_on(spec, nodes("a"))
    made: WorkloadLaunch = _workload(launch_of(spec, plan), spec, plan.workloads[0], 0, 0)
    assert made.report_period_s == period_s


# ---- adoption


def test_processes_are_adopted_at_the_same_time_and_each_has_a_limit(launch, context):
    limits = replace(launch, limits=replace(launch.limits, process_s=0.5))

    async def run() -> tuple[list[str], float]:
        loop = ControlLoop(limits, context)
        loop._reserved._plan = plan_on(SPEC, nodes("a"))
        loop._workloads.follow(loop._reserved)
        loop._workloads._watch = lambda name: None
        began = time.monotonic()
        found = {"actor-0": HostStandIn(60.0), "actor-1": HostStandIn(0.4, report=report_of("actor-1"))}
        missing = await loop._workloads.adopt(found)
        assert loop._workloads.host_of("actor-1") is found["actor-1"]
        return missing, time.monotonic() - began

    missing, seconds = asyncio.run(run())
    assert missing == ["actor-0"] and seconds < 0.8


def test_of_many_calls_the_one_of_a_dead_process_is_named_at_once():
    async def fails(error: Exception) -> None:
        raise error

    async def run() -> float:
        refs = {f"actor-{rank}": asyncio.sleep(60) for rank in range(200)}
        refs["actor-199"].close()
        refs["actor-199"] = fails(ActorDiedError())
        began = time.monotonic()
        with pytest.raises(ProcessDiedError) as caught:
            await replies_of(refs, doing="start", timeout_s=5)
        assert caught.value.name == "actor-199"
        return time.monotonic() - began

    assert asyncio.run(run()) < 1.0


# ---- an old process


def waiting_for(pid: int, *, started: int | None = None) -> subprocess.Popen[bytes]:
    """A process beside that one, with the same parent, which waits as a restarted workload does."""
    old = (pid, started_at(pid) if started is None else started)
    code = f"from dlrl_core.workload import process; process._GOES_S = 0.5; process.end_predecessor({old})"
    return subprocess.Popen([sys.executable, "-c", code])


def ended(old: subprocess.Popen[bytes], new: subprocess.Popen[bytes]) -> int:
    wait_until(lambda: old.poll() is not None, "the old process is gone", 20)
    return new.wait(20)


def test_a_new_process_waits_until_the_old_one_is_gone_and_ends_one_that_stays():
    old = subprocess.Popen(["sleep", "1000"])
    psutil.Process(old.pid).suspend()
    assert ended(old, waiting_for(old.pid)) == 0
    assert waiting_for(old.pid).wait(20) == 0


def test_a_process_of_somebody_else_under_the_old_number_is_left_alone():
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], stdout=-3).pid, flush=True); input()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other = int(parent.stdout.readline())
    try:
        assert waiting_for(other).wait(20) == 0
        assert psutil.pid_exists(other)
    finally:
        psutil.Process(other).kill()
        parent.communicate(b"\n")


def test_another_process_of_the_same_parent_under_the_old_number_is_left_alone():
    other = subprocess.Popen(["sleep", "1000"])
    try:
        assert waiting_for(other.pid, started=started_at(other.pid) - 1).wait(20) == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_pid_of_the_old_process_is_in_the_record_until_the_next_one_is_up(launch, committed):
    async def run() -> None:
        loop = ControlLoop(launch, committed)
        for _ in range(2):  # the second time before a process came up
            incident, recovery, _ = loop.decided(TrainerGone(reason="it died", incarnation=0))
            recovery = replace(recovery, names=frozenset({"actor-0"}))
            loop._write(incident, recovery, JobEnding(state="failed"))

    asyncio.run(run())
    record = committed.workloads["actor-0"]
    assert (record.pid, record.old_process, record.incarnation) == (None, (7, 70), 3)


# ---- clocks


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
def test_a_step_of_the_wall_clock_neither_resets_nor_spends_a_budget(launch, committed, monkeypatch, step_s):
    clock = WallClockStandIn()
    for module in ("dlrl_core.context.records", "dlrl_core.context.job_context"):
        monkeypatch.setattr(f"{module}.time", clock)

    def died(loop: ControlLoop) -> tuple[str, float]:
        incident, recovery, decision = loop.decided(TrainerGone(reason="it died", incarnation=0))
        loop._write(incident, recovery, JobEnding(state="failed"))
        return str(incident.scope), decision.wait_s

    async def run() -> None:
        loop = ControlLoop(launch, committed)
        assert [died(loop)[0] for _ in range(2)] == ["role", "role"]
        clock.step_s = step_s
        assert [died(loop)[0] for _ in range(2)] == ["role", "job"]

    asyncio.run(run())


def test_a_clock_that_was_set_back_while_there_was_no_master_spends_no_budget_for_a_day(
    tmp_path, launch, context, monkeypatch
):
    clock = WallClockStandIn()
    monkeypatch.setattr("dlrl_core.context.records.time", clock)

    async def run() -> float:
        loop = ControlLoop(launch, context)
        incident, recovery, _ = loop.decided(TrainerGone(reason="it died", incarnation=0))
        loop._write(incident, recovery, JobEnding(state="failed"))
        return incident.steady_at

    steady_at = asyncio.run(run())
    clock.step_s = -DAY_S
    loaded = JobContext.load(SqliteStore(tmp_path / "context.db"), "small")
    assert 0 <= loaded.now() - steady_at < 10


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
def test_how_long_a_recovery_took_is_not_moved_by_a_step_of_the_wall_clock(launch, context, monkeypatch, step_s):
    clock = WallClockStandIn()
    for module in (context_module, sys.modules["dlrl_core.context.records"]):
        monkeypatch.setattr(module, "time", clock)

    async def run() -> None:
        loop = ControlLoop(launch, context)
        incident, recovery, _ = loop.decided(TrainerGone(reason="it died", incarnation=0))
        loop._write(incident, replace(recovery, names=frozenset(), with_trainer=False), JobEnding(state="failed"))
        with context.change() as change:
            change.trainer(state="running")
        loop._reserved._plan = plan_on(SPEC, nodes("a"))
        loop._workloads.follow(loop._reserved)
        loop._workloads._hosts = {"actor-0": None, "actor-1": None}
        clock.step_s = step_s
        loop._become_stable()

    asyncio.run(run())
    [incident] = context.record.incidents
    assert incident.seconds is not None and incident.seconds < 10


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
def test_progress_is_ordered_by_numbers_and_not_by_clocks(launch, context, monkeypatch, step_s):
    progress = Progress(CallLog())

    async def run() -> int | None:
        trainer = ControlLoop(launch, context).trainer
        progress.begin_step(0, 10)
        early = progress.report()
        progress.begin_step(1, 10)
        late = replace(progress.report(), sent_at=time.time() + step_s)
        for report in (early, late, replace(early, sent_at=time.time() + 2 * DAY_S)):
            trainer.record_progress(report)
        return context.record.progress.step

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
def test_how_long_a_call_runs_is_not_moved_by_a_step_of_the_wall_clock(monkeypatch, step_s):
    clock = WallClockStandIn()
    monkeypatch.setattr("dlrl_core.workload.coroutines.time", clock)
    calls = Coroutines()
    calls.begin("generate")
    clock.step_s = step_s
    method, since = calls.oldest()
    assert method == "generate" and 0 <= time.monotonic() - since < 10


def test_a_look_that_finds_a_process_well_does_not_begin_its_silence_anew(launch, context, monkeypatch):
    """Else a call that holds Python's lock for ever would never be beyond its `hang_limit`."""
    asked = []

    async def why_frozen(node_id: str, pids: list[int]) -> dict[int, str]:
        asked.append(pids)
        return {}

    monkeypatch.setattr(detection, "why_frozen", why_frozen)

    async def run() -> list[str]:
        loop = ControlLoop(launch, context)
        loop.detection.hear(report_of("actor-0"))
        before = dict(loop.detection._look().heard)
        hang = WorkloadHangs(name="actor-0", reason="no report for 28 s", actor_id="id0", is_silent=True)
        for _ in range(3):
            await loop.detection._observe([hang])
        assert loop._seen.empty()
        assert dict(loop.detection._look().heard) == before
        await loop.detection._observe([replace(hang, is_silent=False)])
        return [loop._seen.get_nowait().name for _ in range(loop._seen.qsize())]

    assert asyncio.run(run()) == ["actor-0"]
    assert asked == [[7]]
