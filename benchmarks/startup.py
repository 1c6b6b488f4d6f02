"""How long from submit until `fit` starts, over creating the same actors by hand in plain Ray.

    python -m benchmarks.startup

Three roles of two workloads and a trainer, on one cluster, in turns. By hand means: the same seven named, detached
actors with the same config in a placement group, created by a driver that knows everything beforehand. What dlrl
adds is the Master's process, the rendezvous, the method table and the record.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.report import Comparison, report
from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster

MODULE = "benchmarks.bench_roles"
ROUNDS = 9
BAR = 1.3
QUIET_S = 3.0
CONFIG = {"lr": 0.1, "model": {"name": "tiny", "layers": [1, 2, 3]}}


class PlainWorkload:
    """A role's process as one would write it for plain Ray."""

    def __init__(self, config: DictConfig, rank: int) -> None:
        self.config = config
        self.rank = rank

    def ready(self) -> float:
        return float(self.config.lr)


class PlainTrainer:
    """A trainer's process as one would write it for plain Ray."""

    def __init__(self, config: DictConfig) -> None:
        self.config = config

    def fit(self, workloads: list[Any]) -> float:
        ray.get([workload.ready.remote() for workload in workloads])
        return time.time()


def by_hand() -> float:
    began = time.time()
    config = OmegaConf.create(CONFIG)
    workload: Any = ray.remote(PlainWorkload)
    trainer: Any = ray.remote(PlainTrainer)
    names = [f"{role}-{rank}" for role in ("actor", "rollout", "reference") for rank in range(2)]
    group = placement_group([{"CPU": 1, "GPU": 1}] * len(names), lifetime="detached")
    workloads = [
        workload.options(
            name=name,
            lifetime="detached",
            num_cpus=1,
            num_gpus=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote(config, index % 2)
        for index, name in enumerate(names)
    ]
    actor = trainer.options(name="trainer", lifetime="detached", num_cpus=0).remote(config)
    seconds = float(ray.get(actor.fit.remote(workloads))) - began
    for handle in (*workloads, actor):
        ray.kill(handle)
    remove_placement_group(group)
    return seconds


def with_dlrl(job: RLJob) -> float:
    began = time.time()
    return float(job.submit("startup").value) - began


def build() -> RLJob:
    return (
        RLJobBuilder()
        .device_per_node(6)
        .config(CONFIG)
        .trainer(MODULE, "StartupTrainer")
        .actor(MODULE, "Idle").total(2)
        .rollout(MODULE, "Idle").total(2)
        .reference(MODULE, "Idle").total(2)
        .build()
    )  # fmt: skip


def one_sample(side: str, address: str) -> None:
    """What a driver process of its own measures: it joins the cluster, waits until that is quiet, then starts."""
    ray.init(address=address, namespace="benchmark", log_to_driver=False, configure_logging=False)
    time.sleep(QUIET_S)
    print("seconds", with_dlrl(build()) if side == "dlrl" else by_hand())
    ray.shutdown()


def sample(side: str, address: str) -> float:
    """A fresh driver for each sample: Ray keeps idle workers for a driver, and no side may inherit the other's."""
    command = [sys.executable, "-m", "benchmarks.startup", side, address]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    seconds = next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds "))
    print(f"{side}: {seconds:.2f} s", file=sys.stderr, flush=True)
    return seconds


def main() -> None:
    cluster = LocalCluster()
    samples: dict[str, list[float]] = {"dlrl": [], "by-hand": []}
    try:
        address = cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": 6}))
        for number in range(-1, ROUNDS):
            for side in samples if number % 2 else reversed(samples):
                seconds = sample(side, address)
                if number >= 0:
                    samples[side].append(seconds)
    finally:
        cluster.stop()
    comparison = Comparison(
        name="submit_to_fit", ours_s=samples["dlrl"], theirs_s=samples["by-hand"], bar=BAR, is_of_medians=True
    )
    report([comparison], ours="dlrl", theirs="plain Ray")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one_sample(sys.argv[1], sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as home:
            os.environ["DLRL_HOME"] = home
            main()
