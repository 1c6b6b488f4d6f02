"""`dlrl plan` tells how large a commit of a verl job is; tests/verl_runs compares with real engines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_configs import PUBLISHED, gigabytes, model_folder
from verl_sources import MODULE, SMALL, needs_verl

pytestmark = needs_verl

SCRIPT = """#!/bin/bash
python3 -m {module} --config-name={config} trainer.nnodes={nodes} trainer.n_gpus_per_node=8 \\
  actor_rollout_ref.model.path={model} critic.model.path={model} actor_rollout_ref.rollout.name=vllm \\
  {small} actor_rollout_ref.rollout.tensor_model_parallel_size=1 {words}
"""
ACTOR, CRITIC = "actor_rollout_ref.actor", "critic"
FSDP, MEGATRON = "ppo_trainer", "ppo_megatron_trainer"
TP2, TP4, TP8_PP2 = (
    " ".join(f"{section}.megatron.{word}" for section in (ACTOR, CRITIC) for word in words)
    for words in (
        ["tensor_model_parallel_size=2"],
        ["tensor_model_parallel_size=4"],
        ["tensor_model_parallel_size=8", "pipeline_model_parallel_size=2"],
    )
)


def planned(shell: Any, folder: Any, words: str, *, config: str, model: str, devices: int, is_json: bool = True) -> Any:
    script, path = folder / "train.sh", model_folder(folder / model, PUBLISHED[model])
    values = {"module": MODULE, "config": config, "nodes": devices // 8, "model": path, "words": words}
    script.write_text(SCRIPT.format(small=" ".join(SMALL[1:]), **values))
    ran = shell.run("plan", *(["--json"] if is_json else []), "--framework", "verl", "--", "bash", script)
    assert ran.code == 0, ran.err
    return json.loads(ran.out) if is_json else ran.out


@pytest.mark.parametrize(
    ("config", "model", "devices", "words", "actor", "critic"),
    [
        (FSDP, "7B", 8, "", (11.4, 91.4), (10.6, 84.8)),
        (FSDP, "32B", 32, "", (12.3, 98.3), (12.0, 96.0)),
        (FSDP, "70B", 64, f"{ACTOR}.strategy=fsdp2 critic.strategy=fsdp2", (13.2, 105.8), (13.0, 104.3)),
        (FSDP, "7B", 8, f"{ACTOR}.fsdp_config.model_dtype=bfloat16", (5.7, 45.7), (10.6, 84.8)),
        (FSDP, "7B", 64, f"{ACTOR}.fsdp_config.fsdp_size=8", (11.4, 91.4), (1.3, 10.6)),
        (FSDP, "7B", 64, f"{ACTOR}.fsdp_config.fsdp_size=4", (22.8, 91.4), (1.3, 10.6)),
        (FSDP, "70B", 64, "actor_rollout_ref.model.lora_rank=64", (0.2, 1.2), (13.0, 104.3)),
        (FSDP, "7B", 8, "critic.model.lora_rank=64", (11.4, 91.4), (3.8, 30.2)),
        (MEGATRON, "7B", 8, TP2, (19.0, 106.6), (17.7, 99.0)),
        (MEGATRON, "32B", 32, TP4, (28.7, 163.8), (28.0, 159.9)),
        (MEGATRON, "70B", 64, TP8_PP2, (22.1, 176.4), (22.1, 176.4)),
        (MEGATRON, "7B", 8, f"{TP2} {ACTOR}.megatron.use_distributed_optimizer=False", (53.3, 106.6), (17.7, 99.0)),
    ],
)
def test_a_commit_of_actor_and_critic_has_so_many_gigabytes_a_rank_and_a_node(
    config, model, devices, words, actor, critic, shell, tmp_path
):
    plan = planned(shell, tmp_path, words, config=config, model=model, devices=devices)

    assert len(plan["state"]) == devices // 8
    assert (gigabytes(plan, "actor"), gigabytes(plan, "critic")) == (actor, critic)


def test_a_critic_has_more_on_the_first_stage_than_on_the_last(shell, tmp_path):
    """The embedding is there; of the policy, the head on the last stage is as large."""
    plan = planned(shell, tmp_path, TP8_PP2, config=MEGATRON, model="70B", devices=64)
    nodes = [{role: round(size / 1e9) for role, size in node["node_bytes"].items()} for node in plan["state"]]

    assert nodes == [{"actor": 176, "critic": 176}] * 4 + [{"actor": 176, "critic": 171}] * 4


def test_the_plan_says_where_its_figures_come_from_and_what_it_assumes(shell, tmp_path):
    shown = planned(shell, tmp_path, TP2, config=MEGATRON, model="7B", devices=8, is_json=False)

    assert "  actor   19 GB    107 GB  7.62 billion parameters; Megatron tp 2, pp 1: weights 2 B a parameter" in shown
    assert "for 2 versions; the copy of a commit takes about 9.5 s, if each rank copies 2 GB/s" in shown


@pytest.mark.parametrize(
    ("config", "words", "reason"),
    [
        (FSDP, f"{ACTOR}.optim.optimizer=SGD", "how large the state of optimizer 'SGD' is, is not known"),
        (MEGATRON, "actor_rollout_ref.model.lora.rank=8", "how Megatron divides a LoRA adapter is not known"),
        (MEGATRON, f"{ACTOR}.megatron.pipeline_model_parallel_size=8", "divides 28 layers over 8 stages is not known"),
    ],
)
def test_what_can_not_be_counted_is_not_known_and_the_plan_says_why(config, words, reason, shell, tmp_path):
    shown = planned(shell, tmp_path, words, config=config, model="7B", devices=8, is_json=False)

    assert "  actor   not known" in shown and reason in shown
