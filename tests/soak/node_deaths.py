"""Deaths of whole nodes: several raylets on one machine, each with a memory of its own, and no durable storage at all.

A node is killed with everything that runs on it, and its memory goes with it. What was committed by then must be gone on
from: copies in the memory of other nodes are all that is left of it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from checks import MARK, assert_nothing_left, wait_until

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJob
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster
from soak import exactness

QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
}
MOST_STEPS = 2000
"""A run ends when it was told that it is enough."""
LIMIT_S = 150.0


@dataclass
class NodesWithOwnMemory:
    """A head without devices, where the driver is, and nodes with four logical GPUs and a memory folder each."""

    cluster: LocalCluster
    base: Path
    folders: dict[str, Path] = field(default_factory=dict)
    """By the id of the node."""
    killed: set[str] = field(default_factory=set)

    def fill_up(self, count: int) -> str:
        """As many living nodes besides the head as that; returns the address."""
        import ray

        address = (
            self.cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16})) if not self.folders else ""
        )
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        while len(living := self.living()) < count:
            folder = Path(tempfile.mkdtemp(dir=self.base))
            shape = ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": 4})
            address = self.cluster.add_nodes(shape, env={"DLRL_MEMORY": str(folder)})
            [new] = self.living() - living
            self.folders[new] = folder
        return address

    def living(self) -> set[str]:
        import ray

        found = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")}
        return found - self.killed  # Ray takes some seconds to notice

    def raylet(self, node: str) -> psutil.Process:
        """The raylet of a node: its own id is in the command line of the agents below it."""
        for process in psutil.process_iter():
            try:
                if process.name() == "raylet" and process.environ().get("DLRL_MEMORY") == str(self.folders[node]):
                    return process
            except psutil.Error:
                continue
        raise AssertionError(f"node {node} has no raylet")

    def kill(self, node: str) -> None:
        """The node with everything on it, its memory included."""
        self.killed.add(node)
        raylet = self.raylet(node)
        below = raylet.children(recursive=True)
        for process in (raylet, *below):
            process.kill()
        psutil.wait_procs([*below], timeout=10)
        shutil.rmtree(self.folders[node])


@contextmanager
def nodes_with_own_memory() -> Iterator[NodesWithOwnMemory]:
    import ray

    before = {name: os.environ.get(name) for name in QUICK_TO_NOTICE}
    os.environ.update(QUICK_TO_NOTICE)
    base = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="dlrl-test-"))
    cluster = LocalCluster()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    try:
        yield NodesWithOwnMemory(cluster=cluster, base=base)
    finally:
        ray.shutdown()
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)


def job(folder: Path, **config: Any) -> RLJob:
    """The exactness job on two nodes with a spare. Its durable storage is a file, so that nothing is ever there."""
    nowhere = folder / "nowhere"
    nowhere.touch()
    commits = {"every": 1, "state_folder": str(nowhere)}
    return exactness.job(
        spare_nodes=1, steps=MOST_STEPS, pause_s=0.02, commits=commits, enough=str(folder / "enough"), **config
    )


@dataclass(frozen=True, kw_only=True)
class NodeRun:
    """How one run went."""

    seed: int
    killed: list[tuple[str, int]]
    """Kind of death, and the step that was committed then."""
    value: Any
    seconds: float
    lost: list[str]
    """What the journal tells of lost commits."""


def run_with_node_deaths(nodes: NodesWithOwnMemory, folder: Path, seed: int, *, zombie: bool = False) -> NodeRun:
    """One run. The seed chooses the node, the moment, and whether another one dies right after the recovery."""
    chance = random.Random(seed)
    nodes.fill_up(3)
    began = time.monotonic()
    (folder / "enough").unlink(missing_ok=True)
    handle = job(folder).submit("exact", blocking=False)
    killed = []
    first = chance.randint(1, 12)
    wait_until(lambda: committed(handle) >= first, "steps are committed", LIMIT_S)
    time.sleep(chance.random() * 0.1)  # at any moment of a step, and so of a commit
    killed.append(_strike(nodes, handle, chance, zombie=zombie))
    if not zombie and chance.random() < 0.4:
        nodes.fill_up(3)
        after = killed[0][1]
        wait_until(lambda: committed(handle) > after and copies(handle) == 2, "commits have copies again", LIMIT_S)
        killed.append(_strike(nodes, handle, chance, zombie=False))
    after = killed[-1][1]
    wait_until(lambda: committed(handle) > after + 3, "training goes on", LIMIT_S)
    (folder / "enough").touch()
    nodes.fill_up(3)
    result = handle.wait(timeout=LIMIT_S)
    assert_nothing_left()
    record = JobContext.load(open_store(default_store_url()), "exact")
    assert record.record.incidents, "the death was not noticed"
    return NodeRun(
        seed=seed,
        killed=killed,
        value=result.value,
        seconds=time.monotonic() - began,
        lost=[one.message for one in record.journal() if one.kind == "commit_lost"],
    )


def _strike(nodes: NodesWithOwnMemory, handle: Any, chance: random.Random, *, zombie: bool) -> tuple[str, int]:
    on = {one["node_id"] for one in handle.status().workloads if one["node_id"] in nodes.living()}
    is_trainers, is_alone = zombie and chance.random() < 0.8, chance.random() < 0.5
    if is_trainers:
        _move_trainer(handle, nodes.living() - on if is_alone else on)
    trainer = handle.status().view["trainer"]["node_id"]
    node = trainer if is_trainers else chance.choice(sorted(on))
    if zombie:
        _freeze_until_dead(nodes, handle, node)
    else:
        nodes.kill(node)
    company = "" if node != trainer else " with the trainer" if node in on else " with the trainer alone"
    return ("frozen" if zombie else "killed") + company, committed(handle)


def _move_trainer(handle: Any, wanted: set[str]) -> None:
    """Kill the trainer until Ray places it on one of these nodes."""
    while (trainer := handle.status().view["trainer"])["node_id"] not in wanted:
        Chaos("exact").inject("trainer", "kill")
        wait_until(lambda old=trainer: _has_next_trainer(handle, old), "another trainer runs", LIMIT_S)


def _has_next_trainer(handle: Any, old: dict[str, Any]) -> bool:
    now = handle.status().view["trainer"]
    return bool(now["state"] == "running" and now["incarnation"] > old["incarnation"])


def _freeze_until_dead(nodes: NodesWithOwnMemory, handle: Any, node: str) -> None:
    """Stop the raylet until Ray has given its node up, then let it go on: its processes have lived all the time."""
    raylet = nodes.raylet(node)
    raylet.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: node not in nodes.living(), "Ray gives the node up", LIMIT_S)
        before = committed(handle)
        wait_until(lambda: committed(handle) > before + 3, "others train in place of its processes", LIMIT_S)
    finally:
        raylet.send_signal(signal.SIGCONT)
    wait_until(lambda: not raylet.is_running() or raylet.status() == "zombie", "the raylet ends", LIMIT_S)


def committed(handle: Any) -> int:
    return handle.status().view["progress"]["committed_step"] or 0


def copies(handle: Any) -> int:
    return (handle.status().view["progress"]["commits"] or {}).get("nodes", 1)


def check(run: NodeRun) -> list[str]:
    """What is wrong with a run; nothing, if no committed step was lost or done twice."""
    problems = list(run.lost)
    steps = len(run.value["critic"][0]["applied"])
    if run.value != exactness.expected(steps):
        problems.append("the final state differs")
    for role in ("actor", "critic"):
        if any(rank["applied"] != list(range(steps)) for rank in run.value[role]):
            problems.append(f"{role} did not apply every step once")
    return problems


def _run_all(home: Path, seeds: range, *, zombie: bool) -> int:
    """How many of the runs were not exact."""
    wrong = 0
    with nodes_with_own_memory() as nodes:
        for seed in seeds:
            run = run_with_node_deaths(nodes, home, seed, zombie=zombie)
            problems = check(run)
            wrong += bool(problems)
            told = ", ".join(f"{kind} at step {step}" for kind, step in run.killed)
            print(f"seed {seed}: {told}; {run.seconds:.0f} s; {'; '.join(problems) or 'exact'}", flush=True)
    return wrong


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description="Kill nodes whose memory is their own, at random moments.")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--frozen", action="store_true", help="stop raylets until Ray gives them up, instead")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left in memory
    with tempfile.TemporaryDirectory() as home:
        os.environ.update({"DLRL_HOME": home, "DLRL_MEMORY": f"{home}/memory", MARK: home})
        wrong = _run_all(Path(home), range(asked.first, asked.first + asked.seeds), zombie=asked.frozen)
    print(f"{asked.seeds - wrong} of {asked.seeds} runs exact")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
