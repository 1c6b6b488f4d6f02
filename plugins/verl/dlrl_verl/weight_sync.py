"""How weights go from a rank of the policy to its rollout server, and what happens when the server dies meanwhile.

verl's sender waits for the server without a limit, in the event loop of its process. Here it checks that the server
is alive while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray
import torch
from ray.exceptions import RayTaskError
from verl.workers.rollout.utils import ensure_async_iterator
from verl.workers.rollout.vllm_rollout import vllm_rollout
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender, create_shared_memory

from dlrl_adapter_kit.framework_seam import replaced
from dlrl_core.workload.actors import GONE
from dlrl_verl.weight_receiver import SenderSign, WatchedSocket
from dlrl_vllm.owned_files import own_files

_PING_S = 10.0
_AGAIN_S = 0.2
_ENDS_S = 5.0
"""Longer than a server takes to end after its engine has ended."""


class NoTakerError(Exception):
    """The server takes no more weights: it died or failed while they were sent."""


class ServerHandle:
    """A rollout server as verl's adapter in the policy's process calls it. Calls to one that is gone return None."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._unanswered: set[Any] = set()
        self.is_gone = False

    @property
    def actor_id(self) -> str:
        return str(self._actor._actor_id.hex())

    def __getattr__(self, method: str) -> _ServerMethod:
        if method.startswith("_"):
            raise AttributeError(method)
        return _ServerMethod(self, method)

    def start(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> asyncio.Future[Any]:
        ref = self._actor.invoke_coroutine.remote(method, *args, **kwargs)
        self._unanswered.add(ref)
        call = asyncio.ensure_future(self._result(ref))
        call.add_done_callback(lambda _: self._unanswered.discard(ref))
        return call

    async def _result(self, ref: Any) -> Any:
        try:
            return await ref
        except GONE:
            self.is_gone = True
        except RayTaskError:
            if not await asyncio.to_thread(self._ends_soon):
                raise
        return None

    def check(self) -> None:
        """Raise NoTakerError if its process has ended, or a call has failed. The call itself raises its own error."""
        calls = list(self._unanswered)
        answered = ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []
        try:
            ray.get(answered)
            ray.get(self._actor.ping.remote(), timeout=_PING_S)
        except GONE:
            self.is_gone = True
            raise NoTakerError from None
        except ray.exceptions.GetTimeoutError:
            return
        except RayTaskError:
            raise NoTakerError from None

    def _ends_soon(self) -> bool:
        """Whether the server's process ends within seconds: calls fail when its engine dies, and it ends after that."""
        deadline = time.monotonic() + _ENDS_S
        while not self.is_gone and time.monotonic() < deadline:
            try:
                ray.get(self._actor.ping.remote(), timeout=_PING_S)
            except GONE:
                self.is_gone = True
            except ray.exceptions.GetTimeoutError:
                continue
            time.sleep(_AGAIN_S)
        return self.is_gone


class _ServerMethod:
    def __init__(self, server: ServerHandle, method: str) -> None:
        self._server = server
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._server.start(self._method, args, kwargs)


@contextlib.contextmanager
def sending_weights(worker: Any, *, is_meant: bool) -> Iterator[None]:
    """For one update: verl's adapter sends weights by `WatchedSender`, or to no server if this one is not meant."""
    adapter = worker.rollout
    if not is_meant or adapter.server_handle.is_gone:
        worker.rollout = _NoServer()
        try:
            yield
        finally:
            worker.rollout = adapter
        return
    sender = partial(WatchedSender, adapter.server_handle.check)
    with SenderSign(adapter.zmq_handle).shown(), replaced(vllm_rollout, BucketedWeightSender=sender):
        yield


class _NoServer:
    """In the place of verl's adapter: weights are gathered with the other ranks, and are not sent."""

    sleep_level = 2

    async def resume(self, tags: list[str]) -> None: ...

    async def update_weights(self, weights: Any, **_: Any) -> None:
        async for _one in ensure_async_iterator(weights):
            pass


class WatchedSender(BucketedWeightSender):  # type: ignore[misc]
    """verl's sender of weights. When the server takes no more, the rest is only gathered with the other ranks."""

    socket: Any

    def __init__(self, check: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check = check

    def _init_socket(self) -> None:
        super()._init_socket()
        self.socket = WatchedSocket(self.socket, self._check, linger_ms=0)

    def _init_buffer(self) -> None:
        """As verl's, with memory whose name tells whose it is, and that is removed if the server does not take it."""
        if not self.use_shm:
            super()._init_buffer()
            return
        name = f"verl_weights_{own_files().memory_name}_{uuid.uuid4().hex}"
        self.shm = create_shared_memory(self.bucket_size, name)
        self.buffer = torch.frombuffer(self.shm.buf, dtype=torch.uint8)
        self.socket.send_pyobj({"name": name, "size": self.bucket_size})
        self.socket.recv()

    async def async_send_weights(self, weights: Any) -> None:
        try:
            await super().async_send_weights(weights)
        except NoTakerError:
            async for _ in ensure_async_iterator(weights):
                pass
