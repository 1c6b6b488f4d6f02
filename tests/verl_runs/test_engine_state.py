"""The state of verl's real engines, captured by reference and restored: training goes on as if nothing had happened."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import state_ranks
import torch
from model_configs import SCALED_DOWN, planned_bytes
from state_ranks import ACTOR, Layout, Taken

from dlrl_core import RLJobBuilder, RoleType
from dlrl_core.errors import DlrlError
from dlrl_verl import engine_state

MEGATRON = f"{ACTOR}.megatron"
OFFLOADED = ("param_offload=True", "optimizer_offload=True")
FSDP_OFFLOADED = tuple(f"{ACTOR}.fsdp_config.{one}" for one in OFFLOADED)
MEGATRON_OFFLOADED = tuple(f"{MEGATRON}.{one}" for one in OFFLOADED)
FULL_OPTIMIZER = (f"{MEGATRON}.use_distributed_optimizer=False",)
HYBRID = tuple(
    f"+{ACTOR}.optim.override_optimizer_config.{one}"
    for one in ("optimizer_cpu_offload=True", "optimizer_offload_fraction=0.5", "overlap_cpu_optimizer_d2h_h2d=False")
)

SHARDED = Layout(engine="fsdp", ranks=2, data_parallel=2, overrides=FSDP_OFFLOADED)
TENSOR_PARALLEL = Layout(engine="megatron", ranks=2, overrides=(f"{MEGATRON}.tensor_model_parallel_size=2",))
DATA_PARALLEL = Layout(engine="megatron", ranks=2, data_parallel=2, overrides=MEGATRON_OFFLOADED)
HYBRID_SHARDED = Layout(engine="fsdp", ranks=2, data_parallel=2, overrides=(f"{ACTOR}.fsdp_config.fsdp_size=1",))
REPLICATED = Layout(engine="megatron", ranks=2, data_parallel=2, overrides=FULL_OPTIMIZER, can_export=False)
ADAPTER = Layout(
    engine="fsdp", ranks=2, data_parallel=2, overrides=("actor_rollout_ref.model.lora_rank=32",), can_export=False
)
DAILY = [SHARDED, TENSOR_PARALLEL, DATA_PARALLEL]
OTHERS = [
    HYBRID_SHARDED,
    REPLICATED,
    ADAPTER,
    Layout(engine="megatron", is_hybrid=True, overrides=HYBRID),
    Layout(engine="megatron", is_hybrid=True, overrides=(*HYBRID, *MEGATRON_OFFLOADED)),
    Layout(engine="fsdp"),
    Layout(engine="fsdp", ranks=2, data_parallel=2),
    Layout(engine="fsdp", ranks=2, data_parallel=2, is_fsdp_1=True),
    Layout(engine="fsdp", ranks=2, data_parallel=2, is_fsdp_1=True, overrides=FSDP_OFFLOADED),
    Layout(engine="megatron", ranks=2, data_parallel=2),
    Layout(engine="megatron", overrides=(f"{MEGATRON}.dtype=float32", *MEGATRON_OFFLOADED)),
    Layout(engine="megatron", ranks=2, overrides=(f"{MEGATRON}.pipeline_model_parallel_size=2",)),
]


def layouts(daily: list[Layout], others: list[Layout]) -> Any:
    return pytest.mark.parametrize(
        "layout", [*daily, *(pytest.param(one, marks=pytest.mark.long) for one in others)], ids=str
    )


@pytest.fixture(scope="module")
def in_ranks() -> Iterator[Callable[..., list[Any]]]:
    """Runs a function in ranks of a layout, which are new processes with verl and Megatron imported."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=state_ranks.import_engines) as pool:
        yield lambda *args: pool.submit(state_ranks.run_ranks, *args).result()


