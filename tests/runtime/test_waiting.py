"""A job that fits the cluster, but not what others leave free, waits in sight; a Master may die meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from checks import connected, master_pid, wait_until
from planned_submit import submit_with_plan

from dlrl_core import RLJobBuilder
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import JobFailedError, JobStoppedError, PlanError

HERE = "sample_jobs.places"
Places = dict[str, tuple[int, str, str]]
"""By name, the pid, the actor and the node of each workload."""


def job(total: int = 2, **config):
    builder = RLJobBuilder().device_per_node(4).config(config).trainer(HERE, "Host")
    return builder.actor(HERE, "Guest").total(total).build()


def record_of(name: str):
    return JobContext.load(open_store(default_store_url()), name).record


@contextmanager
def somebody_holds_all_gpus() -> Iterator[None]:
    import ray
    from ray.util import placement_group, remove_placement_group

    group = placement_group([{"GPU": 4}, {"GPU": 4}], strategy="SPREAD")
    ray.get(group.ready())
    try:
        yield
    finally:
        remove_placement_group(group)


def kill_master(handle: JobHandle, name: str) -> None:
    """SIGKILL; returns when the next one has taken up the job."""
    before = record_of(name).master_incarnation
    os.kill(master_pid(), signal.SIGKILL)
    wait_until(lambda: record_of(name).master_incarnation == before + 1, "a new Master has taken up the job", 60)
    assert handle.status().view["master_incarnation"] == before + 1


def test_a_job_that_no_cluster_state_would_fit_is_refused_within_two_seconds(ray_2_nodes_8_gpus):
    began = time.monotonic()
    with pytest.raises(PlanError) as raised:
        job(total=9).submit("huge")
    assert time.monotonic() - began < 2.0
    assert "role 'actor' needs 9 x (1 GPU, 1 CPU)" in str(raised.value)
    assert "it would fit with" in str(raised.value)


def test_a_job_waits_for_what_others_hold_and_status_says_for_what(ray_2_nodes_8_gpus, shell, dlrl_home):
    env = {"DLRL_HOME": str(dlrl_home), "RAY_ADDRESS": ray_2_nodes_8_gpus, "COLUMNS": "300"}
    with somebody_holds_all_gpus():
        handle = job().submit("patient", blocking=False)
        status = wait_until(lambda: (now := handle.status()).waiting_for and now, "it says what it waits for")
        assert status.state == "reserving"
        assert "role 'actor' needs 2 x (1 GPU, 1 CPU); the cluster has 0 GPU" in status.waiting_for
        shown = shell.run("status", "patient", env=env).out
        assert "waiting for" in shown and "role 'actor' needs 2 x (1 GPU, 1 CPU)" in " ".join(shown.split())
        listed = shell.run("status", "--json", env=env).json["jobs"]
        assert [row["waiting_for"] for row in listed] == [status.waiting_for]
    assert len(handle.wait(timeout=60).value["last"]) == 2
    assert handle.status().waiting_for is None


def test_a_wait_is_bounded_and_its_end_names_what_was_missing(ray_2_nodes_8_gpus):
    with somebody_holds_all_gpus():
        with pytest.raises(JobFailedError, match=r"not granted its reservation within 1.5 s: role 'actor' needs 2 x"):
            job().submit("short", wait_for_resources_s=1.5)
        with pytest.raises(PlanError, match="role 'actor' needs 2 x"):
            job().submit("none", wait_for_resources_s=0)
    assert record_of("short").state == "failed"


def test_a_waiting_job_names_the_other_jobs_that_hold_resources(ray_2_nodes_8_gpus, tmp_path):
    until = tmp_path / "end"
    first = whole_nodes(1, until=str(until)).submit("first", blocking=False)
    wait_until(lambda: first.status().state == "running", "the first job has its place")
    second = whole_nodes(2).submit("second", blocking=False)
    status = wait_until(lambda: (now := second.status()).waiting_for and now, "the second job waits")
    assert "other jobs hold resources: 'first'" in status.waiting_for
    until.touch()
    first.wait(timeout=60)
    assert len(second.wait(timeout=60).value["last"]) == 2


def whole_nodes(count: int, **config):
    """A job with one workload on each of so many nodes, which takes all devices there."""
    builder = RLJobBuilder().node_num(count).device_per_node(4).config(config).trainer(HERE, "Host")
    return builder.actor(HERE, "Guest").total(count).per_node(1).resource({"GPU": 4}).build()


def test_a_plan_whose_place_was_taken_in_between_is_made_again_elsewhere(ray_2_nodes_8_gpus):
    """The driver plans and asks; somebody else is faster on that node, and the other node is free."""
    import ray
    from ray.util import placement_group, remove_placement_group

    from dlrl_core.plan import make_plan
    from dlrl_core.scheduler.cluster_probe import view_capacity

    late = job()
    plan = make_plan(late.spec, view_capacity())
    group = placement_group([{"GPU": 4}], bundle_label_selector=[{"ray.io/node-id": plan.nodes[0].node_id}])
    ray.get(group.ready())
    try:
        value = submit_with_plan("late", late, plan).wait(timeout=60).value
    finally:
        remove_placement_group(group)
    assert {one["node"] for one in value["last"]}.isdisjoint({plan.nodes[0].node_id})
    assert record_of("late").plan_number == 2


def test_a_workload_that_dies_while_there_is_no_master_is_not_replaced_by_a_blank_one(ray_2_nodes_8_gpus, tmp_path):
    """A job that may not be restarted at all fails for it."""
    builder = RLJobBuilder().device_per_node(2).config({"until": str(tmp_path / "never")}).trainer(HERE, "Host")
    builder = builder.actor(HERE, "Guest").total(2).restart_budget(workload=0, role=0, job=0)
    handle = builder.build().submit("loses", blocking=False)
    wait_until(lambda: handle.status().state == "running", "the job runs")
    victim = handle.status().workloads[1]
    os.kill(master_pid(), signal.SIGKILL)
    os.kill(victim["pid"], signal.SIGKILL)
    with pytest.raises(JobFailedError, match=f"workload '{victim['name']}' died"):
        handle.wait(timeout=90)


@dataclass(frozen=True, kw_only=True)
class Killed:
    """What was seen of one job whose Master was killed while it waited, while it started, and twice while it ran."""

    waited_for: str
    when_up: Places
    """When all processes were there, before the Master was killed."""
    when_running: Places
    value: dict[str, list[dict]]
    adoptions: int


def places_of(handle: JobHandle) -> Places:
    return {one["name"]: (one["pid"], one["actor_id"], one["node_id"]) for one in handle.status().workloads}


def is_up(handle: JobHandle) -> bool:
    status = handle.status()
    return status.state == "starting" and all(one["pid"] for one in status.workloads)


@pytest.fixture(scope="module")
def killed(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    until = tmp_path_factory.mktemp("killed") / "end"
    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        with somebody_holds_all_gpus():
            handle = job(until=str(until), construct_s=4).submit("killed", blocking=False)
            wait_until(lambda: handle.status().waiting_for, "the job waits")
            kill_master(handle, "killed")
            waited_for = wait_until(lambda: handle.status().waiting_for, "it still waits")
        wait_until(lambda: is_up(handle), "all processes are up")
        when_up = places_of(handle)
        assert handle.status().state == "starting"
        kill_master(handle, "killed")
        wait_until(lambda: handle.status().state == "running", "the job runs")
        when_running, before = places_of(handle), adoptions("killed")
        for times in (1, 2):
            kill_master(handle, "killed")
            wait_until(
                lambda times=times: adoptions("killed") == before + times, "the new master has adopted everybody"
            )
        until.touch()
        value = handle.wait(timeout=60).value
        return Killed(
            waited_for=waited_for,
            when_up=when_up,
            when_running=when_running,
            value=value,
            adoptions=adoptions("killed") - before,
        )


def adoptions(name: str) -> int:
    messages = [event.message for event in JobContext.load(open_store(default_store_url()), name).journal()]
    return messages.count("2 workloads go on as they are")


def test_a_master_killed_while_it_waits_goes_on_waiting_and_the_job_finishes(killed):
    assert "role 'actor' needs 2 x" in killed.waited_for
    assert len(killed.value["last"]) == 2


def test_a_master_killed_while_workloads_start_moves_nobody(killed):
    assert killed.when_running == killed.when_up


def test_a_master_killed_while_the_job_runs_moves_nobody_and_loses_nothing(killed):
    """Twice; the trainer neither notices nor begins again."""
    assert killed.value["first"] == killed.value["last"]
    assert {one["name"]: one["pid"] for one in killed.value["last"]} == {
        name: pid for name, (pid, *_) in killed.when_up.items()
    }
    assert killed.adoptions == 2


def test_a_master_killed_while_the_job_stops_finishes_stopping(ray_2_nodes_8_gpus, tmp_path):
    handle = job(until=str(tmp_path / "never")).submit("stops", blocking=False)
    wait_until(lambda: handle.status().state == "running", "the job runs")
    pid = master_pid()
    handle._ask(handle._master.stop, "enough")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: record_of("stops").state == "stopped", "the job is stopped all the same", 60)
    assert record_of("stops").why == "enough"
    with pytest.raises(JobStoppedError, match="enough"):
        handle.wait(timeout=60)
