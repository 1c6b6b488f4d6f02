"""The other end of weight_sync: how an engine receives weights, and what happens when the sending process dies.

verl's receiver waits for its sender without a limit, and the engine does nothing else meanwhile, so that no call can
end the wait. Here the receiver checks whether the sender is still sending: the sender keeps a second socket open for
that time, which the kernel closes when the process ends, however it ends.
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
"""The longest time between the first rank that sends weights to an engine and the last one."""
_TRANSFER = "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer"
_EXTENSION = "verl.workers.rollout.vllm_rollout.utils"


class SenderGoneError(Exception):
    """The process that sent weights has died, or has stopped sending."""


def without_file(zmq_handle: str) -> str:
    """The same socket in Linux's abstract namespace: a process that is killed leaves no file of it."""
    return zmq_handle.replace("ipc:///tmp/", "ipc://@")


class SenderSign:
    """A socket that is there while a process sends weights, or is about to."""

    def __init__(self, zmq_handle: str) -> None:
        self._address = "\0" + zmq_handle.removeprefix("ipc://")  # in the abstract namespace: it ends with its process

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Called by the sender. When its process is killed, the kernel removes the socket."""
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
    """Checks for the sign of one sender. It may come later: the first of several makes the engine wait for all."""

    def __init__(self, zmq_handle: str, *, comes_within_s: float) -> None:
        self._sign = SenderSign(zmq_handle)
        self._deadline = time.monotonic() + comes_within_s

    def check(self) -> None:
        """Raise SenderGoneError if the sign is gone, or did not come in time."""
        if self._sign.is_shown():
            self._deadline = 0.0
        elif time.monotonic() > self._deadline:
            raise SenderGoneError("the process that sent weights to this engine is gone")


class WatchedSocket:
    """A socket of ZeroMQ that checks its peer while it waits."""

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
    """Called in each process of an engine, before it imports verl."""
    cpu.prepare()
    after_import(_TRANSFER, _watch_sender)
    after_import(_EXTENSION, _use_no_file)
    after_import(_EXTENSION, _end_if_spoiled)


def _use_no_file(module: Any) -> None:
    """The sender uses the same socket; see `ActorWorkload.init_model`."""
    extension = module.vLLMColocateWorkerExtension
    stock = extension._get_zmq_handle
    extension._get_zmq_handle = lambda self: without_file(stock(self))


def _watch_sender(module: Any) -> None:
    class WatchedReceiver(module.BucketedWeightReceiver):  # type: ignore[misc]
        """verl's receiver of weights. It raises SenderGoneError when the sending process is gone."""

        socket: Any
        comes_within_s: ClassVar[float] = 0.0

        def _init_socket(self) -> None:
            super()._init_socket()
            watch = SenderWatch(self.zmq_handle, comes_within_s=self.comes_within_s)
            self.socket = WatchedSocket(self.socket, watch.check)

    module.BucketedWeightReceiver = WatchedReceiver


def _end_if_spoiled(module: Any) -> None:
    """After a transfer that failed, an engine gets all weights again. An engine that can't take them is ended.

    This is one with several workers, of which vLLM reads the answers up to the first failure, so that the next call
    would get the remaining answers; and one that is quantized.
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
    """Whether weights are unpacked before new ones are loaded, which can't be done a second time."""
    is_trained_so = worker._is_qat_model or worker._is_modelopt_qat
    return bool(is_trained_so or module.is_quantized_model(worker.model_runner.vllm_config))
