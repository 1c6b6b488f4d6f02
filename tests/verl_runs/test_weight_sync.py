"""Weights on their way from the policy to an engine, when the one or the other dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checks import wait_until

from dlrl_vllm.owned_files import sweep

pytestmark = pytest.mark.shared_cluster  # beside a job, what that one sends would be seen here

SOON_S = 10.0
KILLED_S = 1.2
"""More than twice as long as an engine waits before it looks for its sender."""
SLOW_S = 0.7
TENSOR_BYTES = 1 << 19  # of a bucket of 1 MB


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[str]:
    """Where weights are sent. Memory of senders that were killed is known as theirs, and is removed as such."""
    before = memory()
    yield f"ipc://{tmp_path}/s.sock"
    sweep()
    wait_until(lambda: memory() <= before, "all of it is removed")  # another program may be sending, for a moment


def memory() -> set[Path]:
    """What weights are sent through."""
    return set(Path("/dev/shm").glob("verl_weights_*"))


@pytest.mark.parametrize("sent", [0, 5, 9])
def test_an_engine_does_not_wait_for_a_policy_that_was_killed(imported_process, handle, sent):
    told = imported_process(received_from_one_who_is_killed, handle, sent)

    assert told["error"] == "SenderGoneError: the process that sent weights to this engine is gone"
    assert KILLED_S - 0.5 < told["seconds"] < KILLED_S + SOON_S
    assert told["names"] == [f"weight-{number}" for number in range(max(0, (sent - 1) // 2 * 2))]


def test_an_engine_does_not_wait_for_a_policy_that_was_killed_before_it_had_a_socket(imported_process, handle):
    told = imported_process(received_from_nobody, handle)

    assert told["error"] == "SenderGoneError: the process that sent weights to this engine is gone"
    assert KILLED_S - 0.5 < told["seconds"] < KILLED_S + SOON_S


def test_an_engine_waits_for_one_of_several_that_comes_late(imported_process, handle):
    told = imported_process(received_from_a_late_one, handle)

    assert told["error"] is None
    assert len(told["names"]) == 4


def test_an_engine_waits_for_a_policy_that_takes_its_time(imported_process, handle):
    told = imported_process(received_from_a_slow_one, handle)

    assert told["error"] is None
    assert told["names"] == [f"weight-{number}" for number in range(4)]


def test_a_policy_can_send_again_where_one_was_killed(imported_process, handle):
    imported_process(received_from_one_who_is_killed, handle, 5)
    told = imported_process(received_from_a_slow_one, handle)

    assert told["error"] is None
    assert len(told["names"]) == 4


@pytest.fixture(scope="module")
def refused(new_process, cluster_4_gpus, tmp_path_factory):
    """What a policy meets whose engine takes no weights, by whether the engine ends."""
    return new_process(sent_to_engines_that_fail, cluster_4_gpus, f"ipc://{tmp_path_factory.mktemp('refused')}")


@pytest.mark.parametrize("ends", [False, True])
def test_a_policy_does_not_wait_for_an_engine_that_takes_no_weights(refused, ends):
    told = refused[ends]

    assert told["gathered"] == 9, "with the other ranks, to the last weight"
    assert ("the shapes differ" in told["error"]) != ends, "a server that ends with its engine is no error"
    assert told["is_gone"] == ends
    assert told["left"] == set()


@pytest.mark.parametrize(("workers", "qat", "ended"), [(1, False, False), (2, False, True), (1, True, True)])
def test_an_engine_that_can_not_take_weights_again_is_ended(imported_process, handle, workers, qat, ended):
    told = imported_process(end_of_a_worker, handle, workers, qat)

    assert told == (1 if ended else "SenderGoneError")


# ---- in processes that have imported verl


def end_of_a_worker(handle: str, workers: int, qat: bool) -> Any:
    """verl's own function in a stand-in for a worker of vLLM, to which nobody sends: its error, or how it exits."""
    from dlrl_verl import weight_receiver

    weight_receiver.prepare()
    weight_receiver._LATE_S = 1.0
    import torch
    from verl.utils import qat as qat_utils
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension as Extension

    qat_utils.prepare_qat_for_load_weights = lambda model, device: None
    parallel = SimpleNamespace(world_size_across_dp=workers)
    worker = SimpleNamespace(
        device=torch.device("cpu"),
        model_runner=SimpleNamespace(vllm_config=SimpleNamespace(parallel_config=parallel, quant_config=None)),
        _is_qat_model=qat,
        _is_modelopt_qat=False,
        _iter_all_models=lambda: [],
        _get_zmq_handle=lambda: handle,
    )
    here, there = multiprocessing.Pipe()

    def receive() -> None:
        try:
            Extension.update_weights_from_ipc(worker, use_shm=True)
        except Exception as error:
            there.send(type(error).__name__)

    process = _started(receive)
    process.join()
    return here.recv() if here.poll() else process.exitcode


