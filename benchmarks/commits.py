"""What commits cost: how long one blocks, what they add to a step, and how much memory they take.

    python -m benchmarks.commits

A rank with 2 GB of state under a real job. A step reads the state for a while, as generating and scoring does, then
changes all of it in place. Blocking is the time of `commit` and of the wait of the next change, against 0.05 of one
copy of the same bytes in the same process and 30 ms. Steps with commits at the default budget run in turns with
steps of the same job without any commit. Memory is the most that was found in the folder of the commits.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import ray

from benchmarks.report import Comparison, report
from dlrl_core import RLJobBuilder
from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster

MODULE = "benchmarks.commit_roles"
STATE_BYTES = 2 * 10**9
ROUNDS = 4
STEP_BAR, MEMORY_BAR = 1.03, 2.1


def main() -> None:
    cluster = LocalCluster()
    try:
        address = cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 8, "GPU": 2}))
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        config = {"state_bytes": STATE_BYTES, "rounds": ROUNDS, "memory": os.environ["DLRL_MEMORY"]}
        builder = RLJobBuilder().device_per_node(1).config(config).trainer(MODULE, "PacedTrainer")
        value = builder.actor(MODULE, "LargeHolder").failover("role").build().submit("commits").value
    finally:
        ray.shutdown()
        cluster.stop()
    allowed = [0.05 * seconds + 0.03 for seconds in value["copies"]]
    size = float(STATE_BYTES)
    report(
        [
            Comparison(name="blocking", ours_s=value["blocked"], theirs_s=allowed, bar=1.0, is_of_medians=True),
            Comparison(name="step", ours_s=value["with"], theirs_s=value["without"], bar=STEP_BAR, is_of_medians=True),
            Comparison(name="memory", ours_s=[value["memory"] / size], theirs_s=[1.0], bar=MEMORY_BAR),
        ],
        ours="commits",
        theirs="bar, or none",
    )


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as memory,
    ):
        os.environ.update(DLRL_HOME=home, DLRL_MEMORY=memory)
        main()
