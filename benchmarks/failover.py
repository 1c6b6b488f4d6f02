"""How long until the trainer's next call returns after a SIGKILL, over starting the same by hand in plain Ray.

    python -m benchmarks.failover

By hand means: the death is known at once, the driver knows what to start, and it does nothing but start the same
processes again in the same placement group, let them load the same state, and make the same call. What dlrl adds is
noticing the death, deciding, writing it down, and telling the trainer. For the Master it is the training that counts:
the time of a step before its death over that after it, while it is being restarted.
"""

from __future__ import annotations

import itertools
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.failover_roles import SETTLE_S, STATE_BYTES
from benchmarks.report import Comparison, report
from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster

MODULE = "benchmarks.failover_roles"
ROUNDS = 9
BARS = {"workload": 1.25, "role": 1.4, "trainer": 1.4}
MASTER_BAR = 1 / 0.95
MASTER_WINDOW_S = 4.0


class PlainHolder:
    """A process with state as one would write it for plain Ray."""

    def load(self, path: str | None) -> None:
        self.state = np.full(STATE_BYTES, 1, dtype=np.uint8) if path is None else np.fromfile(path, dtype=np.uint8)

    def save(self, path: str) -> None:
        self.state.tofile(path)

    def touch(self) -> int:
        return int(self.state[0])


class PlainTrainer:
    """A trainer's process as one would write it for plain Ray."""

    def touch(self, workloads: list[Any]) -> list[int]:
        return list(ray.get([workload.touch.remote() for workload in workloads]))


class ByHand:
    """Three processes and a trainer in plain Ray."""

    def __init__(self, folder: Path) -> None:
        self._state = str(folder / "state")
        self._group = placement_group([{"CPU": 1, "GPU": 1}] * 3, lifetime="detached")
        self._holder: Any = ray.remote(PlainHolder)
        self._trainer: Any = ray.remote(PlainTrainer)
        self.workloads = [self._start(index) for index in range(3)]
        self.trainer = self._start_trainer()
        ray.get([workload.load.remote(None) for workload in self.workloads])
        ray.get(self.workloads[0].save.remote(self._state))
        ray.get(self.trainer.touch.remote(self.workloads))

    def _start(self, index: int) -> Any:
        return self._holder.options(
            name=f"plain-{index}",
            lifetime="detached",
            num_cpus=1,
            num_gpus=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index),
        ).remote()

    def _start_trainer(self) -> Any:
        return self._trainer.options(name="plain-trainer", lifetime="detached", num_cpus=0).remote()

    def restart(self, indices: list[int], *, is_from_file: bool) -> float:
        """Seconds to start these again and have a call returned."""
        self._kill(*(self.workloads[index] for index in indices))
        began = time.time()
        for index in indices:
            self.workloads[index] = self._start(index)
        ray.get([self.workloads[i].load.remote(self._state if is_from_file else None) for i in indices])
        ray.get(self.trainer.touch.remote([self.workloads[i] for i in indices]))
        return time.time() - began

    def restart_trainer(self) -> float:
        self._kill(self.trainer)
        began = time.time()
        self.trainer = self._start_trainer()
        ray.get(self.trainer.touch.remote(self.workloads[:2]))
        return time.time() - began

    def _kill(self, *actors: Any) -> None:
        """Kill them and wait until their names are free: not part of what is measured."""
        for actor in actors:
            ray.kill(actor)
        time.sleep(SETTLE_S)

    def end(self) -> None:
        for actor in (*self.workloads, self.trainer):
            ray.kill(actor)
        remove_placement_group(self._group)


def killing_job(marks: Path) -> RLJob:
    return _builder({"marks": str(marks)}, "KillingTrainer").build()


def _builder(config: dict[str, Any], trainer: str) -> RLJobBuilder:
    return (
        RLJobBuilder()
        .device_per_node(3)
        .config(config)
        .trainer(MODULE, trainer)
        .actor(MODULE, "Holder").total(2).failover("role")
        .rollout(MODULE, "Answerer").failover("workload")
        .commits(every=1)
        .allow_chaos()
    )  # fmt: skip


def killed_s(folder: Path) -> dict[str, float]:
    marks = Path(tempfile.mkdtemp(dir=folder))
    return dict(killing_job(marks).submit("failover").value)


def by_hand_s(folder: Path) -> dict[str, float]:
    hand = ByHand(folder)
    try:
        return {
            "workload": hand.restart([2], is_from_file=False),
            "role": hand.restart([0, 1], is_from_file=True),
            "trainer": hand.restart_trainer(),
        }
    finally:
        hand.end()


def master_pause() -> tuple[list[float], list[float]]:
    """Seconds a step while the Master is restarted, and before."""
    job = _builder({"steps": 100, "answer_s": 0.1}, "SteadyTrainer").build()
    handle = job.submit("steady", blocking=False)
    while (handle.status().step or 0) <= 5:
        time.sleep(0.05)
    time.sleep(MASTER_WINDOW_S)
    killed_at = Chaos("steady").inject("master", "kill").at
    began = handle.wait(timeout=120).value
    steps = list(zip(began, [after - before for before, after in itertools.pairwise(began)], strict=False))
    before = [seconds for at, seconds in steps if killed_at - MASTER_WINDOW_S < at < killed_at]
    during = [seconds for at, seconds in steps if killed_at < at < killed_at + MASTER_WINDOW_S]
    return during, before


def main() -> None:
    cluster = LocalCluster()
    ours: dict[str, list[float]] = {scope: [] for scope in BARS}
    hand: dict[str, list[float]] = {scope: [] for scope in BARS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            address = cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": 8}))
            ray.init(address=address, namespace="benchmark", log_to_driver=False, logging_level=logging.ERROR)
            pauses = [master_pause() for _ in range(3)]
            for number in range(-1, ROUNDS):
                for side, samples in (
                    ((killed_s, ours), (by_hand_s, hand)) if number % 2 else ((by_hand_s, hand), (killed_s, ours))
                ):
                    for scope, seconds in side(folder).items():
                        print(f"{side.__name__} {scope}: {seconds:.2f} s", file=sys.stderr, flush=True)
                        if number >= 0:
                            samples[scope].append(seconds)
        finally:
            ray.shutdown()
            cluster.stop()
    master = Comparison(
        name="master",
        ours_s=[statistics.mean(during) for during, _ in pauses],
        theirs_s=[statistics.mean(before) for _, before in pauses],
        bar=MASTER_BAR,
    )
    scopes = [
        Comparison(name=scope, ours_s=ours[scope], theirs_s=hand[scope], bar=bar, is_of_medians=True)
        for scope, bar in BARS.items()
    ]
    report([*scopes, master], ours="dlrl", theirs="by hand")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLRL_HOME"] = home
        main()
