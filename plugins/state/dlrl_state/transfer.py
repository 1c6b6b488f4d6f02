"""Ranges of files between two processes of a job: the one that has them listens, the other one asks for each range.

The bytes go from page cache to socket and from socket to mapped memory: through Ray they would be copied twice more,
and would fill the object store that the samples need. A token, which only Ray hands over, is asked for before anything
is sent.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_STILL_S = 60.0
"""A connection on which no byte came for so long is given up."""
_TOKEN_BYTES = 32
_LONGEST_REQUEST = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a process listens, and what it wants to be told first."""

    host: str
    port: int
    token: bytes = field(repr=False)


class FileServer:
    """Sends ranges of the files that `find` names, to whoever knows the token. Listens as long as its process lives."""

    def __init__(self, host: str, find: Callable[[Any], Path]) -> None:
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._server = _Server((host, 0), self._token, find)
        self.meter = self._server.meter
        threading.Thread(target=self._server.serve_forever, name="dlrl-serve", daemon=True).start()

    @property
    def address(self) -> Address:
        host, port = self._server.server_address[:2]
        return Address(host=str(host), port=int(port), token=self._token)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Meter:
    """What was sent: when the last range was, and the processor time that sending took."""

    def __init__(self) -> None:
        self.moved_at = time.monotonic()
        self.cpu_s = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.cpu_s += time.thread_time() - began
        self.moved_at = time.monotonic()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], token: bytes, find: Callable[[Any], Path]) -> None:
        self.token = token
        self.find = find
        self.meter = Meter()
        super().__init__(address, _Sender)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side is gone, or asked for a version that is gone: it notices the closed connection."""


class _Sender(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(_STILL_S)
        reader = connection.makefile("rb")
        if not hmac.compare_digest(reader.read(_TOKEN_BYTES), self.server.token):
            return
        while line := reader.readline(_LONGEST_REQUEST):
            asked = json.loads(line)
            with self.server.meter.measured(), self.server.find(asked["what"]).open("rb") as file:
                connection.sendfile(file, offset=asked["start"], count=asked["size"])


class RangeReader:
    """One connection to a FileServer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read_into(self, what: Any, start: int, target: memoryview) -> None:
        """Fill `target` with the bytes of a range. Raises OSError if they can't be had."""
        if not len(target):
            return
        request = json.dumps({"what": what, "start": start, "size": len(target)})
        self._connection.sendall(request.encode() + b"\n")
        while len(target):
            received = self._connection.recv_into(target)
            if not received:
                raise ConnectionError("the process that has the state closed the connection")
            target = target[received:]


@contextlib.contextmanager
def connected(address: Address) -> Iterator[RangeReader]:
    """A connection for one thread. Raises OSError."""
    with socket.create_connection((address.host, address.port), timeout=_STILL_S) as connection:
        connection.sendall(address.token)
        yield RangeReader(connection)
