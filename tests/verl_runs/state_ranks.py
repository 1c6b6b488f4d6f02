"""Ranks of verl's actor, each in a process of its own, that capture and restore their state, without Ray."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from one_rank import batch, compose_actor

from dlrl_verl import cpu

ACTOR = "actor_rollout_ref.actor"
DEVICE = "cpu:0"
"""The device of engines that offload to 'cpu': torch copies tensors on the way there, as it does for a GPU."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How an actor is spread over ranks, and where it keeps its state."""

    engine: str
    ranks: int = 1
    overrides: tuple[str, ...] = ()
    data_parallel: int = 1
    is_fsdp_1: bool = False
    is_hybrid: bool = False
    """Megatron's optimizer that keeps some of its weights on the host."""
    can_export: bool = True
    """Whether verl can give the weights to its rollouts, and save them."""

    def __str__(self) -> str:
        told = [one.rpartition(".")[2] for one in self.overrides]
        kind = "fsdp1" if self.is_fsdp_1 else "hybrid" if self.is_hybrid else self.engine
        return "-".join([kind, f"{self.ranks}_ranks", *told])


@dataclass(kw_only=True)
class Taken:
    """What one rank had and did: at a commit, and in the steps after it."""

    layout: str = ""
    buffers: dict[str, bytes] = field(default_factory=dict)
    alike: dict[str, str] = field(default_factory=dict)
    at_commit: dict[str, str] = field(default_factory=dict)
    after: list[Any] = field(default_factory=list)
    again: list[Any] = field(default_factory=list)
    """The same steps after a restore in the same process."""
    at_restore: dict[str, str] = field(default_factory=dict)
    moves: list[str] = field(default_factory=list)
    """What verl was asked to move while state was captured or restored."""
    is_by_reference: bool = False
    while_read: set[str] = field(default_factory=set)
    """Copies of the buffers, taken while calls that read state were running, by their digest."""


class _DeviceId(str):
    """'cpu:0' where a device is meant, '0' within 'cpu:{...}'."""

    def __format__(self, spec: str) -> str:
        return "0"


# ---- processes


def import_engines() -> None:
    """In the process that all ranks are forked from."""
    cpu.prepare()
    for name in ("mbridge", "megatron.core.optimizer.distrib_optimizer", "verl.workers.engine_workers"):
        importlib.import_module(name)
    from verl.utils import fsdp_utils, megatron_utils
    from verl.workers.engine import base
    from verl.workers.engine.fsdp import transformer_impl as fsdp
    from verl.workers.engine.megatron import transformer_impl as megatron_engine

    for module in (base, fsdp, megatron_engine):
        module.get_device_name = lambda: DEVICE
    for module in (fsdp_utils, megatron_utils):
        module.get_device_id = lambda: _DeviceId(DEVICE)


def run_ranks(layout: Layout, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What `work` returns on each rank. Every rank is a new process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe(duplex=False) for _ in range(layout.ranks)]
    ranks = [
        fork.Process(target=_one_rank, args=(rank, port, pipes[rank][1], layout, work, *args))
        for rank in range(layout.ranks)
    ]
    for one in ranks:
        one.start()
    for _, sender in pipes:
        sender.close()
    answers = [receiver.recv() for receiver, _ in pipes]
    for one in ranks:
        one.join()
    errors = [text for is_error, text in answers if is_error]
    if errors:
        raise AssertionError("\n".join(errors))
    return [answer for _, answer in answers]


def _one_rank(rank: int, port: str, pipe: Any, layout: Layout, work: Callable[..., Any], *args: Any) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(layout.ranks), LOCAL_RANK="0", WG_BACKEND="ray")
    os.environ.update(RAY_LOCAL_WORLD_SIZE=str(layout.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    try:
        pipe.send((False, work(layout, rank, *args)))
    except BaseException:
        pipe.send((True, f"rank {rank}: {traceback.format_exc()}"))
    pipe.close()
    os._exit(0)  # gloo's threads of other ranks may be gone


# ---- an actor


def make_actor(layout: Layout, assets: Path) -> Any:
    from verl.workers.engine_workers import ActorRolloutRefWorker

    warmup = (f"{ACTOR}.optim.lr_warmup_steps=6",)
    config = compose_actor(layout.engine, assets, *warmup, *layout.overrides)
    if layout.is_fsdp_1:
        config.actor.strategy = "fsdp"
        _fsdp_1_without_a_device()
    if layout.is_hybrid:
        _some_weights_on_the_host()
    actor = ActorRolloutRefWorker(config=config, role="actor")
    actor.init_model()
    return actor


def _fsdp_1_without_a_device() -> None:
    """FSDP 1 broadcasts weights of rank 0 by a device's own backend only. Here all ranks load the same ones."""
    import torch
    from verl.workers.engine.fsdp import transformer_impl

    class Fsdp1OnCpu(transformer_impl.FSDP):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "sync_module_states": False, "device_id": torch.device("cpu")})

    transformer_impl.FSDP = Fsdp1OnCpu
    transformer_impl.get_init_weight_context_manager = lambda **_: contextlib.nullcontext


