"""What a commit holds of a rank, with real DeepSpeed in one and two processes: all that the rank needs, and no more."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from model_configs import SCALED_DOWN, model_folder, planned_bytes

from dlrl_core import RLJobBuilder, RoleType

RANK = Path(__file__).parent / "deepspeed_rank.py"
LIMIT_S = 300.0


def run_ranks(case: str, folder: Path, part: str, *, ranks: int) -> list[tuple[int, str, str]]:
    """How each rank ended, what it printed, and its errors."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(RANK), case, str(folder), part],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [rank.communicate(timeout=LIMIT_S) for rank in started]
    finally:
        for rank in started:
            rank.kill()
    return [(rank.returncode, out, error) for rank, (out, error) in zip(started, printed, strict=True)]


def seen_by_ranks(case: str, folder: Path, part: str, *, ranks: int) -> list[dict[str, Any]]:
    ended = run_ranks(case, folder, part, ranks=ranks)
    assert [code for code, _, _ in ended] == [0] * ranks, "\n".join(error[-3000:] for _, _, error in ended)
    return [json.loads(out.splitlines()[-1]) for _, out, _ in ended]


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What the ranks of a case saw, where their commits are, and the model whose commit they measured."""

    seen: list[dict[str, Any]]
    folder: Path
    model: str


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    """The part `whole` of a case, run once."""

    @functools.cache
    def run(case: str, ranks: int) -> Whole:
        folder = tmp_path_factory.mktemp(case)
        model = model_folder(folder / "model", SCALED_DOWN)
        return Whole(seen=seen_by_ranks(case, folder, "whole", ranks=ranks), folder=folder, model=model)

    return run


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("zero2", 1),
        ("zero3", 2),
        *(
            pytest.param(case, 2, marks=pytest.mark.long)
            for case in ("zero0", "zero1", "zero2", "fp32_gradients1", "muon2")
        ),
        pytest.param("zero3", 1, marks=pytest.mark.long),
    ],
)
def test_each_rank_goes_back_to_what_it_captured_and_trains_on_the_same(case, ranks, whole):
    first = whole(case, ranks)
    resumed = seen_by_ranks(case, first.folder, "resumed", ranks=ranks)

    for seen, new in zip(first.seen, resumed, strict=True):
        assert seen["changed"], "training went on after the capture"
        assert seen["is_by_reference"], "a change before the copy is in the copy"
        assert seen["capture_wrote"] == seen["restore_wrote"] == [], "nothing was written, nothing unpickled"
        assert seen["restored"], "in the process that captured"
        assert seen["again"] == seen["undisturbed"], "losses and all tensors"
        assert new["resumed"] == seen["undisturbed"], "in a new process"
        assert seen["leaves_the_commit_alone"]
        assert seen["parameters"] == ["1.bias", "1.weight", "2.bias", "2.weight"], "no frozen parameters"
        assert not seen["holds_offload_buffers"], "the same bytes again, or old ones"
        assert seen["sleeps"] == (case == "zero2"), "the optimizer's state is where it was when the step began"


def test_what_ranks_hold_alike_has_the_same_name_and_bytes_on_all(whole):
    first, second = whole("zero2", 2).seen

    assert first["alike"] == second["alike"]
    frozen, trained, average = 0, 2 * (8 * 8 + 8), 3 * (8 * 8 + 8)
    assert first["alike_bytes"] == 2 * (frozen + trained + average), "all weights, in two bytes each"


PLANNED_AS = {
    "zero2": "",
    "zero3": "",
    "zero0": "",
    "zero1": "",
    "muon2": "--actor.optim muon",
    "lora2": "--ds.lora.rank 64",
    "lora3": "--ds.lora.rank 64",
    "ema2": "--train.enable_ema",
    "ema3": "--train.enable_ema",
}
"""Cases, and their flags besides the stage of ZeRO, which is the last digit."""


@pytest.mark.parametrize(
    "case", [case if case in ("zero2", "zero3") else pytest.param(case, marks=pytest.mark.long) for case in PLANNED_AS]
)
def test_a_commit_has_as_many_bytes_as_the_plan_says(case, whole):
    ran = whole(case, 2)
    words = f"--actor.num_gpus_per_node 2 --vllm.num_engines 1 --data.prompt_dataset prompts {PLANNED_AS[case]}"
    more = "--algo.advantage.estimator reinforce --algo.kl.init_coef 0 --reward.remote_url f.py"
    model = f"--actor.model_name_or_path {ran.model} --ds.zero_stage {case[-1]}"
    spec = RLJobBuilder().framework("openrlhf").config(f"{words} {more} {model}").build().spec

    sizes = [seen["sizes"] for seen in ran.seen]
    of_ranks, of_node = planned_bytes(spec, RoleType.ACTOR)
    assert [one["own"] + one["alike"] for one in sizes] == pytest.approx(of_ranks, rel=0.05)
    assert sum(one["own"] for one in sizes) + sizes[0]["alike"] == pytest.approx(of_node, rel=0.05)


def test_an_optimizer_whose_state_is_not_known_is_refused_by_name(tmp_path):
    ((code, _, error),) = run_ranks("sgd2", tmp_path, "whole", ranks=1)

    assert code != 0
    assert "DlrlError: a commit can't hold the state of optimizer 'torch.optim.sgd.SGD'" in error
