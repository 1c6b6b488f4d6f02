"""A node is lost: its workloads move to a spare, or the job waits in sight until there is another node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from checks import assert_nothing_left, disconnect, wait_until
from soak import exactness
from soak.grounds import OwnMemory
from soak.one_run import check, has_struck_as_planned, run_seed
from soak.own_memory import NodesWithOwnMemory, nodes_with_own_memory

from dlrl_chaos.chaos import Chaos
from dlrl_core.context import JobContext, default_store_url, open_store


@pytest.fixture(scope="module")
def local() -> Iterator[NodesWithOwnMemory]:
    """A cluster on which a node that dies is noticed within seconds, and takes its memory with it."""
    disconnect()
    with nodes_with_own_memory() as nodes:
        yield nodes


@pytest.fixture
def ray_3_nodes_12_gpus(local: NodesWithOwnMemory) -> Iterator[NodesWithOwnMemory]:
    """Three living nodes with 4 logical GPUs each besides the head, of which one may go."""
    local.fill_up(3)
    yield local
    assert_nothing_left()


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def started(**more):
    handle = exactness.job(durable=True, steps=30, **more).submit("exact", blocking=False)
    wait_until(lambda: (handle.status().step or 0) > 3, "three steps are done", 90)
    return handle


def victim_of(handle) -> dict:
    return handle.status().workloads[0]


def applied(value) -> list[list[int]]:
    return [rank["applied"] for role in ("actor", "critic") for rank in value[role]]


def test_workloads_of_a_lost_node_move_to_the_spare_and_no_durable_commit_is_lost(ray_3_nodes_12_gpus):
    handle = started(spare_nodes=1)
    plan = handle.status().view["plan"]
    victim = victim_of(handle)
    spare = plan["spares"][0]["node_id"]
    Chaos("exact").inject(victim["name"], "node")
    result = handle.wait(timeout=150)
    assert result.value == exactness.expected(30)
    assert applied(result.value) == [list(range(30))] * 3
    moved = [event.message for event in context_of("exact").journal() if event.kind == "moved"]
    assert len(moved) == 1
    after = {one["name"]: one for one in result.status.workloads}
    lost = died_in("exact")
    assert lost and all(after[name]["node_id"] == spare for name in lost)


def died_in(job: str) -> set[str]:
    """The workloads that were found dead, by the record."""
    return {one.subject for one in context_of(job).record.incidents} - {"trainer"}


def test_without_a_spare_the_job_waits_in_sight_until_a_node_comes(ray_3_nodes_12_gpus):
    """Both other nodes are full of another job; then a new node joins."""
    import ray
    from ray.util import placement_group, remove_placement_group

    handle = started()
    used = {one["node_id"] for one in handle.status().workloads}
    third = next(node for node in ray_3_nodes_12_gpus.living() if node not in used)
    other = placement_group([{"GPU": 4}], bundle_label_selector=[{"ray.io/node-id": third}])
    ray.get(other.ready())
    victim = victim_of(handle)
    Chaos("exact").inject(victim["name"], "node")
    status = wait_until(lambda: (now := handle.status()).waiting_for and now, "the job says that it waits", 90)
    assert "is lost, and no other node has" in status.waiting_for
    ray_3_nodes_12_gpus.fill_up(3)
    value = handle.wait(timeout=150).value
    remove_placement_group(other)
    assert applied(value) == [list(range(30))] * 3


@pytest.mark.parametrize("seed", [28, 38])
def test_without_durable_storage_no_commit_is_lost_with_a_node_or_by_one_that_lives_on(
    ray_3_nodes_12_gpus, tmp_path, seed
):
    """Seeds of the exactness runs: a node is killed, or its raylet is stopped until Ray gives it up, and goes on."""
    run = run_seed(seed, OwnMemory(tmp_path, ray_3_nodes_12_gpus))
    assert has_struck_as_planned(run) and check(run) == []
