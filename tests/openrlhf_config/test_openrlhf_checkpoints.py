"""OpenRLHF's own checkpoints: a torn one is never resumed from."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dlrl_core.errors import DlrlError
from dlrl_openrlhf.checkpoints import align_checkpoints


def checkpoint(folder: Path, role: str, step: int, *, ranks: int = 2, is_best: bool = False) -> Path:
    """Files as DeepSpeed names them, and `latest`."""
    made = folder / f"_{role}" / f"{'best_' if is_best else ''}global_step{step}"
    made.mkdir(parents=True)
    names = [f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(ranks)]
    for name in ("mp_rank_00_model_states.pt", *names):
        with zipfile.ZipFile(made / name, "w") as archive:
            archive.writestr("data", "x")
    (made.parent / "latest").write_text(made.name)
    return made


def latest(folder: Path, role: str) -> str | None:
    file = folder / f"_{role}" / "latest"
    return file.read_text() if file.exists() else None


def test_roles_that_are_a_step_apart_go_back_to_what_both_have(tmp_path):
    for step in (2, 4):
        checkpoint(tmp_path, "critic", step)
    checkpoint(tmp_path, "actor", 2)

    assert align_checkpoints(str(tmp_path), has_critic=True) == "global_step2"
    assert latest(tmp_path, "actor") == latest(tmp_path, "critic") == "global_step2"


def test_the_newest_is_chosen_by_number(tmp_path):
    for step in (8, 10):
        for role in ("actor", "critic"):
            checkpoint(tmp_path, role, step)

    assert align_checkpoints(str(tmp_path), has_critic=True) == "global_step10"


@pytest.mark.parametrize("harm", ["a rank is missing", "the model is missing", "a file is cut off"])
def test_a_half_written_checkpoint_does_not_count(tmp_path, harm):
    checkpoint(tmp_path, "actor", 2)
    torn = checkpoint(tmp_path, "actor", 4)
    if harm == "a rank is missing":
        (torn / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    elif harm == "the model is missing":
        (torn / "mp_rank_00_model_states.pt").unlink()
    else:
        file = torn / "mp_rank_00_model_states.pt"
        file.write_bytes(file.read_bytes()[:30])

    assert align_checkpoints(str(tmp_path), has_critic=False) == "global_step2"
    assert latest(tmp_path, "actor") == "global_step2"


def test_with_nothing_in_common_it_does_not_begin_again_in_silence(tmp_path):
    checkpoint(tmp_path, "actor", 2)
    checkpoint(tmp_path, "critic", 4)

    with pytest.raises(DlrlError, match=r"names 'global_step2', .* names 'global_step4'\); name another '--ckpt.path'"):
        align_checkpoints(str(tmp_path), has_critic=True)
    assert (latest(tmp_path, "actor"), latest(tmp_path, "critic")) == ("global_step2", "global_step4")


def test_the_best_by_evaluation_counts_as_any_other(tmp_path):
    """OpenRLHF lets `latest` name it, as it was written last."""
    for role in ("actor", "critic"):
        checkpoint(tmp_path, role, 4)
        checkpoint(tmp_path, role, 4, is_best=True)

    assert align_checkpoints(str(tmp_path), has_critic=True) == "best_global_step4"
    checkpoint(tmp_path, "actor", 6)
    assert align_checkpoints(str(tmp_path), has_critic=True) == "best_global_step4"
    assert latest(tmp_path, "actor") == latest(tmp_path, "critic") == "best_global_step4"


def test_an_older_one_that_all_roles_name_is_what_the_user_wants(tmp_path):
    for role in ("actor", "critic"):
        for step in (4, 2):
            checkpoint(tmp_path, role, step)

    assert align_checkpoints(str(tmp_path), has_critic=True) == "global_step2"


def test_a_first_checkpoint_that_was_never_finished_is_none(tmp_path):
    torn = checkpoint(tmp_path, "actor", 2)
    (torn / "mp_rank_00_model_states.pt").unlink()
    (torn.parent / "latest").unlink()

    assert align_checkpoints(str(tmp_path), has_critic=True) is None


def test_without_any_checkpoint_there_is_nothing_to_do(tmp_path):
    assert align_checkpoints(str(tmp_path / "none"), has_critic=True) is None
