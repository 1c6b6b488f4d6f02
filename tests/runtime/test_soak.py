"""Ten seeds of the exactness runs: small jobs under faults of all kinds, two at a time. `make soak` runs many more.

Those on nodes with a memory of their own are in test_node_loss.py, as they need its cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from checks import assert_nothing_left, connected, disconnect
from soak.fault_plan import Setting, plan_of, setting_of
from soak.grounds import Ground, NotPossibleError, on_redis, two_nodes
from soak.one_run import Run, check, run_seed

ON_TWO_NODES = (7, 11, 15, 17, 35, 45)
ON_REDIS = (4, 9)


def runs_of(seeds: Sequence[int], ground: Ground) -> dict[int, Future[Run]]:
    """All runs, ended."""
    with ThreadPoolExecutor(2) as pool:
        return {seed: pool.submit(run_seed, seed, ground) for seed in seeds}


@pytest.fixture(scope="module")
def on_two_nodes(
    cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Future[Run]]]:
    with connected(cluster_2_nodes_8_gpus), two_nodes(tmp_path_factory.mktemp("ground")) as ground:
        yield runs_of(ON_TWO_NODES, ground)


@pytest.fixture(scope="module")
def on_a_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Future[Run]]]:
    disconnect()
    with on_redis(tmp_path_factory.mktemp("ground")) as ground:
        yield runs_of(ON_REDIS, ground)
        assert_nothing_left()


def exact_with_all_faults(run: Run) -> bool:
    planned = [(one.kind, one.target) for group in plan_of(run.seed) for one in group]
    assert [(one.kind, one.target) for one in run.struck] == planned
    assert check(run) == []
    return True


@pytest.mark.parametrize("seed", ON_TWO_NODES)
def test_faults_of_processes_disks_and_clocks_leave_the_end_bit_identical(on_two_nodes, seed):
    try:
        run = on_two_nodes[seed].result()
    except NotPossibleError as error:
        pytest.skip(str(error))
    assert exact_with_all_faults(run)


@pytest.mark.parametrize("seed", ON_REDIS)
def test_a_gcs_that_is_away_for_a_while_leaves_the_end_bit_identical(on_a_redis, seed):
    assert setting_of(seed) is Setting.REDIS
    assert exact_with_all_faults(on_a_redis[seed].result())
