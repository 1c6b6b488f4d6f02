"""`dlrl plan` tells how large a commit of an OpenRLHF job is; tests/openrlhf_runs compares with real engines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_configs import PUBLISHED, gigabytes, model_folder
from openrlhf_sources import MODULE

SCRIPT = """#!/bin/bash
MODEL={model}
python3 -m {module} --actor.model_name_or_path $MODEL --critic.model_name_or_path $MODEL \\
   --reward.remote_url http://judge/get_reward --algo.kl.init_coef 0 --data.prompt_dataset prompts \\
   --actor.num_nodes {nodes} --actor.num_gpus_per_node 8 --critic.num_nodes {nodes} --critic.num_gpus_per_node 8 \\
   --vllm.num_engines {nodes} --vllm.tensor_parallel_size 8 --train.colocate_all {words}
"""


def planned(shell: Any, folder: Any, words: str, *, model: str, devices: int, is_json: bool = True) -> Any:
    script = folder / "train.sh"
    path = model_folder(folder / model, PUBLISHED[model])
    script.write_text(SCRIPT.format(model=path, module=MODULE, nodes=devices // 8, words=words))
    ran = shell.run("plan", *(["--json"] if is_json else []), "--framework", "openrlhf", "--", "bash", script)
    assert ran.code == 0, ran.err
    return json.loads(ran.out) if is_json else ran.out


@pytest.mark.parametrize(
    ("model", "devices", "words", "actor", "critic"),
    [
        ("7B", 8, "--ds.zero_stage 3", (11.4, 91.4), (10.6, 84.8)),
        ("7B", 8, "--ds.zero_stage 2", (26.7, 106.6), (24.7, 99.0)),
        ("7B", 64, "--ds.zero_stage 2", (16.7, 26.7), (15.5, 24.7)),
        ("32B", 32, "--ds.zero_stage 3", (12.3, 98.3), (12.0, 96.0)),
        ("70B", 64, "--ds.zero_stage 3", (13.2, 105.8), (13.0, 104.3)),
        ("70B", 64, "--ds.zero_stage 3 --ds.adam_offload", (13.2, 105.8), (13.0, 104.3)),
        ("7B", 8, "--ds.zero_stage 0", (106.6, 746.3), (99.0, 692.9)),
        ("7B", 8, "--ds.zero_stage 3 --train.enable_ema", (13.3, 106.6), (10.6, 84.8)),
        ("7B", 8, "--ds.zero_stage 2 --train.enable_ema", (41.9, 121.8), (24.7, 99.0)),
        ("7B", 8, "--ds.zero_stage 2 --ds.tensor_parallel_size 2", (19.0, 152.3), (17.7, 141.4)),
        ("7B", 8, "--ds.zero_stage 3 --actor.optim muon", (6.5, 52.2), (10.6, 84.8)),
        ("70B", 64, "--ds.zero_stage 2 --ds.lora.rank 64", (1.8, 2.9), (1.8, 2.9)),
    ],
)
def test_a_commit_of_actor_and_critic_has_so_many_gigabytes_a_rank_and_a_node(
    model, devices, words, actor, critic, shell, tmp_path
):
    plan = planned(shell, tmp_path, words, model=model, devices=devices)

    assert len(plan["state"]) == devices // 8
    assert (gigabytes(plan, "actor"), gigabytes(plan, "critic")) == (actor, critic)
    for node in plan["state"]:
        assert node["bytes_of_2_versions"] == 2 * node["bytes"] == 2 * sum(node["node_bytes"].values())
        assert node["copy_s"] == max(node["rank_bytes"].values()) / 2e9


def test_the_plan_says_where_its_figures_come_from_and_what_it_assumes(shell, tmp_path):
    shown = planned(shell, tmp_path, "--ds.zero_stage 2", model="7B", devices=8, is_json=False)

    assert (
        "  actor   26.7 GB  107 GB  7.62 billion parameters trained; ZeRO-2, Adam: 12 B a parameter over 8 ranks; "
        in shown
    )
    assert "a node needs up to 411 GB of memory for 2 versions; the copy of a commit takes about 13 s, " in shown
    assert "if each rank copies 2 GB/s" in shown


def test_a_model_that_is_not_here_has_no_size_and_the_plan_says_what_to_do(shell):
    words = "--actor.model_name_or_path org/not-here --algo.advantage.estimator reinforce --algo.kl.init_coef 0"
    more = "--reward.remote_url f.py --data.prompt_dataset x --vllm.num_engines 1"
    ran = shell.run("plan", "--framework", "openrlhf", "--", *words.split(), *more.split())

    assert ran.code == 0
    assert (
        "actor  not known  not known  'org/not-here' is no folder with a config.json here, nor in the cache of the hub"
        in ran.out
    )
    assert "where it is not known, say it for the role: state_size, in bytes a rank" in ran.out
    assert "versions" not in ran.out
