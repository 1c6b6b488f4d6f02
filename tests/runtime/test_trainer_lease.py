"""The trainer calls workloads only while its lease holds. Ray and the Master are stand-ins."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from ray_stand_in import JobStandIn, Ref, use_stand_in

from dlrl_core.trainer import workload_directory
from dlrl_core.trainer.progress import LEASE_S
from dlrl_core.trainer.workload_directory import Lease


class Ended(BaseException):
    """What a stand-in raises where the process would end."""


@pytest.fixture
def job(monkeypatch) -> JobStandIn:
    use_stand_in(monkeypatch)
    monkeypatch.setattr(workload_directory, "end_replaced", ended)
    return JobStandIn("actor")


def ended(what: str) -> None:
    raise Ended(what)


def lease_of(job: JobStandIn, answers: list[bool | None]) -> Lease:
    """A lease of the second trainer that has run out; None is a Master that only answers when the lease is over."""
    asked = job.asked = []

    def trainer_progress(report: object) -> Ref:
        asked.append(report)
        if (answer := answers.pop(0)) is None:
            time_passes(LEASE_S)
            return Ref(True)
        return Ref(answer)

    now = [time.monotonic()]

    def time_passes(seconds: float) -> None:
        now[0] += seconds

    job.clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time_passes, perf_counter=time.perf_counter)
    job.master.trainer_progress = SimpleNamespace(remote=trainer_progress)
    return Lease(term=1, until=now[0], master=job.master, report=lambda: "a report")


def test_a_call_waits_until_the_lease_is_granted_again(job, monkeypatch):
    """The first answer came so late that what it granted is over: it runs from the moment of the question."""
    job.directory.lease = lease_of(job, [None, True])
    monkeypatch.setattr(workload_directory, "time", job.clock)
    job.groups["actor"].work()
    assert job.asked == ["a report", "a report"]
    assert job.directory.lease.until == job.clock.monotonic() + LEASE_S
    job.groups["actor"].work()
    assert len(job.asked) == 2, "a lease that holds is checked without the Master"


def test_a_refused_trainer_calls_nothing_more_and_ends(job, monkeypatch):
    job.directory.lease = lease_of(job, [False])
    monkeypatch.setattr(workload_directory, "time", job.clock)
    with pytest.raises(Ended, match="the trainer"):
        job.groups["actor"].work()
    assert not any(process.done for process in job.processes.values())
    assert job.directory.lease.until < 0


@pytest.mark.parametrize("use", ["commit", "handle"])
def test_commits_and_handles_need_the_lease_too(job, monkeypatch, use):
    job.directory.lease = lease_of(job, [False])
    monkeypatch.setattr(workload_directory, "time", job.clock)
    for handle in job.handles:
        handle._lease = job.directory.lease
    with pytest.raises(Ended):
        job.directory.ask_all(job.handles, "restore", "id", 1) if use == "commit" else job.handles[0].work.remote()
    assert not any(process.done for process in job.processes.values())


def test_a_new_trainer_fences_all_workloads_first_and_signs_its_calls(job):
    job.directory.lease = Lease(term=1)
    job.directory.fence()
    job.groups["actor"].work()
    job.handles[0].work.remote()
    assert [process.done["fence"] for process in job.processes.values()] == [1, 1]
    assert {name: dict(process.done) for name, process in job.processes.items()} == {
        "actor-0": {"fence": 1, "1:work": 2},
        "actor-1": {"fence": 1, "1:work": 1},
    }


def test_a_lease_that_was_given_up_is_never_granted_again():
    lease = Lease(term=0, until=-1.0)
    lease.heard(True, time.monotonic())
    assert lease.until == -1.0
