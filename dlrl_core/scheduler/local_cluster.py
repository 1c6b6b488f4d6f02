"""An embedded local Ray, shaped like the job: started for it, stopped after it.

One driver can hold one; a second job at the same time adds its own nodes to it, and the last one to end
stops it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from dlrl_core.errors import ClusterError
from dlrl_core.plan import ClusterView

_START_TIMEOUT_S = 120.0
_LONGEST_TEMP_DIR = 24


class LocalCluster:
    """A keeper process and the raylets below it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dlrl-", dir=_short_temp_dir()))
        (self.folder / "ray").mkdir()
        self._log = (self.folder / "keeper.log").open("wb")
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "dlrl_core.scheduler.local_cluster_keeper", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "RAY_TMPDIR": str(self.folder), **_keeper_env()},
            start_new_session=True,  # a Ctrl-C in the terminal is the driver's to handle
        )

    def add_nodes(self, shape: ClusterView) -> str:
        """Start these nodes; returns the cluster's address when all of them are up."""
        assert self._keeper.stdin is not None
        request = {"nodes": [{"resources": dict(node.free), "labels": dict(node.labels)} for node in shape.nodes]}
        try:
            self._keeper.stdin.write(json.dumps(request).encode() + b"\n")
            self._keeper.stdin.flush()
        except OSError as error:
            raise ClusterError(self._failure()) from error
        return self._read_address()

    def _read_address(self) -> str:
        assert self._keeper.stdout is not None
        watchdog = threading.Timer(_START_TIMEOUT_S, self._keeper.kill)
        watchdog.start()
        try:
            line = self._keeper.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ClusterError(self._failure())
        return str(json.loads(line)["address"])

    def _failure(self) -> str:
        self._log.flush()
        log = self.folder / "keeper.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        reason = lines[-1] if lines else f"it said nothing (limit {_START_TIMEOUT_S:g} s)"
        return f"the embedded local Ray did not start: {reason}"

    def stop(self) -> None:
        """End all of it. The keeper removes the folder; so do we, in case it was killed."""
        import shutil

        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        try:
            self._keeper.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _short_temp_dir() -> str:
    """Ray puts sockets below it, and a socket's path has at most 107 bytes."""
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
        with self._lock:
            if self._cluster is None:
                self._cluster = LocalCluster()
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
        """One job less; True if it was the last, and the cluster is to be left and stopped."""
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


shared_cluster = _SharedCluster()
