"""verl's own checkpoints: a torn one is never resumed from."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dlrl_verl.checkpoints import align_checkpoints

RANKS = 2


def config(folder: Path, strategy: str, estimator: str = "gae", mode: str = "auto"):
    return OmegaConf.create(
        {
            "trainer": {"default_local_dir": str(folder), "resume_mode": mode, "nnodes": 1, "n_gpus_per_node": RANKS},
            "actor_rollout_ref": {"actor": {"strategy": strategy}},
            "critic": {"strategy": strategy, "enable": None},
            "algorithm": {"adv_estimator": estimator},
        }
    )


def checkpoint(folder: Path, step: int, strategy: str, roles: tuple[str, ...] = ("actor", "critic")) -> Path:
    """As verl writes it, but for the contents."""
    made = folder / f"global_step_{step}"
    for role in roles:
        (made / role).mkdir(parents=True)
        for rank in range(RANKS if strategy == "fsdp2" else 0):
            (made / role / f"model_world_size_{RANKS}_rank_{rank}.pt").write_bytes(b"weights")
        if strategy == "megatron":
            (made / role / "ckpt_contents.json").write_text("{}")
    (made / "data.pt").write_bytes(b"order")
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))
    return made


@pytest.fixture(params=["megatron", "fsdp2"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_whole_checkpoint_is_left_as_it_is(tmp_path, strategy):
    checkpoint(tmp_path, 2, strategy)
    checkpoint(tmp_path, 4, strategy)
    assert align_checkpoints(config(tmp_path, strategy)) == 4
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "4"


@pytest.mark.parametrize("missing", ["critic", "part", "data"])
def test_a_torn_one_gives_way_to_the_newest_whole_one(tmp_path, strategy, missing):
    checkpoint(tmp_path, 2, strategy)
    torn = checkpoint(tmp_path, 4, strategy, roles=("actor",) if missing == "critic" else ("actor", "critic"))
    if missing == "part":
        next(file for file in (torn / "actor").iterdir()).unlink()
    if missing == "data":
        (torn / "data.pt").unlink()
    assert align_checkpoints(config(tmp_path, strategy)) == 2
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "2"


def test_a_critic_is_not_missed_where_there_is_none(tmp_path, strategy):
    checkpoint(tmp_path, 4, strategy, roles=("actor",))
    assert align_checkpoints(config(tmp_path, strategy, estimator="grpo")) == 4


def test_when_none_is_whole_it_says_so_and_changes_nothing(tmp_path, strategy):
    checkpoint(tmp_path, 4, strategy, roles=("actor",))
    with pytest.raises(
        FileNotFoundError, match="names step 4, but neither .* is whole; say trainer.resume_mode=disable"
    ):
        align_checkpoints(config(tmp_path, strategy))
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "4"


@pytest.mark.parametrize("mode", ["disable", "resume_path"])
def test_where_the_user_says_what_to_resume_from_nothing_is_looked_at(tmp_path, strategy, mode):
    checkpoint(tmp_path, 4, strategy, roles=("actor",))
    assert align_checkpoints(config(tmp_path, strategy, mode=mode)) is None


def test_a_first_run_has_nothing_to_look_at(tmp_path, strategy):
    assert align_checkpoints(config(tmp_path, strategy)) is None
