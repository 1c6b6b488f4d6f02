"""However a job ends, its driver hears the first cause and nothing of the job is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from checks import assert_nothing_left, connected, is_running, master_pid, side_by_side, wait_until

from dlrl_core import RLJobBuilder
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import (
    JobExistsError,
    JobFailedError,
    JobNotFoundError,
    JobStoppedError,
    JobTimeoutError,
)

HERE = "sample_jobs.endings"


def job(trainer: str, workload: str = "Worker", total: int = 1, restarts: int = 1, **config):
    builder = RLJobBuilder().device_per_node(total).config(config).trainer(HERE, trainer)
    builder = builder.actor(HERE, workload).total(total)
    return builder.restart_budget(workload=restarts, role=restarts, job=restarts, backoff_s=0.0).build()


def record_of(name: str):
    return JobContext.load(open_store(default_store_url()), name).record


def journal_of(name: str) -> list[str]:
    return [event.message for event in JobContext.load(open_store(default_store_url()), name).journal()]


pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def test_a_finished_job_returns_what_fit_returned_and_its_record_says_finished():
    done = job("Finishes", total=2, word="done")
    result = done.submit("finishes")
    assert result.value["job"] == "done"
    assert len(result.value["pids"]) == 2
    assert (result.status.state, result.status.step, result.status.total_steps) == ("finished", 3, 3)
    assert record_of("finishes").state == "finished"
    assert done.status().state == "finished"


FAILURES = {
    "Raises": "the trainer raised RuntimeError: the loss is not a number in 'fit' at step 3",
    "FailsInInit": "the trainer raised KeyError: 'tokenizer' in 'init'",
    "MeetsError": "raised ValueError: the data is bad in 'raise_error'",
    "RefusesToStart": "workload 'actor-1' could not start 'sample_jobs.endings.RefusesToStart': OSError: ",
    "DiesAtStart": "died during 'construct'",
    "MeetsErrorThroughHandle": "role 'actor' rank 0 raised ValueError: the data is bad in 'raise_error'",
    "MeetsUnsendable": "could not run 'unsendable': TypeError",
    "LosesWorkload": "died during 'die'",
    "LosesIdleWorkload": "workload 'actor-0' died",
    "Dies": "the trainer's process died",
}
"""What is said of the job that has this trainer, or this workload."""
WORKLOADS = ("RefusesToStart", "DiesAtStart")
DEATHS = ("DiesAtStart", "LosesWorkload", "LosesIdleWorkload", "Dies")
AT_ONCE = 4


@pytest.fixture(scope="module")
def failed(cluster_2_nodes_8_gpus, tmp_path_factory):
    """By the class of each job that fails: what its driver hears, its record and its journal."""

    def run(cls: str):
        handle = submit_failing(cls)
        with pytest.raises(JobFailedError) as raised:
            handle.wait(timeout=90)
        return raised.value, record_of(cls), journal_of(cls)

    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        return side_by_side(FAILURES, run, at_once=AT_ONCE)


def submit_failing(cls: str):
    """A death may be survived once; an error may not."""
    trainer, workload = ("Finishes", cls) if cls in WORKLOADS else (cls, "Worker")
    failing = job(trainer, workload, total=2 if cls == "RefusesToStart" else 1, restarts=int(cls in DEATHS))
    return failing.submit(cls, blocking=False)


@pytest.mark.parametrize("cls", FAILURES)
def test_a_failed_job_raises_the_first_cause_in_one_sentence(failed, cls):
    error, record, journal = failed[cls]
    first_line = str(error).splitlines()[0]
    assert first_line.startswith(f"job '{cls}' failed: ")
    assert FAILURES[cls] in first_line
    assert record.state == "failed"
    assert FAILURES[cls] in (record.why or "")
    assert any(FAILURES[cls] in event for event in journal)


def test_the_users_own_exception_is_the_direct_cause(failed):
    error, _, _ = failed["MeetsError"]
    assert isinstance(error.__cause__, ValueError)
    assert 'raise ValueError("the data is bad")' in str(error)


def test_a_stopped_job_ends_all_its_processes_and_wait_says_so(tmp_path):
    mark = tmp_path / "mark"
    running = job("RunsForever", mark=str(mark))
    handle = running.submit("stops", blocking=False)
    child = int(wait_until(lambda: mark.exists() and mark.read_text(), "training has begun"))
    assert is_running(child)
    assert handle.status().state == "running"
    running.stop("enough")
    with pytest.raises(JobStoppedError, match="job 'stops' was stopped: enough"):
        running.wait()
    assert record_of("stops").state == "stopped"
    wait_until(lambda: not is_running(child), "what a workload had started is gone too")
    assert_nothing_left()


def test_a_job_can_be_stopped_while_it_waits_for_its_reservation(ray_2_nodes_8_gpus):
    import ray
    from ray.util import placement_group, remove_placement_group

    greedy = placement_group([{"GPU": 4}, {"GPU": 4}], strategy="SPREAD")
    ray.get(greedy.ready())
    try:
        handle = job("Finishes").submit("late", blocking=False)
        wait_until(lambda: handle.status().waiting_for, "the job waits for its reservation")
        handle.stop("no patience")
        assert handle.status().state == "stopped"
    finally:
        remove_placement_group(greedy)


def test_a_driver_that_looks_late_still_gets_the_result():
    from planned_submit import submit_with_plan

    from dlrl_core.master.launch import MasterLimits
    from dlrl_core.plan import make_plan
    from dlrl_core.scheduler.cluster_probe import living_actors, view_capacity

    early = job("Finishes", word="kept")
    plan = make_plan(early.spec, view_capacity())
    handle = submit_with_plan("late", early, plan, MasterLimits(linger_s=0.1))
    wait_until(lambda: not living_actors(), "the Master has gone by itself", 60)
    assert handle.status().state == "finished"
    assert handle.wait().value["job"] == "kept"


def test_three_jobs_of_one_driver_and_one_of_another_process_finish_side_by_side(ray_2_nodes_8_gpus, dlrl_home):
    script = (
        "from dlrl_core import RLJobBuilder\n"
        f"job = RLJobBuilder().config({{'word': 'other'}}).trainer('{HERE}', 'Finishes').actor('{HERE}', 'Worker').build()\n"
        f"print(job.submit('other', address='{ray_2_nodes_8_gpus}').value['job'])\n"
    )
    tests = str(Path(__file__).parent.parent)
    other = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": tests, "DLRL_HOME": str(dlrl_home)},
    )
    names = ["one", "two", "three"]
    handles = [job("Finishes", word=name).submit(name, blocking=False) for name in names]
    results = [handle.wait(timeout=100) for handle in handles]
    assert [result.value["job"] for result in results] == names
    assert len({pid for result in results for pid in result.value["pids"]}) == 3
    output, _ = other.communicate(timeout=100)
    assert output.strip().endswith("other")
    assert other.returncode == 0


def test_a_living_jobs_name_is_taken_and_an_ended_ones_is_free():
    first = job("RunsForever")
    first.submit("name", blocking=False)
    with pytest.raises(JobExistsError, match="job 'name' is already running on this cluster; choose another name"):
        job("Finishes").submit("name")
    with pytest.raises(JobTimeoutError, match=r"job 'name' has not ended within 0\.1 s; it goes on"):
        first.wait(timeout=0.1)
    first.stop()
    first_run = record_of("name").run_id
    assert job("Finishes").submit("name").status.state == "finished"
    assert record_of("name").run_id != first_run


def test_a_job_can_be_asked_and_stopped_from_elsewhere():
    from dlrl_core.api.connection import connect
    from dlrl_core.api.job_handle import JobHandle

    job("SlowSteps", total=1).submit("afar", blocking=False)
    seen = JobHandle.attach("afar", connect())
    wait_until(lambda: (seen.status().step or 0) > 3, "the other side sees the steps go on")
    status = seen.status()
    assert status.metrics["reward"] > 0
    assert status.phase == "fit"
    assert status.phase_seconds["actor.sleep"] > 0.04
    assert status.workloads[0]["state"] == "ready"
    seen.stop()
    with pytest.raises(JobNotFoundError, match="no job 'afar' runs on this cluster"):
        JobHandle.attach("afar", connect())


@pytest.fixture
def interruptible(ray_2_nodes_8_gpus, dlrl_home, tmp_path):
    """A driver in a process group of its own, with a job that trains until somebody stops it."""
    mark = tmp_path / "mark"
    config = json.dumps({"mark": str(mark)})
    script = (
        "from dlrl_core import RLJobBuilder\n"
        f"job = RLJobBuilder().config({config}).trainer('{HERE}', 'RunsForever').actor('{HERE}', 'Worker').build()\n"
        f"job.submit('interrupted', address='{ray_2_nodes_8_gpus}')\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "DLRL_HOME": str(dlrl_home)},
        start_new_session=True,
    )
    wait_until(lambda: mark.exists() and mark.read_text(), "training has begun")
    return driver


def interrupt(driver):
    """What a terminal does on Ctrl-C: SIGINT to the whole process group. The job must hear of it through dlrl alone."""
    os.killpg(driver.pid, signal.SIGINT)
    lines = iter(driver.stderr.readline, "")
    assert any("stopping job 'interrupted'; Ctrl-C again leaves it as it is" in line for line in lines)


def test_ctrl_c_stops_the_job(interruptible):
    interrupt(interruptible)
    assert "KeyboardInterrupt" in interruptible.stderr.read()
    interruptible.wait(timeout=60)
    assert record_of("interrupted").state == "stopped"
    assert record_of("interrupted").why == "interrupted (Ctrl-C)"


def test_a_second_ctrl_c_leaves_the_job_as_it_is(interruptible):
    """The Master is held still, so that the second Ctrl-C surely comes before the stop is done."""
    from dlrl_core.api.connection import connect
    from dlrl_core.api.job_handle import JobHandle

    master = psutil.Process(master_pid())
    master.suspend()
    try:
        interrupt(interruptible)
        os.killpg(interruptible.pid, signal.SIGINT)
        said = interruptible.stderr.read()
        interruptible.wait(timeout=60)
    finally:
        master.resume()
    assert "job 'interrupted' is left as it is; stop it with: dlrl stop interrupted" in said
    left = JobHandle.attach("interrupted", connect())
    assert left.status().state == "running"
    left.stop()
