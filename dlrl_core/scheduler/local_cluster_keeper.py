"""The process that holds an embedded local Ray: one raylet for each node, all gone when it ends.

It is started by `local_cluster` with a folder of its own, speaks one JSON object a line, and ends when its
standard input closes. So nothing stays behind however the driver ends, SIGKILL included.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_UP_S = 60.0
_STORE_BYTES = 96 * 1024 * 1024


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _serve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve() -> None:
    # Ray's own class for several raylets on one machine; its children die with this process.
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=False, shutdown_at_exit=True)
    try:
        for line in sys.stdin:
            added = [
                cluster.add_node(wait=False, **_node_args(**node, is_head=cluster.head_node is None))
                for node in json.loads(line)["nodes"]
            ]
            for node in added:  # not for all nodes: an older one may have been lost meanwhile
                cluster._wait_for_node(node, timeout=_UP_S)
            print(json.dumps({"address": cluster.address}), flush=True)
    finally:
        cluster.shutdown()


def _node_args(*, resources: dict[str, float], labels: dict[str, str], is_head: bool) -> dict[str, Any]:
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU", "memory")}
    args: dict[str, Any] = {
        "num_cpus": int(resources.get("CPU", 0)),
        "num_gpus": int(resources.get("GPU", 0)),
        "resources": others,
        "labels": labels,
        "object_store_memory": _STORE_BYTES,
    }
    if "memory" in resources:
        args["memory"] = int(resources["memory"])
    if is_head:
        args["include_dashboard"] = False
    return args


if __name__ == "__main__":
    main()
