"""The GCS is killed and started again, or its Redis server stands still: seeds of the exactness runs."""

from __future__ import annotations

import pytest
from checks import disconnect
from soak.grounds import on_redis
from soak.one_run import Run, check, has_struck_as_planned, runs_of

SEEDS = (4, 9)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    disconnect()
    with on_redis(tmp_path_factory.mktemp("ground")) as ground:
        return runs_of(SEEDS, ground)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gcs_that_is_away_for_a_while_leaves_the_end_bit_identical(runs, seed):
    assert has_struck_as_planned(runs[seed]) and check(runs[seed]) == []
