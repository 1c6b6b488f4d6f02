"""The graph that calls have shown."""

from dlrl_core.graph import EdgeKind, downstream
from dlrl_core.roles import RoleType
from dlrl_core.trainer.progress import CallLog


def test_downstream_follows_edges_and_comes_back_through_a_cycle():
    edges = [("rollout", "reward"), ("reward", "actor")]
    assert downstream("rollout", edges) == {"reward", "actor"}
    assert downstream("actor", edges) == frozenset()
    assert downstream("actor", [*edges, ("actor", "rollout")]) == {"actor", "rollout", "reward"}


def test_calls_leave_an_edge_when_the_role_changes():
    log = CallLog()
    for role, name in [("rollout", "generate"), ("rollout", "more"), ("actor", "update"), ("rollout", "generate")]:
        log.began(RoleType(role), f"{role}.{name}")
    assert log.graph.edges == {
        (RoleType.ROLLOUT, RoleType.ACTOR, EdgeKind.ORDER): 1,
        (RoleType.ACTOR, RoleType.ROLLOUT, EdgeKind.ORDER): 1,
    }
