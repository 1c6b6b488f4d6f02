"""Random faults, a driver that dies, and a job that must not be touched: real processes, real SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import ray
from checks import wait_until
from ray.exceptions import ActorDiedError
from sample_jobs.endings import Worker
from soak import exactness

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJobBuilder
from dlrl_core.api.connection import connect
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import DlrlError, JobNotFoundError, StaleTermError
from dlrl_core.roles import MASTER, RoleType
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.cluster_probe import is_known_to_have_ended, state_of
from dlrl_core.scheduler.workload_launcher import find_actor
from dlrl_core.spec import ClassRef, ConfigValue
from dlrl_core.workload.base_workload import WorkloadIdentity
from dlrl_core.workload.invocation import methods_of, slot_name
from dlrl_core.workload.process import ProcessSetup
from dlrl_core.workload.workload_host import WorkloadLaunch

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


@pytest.fixture
def workload():
    """The process of a workload without a job."""
    identity = WorkloadIdentity(
        **{"job": "none", "run_id": "none", "incarnation": 0, "name": "actor-0", "role": RoleType.ACTOR, "rank": 0},
        **{"world_size": 1, "local_rank": 0, "local_world_size": 1, "part": None, "part_rank": 0, "part_size": 1},
        device_collocation=None,
    )
    launch = WorkloadLaunch(
        identity=identity,
        term=1,
        cls=ClassRef(module="sample_jobs.endings", class_name="Worker"),
        config=ConfigValue.of({}),
        setup=ProcessSetup(python_path=[str(exactness.ROOT / "tests")]),
        state_keeper="dlrl_state.keeper:NodeMemoryKeeper",
        report_period_s=0.1,
    )
    groups = (*workload_launcher.workload_host.CONCURRENCY_GROUPS, ("coroutines", 7))
    host = workload_launcher._actor_class(workload_launcher.WorkloadHost, groups).options(num_cpus=0).remote(launch)
    yield host
    ray.kill(host)


def test_a_workload_refuses_the_calls_of_a_trainer_that_was_replaced(workload):
    slot = methods_of(Worker)["work"].slot
    first, second = (getattr(workload, slot_name(slot, term)) for term in (1, 2))
    ray.get(workload.construct.remote(None, "127.0.0.1", 0, ()))
    assert ray.get(first.remote(4)) == 5
    ray.get(workload.fence.remote(2))
    old = [
        first.remote(4),
        workload.invoke.remote("1:work", 4),
        workload.invoke_coroutine.remote("1:work", 4),
        workload.invoke_init.remote(0, "1:work", 4),
        workload.begin_commit.remote("{}", [], None, 1),
        workload.counted.remote("id", False, None, 1),
        workload.keeper.remote("1:make_durable", "id"),
        workload.restore.remote("id", 1),
        workload.fence.remote(1),
    ]
    for call in old:
        with pytest.raises(StaleTermError, match="a trainer was replaced: its term is 1, that of its successor 2"):
            ray.get(call)
    new = [
        second.remote(4),
        workload.invoke.remote("2:work", 4),
        workload.invoke.remote("work", 4),
        workload.invoke_init.remote(0, "2:work", 4),
    ]
    assert ray.get(new) == [5, 5, 5, 5]


def test_a_workload_that_was_replaced_ends_itself(workload):
    class RefusingMaster:
        def report(self, _report) -> bool:
            return False

    master = ray.remote(RefusingMaster).options(num_cpus=0).remote()
    ray.get(workload.construct.remote(master, "127.0.0.1", 0, ()))
    with pytest.raises(ActorDiedError):
        ray.get(workload.watch.remote(), timeout=30)


def test_a_process_is_known_to_have_ended_when_its_raylet_saw_that_and_not_because_ray_was_told_to_kill_it():
    class Plain:
        def pid(self) -> int:
            return os.getpid()

    crashed, told = (ray.remote(Plain).options(num_cpus=0).remote() for _ in range(2))
    ids = [one._actor_id.hex() for one in (crashed, told)]
    pids = ray.get([crashed.pid.remote(), told.pid.remote()])
    assert [is_known_to_have_ended(one) for one in ids] == [False, False]
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: is_known_to_have_ended(ids[0]), "its raylet noticed", 30)
    ray.kill(told)
    wait_until(lambda: state_of(told) == "DEAD", "Ray has it as dead", 30)
    assert not is_known_to_have_ended(ids[1])


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
