"""Random faults, a driver that dies, and a job that must not be touched: real processes, real SIGKILL."""

from __future__ import annotations

import subprocess
import sys

import pytest
import ray
from checks import wait_until
from soak import exactness

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJobBuilder
from dlrl_core.api.connection import connect
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import DlrlError, JobNotFoundError
from dlrl_core.roles import MASTER
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.workload_launcher import find_actor

pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def test_the_driver_may_die_and_the_job_goes_on(ray_2_nodes_8_gpus, tmp_path):
    until = tmp_path / "end"
    script = (
        "import sys; sys.path.append('tests')\n"
        "from dlrl_core import RLJobBuilder\n"
        f"job = RLJobBuilder().config({{'until': '{until}', 'steps': 2}}).trainer('sample_jobs.places', 'Host')\n"
        f"job.actor('sample_jobs.places', 'Guest').build().submit('alone', address='{ray_2_nodes_8_gpus}')\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], cwd=exactness.ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_running("alone"), "the job runs", 60)
    finally:
        driver.kill()
        driver.wait()
    until.touch()
    value = JobHandle.attach("alone", connect()).wait(timeout=90).value
    find_actor("alone", MASTER).leave.remote()  # as its driver would let it go
    assert value["first"] == value["last"]
    record = context_of("alone").record
    assert (record.state, record.progress.step) == ("finished", 2)


def is_running(name: str) -> bool:
    try:
        return context_of(name).record.state == "running"
    except JobNotFoundError:
        return False


def test_classes_are_exported_ahead_so_that_starting_a_process_does_not_export_them(monkeypatch):
    workload_launcher.export_classes({7})
    exports = ray._private.worker.global_worker.function_actor_manager
    monkeypatch.setattr(exports, "export_actor_class", lambda *_: pytest.fail("it was exported when it was started"))
    groups = (*workload_launcher.workload_host.CONCURRENCY_GROUPS, ("coroutines", 7))
    host = workload_launcher._actor_class(workload_launcher.WorkloadHost, groups).options(num_cpus=0).remote(None)
    ray.kill(host)


def test_chaos_refuses_a_job_that_does_not_allow_it():
    forbids = RLJobBuilder().trainer("sample_jobs.endings", "RunsForever").actor("sample_jobs.endings", "Worker")
    handle = forbids.build().submit("exact", blocking=False)
    wait_until(lambda: handle.status().state == "running", "the job runs", 60)
    for target in ("master", "trainer", "actor-0"):
        with pytest.raises(DlrlError, match="does not allow chaos; build it with .allow_chaos()"):
            Chaos("exact").inject(target, "kill")
    with pytest.raises(DlrlError, match="has no process 'actor-9' now; it has 'master', 'trainer', 'actor-0'"):
        Chaos("exact").inject("actor-9", "kill")
    handle.stop()


@pytest.mark.parametrize("seed", [9, 10, 14])
def test_random_faults_leave_the_end_bit_identical(seed):
    run = exactness.run_with_faults(seed)
    assert exactness.check(run, exactness.expected()) == []
