"""An embedded local Ray, shaped like the job: started for it, stopped after it.

A driver has at most one; a second job at the same time adds its own nodes to it, and the end of the last job stops it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dlrl_core.errors import ClusterError
from dlrl_core.plan import ClusterView
from dlrl_core.scheduler.cluster_probe import Patience, sizes_of
from dlrl_core.spec.job_spec import DEVICE_TYPES
from dlrl_local_ray.keeper import remove

_STILL_S = 90.0
"""The start fails if nothing of it moves for this long."""
_MOST_START_S = 900.0
_LOOK_S = 1.0
_LONGEST_TEMP_DIR = 24
_TOLD_LINES = 4
_SERIOUS = re.compile(r"^\[[^]]* [EFC] \d+ \d+\]")
"""How Ray's processes begin a line about an error."""


class LocalCluster:
    """A keeper process and the raylets below it. Ray's logs go to `keep_logs_in` at the end, if it is given."""

    def __init__(self, keep_logs_in: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dlrl-", dir=_short_temp_dir()))
        self.kept_logs = keep_logs_in
        (self.folder / "ray").mkdir()
        self._log = (self.folder / "keeper.log").open("wb")
        self._waits_for = "its keeper process"
        self._unread = b""
        command = [sys.executable, "-m", "dlrl_local_ray.keeper", str(self.folder)]
        self._keeper = subprocess.Popen(
            [*command, *([str(keep_logs_in)] if keep_logs_in else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "RAY_TMPDIR": str(self.folder), **_keeper_env()},
            start_new_session=True,  # a Ctrl-C in the terminal is the driver's to handle
        )

    def add_nodes(self, shape: ClusterView, *, env: Mapping[str, str] | None = None) -> str:
        """Start these nodes; returns the cluster's address when all of them are registered.

        `env` is added to the environment of their processes.
        Raises ClusterError with the reason, taken from the logs, if the keeper fails or nothing moves any more.
        """
        assert self._keeper.stdin is not None
        added = dict(env or {})
        nodes = [{"resources": dict(node.free), "labels": dict(node.labels), "env": added} for node in shape.nodes]
        request = {"nodes": nodes}
        try:
            self._keeper.stdin.write(json.dumps(request).encode() + b"\n")
            self._keeper.stdin.flush()
        except OSError as error:
            raise ClusterError(self._failure("its keeper process has ended")) from error
        for answer in self._answers():
            if "address" in answer:
                return answer["address"]
            if "failed" in answer:
                raise ClusterError(self._failure(answer["failed"]))
            self._waits_for = answer["waits_for"]
        raise ClusterError(self._failure(f"its keeper process ended with code {self._keeper.wait()}"))

    def _answers(self) -> Iterator[dict[str, str]]:
        """What the keeper says, line by line, until it ends. Raises ClusterError if it is silent for too long."""
        assert self._keeper.stdout is not None
        stdout = self._keeper.stdout.fileno()
        patience = Patience(self._movement, still_s=_STILL_S, most_s=_MOST_START_S)
        while True:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                yield json.loads(line)
            if select.select([stdout], [], [], _LOOK_S)[0]:
                received = os.read(stdout, 65536)
                if not received:
                    return
                self._unread += received
            elif patience.is_lost():
                raise ClusterError(self._failure(f"{self._waits_for} was waited for {patience}"))

    def _movement(self) -> tuple[object, ...]:
        return self._waits_for, sizes_of(self.folder, "keeper.log"), sizes_of(self.folder, "ray/session_*/logs/*.*")

    def _failure(self, reason: str) -> str:
        """The reason, with the last lines of the logs that tell more."""
        self._log.flush()
        told = [f"  {name}: {line}" for name, lines in self._told_by_logs() for line in lines]
        kept = f"\nall logs are kept in {self.kept_logs}" if self.kept_logs and self._ray_logs() else ""
        return "\n".join([f"the embedded local Ray did not start: {reason}", *told]) + kept

    def _ray_logs(self) -> list[Path]:
        found = (self.folder / "ray" / "session_latest" / "logs").glob("*")
        return sorted(path for path in found if path.name.startswith(("gcs_server", "raylet")))

    def _told_by_logs(self) -> Iterator[tuple[str, list[str]]]:
        """The last lines of the keeper's log, and the last errors in those of the raylets and of the GCS."""
        for path in (self.folder / "keeper.log", *self._ray_logs()):
            text = path.read_text(errors="replace") if path.is_file() else ""
            lines = [line for line in text.splitlines() if line.strip()]
            if path.suffix == ".out":
                lines = [line for line in lines if _SERIOUS.match(line)]
            yield path.name, lines[-_TOLD_LINES:]

    def stop(self) -> None:
        """End all of it. The keeper removes the folder; so does this process, in case the keeper was killed."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError):  # a request that a killed keeper never read
            self._keeper.stdin.close()
        try:
            self._keeper.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()
        self._log.close()
        remove(self.folder, self.kept_logs)


def kept_logs_folder() -> Path:
    """A new name for the logs of an embedded Ray, below DLRL_HOME, in the order of time."""
    home = Path(os.environ.get("DLRL_HOME") or "~/.dlrl").expanduser().absolute()
    return home / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def _short_temp_dir() -> str:
    """A temp folder for Ray's sockets: the path of a socket has at most 107 bytes."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST_TEMP_DIR else "/tmp"


def _keeper_env() -> dict[str, str]:
    # Ray warns about, and later drops, its habit of hiding devices from processes that ask for none.
    return {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "1"}


class _SharedCluster:
    """The one embedded cluster of this process, and how many jobs use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: LocalCluster | None = None
        self._users = 0

    def acquire(self, shape: ClusterView) -> str:
        """Start these nodes for one more job, and say so on stderr; returns the address to join."""
        _announce(shape)
        with self._lock:
            if self._cluster is None:
                self._cluster = LocalCluster(kept_logs_folder())
                atexit.register(self._stop)
            try:
                address = self._cluster.add_nodes(shape)
            except BaseException:
                if self._users == 0:
                    self._stop()
                raise
            self._users += 1
            return address

    def release(self) -> bool:
        """Count one job less; True if it was the last, so that the cluster is to be left and stopped."""
        with self._lock:
            self._users -= 1
            return self._users == 0

    def stop_if_unused(self) -> None:
        with self._lock:
            if self._users == 0:
                self._stop()

    def _stop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            atexit.unregister(self._stop)
            cluster.stop()

    @property
    def is_up(self) -> bool:
        return self._cluster is not None

    @property
    def kept_logs(self) -> Path | None:
        """Where the logs of this cluster will be after its end; None if there is none."""
        return self._cluster.kept_logs if self._cluster is not None else None


def _announce(shape: ClusterView) -> None:
    free = shape.nodes[0].free
    device_type = next((one for one in DEVICE_TYPES if one in free), "CPU")
    devices = int(free.get(device_type, 0))
    real = len(list(Path("/dev").glob("nvidia[0-9]*"))) if device_type == "GPU" else os.cpu_count() or 1
    is_simulated = len(shape.nodes) > 1 or real < devices
    kind = f"logical {device_type}" if is_simulated else device_type
    nodes = f"{len(shape.nodes)} node{'s' if len(shape.nodes) > 1 else ''}"
    print(
        f"dlrl: no cluster address, so a local Ray is started for this job: {nodes} x {devices} {kind}"
        f"{' (simulated on this machine)' if is_simulated else ''}; it stops with the job",
        file=sys.stderr,
        flush=True,
    )


_shared_cluster = _SharedCluster()


def the_shared_cluster() -> _SharedCluster:
    """The embedded cluster that all jobs of this process share."""
    return _shared_cluster
