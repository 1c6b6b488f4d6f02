"""Real verl, on FSDP and on Megatron, with vLLM: every process of a job is killed, and no committed step is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework_run import Watched, survive
from verl_job import FSDP, MEGATRON, overrides, start

from dlrl_verl.weight_receiver import SenderSign

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples" / "verl_ppo"
STEPS = 16
REWARD_MODEL = """
algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False
reward.custom_reward_function.path=null reward.reward_model.enable=True
reward.reward_model.rollout.name=vllm reward.reward_model.rollout.tensor_model_parallel_size=1
reward.reward_model.rollout.dtype=float32 reward.reward_model.rollout.max_model_len=128
reward.reward_model.rollout.max_num_seqs=16 reward.reward_model.rollout.max_num_batched_tokens=256
"""


def test_ppo_on_fsdp(ray_4_gpus, tiny_assets, tmp_path):
    words = overrides(FSDP, tiny_assets, tmp_path, trainer__total_training_steps=20, trainer__total_epochs=3)
    deaths = {
        "actor-1": {"actor-0", "actor-1"},
        "rollout-1": {"rollout-1"},
        "critic-0": {"critic-0", "critic-1"},
        "reward-0": {"reward-0"},
        "trainer": set(),
    }

    assert survive(start("fsdp", words), deaths, seed=5)["steps"] == 20


def test_the_example_of_megatron_with_data_parallel_2(ray_4_gpus, tiny_assets, tmp_path, monkeypatch):
    single = [
        f"{part}.megatron.tensor_model_parallel_size=1"
        for part in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic")
    ]
    watched = start_example("train_megatron.sh", tiny_assets, tmp_path, monkeypatch, *single)
    deaths = {"rollout-0": {"rollout-0"}, "critic-1": {"critic-0", "critic-1"}, "actor-0": {"actor-0", "actor-1"}}

    assert survive(watched, deaths, seed=6)["steps"] == STEPS
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == str(STEPS)


def test_the_policy_dies_while_it_sends_weights(ray_4_gpus, tiny_assets, tmp_path):
    words = overrides(MEGATRON, tiny_assets, tmp_path, trainer__total_training_steps=10, trainer__total_epochs=2)
    watched = start("sending", words)
    expected = {"actor-0": 0, "actor-1": 0, "critic-0": 0, "critic-1": 0, "reward-0": 0, "rollout-0": 0, "rollout-1": 0}

    for who in ("actor-0", "actor-1"):
        watched.wait_for_step(watched.look() + 2)
        kill_while_sending(watched, who)
        expected.update({name: expected[name] + 1 for name in ("actor-0", "actor-1")})
        watched.wait_for_restarts(expected, f"after the death of {who}")
        watched.wait_for_step(watched.look() + 1)

    assert watched.handle.wait(timeout=600).value["steps"] == 10
    assert watched.restarts() == expected, "servers were not restarted: they went on without the rest of the weights"


def kill_while_sending(job: Watched, who: str) -> None:
    """SIGKILL it while it sends weights."""
    view = job.handle.status().view
    pid = next(one["pid"] for one in view["workloads"] if one["name"] == who)
    rank = who.removeprefix("actor-")
    sign = SenderSign(f"ipc://@rl-colocate-zmq-{view['run_id']}-replica-{rank}-rank-0.sock")
    deadline = time.monotonic() + 120
    while not sign.is_shown():
        assert time.monotonic() < deadline, f"{who} sent no weights"
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)


def test_a_reward_model_on_the_devices_of_the_policy(ray_4_gpus, tiny_assets, tmp_path):
    words = overrides(
        FSDP, tiny_assets, tmp_path, *REWARD_MODEL.split(), trainer__total_training_steps=STEPS, trainer__total_epochs=3
    )
    watched = start("scored", words)

    result = survive(watched, {"reward-1": {"reward-1"}, "reward-0": {"reward-0"}}, seed=8)

    assert len({round(one["reward"], 6) for one in result["history"]}) > 1, "answers are scored one by one"


def test_the_example_of_grpo_on_fsdp(ray_4_gpus, tiny_assets, tmp_path, monkeypatch):
    watched = start_example("train_fsdp_grpo.sh", tiny_assets, tmp_path, monkeypatch)
    deaths = {"rollout-0": {"rollout-0"}, "actor-0": {"actor-0", "actor-1"}, "reward-0": {"reward-0"}}

    assert survive(watched, deaths, seed=7)["steps"] == STEPS
    assert {one["name"].split("-")[0] for one in watched.handle.status().workloads} == {"actor", "rollout", "reward"}
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == str(STEPS)


def start_example(script: str, assets: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Watched:
    """Run a launch script of the examples, as it is, but longer."""
    monkeypatch.setenv("ASSETS", str(assets))
    monkeypatch.setenv("OUT", str(out))
    monkeypatch.chdir(EXAMPLES.parents[1])
    longer = (f"trainer.total_training_steps={STEPS}", "trainer.total_epochs=3")
    return start("example", ["bash", str(EXAMPLES / script), *longer, *overrides])
