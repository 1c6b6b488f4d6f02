"""Seeds of the exactness runs: small jobs under faults of all kinds, two at a time. `make soak` runs many more.

Four run with the tests every day, on other clusters: test_gcs_loss.py and test_node_loss.py; six are `long`.
"""

from __future__ import annotations

import pytest
from checks import connected
from soak.grounds import NotPossibleError, two_nodes
from soak.one_run import Run, check, has_struck_as_planned, runs_of

ON_TWO_NODES = (35, 7, 11, 15, 17, 45)
pytestmark = pytest.mark.long  # a minute and more on two cores


@pytest.fixture(scope="module")
def runs(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run | NotPossibleError]:
    with connected(cluster_2_nodes_8_gpus), two_nodes(tmp_path_factory.mktemp("ground")) as ground:
        return runs_of(ON_TWO_NODES, ground)


@pytest.mark.parametrize("seed", ON_TWO_NODES)
def test_faults_of_processes_disks_and_clocks_leave_the_end_bit_identical(runs, seed):
    if isinstance(run := runs[seed], NotPossibleError):
        pytest.skip(str(run))
    assert has_struck_as_planned(run) and check(run) == []
