"""Seed 000's API example, with only its import line and the folder of its classes changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checks import children_of_this_process, wait_until


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


def drive(file: str) -> None:
    """In a driver of its own: run the example as it stands on a laptop, and write down what came of it."""
    import ray

    from dlrl_local_ray.local_cluster import the_shared_cluster

    # submit the job for running
    result = example().submit("test")
    wait_until(lambda: not children_of_this_process(), "all processes of the embedded Ray are gone")
    left = {"connection": ray.is_initialized(), "cluster": the_shared_cluster().is_up}
    Path(file).write_bytes(pickle.dumps((result.value, left)))


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What the driver got, had left when the job was over, and printed."""

    value: Any
    left: dict[str, bool]
    out: str
    err: str


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """Three nodes of two logical devices on an embedded local Ray."""
    here, folder = Path(__file__).parent, tmp_path_factory.mktemp("seed")
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    others = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", f"import test_seed_example; test_seed_example.drive('{folder}/result')"],
        env={**others, "PYTHONPATH": paths, "DLRL_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    value, left = pickle.loads((folder / "result").read_bytes())
    return Driven(value=value, left=left, out=done.stdout, err=done.stderr)


def test_calls_of_all_roles_return_in_rank_order(driven):
    assert driven.value["samples"] == ["a!", "bb!", "ccc!"]
    assert driven.value["updated"] == [[0, [2, 3]], [1, [4]]]


def test_config_reaches_every_workload(driven):
    assert [fact["config"] for fact in driven.value["facts"]] == [{"c1": "v1"}] * 6


def test_global_env_reaches_all_and_env_only_its_role(driven):
    assert [fact["e0"] for fact in driven.value["facts"]] == ["v0"] * 6
    assert [fact["e1"] for fact in driven.value["facts"]] == ["v1", "v1", None, None, None, None]


def test_per_node_1_puts_the_ranks_of_a_role_on_different_nodes(driven):
    for role in ("actor", "rollout", "reference"):
        nodes = [fact["node"] for fact in driven.value["facts"] if fact["name"].startswith(role)]
        assert len(set(nodes)) == 2


def test_each_workload_has_a_device_of_its_own(driven):
    places = [(fact["node"], fact["devices"]) for fact in driven.value["facts"]]
    assert len(set(places)) == 6
    assert {devices for _, devices in places} == {"0", "1"}


def test_the_embedded_ray_is_gone_with_the_job(driven):
    assert driven.left == {"connection": False, "cluster": False}


def test_its_driver_prints_no_warning_no_colour_and_nothing_of_a_raylet(driven):
    assert driven.out == ""
    assert len(driven.err.splitlines()) == 1, driven.err
    assert "a local Ray is started for this job" in driven.err
    assert not any(noise in driven.err for noise in ("Warning", "\x1b[", "(raylet)"))
