"""The other end of weight_sync: how an engine takes weights, and what happens when the one who sends them dies.

verl's receiver waits for its sender without end, and the engine does nothing else meanwhile: it could not even be told
to give up. Here it looks whether the sender is still at it: that one has a second socket open for as long as it sends,
which the system closes when its process ends, however it does.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from dlrl_core.plugin.after_import import after_import
from dlrl_verl import cpu

_LOOK_MS = 500
_TRANSFER = "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer"
_EXTENSION = "verl.workers.rollout.vllm_rollout.utils"


class SenderGoneError(Exception):
    """The process that sent weights has died, or has given up."""


class SenderSign:
    """Says that somebody is about to send weights through a socket, or is at it."""

    def __init__(self, zmq_handle: str) -> None:
        self._address = "\0" + zmq_handle.removeprefix("ipc://")  # a name that is in no folder, and of this machine

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """By the sender. Nothing has to be cleared away when its process is killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sign:
            sign.bind(self._address)
            yield

    def check(self) -> None:
        """Raise SenderGoneError if nobody shows it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as looking:
            try:
                looking.connect(self._address)
            except ConnectionRefusedError:
                raise SenderGoneError("whoever sent weights to this engine is gone") from None


class WatchedSocket:
    """A socket of ZeroMQ that looks after its peer while it waits."""

    def __init__(self, socket: Any, check: Callable[[], None], linger_ms: int | None = None) -> None:
        self._socket = socket
        self._check = check
        self._linger_ms = linger_ms

    def send_pyobj(self, value: Any) -> None:
        self._wait_for(zmq.POLLOUT)
        self._socket.send_pyobj(value)

    def send(self, value: bytes) -> None:
        self._socket.send(value)

    def recv(self) -> Any:
        self._wait_for(zmq.POLLIN)
        return self._socket.recv()

    def recv_pyobj(self) -> Any:
        self._wait_for(zmq.POLLIN)
        return self._socket.recv_pyobj()

    def close(self) -> None:
        self._socket.close(linger=self._linger_ms)

    def _wait_for(self, event: int) -> None:
        while not self._socket.poll(_LOOK_MS, event):
            self._check()


# ---- in an engine's processes


def prepare() -> None:
    """In each process of an engine, before it imports verl."""
    cpu.prepare()
    after_import(_TRANSFER, _watch_sender)
    after_import(_EXTENSION, _end_if_spoiled)


def _watch_sender(module: Any) -> None:
    class WatchedReceiver(module.BucketedWeightReceiver):  # type: ignore[misc]
        """verl's receiver of weights, which ends with SenderGoneError when there is nobody left to send them."""

        socket: Any

        def _init_socket(self) -> None:
            super()._init_socket()
            self.socket = WatchedSocket(self.socket, SenderSign(self.zmq_handle).check)

    module.BucketedWeightReceiver = WatchedReceiver


def _end_if_spoiled(module: Any) -> None:
    """Plain weights that came in part are followed by whole ones; quantized ones can't be taken up again."""
    extension = module.vLLMColocateWorkerExtension
    receive = extension.update_weights_from_ipc

    def update_weights_from_ipc(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return receive(self, *args, **kwargs)
        except SenderGoneError:
            if self._is_qat_model or self._is_modelopt_qat or module.is_quantized_model(self.model_runner.vllm_config):
                os._exit(1)
            raise

    extension.update_weights_from_ipc = update_weights_from_ipc
