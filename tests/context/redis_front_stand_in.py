"""RedisFrontStandIn: in place of a network that loses answers, and of a server that speaks TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from types import TracebackType
from typing import Self


class RedisFrontStandIn:
    """Passes everything on to a real server, but for what the test takes away."""

    def __init__(self, server_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._server_port = server_port
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]
        self.answers_to_lose = 0
        """How many scripts are still to be run whose answer the client never gets."""
        self.answers_lost = 0
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Break all connections that are open now."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
                self._open |= {client, server}
                is_lossy = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, is_lossy), daemon=True).start()
                while (answer := server.recv(65536)) and not is_lossy.is_set():
                    client.sendall(answer)
                self.answers_lost += is_lossy.is_set()
                client.shutdown(socket.SHUT_RDWR)  # to close it would tell nobody while it is being read from

    def _requests(self, client: socket.socket, server: socket.socket, is_lossy: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                if b"EVAL" in request and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    is_lossy.set()
                server.sendall(request)
            server.shutdown(socket.SHUT_WR)
