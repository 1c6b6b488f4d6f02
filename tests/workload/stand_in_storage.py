"""Stand-ins for storage that hangs or whose library has errors of its own: fsspec's local file system, with a fault."""

from __future__ import annotations

import threading

import fsspec
from fsspec.implementations.local import LocalFileSystem


class NoCredentialsError(Exception):
    """Like botocore's: no OSError."""


class FaultyFileSystem(LocalFileSystem):
    """`faulty:///folder`. While the gate is closed, calls wait before they read or write, as storage that hangs."""

    protocol = "faulty"
    gate = threading.Event()
    waiting = threading.Event()
    """A call has come to the closed gate."""
    error: Exception | None = None
    """What reading and writing raise."""

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("faulty://"))

    def open(self, *args, **kwargs):
        if not self.gate.is_set():
            self.waiting.set()
            self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return super().open(*args, **kwargs)


def register() -> type[FaultyFileSystem]:
    """Have fsspec know `faulty://`; nothing is wrong with it yet."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    FaultyFileSystem.gate.set()
    FaultyFileSystem.waiting.clear()
    FaultyFileSystem.error = None
    return FaultyFileSystem
