"""What a commit costs the trainer: its blocking part over one copy of the same state in memory, and 10 ms.

    python -m benchmarks.commits

Two ranks with 100 MB of state each, which save it with `save_buffers`. The copy is made in the same processes, on
both ranks at once, right before each commit.
"""

from __future__ import annotations

import logging
import os
import tempfile

import ray

from benchmarks.report import Comparison, report
from dlrl_core import RLJobBuilder
from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster

MODULE = "benchmarks.failover_roles"
STEPS = 45
EXTRA_S = 0.010


def main() -> None:
    cluster = LocalCluster()
    try:
        address = cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 8, "GPU": 2}))
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        builder = RLJobBuilder().device_per_node(2).config({"steps": STEPS, "state_bytes": 100 * 10**6})
        job = builder.trainer(MODULE, "CommitTrainer").actor(MODULE, "Holder").total(2).failover("role").build()
        value = job.submit("commits").value
    finally:
        ray.shutdown()
        cluster.stop()
    allowed = [seconds + EXTRA_S for seconds in value["copies"]]
    report(
        [Comparison(name="commit", ours_s=value["commits"], theirs_s=allowed, bar=1.0, is_of_medians=True)],
        ours="commit",
        theirs="copy + 10 ms",
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLRL_HOME"] = home
        main()