def received_from_one_who_is_killed(handle: str, sent: int) -> dict[str, Any]:
    return _receive(handle, _started(_send, handle, sent, 0.0), kill_after=max(0, (sent - 1) // 2 * 2))


def received_from_nobody(handle: str) -> dict[str, Any]:
    return _receive(handle, _started(_show_sign_only, handle))


def received_from_a_slow_one(handle: str) -> dict[str, Any]:
    sender = _started(_send, handle, 4, SLOW_S)
    told = _receive(handle)
    sender.join()
    return told


def received_from_a_late_one(handle: str) -> dict[str, Any]:
    sender = _started(_send_late, handle)
    told = _receive(handle, comes_within_s=60.0)
    sender.join()
    return told


def _started(work: Any, *args: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=work, args=args, daemon=True)
    process.start()
    return process


def _receive(handle: str, sender: Any = None, *, kill_after: int = 0, comes_within_s: float = 0.0) -> dict[str, Any]:
    """What the engine's end took; the sender, if told, is killed when so many weights have come and it stands still."""
    from dlrl_verl import weight_receiver

    weight_receiver.prepare()
    import torch
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer

    names: list[str] = []
    receiver = transfer.BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
    receiver.comes_within_s = comes_within_s
    while not (comes_within_s or weight_receiver.SenderSign(handle).is_shown()):
        time.sleep(0.01)
    killer = threading.Thread(target=_kill, args=(sender, lambda: len(names) >= kill_after))
    if sender is not None:
        killer.start()
    began, error = time.monotonic(), None
    try:
        receiver.receive_weights(lambda weights, is_last: names.extend(name for name, _ in weights))
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    if sender is not None:
        killer.join()
    return {"error": error, "names": names, "seconds": time.monotonic() - began}


def _kill(process: Any, stands_still: Callable[[], bool]) -> None:
    while not stands_still():
        time.sleep(0.01)
    time.sleep(KILLED_S)  # the engine waits in vain, and longer than it takes to look
    os.kill(process.pid, signal.SIGKILL)


def _send(handle: str, count: int, pause_s: float) -> None:
    """`count` weights; with no pause between them, it stands still after the last."""
    import torch

    from dlrl_verl import weight_receiver

    weight_receiver.cpu.prepare()
    from dlrl_verl.weight_sync import WatchedSender

    def weights() -> Iterator[tuple[str, Any]]:
        for number in range(count):
            yield f"weight-{number}", torch.zeros(TENSOR_BYTES, dtype=torch.uint8)
            time.sleep(pause_s)
        if not pause_s:
            time.sleep(600)

    sender = WatchedSender(lambda: None, zmq_handle=handle, bucket_size_mb=1, use_shm=True)
    with weight_receiver.SenderSign(handle).shown():
        asyncio.run(sender.async_send_weights(weights()))


def _send_late(handle: str) -> None:
    time.sleep(2.0)
    _send(handle, 4, 0.1)


def _show_sign_only(handle: str) -> None:
    from dlrl_verl.weight_receiver import SenderSign

    with SenderSign(handle).shown():
        time.sleep(600)


def sent_to_engines_that_fail(address: str, folder: str) -> dict[bool, dict[str, Any]]:
    """Both in one process: to import verl takes long."""
    from dlrl_verl import cpu

    cpu.prepare()
    import ray

    ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        return {ends: sent_to_an_engine_that_fails(f"{folder}/{ends}.sock", ends) for ends in (False, True)}
    finally:
        ray.shutdown()


def sent_to_an_engine_that_fails(handle: str, ends: bool) -> dict[str, Any]:
    """What the policy does with all its weights, though the engine takes none; `ends`: the server dies of it, later."""
    import ray
    import torch

    from dlrl_verl.weight_sync import ServerHandle, WatchedSender

    class Server:
        async def ping(self) -> None: ...

        async def invoke_coroutine(self, method: str) -> None:
            if ends:
                threading.Timer(2.0, os._exit, (1,)).start()
            raise ValueError("the shapes differ")

    gathered, before = [], memory()

    def weights() -> Iterator[tuple[str, Any]]:
        for number in range(9):
            gathered.append(number)
            yield f"weight-{number}", torch.zeros(TENSOR_BYTES, dtype=torch.uint8)

    async def send(server: ServerHandle) -> str:
        answer = server.collective_rpc.remote()
        await WatchedSender(server.check, zmq_handle=handle, bucket_size_mb=1, use_shm=True).async_send_weights(
            weights()
        )
        try:
            return str(await answer)
        except ValueError as error:
            return str(error)

    server = ServerHandle(ray.remote(num_cpus=0)(Server).remote())
    error = asyncio.run(send(server))
    return {"gathered": len(gathered), "error": error, "is_gone": server.is_gone, "left": memory() - before}
