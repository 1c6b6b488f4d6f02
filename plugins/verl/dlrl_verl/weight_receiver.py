"""The other end of weight_sync: how an engine takes weights, and what happens when the one who sends them dies.

verl's receiver waits for its sender without end, and the engine does nothing else meanwhile: it could not even be told
to give up. Here it looks whether the sender is still at it: that one has a second socket open for as long as it sends,
which the system closes when its process ends, however it does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import zmq

from dlrl_adapter_kit.after_import import after_import
from dlrl_verl import cpu

_LOOK_MS = 500
_LATE_S = 60.0
"""Between the first rank of several that sends weights to an engine, and the last."""
_TRANSFER = "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer"
_EXTENSION = "verl.workers.rollout.vllm_rollout.utils"


class SenderGoneError(Exception):
    """The process that sent weights has died, or has given up."""


class SenderSign:
    """Says that somebody is about to send weights through a socket, or is at it."""

    def __init__(self, zmq_handle: str) -> None:
        self._address = "\0" + zmq_handle.removeprefix("ipc://")  # in no folder: it goes with its process

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """By the sender. Nothing has to be cleared away when its process is killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sign:
            sign.bind(self._address)
            yield

    def is_shown(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as looking:
            try:
                looking.connect(self._address)
            except ConnectionRefusedError:
                return False
        return True


class SenderWatch:
    """Looks for the sign of one sender, who may still have to come: the first of several asks the engine for all."""

    def __init__(self, zmq_handle: str, *, comes_within_s: float) -> None:
        self._sign = SenderSign(zmq_handle)
        self._deadline = time.monotonic() + comes_within_s

    def check(self) -> None:
        """Raise SenderGoneError if it is gone."""
        if self._sign.is_shown():
            self._deadline = 0.0
        elif time.monotonic() > self._deadline:
            raise SenderGoneError("whoever sent weights to this engine is gone")


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
        comes_within_s: ClassVar[float] = 0.0

        def _init_socket(self) -> None:
            super()._init_socket()
            watch = SenderWatch(self.zmq_handle, comes_within_s=self.comes_within_s)
            self.socket = WatchedSocket(self.socket, watch.check)

    module.BucketedWeightReceiver = WatchedReceiver


def _end_if_spoiled(module: Any) -> None:
    """An engine whose weights came in part gets whole ones next. Some can't go on until then, and are ended.

    vLLM reads the answers of several workers up to the first that failed: the others would answer the next call.
    """
    extension = module.vLLMColocateWorkerExtension
    receive = extension.update_weights_from_ipc

    def update_weights_from_ipc(self: Any, *args: Any, **kwargs: Any) -> Any:
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

        has_peers = self.model_runner.vllm_config.parallel_config.world_size_across_dp > 1
        BucketedWeightReceiver.comes_within_s = _LATE_S if has_peers else 0.0
        try:
            return receive(self, *args, **kwargs)
        except Exception:
            if has_peers or _is_quantized(module, self):
                traceback.print_exc()
                os._exit(1)
            raise

    extension.update_weights_from_ipc = update_weights_from_ipc


def _is_quantized(module: Any, worker: Any) -> bool:
    """Its weights are unpacked for new ones, which can't be done a second time."""
    is_trained_so = worker._is_qat_model or worker._is_modelopt_qat
    return bool(is_trained_so or module.is_quantized_model(worker.model_runner.vllm_config))
