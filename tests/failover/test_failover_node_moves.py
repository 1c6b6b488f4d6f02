"""Which node takes the place of another one, and when a failing node is better than none."""

from __future__ import annotations

import asyncio

import pytest
from master_parts import context_of, launch_of, nodes, plan_on, small_job

from dlrl_core.context import Incident
from dlrl_core.context.job_state import TrainerOutcome
from dlrl_core.errors import ReservationError
from dlrl_core.failover import CallLost, WorkloadGone, WorkloadHangs
from dlrl_core.master import plan_and_reservation
from dlrl_core.master.control_loop import ControlLoop
from dlrl_core.master.plan_and_reservation import NodeMoves, PlanAndReservation
from dlrl_core.plan import ExecutionPlan
from dlrl_core.spec.job_spec import RestartBudget


class ReservationsStandIn:
    """The cluster's answers: which nodes are there, which grant what is asked for, and from which time asked on."""

    def __init__(self, *, living: list[str], grants: dict[str, int]) -> None:
        self.living = living
        self.grants = grants
        """How often a node is asked before it grants; a node that is missing here never does."""
        self.asked: list[str] = []
        self.released: list[str] = []

    def view(self):
        return nodes(*self.living)

    def ask_for_move(self, job: str, run_id: str, number: int, plan: ExecutionPlan, index: int) -> str:
        node = plan.nodes[index]
        self.asked.append(f"{node.node_id}#{node.move}")
        return self.asked[-1]

    async def are_granted(self, groups: list[str], timeout_s: float) -> bool:
        [group] = groups
        node = group.partition("#")[0]
        if node not in self.grants:
            return False
        self.grants[node] -= 1
        return self.grants[node] <= 0

    def release(self, groups: list[str]) -> None:
        self.released += groups

    def release_spare(self, job: str, run_id: str, node_id: str) -> None:
        return


def death_on_a(number: int) -> Incident:
    return Incident(
        number=number,
        kind="process_died",
        subject="actor-0",
        message="it died",
        scope="job",
        reason="declared",
        explanation="so it is",
        node_id="a",
    )


@pytest.fixture
def moves_of(tmp_path, monkeypatch):
    """Moves of a job whose two actors were planned on node 'a'."""

    def make(stand_in: ReservationsStandIn, *, deaths: int = 0):
        spec = small_job(restart_budget=RestartBudget(node=3))
        launch = launch_of(spec, plan_on(spec, nodes("a")))
        context = context_of(tmp_path, launch, incidents=[death_on_a(number) for number in range(1, deaths + 1)])
        placing = PlanAndReservation(launch, spec, context)
        placing._plan = ExecutionPlan.from_json(launch.plan_json or "")
        for name in ("ask_for_move", "are_granted", "release", "release_spare"):
            monkeypatch.setattr(plan_and_reservation.reservation, name, getattr(stand_in, name))
        monkeypatch.setattr(plan_and_reservation, "view_cluster", stand_in.view)
        monkeypatch.setattr(plan_and_reservation, "view_capacity", stand_in.view)
        monkeypatch.setattr(plan_and_reservation, "_LOOK_AGAIN_S", 0.01)
        return NodeMoves(launch, spec, context, placing), placing, context

    return make


def journal_of(context, kind: str) -> list[str]:
    return [event.message for event in context.journal() if event.kind == kind]


def test_a_node_that_fails_too_often_is_kept_if_there_is_no_other(moves_of):
    moves, placing, context = moves_of(ReservationsStandIn(living=["a"], grants={}), deaths=3)
    asyncio.run(moves.replace_lost_nodes())
    asyncio.run(moves.replace_lost_nodes())
    assert placing.plan.nodes[0].node_id == "a"
    assert journal_of(context, "kept") == [
        "3 processes died on node a within 3600 s (limit 3); no other node can take its place, so it is kept"
    ]


def test_a_node_that_fails_too_often_is_left_for_another_one(moves_of):
    moves, placing, context = moves_of(ReservationsStandIn(living=["a", "b"], grants={"b": 1}), deaths=3)
    asyncio.run(moves.replace_lost_nodes())
    assert placing.plan.nodes[0].node_id == "b"
    assert journal_of(context, "moved") == ["node b takes the place of a, on which too many processes died"]