def _some_weights_on_the_host() -> None:
    """The hybrid optimizer copies weights to the host if they are on a device: here, all that it is given."""
    import torch
    from megatron.core.optimizer.cpu_offloading.hybrid_optimizer import HybridDeviceOptimizer

    stock = HybridDeviceOptimizer._get_sub_optimizer_param_groups
    on_host: dict[int, Any] = {}

    def kept(tensor: Any) -> Any:
        on_host[tensor.data_ptr()] = tensor
        return tensor

    def where_it_was(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda tensor: make(tensor) if tensor.is_cuda else kept(make(tensor))

    as_on_a_device = {
        "is_cuda": property(lambda tensor: tensor.data_ptr() not in on_host),
        "cpu": lambda tensor: kept(tensor.clone()),
        "clone": where_it_was(torch.Tensor.clone),
        "float": where_it_was(torch.Tensor.float),
        "pin_memory": lambda tensor: tensor,
    }

    def param_groups(self: Any, fraction: float) -> Any:
        with mock.patch.multiple(torch.Tensor, **as_on_a_device):
            found = stock(self, fraction)
        assert found[0] and found[1], "all are on one side"
        return found

    HybridDeviceOptimizer._get_sub_optimizer_param_groups = param_groups
    torch.cpu.Stream.record_event = lambda *_: mock.Mock()  # type: ignore[method-assign]  # it waits for nothing


def steps(actor: Any, layout: Layout, rank: int) -> list[Any]:
    """Two updates with what is drawn at random in between, and the state that they lead to."""
    done: list[Any] = []
    for _ in range(2):
        done += [update(actor, layout, rank), log_probs(actor, layout, rank), draws()]
    return [*done, fingerprint(actor.actor.engine)]


def update(actor: Any, layout: Layout, rank: int) -> Any:
    from verl.utils import tensordict_utils

    output = actor.update_actor(batch(*_rows(layout, rank)))
    if output is None:
        return None
    metrics = tensordict_utils.get(output, "metrics")
    return {name: metrics[name] for name in ("loss", "grad_norm", "lr") if name in metrics}


def log_probs(actor: Any, layout: Layout, rank: int) -> Any:
    from verl.utils import tensordict_utils

    data = batch(*_rows(layout, rank))
    tensordict_utils.assign_non_tensor(data, compute_loss=False)
    output = actor.compute_log_prob(data)
    return None if output is None else [one.tolist() for one in output["log_probs"].unbind()]


def draws() -> list[float]:
    import numpy as np
    import torch

    return [torch.rand(1).item(), random.random(), float(np.random.rand())]


def _rows(layout: Layout, rank: int) -> tuple[int, int]:
    """The samples of this rank's data-parallel group: ranks of one model are next to each other."""
    each = 4 // layout.data_parallel
    group = rank * layout.data_parallel // layout.ranks
    return group * each, (group + 1) * each


def fingerprint(engine: Any) -> dict[str, str]:
    """Digests of all that training goes on from, read while it is loaded, by the frameworks' own names."""
    import torch

    moved = {"model": engine._is_offload_param, "optimizer": engine._is_offload_optimizer, "grad": False}
    if any(moved.values()):
        engine.to(device=DEVICE, **moved)
    found = {name: _digest(tensor) for name, tensor in _tensors(engine)}
    if any(moved.values()):
        engine.to(device="cpu", **moved)
    found["random"] = hashlib.sha1(repr((random.getstate(), torch.get_rng_state().tolist())).encode()).hexdigest()
    found["groups"] = repr([{k: v for k, v in g.items() if k != "params"} for g in engine.optimizer.param_groups])
    found["schedule"] = repr(engine.lr_scheduler.state_dict())
    return found


def _tensors(engine: Any) -> Iterator[tuple[str, Any]]:
    chunks = engine.module if isinstance(engine.module, list) else [engine.module]
    for number, chunk in enumerate(chunks):
        for name, tensor in [*chunk.named_parameters(), *chunk.named_buffers()]:
            yield f"{number}.{name}", tensor
    chained = getattr(engine.optimizer, "chained_optimizers", [engine.optimizer])
    for number, one in enumerate(chained):
        whole = getattr(one, "optimizer", one)
        for index, inner in enumerate([whole, *getattr(whole, "sub_optimizers", [])]):
            for place, param in enumerate(p for group in inner.param_groups for p in group["params"]):
                yield f"optimizer {number} {index} {place}", param
                for key, value in inner.state.get(param, {}).items():
                    yield f"optimizer {number} {index} {place} {key}", value


def _local(tensor: Any) -> Any:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def _digest(tensor: Any) -> str:
    import torch

    flat = _local(tensor).clone().view(-1)  # memory that numpy has seen can't be resized
    return hashlib.sha1(flat.view(torch.uint8).numpy().tobytes()).hexdigest() if flat.numel() else "empty"


# ---- what a commit does


def copied(captured: Any) -> dict[str, bytes]:
    """As the host does it: each buffer to memory of its own."""
    copies = {}
    for name, buffer in captured.buffers.items():
        memory = bytearray(buffer.size)
        buffer.copy_to(memoryview(memory))
        copies[name] = bytes(memory)
    return copies


def saved(layout: str, buffers: dict[str, bytes]) -> Any:
    from dlrl_core.workload.captured_state import SavedState

    return SavedState(
        layout=json.loads(layout), buffers={name: memoryview(bytearray(one)) for name, one in buffers.items()}
    )


def digest(buffers: dict[str, bytes]) -> str:
    return hashlib.sha1(b"".join(buffers[name] for name in sorted(buffers))).hexdigest()


def commit_and_go_on(layout: Layout, rank: int, assets: Path, out: Path) -> Taken:
    """Train, capture, read, go on; then go back in the same process, and go on once more."""
    from dlrl_verl import engine_state

    actor = make_actor(layout, assets)
    engine = actor.actor.engine
    update(actor, layout, rank)
    log_probs(actor, layout, rank)  # after it, FSDP has some weights whole
    draws()
    taken = Taken(at_commit=fingerprint(engine))
    with moves_noted(engine, taken.moves):
        captured = engine_state.capture(engine)
    taken.layout, taken.alike = json.dumps(captured.layout, allow_nan=False), dict(captured.alike)
    taken.is_by_reference = _is_by_reference(engine, captured)
    taken.buffers = copied(captured)
    taken.while_read = _copies_while_read(actor, layout, rank, captured, out)
    taken.while_read.add(digest(taken.buffers))
    taken.after = steps(actor, layout, rank)
    with moves_noted(engine, taken.moves):
        engine_state.restore(engine, saved(taken.layout, taken.buffers))
    taken.at_restore = fingerprint(engine)
    taken.again = steps(actor, layout, rank)
    return taken


def _is_by_reference(engine: Any, captured: Any) -> bool:
    """Whether all but small buffers are memory of the engine's own."""
    own = [_local(tensor) for _, tensor in _tensors(engine)]
    own += [one.cpu_data for one in _flat_weights(engine) if hasattr(one, "cpu_data")]
    ranges = [(one.untyped_storage().data_ptr(), one.untyped_storage().nbytes()) for one in own]
    large = [buffer.address for buffer in captured.buffers.values() if buffer.size > 6000]
    return bool(large) and all(any(start <= one < start + size for start, size in ranges) for one in large)


def _flat_weights(engine: Any) -> list[Any]:
    chunks = engine.module if isinstance(engine.module, list) else []
    return [buffer.param_data for chunk in chunks for buffer in chunk.buffers if buffer.param_data is not None]


def _copies_while_read(actor: Any, layout: Layout, rank: int, captured: Any, out: Path) -> set[str]:
    found: set[str] = set()
    is_over = threading.Event()

    def copy() -> None:
        while not is_over.is_set():
            found.add(digest(copied(captured)))

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        log_probs(actor, layout, rank)
        if layout.can_export:
            weights, _ = actor.actor.engine.get_per_tensor_param()  # what update_weights sends
            for _ in weights:
                pass
            if actor.actor.engine.is_param_offload_enabled:
                actor.actor.engine.to("cpu", model=True, optimizer=False, grad=False)
            actor.save_checkpoint(str(out), None, 1)
    finally:
        is_over.set()
        thread.join()
    found.add(digest(copied(captured)))
    return found


def go_on_from(layout: Layout, rank: int, assets: Path, taken: list[Taken]) -> tuple[dict[str, str], list[Any]]:
    """A new process: the state of the commit, and the steps after it."""
    from dlrl_verl import engine_state

    actor = make_actor(layout, assets)
    engine_state.restore(actor.actor.engine, saved(taken[rank].layout, taken[rank].buffers))
    return fingerprint(actor.actor.engine), steps(actor, layout, rank)


@contextlib.contextmanager
def moves_noted(engine: Any, moves: list[str]) -> Iterator[None]:
    """Within it, each call of the engine's `to` is noted."""
    stock = engine.to
    engine.to = lambda *args, **kwargs: (moves.append(f"{args}{kwargs}"), stock(*args, **kwargs))
    try:
        yield
    finally:
        del engine.to
