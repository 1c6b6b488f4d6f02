"""The graph that calls have shown."""

from dlrl_core.graph import EdgeKind, RoleGraph
from dlrl_core.roles import RoleType
from dlrl_core.trainer.progress import CallLog


def test_downstream_follows_edges_and_comes_back_through_a_cycle():
    graph = RoleGraph()
    graph.saw(RoleType.ROLLOUT, RoleType.REWARD, EdgeKind.DATA)
    graph.saw(RoleType.REWARD, RoleType.ACTOR, EdgeKind.ORDER)
    assert graph.downstream(RoleType.ROLLOUT) == {RoleType.REWARD, RoleType.ACTOR}
    assert graph.downstream(RoleType.ACTOR) == frozenset()
    graph.saw(RoleType.ACTOR, RoleType.ROLLOUT, EdgeKind.ORDER)
    assert graph.downstream(RoleType.ACTOR) == {RoleType.ACTOR, RoleType.ROLLOUT, RoleType.REWARD}


def test_calls_leave_an_edge_when_the_role_changes():
    log = CallLog()
    for role, name in [("rollout", "generate"), ("rollout", "more"), ("actor", "update"), ("rollout", "generate")]:
        log.began(RoleType(role), f"{role}.{name}")
    assert log.graph.edges == {
        (RoleType.ROLLOUT, RoleType.ACTOR, EdgeKind.ORDER): 1,
        (RoleType.ACTOR, RoleType.ROLLOUT, EdgeKind.ORDER): 1,
    }
