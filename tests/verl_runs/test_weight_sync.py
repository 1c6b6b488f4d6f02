"""Weights on their way from the policy to an engine, when the one or the other dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOON_S = 10.0
TENSOR_BYTES = 1 << 19  # of a bucket of 1 MB


@pytest.fixture
def handle(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s.sock"


@pytest.mark.parametrize("sent", [0, 5, 9])
def test_an_engine_does_not_wait_for_a_policy_that_was_killed(imported_process, handle, sent):
    told = imported_process(received_from_one_who_is_killed, handle, sent)

    assert told["error"] == "SenderGoneError: whoever sent weights to this engine is gone"
    assert told["seconds"] < SOON_S
    assert told["names"] == [f"weight-{number}" for number in range(max(0, (sent - 1) // 2 * 2))]


def test_an_engine_does_not_wait_for_a_policy_that_was_killed_before_it_had_a_socket(imported_process, handle):
    told = imported_process(received_from_nobody, handle)

    assert told["error"] == "SenderGoneError: whoever sent weights to this engine is gone"
    assert told["seconds"] < SOON_S


def test_an_engine_waits_for_a_policy_that_takes_its_time(imported_process, handle):
    told = imported_process(received_from_a_slow_one, handle)

    assert told["error"] is None
    assert told["names"] == [f"weight-{number}" for number in range(4)]


def test_a_policy_can_send_again_where_one_was_killed(imported_process, handle):
    imported_process(received_from_one_who_is_killed, handle, 5)
    told = imported_process(received_from_a_slow_one, handle)

    assert told["error"] is None
    assert len(told["names"]) == 4


# ---- in processes that have imported verl


def received_from_one_who_is_killed(handle: str, sent: int) -> dict[str, Any]:
    sender = _started(_send, handle, sent, 0.0)
    return _receive(handle, sender)


def received_from_nobody(handle: str) -> dict[str, Any]:
    return _receive(handle, _started(_show_sign_only, handle))


def received_from_a_slow_one(handle: str) -> dict[str, Any]:
    sender = _started(_send, handle, 4, 1.2)
    told = _receive(handle)
    sender.join()
    return told


def _started(work: Any, *args: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=work, args=args, daemon=True)
    process.start()
    time.sleep(0.5)
    return process


def _receive(handle: str, sender: Any = None) -> dict[str, Any]:
    """What the engine's end took; the sender, if told, is killed when it stands still."""
    from dlrl_verl import weight_receiver

    weight_receiver.prepare()
    import torch
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer

    names: list[str] = []
    receiver = transfer.BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
    killer = threading.Timer(3.0, os.kill, (sender.pid, signal.SIGKILL)) if sender else None
    if killer is not None:
        killer.start()
    began, error = time.monotonic(), None
    try:
        receiver.receive_weights(lambda weights, is_last: names.extend(name for name, _ in weights))
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    if killer is not None:
        killer.join()
    return {"error": error, "names": names, "seconds": time.monotonic() - began}


def _send(handle: str, count: int, pause_s: float) -> None:
    """`count` weights; with no pause between them, it stands still after the last."""
    import torch
    from dlrl_verl import weight_receiver

    weight_receiver.cpu.prepare()
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer

    def weights() -> Iterator[tuple[str, Any]]:
        for number in range(count):
            yield f"weight-{number}", torch.zeros(TENSOR_BYTES, dtype=torch.uint8)
            time.sleep(pause_s)
        if not pause_s:
            time.sleep(600)

    sender = transfer.BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True)
    with weight_receiver.SenderSign(handle).shown():
        asyncio.run(sender.async_send_weights(weights()))


def _show_sign_only(handle: str) -> None:
    from dlrl_verl.weight_receiver import SenderSign

    with SenderSign(handle).shown():
        time.sleep(600)
