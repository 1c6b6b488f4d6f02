"""The Ray cluster of a driver: the one it has joined, the one it names, or an embedded local one."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import ClusterError
from dlrl_core.plan import needed_cluster
from dlrl_core.spec import JobSpec

if TYPE_CHECKING:
    from dlrl_core.scheduler.cluster_probe import JobCluster

_LISTEN_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A driver's use of Ray for one job; `close` it when the job has ended."""

    is_embedded: bool
    logs: Path | None = None
    """Where the output of all processes and Ray's logs are: on each node, or with an embedded Ray after its end."""
    is_ours: bool
    """We called ray.init, so we call ray.shutdown."""

    def close(self) -> None:
        _connections.leave(self)


class _Connections:
    """Counts the jobs of this driver that use Ray; when the last one ends, it disconnects."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._started: JobCluster | None = None

    def join(self, address: str | None, spec: JobSpec | None) -> Connection:
        import ray

        from dlrl_core.scheduler.cluster_probe import session_logs

        with self._lock:
            named = address or os.environ.get("RAY_ADDRESS")
            if ray.is_initialized():
                _check_same_cluster(address)
                if self._count == 0:
                    return Connection(is_embedded=False, is_ours=False, logs=session_logs())
                is_embedded = self._started is not None and self._started.is_up and spec is not None
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
            logs = self._started.kept_logs if is_embedded and self._started else session_logs()
            return Connection(is_embedded=is_embedded, is_ours=True, logs=logs)

    def _start_nodes_for(self, spec: JobSpec) -> None:
        import ray

        from dlrl_core.scheduler.cluster_probe import job_cluster

        _check_framework(spec)
        self._started = cluster = self._started or job_cluster()
        address = cluster.acquire(needed_cluster(spec))
        try:
            if not ray.is_initialized():
                _init(address)
        except BaseException:
            cluster.release()
            cluster.stop_if_unused()
            raise

    def leave(self, connection: Connection) -> None:
        if not connection.is_ours:
            return
        import ray

        with self._lock:
            self._count -= 1
            if connection.is_embedded and self._started is not None:
                self._started.release()
            if self._count == 0:
                ray.shutdown()
                driver_output.restore()
                if self._started is not None:
                    self._started.stop_if_unused()


_connections = _Connections()


def connect(address: str | None = None, spec: JobSpec | None = None) -> Connection:
    """Join the cluster that is named or already joined; without one, start a local Ray shaped like the job."""
    return _connections.join(address, spec)


def _check_framework(spec: JobSpec) -> None:
    """Raise before anything starts if the job's framework is not installed here; only for an embedded Ray.

    The nodes of a cluster may have what the driver lacks; there, the workloads raise.
    """
    from dlrl_core.plugin import plugin_host

    if spec.framework is not None:
        plugin_host().framework(spec.framework).check_available()


def _check_same_cluster(address: str | None) -> None:
    """Raise if an address names another cluster than the one this process has joined: it can join only one."""
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

    _check_listens(address)
    driver_output.filter()
    try:
        ray.init(address=address, logging_level=logging.WARNING, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, RayError) as error:
        driver_output.restore()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClusterError(f"can't join the Ray cluster at '{address}': {reason}") from error


def _check_listens(address: str) -> None:
    """Raise at once if nothing listens there: Ray itself tries a dead address for minutes."""
    from dlrl_core.scheduler.cluster_probe import no_answer

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return  # 'auto', 'ray://...': Ray's to judge
    if (reason := no_answer(address, _LISTEN_S)) is not None:
        raise ClusterError(
            f"can't join the Ray cluster at '{address}': nobody listens there ({reason}); is it running?"
        )


_FROM_RAY = ("raylet", "autoscaler", "gcs_server")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Print = Callable[[dict[str, Any], bool], None]


class DriverOutput:
    """Ray's printing in this process, between `filter` and `restore` without Ray's own messages."""

    def __init__(self) -> None:
        self._original: Print | None = None

    def filter(self) -> None:
        """To be called before `ray.init`. Does nothing with a Ray that prints in another way."""
        from ray._private import worker

        original: Print | None = getattr(worker, "print_to_stdstream", None)
        if self._original is not None or original is None:
            return
        if not _is_terminal():
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        self._original = original
        worker.print_to_stdstream = functools.partial(_show, original)

    def restore(self) -> None:
        """Ray prints as before; for a process that goes on with a Ray of its own."""
        if self._original is not None:
            from ray._private import worker

            worker.print_to_stdstream = self._original  # type: ignore[assignment]
            self._original = None


def _show(original: Print, data: dict[str, Any], ignore_prefix: bool) -> None:
    if data.get("pid") in _FROM_RAY:
        return
    if not _is_terminal():
        data = {**data, "lines": [_COLOUR.sub("", str(line)) for line in data.get("lines", ())]}
    original(data, ignore_prefix)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty()


driver_output = DriverOutput()
