"""One job is hit again and again by real SIGKILLs: each death restarts what is declared, and the end is exact."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import connected, wait_until
from soak import exactness

from dlrl_chaos.chaos import Chaos
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import Incident, JobContext, JournalEvent, default_store_url, open_store


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is known of the job at one time."""

    processes: dict[str, tuple[int, int]]
    """Pid and restarts of each process but the Master."""
    master: int
    epoch: int
    journal: list[JournalEvent]
    incidents: tuple[Incident, ...]

    def restarted(self, before: Moment) -> set[str]:
        return {name for name, process in self.processes.items() if process != before.processes[name]}

    def events(self, before: Moment) -> list[JournalEvent]:
        return [event for event in self.journal if event.seq > before.journal[-1].seq]

    def incidents_since(self, before: Moment) -> list[Incident]:
        last = before.incidents[-1].number if before.incidents else 0
        return [one for one in self.incidents if one.number > last]

    def scopes(self, before: Moment) -> list[str]:
        return [str(one.scope) for one in self.incidents_since(before)]


class RunningJob:
    """The exactness job, which goes on until it is told that it was enough."""

    name = "exact"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._enough = folder / "enough"
        self.handle: JobHandle = exactness.job(steps=100_000, enough=str(self._enough)).submit(
            self.name, blocking=False
        )

    @property
    def chaos(self) -> Chaos:
        return Chaos(self.name)

    def restarts_of(self, name: str) -> int:
        return self.processes()[name][1]

    def processes(self) -> dict[str, tuple[int, int]]:
        view = self.handle.status().view
        everybody = {"trainer": view["trainer"], **{one["name"]: one for one in view["workloads"]}}
        return {name: (one["pid"], one["incarnation"]) for name, one in everybody.items()}

    def context(self) -> JobContext:
        return JobContext.load(open_store(default_store_url()), self.name)

    def steps_on(self) -> Moment:
        """As it is when nothing is restarted any more and two more steps are done."""
        wait_until(self._is_whole, "all processes of the job are ready", 60)
        step = self.handle.status().step or 0
        wait_until(lambda: (self.handle.status().step or 0) >= step + 2 and self._is_whole(), "two steps are done", 60)
        context = self.context()
        return Moment(
            processes=self.processes(),
            master=context.record.master_incarnation,
            epoch=context.record.epoch,
            journal=list(context.journal()),
            incidents=context.record.incidents,
        )

    def _is_whole(self) -> bool:
        status = self.handle.status()
        return status.state == "running" and all(one["state"] == "ready" for one in status.workloads)

    def wait_for_restart(self, name: str, before: Moment) -> None:
        now = before.processes[name][1]
        wait_until(lambda: self.restarts_of(name) > now, f"'{name}' is restarted", 60)

    def ends(self):
        self._enough.touch()
        return self.handle.wait(timeout=90).value


@pytest.fixture(scope="module")
def ray_job(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningJob]:
    """The job of all tests of this module; after the last one nothing of it is left."""
    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        job = RunningJob(tmp_path_factory.mktemp("job"))
        try:
            yield job
        finally:
            if not job.handle.status().is_final:
                job.handle.stop("the tests are over")


@pytest.fixture(autouse=True)
def dlrl_home(ray_job: RunningJob) -> None:
    """The records of the job are those of all tests here."""


@pytest.mark.parametrize(
    ("victim", "restarted", "scope"),
    [
        ("rollout-1", {"rollout-1"}, "workload"),
        ("reference-0", {"reference-0"}, "workload"),
        ("reward-0", {"reward-0"}, "workload"),
        ("actor-1", {"actor-0", "actor-1"}, "role"),
        ("critic-0", {"critic-0"}, "role"),
        ("trainer", {"trainer"}, "role"),
    ],
)
def test_a_death_restarts_what_is_declared_and_nobody_else(ray_job, victim, restarted, scope):
    before = ray_job.steps_on()
    ray_job.chaos.inject(victim, "kill")
    ray_job.wait_for_restart(victim, before)
    after = ray_job.steps_on()
    assert after.restarted(before) == restarted
    assert after.scopes(before) == [scope]
    assert any(event.kind == "chaos" for event in after.events(before))
    [incident] = after.incidents_since(before)
    assert set(incident.restarts) == restarted
    assert incident.chaos == f"chaos: kill of '{victim}' now" and incident.ready_at is not None
    assert (after.epoch == before.epoch) == (scope == "workload")


