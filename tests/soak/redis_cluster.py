"""Two nodes whose GCS keeps its tables on a Redis server, so that it can be killed and started again.

A process of its own holds them and ends when its standard input closes, so that nothing stays behind however the test
process ends.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys

import psutil
from checks import short_temp_folder
from redis_server import RedisServer

_GPUS = 4


class RedisCluster:
    """Two nodes with four logical GPUs each, and the Redis server of their GCS."""

    def __init__(self) -> None:
        self.folder = short_temp_folder()
        (self.folder / "ray").mkdir()
        self.tables = RedisServer(self.folder / "tables").start()
        environment = {
            **os.environ,
            "RAY_REDIS_ADDRESS": f"127.0.0.1:{self.tables.port}",
            "RAY_TMPDIR": str(self.folder),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        with (self.folder / "keeper.log").open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "soak.redis_cluster"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.address = self._heard()["address"]

    def kill_gcs(self) -> None:
        self._tell("kill")

    def start_gcs(self) -> None:
        """The next GCS, at the address of the first; returns when it answers."""
        self._tell("start")

    def gcs(self) -> psutil.Process:
        """The process of the GCS."""
        for process in psutil.Process(self._keeper.pid).children(recursive=True):
            if process.name() == "gcs_server":
                return process
        raise AssertionError("there is no GCS")

    def stop(self) -> None:
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(30)
        except subprocess.TimeoutExpired:
            for process in psutil.Process(self._keeper.pid).children(recursive=True):
                process.kill()
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        self.tables.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tell(self, word: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{word}\n".encode())
        self._keeper.stdin.flush()
        assert self._heard() == {"done": word}

    def _heard(self) -> dict[str, str]:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        assert line, (self.folder / "keeper.log").read_text()[-2000:]
        heard: dict[str, str] = json.loads(line)
        return heard


def _hold() -> None:
    """The body of the process that holds the nodes."""
    from ray.cluster_utils import Cluster

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    answers = os.fdopen(os.dup(1), "w")  # what Ray prints goes to the log
    os.dup2(2, 1)
    cluster = Cluster(initialize_head=False, shutdown_at_exit=True)
    shape = {"num_cpus": 16, "num_gpus": _GPUS, "object_store_memory": 96 * 1024 * 1024}
    try:
        head = cluster.add_node(include_dashboard=False, gcs_server_port=_free_port(), **shape)
        cluster.add_node(**shape)
        print(json.dumps({"address": cluster.address}), file=answers, flush=True)
        for line in sys.stdin:
            word = line.strip()
            head.kill_gcs_server() if word == "kill" else head.start_gcs_server()
            print(json.dumps({"done": word}), file=answers, flush=True)
    finally:
        cluster.shutdown()


def _free_port() -> int:
    """A port below those that systems give to clients, one of which could take it while the GCS is down."""
    while True:
        with socket.socket() as probe:
            port = random.randrange(20_000, 32_000)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


if __name__ == "__main__":
    _hold()
