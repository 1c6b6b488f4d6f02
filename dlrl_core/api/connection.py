"""How a driver gets to a Ray cluster: the one it is in, the one it names, or an embedded local one."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from dlrl_core.errors import ClusterError
from dlrl_core.plan import ClusterView, needed_cluster
from dlrl_core.spec import JobSpec

_LISTEN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A driver's hold on Ray for one job. `close` when the job has ended."""

    is_embedded: bool
    is_ours: bool
    """We called ray.init, so we call ray.shutdown."""

    def close(self) -> None:
        _holds.leave(self)


class _Holds:
    """Counts the jobs of this driver that need Ray; the last one to go disconnects."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0

    def join(self, address: str | None, spec: JobSpec | None) -> Connection:
        import ray

        from dlrl_core.scheduler.local_cluster import shared_cluster

        with self._lock:
            named = address or os.environ.get("RAY_ADDRESS")
            if ray.is_initialized():
                _check_same_cluster(address)
                if self._count == 0:
                    return Connection(is_embedded=False, is_ours=False)
                is_embedded = shared_cluster.is_up and spec is not None
            elif named:
                _init(named)
                is_embedded = False
            elif spec is None:
                raise ClusterError("no Ray cluster is named; set RAY_ADDRESS or say --address")
            else:
                is_embedded = True
            if is_embedded and spec is not None:
                self._start_nodes_for(spec)
            self._count += 1
            return Connection(is_embedded=is_embedded, is_ours=True)

    def _start_nodes_for(self, spec: JobSpec) -> None:
        import ray

        from dlrl_core.scheduler.local_cluster import shared_cluster

        _check_framework(spec)
        shape = needed_cluster(spec)
        _announce(shape, spec)
        started = shared_cluster.acquire(shape)
        try:
            if not ray.is_initialized():
                _init(started)
        except BaseException:
            shared_cluster.release()
            shared_cluster.stop_if_unused()
            raise

    def leave(self, connection: Connection) -> None:
        if not connection.is_ours:
            return
        import ray

        from dlrl_core.scheduler.local_cluster import shared_cluster

        with self._lock:
            self._count -= 1
            if connection.is_embedded:
                shared_cluster.release()
            if self._count == 0:
                ray.shutdown()
                shared_cluster.stop_if_unused()


_holds = _Holds()


def connect(address: str | None = None, spec: JobSpec | None = None) -> Connection:
    """Join the cluster that is named or already joined; without one, start a local Ray shaped like the job."""
    return _holds.join(address, spec)


def _check_framework(spec: JobSpec) -> None:
    """Processes on this machine find what this one finds: a framework that is missing is told before any starts.

    Nodes of a cluster may have what the driver lacks; there, the processes tell.
    """
    from dlrl_core.plugin import plugin_host

    if spec.framework is not None:
        plugin_host().framework(spec.framework).check_available()


def _check_same_cluster(address: str | None) -> None:
    """One process is in one Ray cluster at a time; an address that names another one is an error, not ignored."""
    import ray

    current = ray.get_runtime_context().gcs_address
    if address is not None and ":" in address and "//" not in address and address != current:
        raise ClusterError(
            f"this process is connected to the Ray cluster at {current}, so it can't join '{address}' as well; "
            "submit from another process, or call ray.shutdown() first"
        )


def _init(address: str) -> None:
    import ray
    from ray.exceptions import RayError

    _check_somebody_listens(address)
    try:
        ray.init(address=address, logging_level=logging.WARNING, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, RayError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClusterError(f"can't join the Ray cluster at '{address}': {reason}") from error


def _check_somebody_listens(address: str) -> None:
    """Ray itself tries a dead address for minutes; one word of TCP tells it at once."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return  # 'auto', 'ray://...': Ray's to judge
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTEN_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"can't join the Ray cluster at '{address}': nobody listens there ({error}); is it running?"
        ) from error


def _announce(shape: ClusterView, spec: JobSpec) -> None:
    devices = int(shape.nodes[0].free.get(spec.device_type, 0))
    real = len(list(Path("/dev").glob("nvidia[0-9]*"))) if spec.device_type == "GPU" else os.cpu_count() or 1
    is_simulated = len(shape.nodes) > 1 or real < devices
    kind = f"logical {spec.device_type}" if is_simulated else spec.device_type
    nodes = f"{len(shape.nodes)} node{'s' if len(shape.nodes) > 1 else ''}"
    print(
        f"dlrl: no cluster address, so a local Ray is started for this job: {nodes} x {devices} {kind}"
        f"{' (simulated on this machine)' if is_simulated else ''}; it stops with the job",
        file=sys.stderr,
        flush=True,
    )
