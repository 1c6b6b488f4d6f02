"""Seed 000's API example, with only its import line and the folder of its classes changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checks import children_of_this_process, wait_until


@pytest.fixture(scope="module")
def children_before():
    """Other tests of this run may hold a cluster of their own."""
    return children_of_this_process()


def example():
    """The job as the seed builds it."""
    from dlrl_core import RLJobBuilder

    return (
            RLJobBuilder()
            # how many nodes for training
            .node_num(3)
            # how many devices per node
            .device_per_node(2)
            # the full configurations for training with dict or omega-config format
            .config({"c1": "v1"})
            # the global envs for training with dict format
            .global_env({"e0": "v0"})
            # trainer's module and class
            .trainer(
                "sample_jobs.seed_example", "TestInteractiveTrainer"
            )
            # actor's module and class
            .actor("sample_jobs.seed_example", "TestActor")
                # total number of the actor
                .total(2)
                # number of the actor per node
                .per_node(1)
                # envs for actor, higher priority than 'global_env'
                .env({"e1": "v1"})
            # rollout's module and class
            .rollout("sample_jobs.seed_example", "TestRollout")
                .total(2).per_node(1)
            # reference's module and class
            .reference("sample_jobs.seed_example", "TestReference")
                .total(2).per_node(1)
            .build()
        )  # fmt: skip


@pytest.fixture(scope="module")
def result(children_before, tmp_path_factory):
    """Run as it stands on a laptop: three nodes of two logical devices on an embedded local Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("RAY_ADDRESS", raising=False)
        # submit the job for running
        return example().submit("test")


def test_calls_of_all_roles_return_in_rank_order(result):
    assert result.value["samples"] == ["a!", "bb!", "ccc!"]
    assert result.value["updated"] == [[0, [2, 3]], [1, [4]]]


def test_config_reaches_every_workload(result):
    assert [fact["config"] for fact in result.value["facts"]] == [{"c1": "v1"}] * 6


def test_global_env_reaches_all_and_env_only_its_role(result):
    assert [fact["e0"] for fact in result.value["facts"]] == ["v0"] * 6
    assert [fact["e1"] for fact in result.value["facts"]] == ["v1", "v1", None, None, None, None]


def test_per_node_1_puts_the_ranks_of_a_role_on_different_nodes(result):
    for role in ("actor", "rollout", "reference"):
        nodes = [fact["node"] for fact in result.value["facts"] if fact["name"].startswith(role)]
        assert len(set(nodes)) == 2


def test_each_workload_has_a_device_of_its_own(result):
    places = [(fact["node"], fact["devices"]) for fact in result.value["facts"]]
    assert len(set(places)) == 6
    assert {devices for _, devices in places} == {"0", "1"}


def test_the_embedded_ray_is_gone_with_the_job(children_before, result):
    import ray

    assert not ray.is_initialized()
    from dlrl_local_ray.local_cluster import the_shared_cluster

    assert not the_shared_cluster().is_up
    wait_until(lambda: children_of_this_process() <= children_before, "all processes of the embedded Ray are gone")


def test_its_driver_prints_no_warning_no_colour_and_nothing_of_a_raylet(result, dlrl_home):
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import test_seed_example; test_seed_example.example().submit('quiet')"],
        env={**os.environ, "PYTHONPATH": paths, "DLRL_HOME": str(dlrl_home)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "a local Ray is started for this job" in done.stderr
    assert not any(noise in done.stderr for noise in ("Warning", "\x1b[", "(raylet)"))
