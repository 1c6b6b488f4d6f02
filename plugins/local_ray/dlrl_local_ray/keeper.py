"""The process that holds an embedded local Ray: one raylet for each node, all ended when it ends.

It is started by `local_cluster` with a folder of its own, and ends when its standard input closes. So nothing stays
behind however the driver ends, SIGKILL included. It speaks one JSON object a line: `{"waits_for": ...}` before each
thing that takes time, then `{"address": ...}`, or `{"failed": ...}`. After a failure the folder stays until the
driver has read the logs in it and closes the input.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOOK_S = 2.0
_STORE_BYTES = 96 * 1024 * 1024
_KEPT_LOGS = 10
"""Log folders of earlier runs that are kept."""


def main() -> None:
    folder, kept = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    answers = os.fdopen(os.dup(1), "w")  # ours alone: what Ray prints goes to the log
    os.dup2(2, 1)

    def say(**what: str) -> None:
        print(json.dumps(what), file=answers, flush=True)

    try:
        _serve(say)
    except Exception as error:  # noqa: BLE001 - told to the driver, which ends this process
        traceback.print_exc()
        say(failed=f"{type(error).__name__}: {error}")
        sys.stdin.read()  # the driver reads the logs first
    finally:
        remove(folder, kept)


def remove(folder: Path, kept: Path | None) -> None:
    """Remove the folder of an embedded Ray; its log files go to `kept` if that is given and not there already."""
    session = folder / "ray" / "session_latest"
    if kept is not None and not kept.exists() and (session / "logs").is_dir():
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            for old in sorted(kept.parent.iterdir())[: 1 - _KEPT_LOGS]:
                shutil.rmtree(old, ignore_errors=True)
            shutil.move(os.path.realpath(session / "logs"), kept)
            shutil.move(folder / "keeper.log", kept / "keeper.log")
    shutil.rmtree(folder, ignore_errors=True)


def _serve(say: Callable[..., None]) -> None:
    # Ray's own class for several raylets on one machine; its children die with this process.
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=False, shutdown_at_exit=True)
    try:
        for line in sys.stdin:
            nodes, added = json.loads(line)["nodes"], []
            for number, node in enumerate(nodes, 1):
                say(waits_for=f"the start of node {number} of {len(nodes)}")
                added.append(cluster.add_node(wait=False, **_node_args(**node, is_head=cluster.head_node is None)))
            for number, node in enumerate(added, 1):  # an older node may have been lost meanwhile
                say(waits_for=f"the registration of node {number} of {len(nodes)}")
                _wait_for_node(cluster, node)
            say(address=cluster.address)
    finally:
        cluster.shutdown()


def _wait_for_node(cluster: Any, node: Any) -> None:
    """Returns when the node is registered; raises if one of its processes ended. The driver limits the time."""
    while True:
        try:
            return cluster._wait_for_node(node, timeout=_LOOK_S)  # type: ignore[no-any-return]
        except TimeoutError:
            ended = [f"{kind} with code {process.returncode}" for kind, process in node.dead_processes()]
            if ended:
                raise RuntimeError(f"a node did not come up: its {' and its '.join(ended)} ended") from None


def _node_args(
    *, resources: dict[str, float], labels: dict[str, str], env: dict[str, str], is_head: bool
) -> dict[str, Any]:
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU", "memory")}
    args: dict[str, Any] = {
        "num_cpus": int(resources.get("CPU", 0)),
        "num_gpus": int(resources.get("GPU", 0)),
        "resources": others,
        "labels": labels,
        "env_vars": env,
        "object_store_memory": _STORE_BYTES,
    }
    if "memory" in resources:
        args["memory"] = int(resources["memory"])
    if is_head:
        args["include_dashboard"] = False
        args["no_monitor"] = True  # of the autoscaler: the cluster never grows
    return args


if __name__ == "__main__":
    main()
