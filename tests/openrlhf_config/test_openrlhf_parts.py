"""Small parts of the adapter, each by itself: neither OpenRLHF nor torch is needed."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from dlrl_core.errors import SpecError
from dlrl_openrlhf import cpu
from dlrl_openrlhf.engine_sleep import EngineSleep
from dlrl_openrlhf.logs import close_logs, keep_one_log
from dlrl_openrlhf.seats import Seat, devices_of
from dlrl_openrlhf.step_count import most_steps
from dlrl_openrlhf.weight_group import end_group


def flags() -> SimpleNamespace:
    return SimpleNamespace(
        ds=SimpleNamespace(attn_implementation="flash_attention_2", load_in_4bit=False, use_liger_kernel=False),
        vllm=SimpleNamespace(enable_sleep=True, sync_backend="nccl"),
        logger=SimpleNamespace(wandb=SimpleNamespace(run_name="ppo_0102T03:04")),
    )


def test_flags_are_changed_only_where_models_have_no_gpu(caplog):
    kept = cpu.without_cuda(flags(), lacks_gpu=False)
    assert (kept, caplog.messages) == (flags(), [])

    changed = cpu.without_cuda(flags(), lacks_gpu=True)
    assert (changed.ds.attn_implementation, changed.vllm.sync_backend, changed.vllm.enable_sleep) == (
        "eager",
        "gloo",
        False,
    )
    assert caplog.messages == [
        "the processes have no GPU: '--ds.attn_implementation' is 'eager', not 'flash_attention_2'",
        "the processes have no GPU: '--vllm.enable_sleep' is False, not True",
        "the processes have no GPU: '--vllm.sync_backend' is 'gloo', not 'nccl'",
    ]


class EngineStandIn:
    """Sleeps and wakes up as vLLM's executor does."""

    def __init__(self) -> None:
        self.asleep: set[str] = set()

    def sleep(self) -> None:
        if not self.asleep:
            self.asleep = {"weights", "kv_cache"}

    def wake_up(self, tags: Any = None) -> None:
        self.asleep -= set(tags or ("weights", "kv_cache"))


def on_all(engines: list[EngineStandIn], method: str, **kwargs: Any) -> None:
    for engine in engines:
        getattr(engine, method)(**kwargs)


@pytest.mark.parametrize(
    ("calls", "asleep"),
    [
        ([("sleep", {})], {"weights", "kv_cache"}),
        ([("sleep", {}), ("wake_up", {"tags": ["weights"]})], {"kv_cache"}),
        ([("sleep", {}), ("wake_up", {})], set()),
        ([("sleep", {}), ("wake_up", {}), ("sleep", {})], {"weights", "kv_cache"}),
    ],
    ids=["models work", "weights are given", "it generates", "it has generated"],
)
def test_engines_are_awake_for_weights_and_then_as_openrlhf_has_them(calls, asleep):
    old, new = EngineStandIn(), EngineStandIn()
    sleep = EngineSleep([old, new], on_all)
    for method, kwargs in calls:
        sleep.call([old], method, **kwargs)
    new.sleep()  # it took another's place, and has seen the calls of `init` alone

    with sleep.weights_awake():
        assert "weights" not in old.asleep | new.asleep
    assert old.asleep == new.asleep == asleep


def test_an_engine_has_the_devices_of_all_its_workloads():
    assert devices_of([Seat("rollout-0", "a", ("6",)), Seat("rollout-1", "a", ("3",))], 2) == ["6", "3"]
    assert devices_of([Seat("rollout-0", "a", ("4", "5"))], 2) == ["4", "5"]


@pytest.mark.parametrize(
    ("seats", "problem"),
    [
        ([Seat("rollout-0", "a", ("7",)), Seat("rollout-1", "b", ("0",))], "on one node: 'rollout-0' on node a, 'ro"),
        ([Seat("rollout-0", "a", ("7",))], r"needs 2 devices .*, 'rollout-0' have \['7'\]"),
    ],
)
def test_an_engine_that_can_not_have_its_devices_is_refused(seats, problem):
    with pytest.raises(SpecError, match=problem):
        devices_of(seats, 2)


@pytest.mark.parametrize(
    ("prompts", "batch", "at_once", "episodes", "steps"),
    [(64, 8, None, 3, 24), (65, 8, 8, 1, 9), (7, 8, None, 2, 2), (8, 3, 4, 1, 3), (64, 8, 4, 1, 16)],
)
def test_a_step_is_a_batch_of_prompts(prompts, batch, at_once, episodes, steps):
    args = SimpleNamespace(
        rollout=SimpleNamespace(batch_size=batch, vllm_generate_batch_size=at_once),
        train=SimpleNamespace(num_episodes=episodes),
    )

    assert most_steps(args, prompts=prompts) == steps


def test_a_run_keeps_one_name_and_one_id(monkeypatch):
    monkeypatch.setattr(os, "environ", {"WANDB_RESUME": "must"})
    own, given = flags(), flags()
    keep_one_log(own, job="my-ppo", run_id="0123456789ab", is_named=False)
    keep_one_log(given, job="my-ppo", run_id="0123456789ab", is_named=True)

    assert (own.logger.wandb.run_name, given.logger.wandb.run_name) == ("my-ppo_01234567", "ppo_0102T03:04")
    assert os.environ == {"WANDB_RUN_ID": "0123456789ab", "WANDB_RESUME": "must"}


def test_logs_and_groups_that_are_there_are_closed():
    closed: list[str] = []
    close_logs(
        SimpleNamespace(wandb_logger=None, tensorboard_logger=SimpleNamespace(close=lambda: closed.append("log")))
    )
    for group in (None, object(), SimpleNamespace(destroy=lambda: closed.append("group"))):
        end_group(group)

    assert closed == ["log", "group"]
