"""Which methods of OpenRLHF's models a commit's copy goes on beside."""

from __future__ import annotations

import pytest

from dlrl_core.workload.invocation import methods_of
from dlrl_openrlhf import cpu

cpu.prepare()

from dlrl_openrlhf.workloads import ActorWorkload, CriticWorkload, ModelWorkload  # noqa: E402

CHANGING = {"init_model_from_pretrained", "fit", "offload_states", "reload_states", "capture_state", "restore_state"}


@pytest.mark.parametrize("workload", [ActorWorkload, CriticWorkload])
def test_every_method_of_a_trained_model_is_known_to_read_or_to_change(workload):
    """A new method of OpenRLHF's shows up here; until it is declared, it counts as one that changes state."""
    own = methods_of(workload).keys() - methods_of(ModelWorkload.__mro__[1]).keys()

    assert own == workload.reading_methods | CHANGING


def test_a_batch_is_never_a_way_around_the_declaration():
    with pytest.raises(ValueError, match="'fit'"):
        ModelWorkload.execute_batch(ActorWorkload.__new__(ActorWorkload), "fit", {}, 0, 1)