def test_a_node_that_fails_too_often_is_kept_if_the_other_one_does_not_grant(moves_of):
    stand_in = ReservationsStandIn(living=["a", "b"], grants={})
    moves, placing, context = moves_of(stand_in, deaths=3)
    asyncio.run(moves.replace_lost_nodes())
    assert (placing.plan.nodes[0].node_id, placing.plan.nodes[0].move, placing.moves) == ("a", 0, {})
    assert stand_in.released == stand_in.asked == ["b#1"]
    assert ExecutionPlan.from_json(context.record.plan_json) == placing.plan


def test_a_substitute_that_grants_late_is_taken_when_it_does(moves_of):
    """It is asked for once and looked at again, not overwritten."""
    stand_in = ReservationsStandIn(living=["b"], grants={"b": 2})
    moves, placing, context = moves_of(stand_in)
    asyncio.run(moves.replace_lost_nodes())
    assert (placing.plan.nodes[0].node_id, placing.moves) == ("b", {0: "b#1"})
    assert stand_in.released == []
    assert journal_of(context, "moved") == ["node b takes the place of a, which is lost"]
    assert context.record.waiting_for is None


def test_a_substitute_that_did_not_grant_is_released_and_may_be_chosen_again(moves_of):
    stand_in = ReservationsStandIn(living=["b"], grants={"b": 3})
    moves, placing, _ = moves_of(stand_in)
    asyncio.run(moves.replace_lost_nodes())
    assert stand_in.asked == ["b#1", "b#2"]
    assert stand_in.released == ["b#1"]
    assert placing.moves == {0: "b#2"}


def test_a_move_that_an_earlier_master_asked_for_is_looked_at_first(moves_of):
    stand_in = ReservationsStandIn(living=["b", "c"], grants={"c": 1})
    moves, placing, _ = moves_of(stand_in)
    placing.follow_moved(placing.plan.moved(0, "b", ""))
    placing.moves[0] = "b#1"
    stand_in.living = ["c"]
    asyncio.run(moves.replace_lost_nodes())
    assert stand_in.released == ["b#1"]
    assert placing.plan.nodes[0].node_id == "c"


def test_a_lost_node_without_a_substitute_is_waited_for_in_sight_and_then_the_job_fails(moves_of):
    moves, _, context = moves_of(ReservationsStandIn(living=[], grants={}))
    with pytest.raises(ReservationError, match="node a is lost, and no other node has"):
        asyncio.run(moves.replace_lost_nodes())
    assert "is lost, and no other node has" in context.record.waiting_for


def test_a_job_with_a_commit_waits_for_a_node_without_limit_and_says_so(moves_of):
    stand_in = ReservationsStandIn(living=[], grants={"b": 1})
    moves, placing, context = moves_of(stand_in)
    with context.change() as change:
        change.progress(commit_json='{"step": 2}')

    async def run() -> None:
        waits = asyncio.ensure_future(moves.replace_lost_nodes())
        _, pending = await asyncio.wait({waits}, timeout=1.0)  # the limit is 0.3 s
        assert pending and "node a is lost, and no other node has" in context.record.waiting_for
        stand_in.living.append("b")
        await asyncio.wait_for(waits, 10)

    asyncio.run(run())
    assert placing.plan.nodes[0].node_id == "b" and context.record.waiting_for is None
    assert [text.startswith("waiting for resources: node a is lost") for text in journal_of(context, "waiting")] == [
        True
    ]


@pytest.mark.parametrize(
    ("seen", "node"),
    [
        (WorkloadGone(name="actor-0", reason="SIGKILL"), "a"),
        (WorkloadHangs(name="actor-0", reason="its call has run for 60 s", actor_id=""), "a"),
        (TrainerOutcome(is_success=False, why="it died", is_death=True), None),
        (TrainerOutcome(is_success=False, why="bad data", failed_workload="actor-0"), None),
        (CallLost(name="actor-0", method="charge"), None),
    ],
)
def test_only_deaths_of_processes_count_against_a_node_and_each_counts_once(tmp_path, seen, node):
    """A death that the trainer met is seen by the watch on that process too, and counts there."""
    spec = small_job()
    launch = launch_of(spec, plan_on(spec, nodes("a")))
    context = context_of(tmp_path, launch)
    with context.change() as change:
        change.workload("actor-0", node_id="a")

    async def run() -> str | None:
        incident, _, _ = ControlLoop(launch, context).decided(seen)
        return incident.node_id

    assert asyncio.run(run()) == node