@pytest.fixture(scope="module")
def assets(tiny_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose commits have some megabytes, and the tokenizer of the tiny one."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("assets")
    shutil.copytree(tiny_assets / "model", folder / "model")
    sizes = {name: size for name, size in SCALED_DOWN.items() if type(size) is int}
    kinds = ["full_attention"] * int(sizes["num_hidden_layers"])
    config = Qwen2Config.from_pretrained(folder / "model", layer_types=kinds, **sizes)
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def committed(
    in_ranks: Callable[..., list[Any]], assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Layout], list[Taken]]:
    """What the ranks of a layout had at a commit and did after it."""
    taken: dict[Layout, list[Taken]] = {}

    def of(layout: Layout) -> list[Taken]:
        if layout not in taken:
            out = tmp_path_factory.mktemp("checkpoint")
            taken[layout] = in_ranks(layout, state_ranks.commit_and_go_on, assets, out)
        return taken[layout]

    return of


@layouts(DAILY, OTHERS)
def test_training_goes_on_in_the_same_process_as_if_nothing_had_happened(layout, committed):
    for one in committed(layout):
        assert one.after[-1] != one.at_commit
        assert one.at_restore == one.at_commit
        assert one.again == one.after


@layouts(DAILY, OTHERS)
def test_training_goes_on_in_new_processes_as_if_nothing_had_happened(layout, committed, in_ranks, assets):
    taken = committed(layout)

    resumed = in_ranks(layout, state_ranks.go_on_from, assets, taken)

    for one, (at_restore, after) in zip(taken, resumed, strict=True):
        assert at_restore == one.at_commit
        assert after == one.after


@layouts(DAILY, OTHERS)
def test_state_is_captured_where_it_lies_and_calls_that_read_it_leave_it_so(layout, committed):
    for one in committed(layout):
        assert one.is_by_reference
        assert one.moves == []
        assert one.while_read == {state_ranks.digest(one.buffers)}


def planned_words(layout: Layout, assets: Path) -> list[str]:
    """A command of verl with this layout."""
    return [
        f"--config-name={'ppo_trainer' if layout.engine == 'fsdp' else 'ppo_megatron_trainer'}",
        f"actor_rollout_ref.model.path={assets}/model",
        f"trainer.n_gpus_per_node={layout.ranks}",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        f"{ACTOR}.use_dynamic_bsz=True",
        *layout.overrides,
    ]


@layouts(DAILY, OTHERS)
def test_a_commit_has_as_many_bytes_as_the_plan_says(layout, committed, assets):
    spec = RLJobBuilder().framework("verl").config(planned_words(layout, assets)).build().spec
    of_ranks, of_node = planned_bytes(spec, RoleType.ACTOR)

    taken = committed(layout)
    kept = {one.alike[name]: len(one.buffers[name]) for one in taken for name in one.alike}
    own = [len(one.buffers[name]) for one in taken for name in one.buffers if name not in one.alike]
    assert [sum(map(len, one.buffers.values())) for one in taken] == pytest.approx(of_ranks, rel=0.05)
    assert sum(own) + sum(kept.values()) == pytest.approx(of_node, rel=0.05)


@layouts([DATA_PARALLEL], [HYBRID_SHARDED, REPLICATED])
def test_data_parallel_ranks_have_the_same_names_for_the_same_bytes(layout, committed):
    first, second = ({one.alike[name]: one.buffers[name] for name in one.alike} for one in committed(layout))

    assert first and first == second


@layouts([], [HYBRID_SHARDED, REPLICATED])
def test_replicas_hold_weights_and_moments_alike(layout, committed):
    for one in committed(layout):
        own = sum(len(buffer) for name, buffer in one.buffers.items() if name not in one.alike)
        assert own < 0.02 * sum(map(len, one.buffers.values()))


@layouts([SHARDED, TENSOR_PARALLEL], [])
def test_ranks_with_different_parts_of_a_model_name_nothing_alike(layout, committed):
    assert [one.alike for one in committed(layout)] == [{}, {}]


class Mine(torch.optim.AdamW):
    """It may keep more than AdamW does."""


@pytest.mark.parametrize(
    ("optimizer", "name"), [(torch.optim.Adamax, "torch.optim.adamax.Adamax"), (Mine, f"{__name__}.Mine")]
)
def test_an_optimizer_whose_layout_is_not_known_is_refused_by_name(optimizer, name):
    engine = SimpleNamespace(optimizer=optimizer([torch.nn.Parameter(torch.ones(1))]))

    with pytest.raises(DlrlError, match=f"optimizer '{name}', whose layout dlrl does not know"):
        engine_state.capture(engine)