@pytest.mark.parametrize(
    ("victim", "method"),
    [("rollout-0", "answer"), ("actor-0", "update"), ("actor-0", "capture_state"), ("critic-0", "save_state")],
)
def test_a_death_in_the_middle_of_a_call_or_of_a_commit_restarts_the_victim(ray_job, victim, method):
    before = ray_job.steps_on()
    ray_job.chaos.inject(victim, "kill", method=method, nth=2)
    ray_job.wait_for_restart(victim, before)
    assert victim in ray_job.steps_on().restarted(before)


def test_a_killed_master_restarts_nobody(ray_job):
    before = ray_job.steps_on()
    ray_job.chaos.inject("master", "kill")
    wait_until(lambda: ray_job.context().record.master_incarnation > before.master, "there is a new Master", 60)
    after = ray_job.steps_on()
    assert after.restarted(before) == set()
    assert after.master == before.master + 1


def test_several_deaths_at_once_the_master_among_them(ray_job):
    before = ray_job.steps_on()
    chaos = ray_job.chaos
    for victim in ("rollout-0", "critic-0", "master"):
        chaos.inject(victim, "kill")
    for victim in ("rollout-0", "critic-0"):
        ray_job.wait_for_restart(victim, before)
    after = ray_job.steps_on()
    assert after.restarted(before) >= {"rollout-0", "critic-0"}
    assert "actor-0" not in after.restarted(before)


def test_a_death_during_the_recovery_of_another(ray_job):
    """The restarted process is killed as soon as it is there, and the one of another role with it."""
    before = ray_job.steps_on()
    known = before.processes["critic-0"][1]
    ray_job.chaos.inject("critic-0", "kill")
    pid = wait_until(
        lambda: (now := ray_job.processes()["critic-0"])[1] == known + 1 and now[0], "the critic is being restarted", 60
    )
    os.kill(pid, signal.SIGKILL)
    ray_job.chaos.inject("actor-1", "kill")
    wait_until(lambda: ray_job.restarts_of("critic-0") == known + 2, "the critic is restarted again", 60)
    after = ray_job.steps_on()
    assert after.processes["critic-0"][1] == known + 2
    assert "actor-1" in after.restarted(before)
    assert after.processes["rollout-0"] == before.processes["rollout-0"]


def test_a_master_killed_during_a_recovery_finishes_it(ray_job):
    before = ray_job.steps_on()
    chaos = ray_job.chaos
    chaos.inject("actor-0", "kill")
    ray_job.wait_for_restart("actor-0", before)
    chaos.inject("master", "kill")
    after = ray_job.steps_on()
    assert after.restarted(before) == {"actor-0", "actor-1"}
    assert after.master == before.master + 1


def test_a_store_that_is_away_for_a_while_stops_nobody(ray_job):
    before = ray_job.steps_on()
    ray_job.chaos.inject("master", "store", seconds=3.0)
    said = wait_until(lambda: ray_job.handle.status().degraded, "the status says degraded", 30)
    assert "has not answered for" in said
    wait_until(lambda: ray_job.handle.status().degraded is None, "the status says so no more", 30)
    after = ray_job.steps_on()
    assert after.restarted(before) == set()
    kinds = [event.kind for event in after.events(before)]
    assert kinds.index("store_lost") < kinds.index("store_back")


def test_dlrl_chaos_hits_whom_it_is_told_to(ray_job, cluster_2_nodes_8_gpus, shell):
    before = ray_job.steps_on()
    step = (ray_job.handle.status().step or 0) + 15
    ran = shell.run("chaos", "exact", "rollout-1", "--step", str(step), "--address", cluster_2_nodes_8_gpus)
    assert (ran.code, ran.out) == (0, f"kill of 'rollout-1' at step {step}\n")
    ray_job.wait_for_restart("rollout-1", before)
    assert ray_job.steps_on().restarted(before) == {"rollout-1"}


def test_after_all_these_deaths_every_step_was_applied_once_and_the_end_is_bit_identical(ray_job):
    """The last test of this module: so many steps without a fault come to the same state."""
    value = ray_job.ends()
    applied = value["actor"][0]["applied"]
    assert applied == list(range(len(applied)))
    assert value == exactness.expected(len(applied))
    assert ray_job.context().journal()[-1].kind == "ended"
