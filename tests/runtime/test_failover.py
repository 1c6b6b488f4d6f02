"""Kill anything, lose nothing: real processes, real SIGKILL, and the same end to the last bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checks import wait_until
from soak import exactness

from dlrl_chaos.chaos import Chaos
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import DlrlError, JobNotFoundError

pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")
_expected: list = []


@pytest.fixture
def expected(ray_2_nodes_8_gpus):
    """What the job comes to when nothing happens; found out once."""
    if not _expected:
        _expected.append(exactness.run_without_faults())
    return _expected[0]


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def started(**more):
    """The job, running, and everybody's process."""
    handle = exactness.job(**more).submit("exact", blocking=False)
    wait_until(lambda: (handle.status().step or 0) >= 2, "two steps are done", 60)
    return handle, processes(handle)


def processes(handle) -> dict[str, tuple[int, int]]:
    """Pid and restarts of everybody."""
    view = handle.status().view
    trainer = view["trainer"]
    return {
        "trainer": (trainer["pid"], trainer["incarnation"]),
        **{one["name"]: (one["pid"], one["incarnation"]) for one in view["workloads"]},
    }


def changed(before, after) -> set[str]:
    return {name for name in before if before[name] != after[name]}


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
def test_a_death_restarts_what_is_declared_and_nobody_else(expected, victim, restarted, scope):
    handle, before = started()
    Chaos("exact").inject(victim, "kill")
    result = handle.wait(timeout=90)
    assert result.value == expected
    assert changed(before, processes(handle)) == restarted
    journal = context_of("exact").journal()
    assert [event.data["scope"] for event in journal if event.kind == "decision"] == [scope]
    assert any(event.kind == "chaos" for event in journal)
    assert context_of("exact").record.epoch == (0 if scope == "workload" else 1)


@pytest.mark.parametrize("method", ["answer", "update", "save_state"])
def test_a_death_in_the_middle_of_a_call_or_of_a_commit_loses_nothing(expected, method):
    victim = "rollout-0" if method == "answer" else "actor-0"
    handle, before = started()
    Chaos("exact").inject(victim, "kill", method=method, nth=2)
    assert handle.wait(timeout=90).value == expected
    assert victim in changed(before, processes(handle))


def test_a_killed_master_restarts_nobody(expected):
    handle, before = started()
    Chaos("exact").inject("master", "kill")
    assert handle.wait(timeout=90).value == expected
    assert changed(before, processes(handle)) == set()
    assert context_of("exact").record.master_incarnation == 2


def test_several_deaths_at_once_the_master_among_them(expected):
    handle, before = started()
    chaos = Chaos("exact")
    for victim in ("rollout-0", "critic-0", "master"):
        chaos.inject(victim, "kill")
    assert handle.wait(timeout=90).value == expected
    assert changed(before, processes(handle)) >= {"rollout-0", "critic-0"}
    assert "actor-0" not in changed(before, processes(handle))


def test_a_death_during_the_recovery_of_another(expected):
    """The restarted process is killed as soon as it is there, and the one of another role with it."""
    handle, before = started(pause_s=0.3)
    Chaos("exact").inject("critic-0", "kill")
    pid = wait_until(
        lambda: (now := processes(handle)["critic-0"])[1] == 1 and now[0], "the critic is being restarted", 60
    )
    os.kill(pid, signal.SIGKILL)
    Chaos("exact").inject("actor-1", "kill")
    assert handle.wait(timeout=90).value == expected
    after = processes(handle)
    assert after["critic-0"][1] == 2
    assert after["rollout-0"] == before["rollout-0"]


def test_a_master_killed_during_a_recovery_finishes_it(expected):
    handle, before = started()
    chaos = Chaos("exact")
    chaos.inject("actor-0", "kill")
    wait_until(lambda: processes(handle)["actor-0"][1] == 1, "the actors are being restarted", 60)
    chaos.inject("master", "kill")
    assert handle.wait(timeout=90).value == expected
    assert changed(before, processes(handle)) == {"actor-0", "actor-1"}


def test_the_driver_may_die_and_the_job_goes_on(expected, ray_2_nodes_8_gpus, dlrl_home):
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/soak']\n"
        "import exactness\n"
        f"exactness.job(pause_s=0.1).submit('exact', address='{ray_2_nodes_8_gpus}')\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], cwd=exactness.ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_running("exact"), "the job runs", 60)
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: context_of("exact").record.state == "finished", "the job has finished without its driver", 90)
    assert context_of("exact").record.progress.step == exactness.STEPS


def is_running(name: str) -> bool:
    try:
        return context_of(name).record.state == "running"
    except JobNotFoundError:
        return False


def test_a_store_that_is_away_for_a_while_stops_nobody(expected):
    handle, before = started(pause_s=0.1)
    Chaos("exact").inject("master", "store", seconds=3.0)
    said = wait_until(lambda: handle.status().degraded, "the status says degraded", 30)
    assert "has not answered for" in said
    assert handle.wait(timeout=90).value == expected
    assert changed(before, processes(handle)) == set()
    assert handle.status().degraded is None
    kinds = [event.kind for event in context_of("exact").journal()]
    assert kinds.index("store_lost") < kinds.index("store_back") < kinds.index("ended")


def test_dlrl_chaos_hits_whom_it_is_told_to(expected, ray_2_nodes_8_gpus):
    handle, before = started(pause_s=0.8)
    command = [str(Path(sys.executable).with_name("dlrl")), "chaos", "exact", "rollout-1", "--step", "5"]
    done = subprocess.run(
        [*command, "--address", ray_2_nodes_8_gpus], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "kill of 'rollout-1' at step 5\n"
    assert handle.wait(timeout=90).value == expected
    assert changed(before, processes(handle)) == {"rollout-1"}


def test_chaos_refuses_a_job_that_does_not_allow_it():
    handle = exactness.job(is_fair_game=False).submit("exact", blocking=False)
    wait_until(lambda: handle.status().state == "running", "the job runs", 60)
    for target in ("master", "trainer", "actor-0"):
        with pytest.raises(DlrlError, match="does not allow chaos; build it with .allow_chaos()"):
            Chaos("exact").inject(target, "kill")
    with pytest.raises(DlrlError, match="has no process 'actor-9' now; it has 'master', 'trainer', 'actor-0'"):
        Chaos("exact").inject("actor-9", "kill")
    handle.stop()


@pytest.mark.parametrize("seed", [9, 10, 14])
def test_random_faults_leave_the_end_bit_identical(expected, seed):
    run = exactness.run_with_faults(seed)
    assert exactness.check(run, expected) == []
