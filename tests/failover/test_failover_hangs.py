"""Who hangs: judged by its reports, or by their absence, and ended as the process that was judged."""

from __future__ import annotations

import asyncio
import time

import pytest
from checks import wait_until
from master_parts import Call, context_of, launch_of, nodes, plan_on, small_job

from dlrl_core.context import ProcessReport, WorkloadState
from dlrl_core.master import hangs
from dlrl_core.master.hangs import HangWatch

NOW = time.time()


class HostStandIn:
    def __init__(self, name: str) -> None:
        self.name = name
        self.stacks = Call(self._stacks)

    async def _stacks(self) -> str:
        return "its stacks"


class CrewStandIn:
    def __init__(self) -> None:
        self.hosts = {"actor-0": HostStandIn("first")}

    def host_of(self, name: str):
        return self.hosts.get(name)


@pytest.fixture
def context(tmp_path):
    spec = small_job(role={"hang_s": 10.0})
    context = context_of(tmp_path, launch_of(spec, plan_on(spec, nodes("a"))))
    with context.change() as change:
        change.workload("actor-0", state=WorkloadState.READY, pid=7, actor_id="first", since=NOW - 100)
    return context


@pytest.fixture
def killed(monkeypatch) -> list[str]:
    killed: list[str] = []
    monkeypatch.setattr(hangs, "kill", lambda host: killed.append(host.name))
    monkeypatch.setattr(hangs, "_LOOK_S", 0.01)
    return killed


def watch_of(context, crew=None, *, since: float = NOW - 100) -> HangWatch:
    watch = HangWatch(small_job(role={"hang_s": 10.0}), crew or CrewStandIn(), context)
    watch._since = since
    return watch


def report(**fields) -> ProcessReport:
    who = {"name": "actor-0", "run_id": "r", "incarnation": 0, "actor_id": "x", "pid": 7}
    where = {"node_id": "a", "address": "10.0.0.1", "state": WorkloadState.READY}
    return ProcessReport(**{**who, **where, "memory_bytes": 0, "sent_at": NOW, **fields})


@pytest.mark.parametrize(
    ("said", "ago", "reason"),
    [
        (report(), 100, None),
        (report(call="add", call_since=NOW - 9), 100, None),
        (report(call="add", call_since=NOW - 11), 100, "its call 'add' has run for 11 s (limit 10 s)"),
        (report(sent_at=NOW - 31), 100, "it sent no report for 31 s (limit 30 s)"),
        (None, 100, "it sent no report for 100 s (limit 30 s)"),
        (None, 5, None),
        (report(pid=8, call="add", call_since=NOW - 60), 5, None),
    ],
)
def test_silence_counts_from_the_last_report_or_from_when_there_should_have_been_one(context, said, ago, reason):
    assert watch_of(context, since=NOW - ago).judged(context.workloads["actor-0"], said, NOW) == reason


def test_who_is_being_constructed_is_not_judged(context):
    with context.change() as change:
        change.workload("actor-0", state=WorkloadState.STARTING, since=NOW - 100)
    assert watch_of(context).judged(context.workloads["actor-0"], None, NOW) is None


async def watched(watch: HangWatch, reports: dict, until) -> None:
    task = asyncio.ensure_future(watch.watch(reports))
    await asyncio.to_thread(wait_until, until, "the watch did it", 10)
    task.cancel()


def test_a_workload_that_hangs_again_after_a_restart_for_another_reason_is_ended_again(context, killed):
    crew, reports = CrewStandIn(), {"actor-0": report(call="add", call_since=NOW - 60)}
    watch = watch_of(context, crew)
    asyncio.run(watched(watch, reports, lambda: killed == ["first"]))
    with context.change() as change:
        change.workload("actor-0", actor_id="second", pid=8, incarnation=1)
    crew.hosts["actor-0"] = HostStandIn("second")
    reports["actor-0"] = report(pid=8, incarnation=1, call="add", call_since=NOW - 60)
    asyncio.run(watched(watch, reports, lambda: killed == ["first", "second"]))
    assert watch.reason_of("second").startswith("its call 'add' has run for")
    assert watch.reason_of("third") is None


def test_a_process_that_was_replaced_while_its_stacks_were_asked_is_not_killed(context, killed):
    class Restarted(HostStandIn):
        async def _stacks(self) -> str:
            with context.change() as change:
                change.workload("actor-0", state=WorkloadState.STARTING, actor_id=None, pid=None)
            return ""

    crew = CrewStandIn()
    crew.hosts["actor-0"] = Restarted("first")
    reports = {"actor-0": report(call="add", call_since=NOW - 60)}
    asyncio.run(watched(watch_of(context, crew), reports, lambda: context.workloads["actor-0"].state == "starting"))
    assert killed == []
    assert not [event for event in context.journal() if event.kind == "hung"]


def test_an_error_on_the_way_does_not_end_the_watch(context, killed, capfd):
    class Broken(HostStandIn):
        calls = 0

        async def _stacks(self) -> str:
            Broken.calls += 1
            if Broken.calls == 1:
                raise OSError("no thread to be had")
            return "its stacks"

    crew = CrewStandIn()
    crew.hosts["actor-0"] = Broken("first")
    reports = {"actor-0": report(call="add", call_since=NOW - 60)}
    asyncio.run(watched(watch_of(context, crew), reports, lambda: killed == ["first"]))
    assert "workload 'actor-0' could not be judged: OSError: no thread to be had" in capfd.readouterr().err
