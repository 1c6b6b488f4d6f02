"""The rules of placement: each mistake in a spec is told in words that say what to do."""

from __future__ import annotations

import pytest

from dlrl_core.spec import ClassRef, JobSpec, PartSpec, RoleSpec, problems_of
from dlrl_core.spec.rules import device_groups, host_groups, separated_pairs

CLASS = ClassRef(module="m", class_name="C")


def role(name: str, total: int = 1, per_node: int | None = None, **more) -> RoleSpec:
    return RoleSpec(role=name, cls=CLASS, total=total, per_node=per_node, **more)


def job(*roles: RoleSpec, **more) -> JobSpec:
    return JobSpec(trainer=CLASS, roles=roles, **{"node_num": 4, "device_per_node": 8, **more})


def pair(total: int, other: int, **more) -> JobSpec:
    return job(role("actor", total), role("rollout", other), **more)


def parts(*names: str, total: int | None = None, **more) -> JobSpec:
    specs = tuple(PartSpec(name=name) for name in names)
    return job(role("actor", len(specs) if total is None else total, parts=specs, **more))


TOGETHER = {"with_collocation": (("actor", "rollout"),)}
BESIDE = {"with_host_collocation": (("actor", "rollout"),)}
APART = {"without_collocation": (("actor", "rollout"),)}

MISTAKES = {
    "part name": (
        parts("Prefill"),
        "part 'Prefill' of role 'actor' has a name that is not allowed; "
        "use 1 to 31 small letters, digits, '_', '-', a letter first",
    ),
    "part twice": (parts("a", "a"), "role 'actor' has 2 parts named 'a'; give each a name of its own"),
    "total and parts": (
        parts("a", "b", total=3),
        "role 'actor' has total=3 and parts of 2 in all; leave total to the parts",
    ),
    "min_total and parts": (
        parts("a", min_total=1),
        "role 'actor' has min_total and parts; say min_total on the parts",
    ),
    "total no multiple": (
        job(role("actor", 3, 2)),
        "role 'actor' has total=3 and per_node=2; total must be a multiple of per_node",
    ),
    "min_total no multiple": (
        job(role("actor", 4, 2, min_total=3)),
        "role 'actor' has min_total=3 and per_node=2; min_total must be a multiple of per_node",
    ),
    "min_total too large": (
        job(role("actor", 4, min_total=5)),
        "role 'actor' has total=4 and min_total=5; min_total is from 1 to total",
    ),
    "too many nodes": (
        job(role("actor", 10, 2)),
        "role 'actor' has total=10 and per_node=2, which takes 5 nodes; the job has node_num=4",
    ),
    "too many nodes at least": (
        job(role("actor", 12, 2, min_total=10)),
        "role 'actor' has min_total=10 and per_node=2, which takes 5 nodes; the job has node_num=4",
    ),
    "one and a half devices": (
        job(role("actor", resource={"GPU": 1.5})),
        "role 'actor' asks for 1.5 GPU; several devices are asked for in whole ones",
    ),
    "a share too small": (
        job(role("actor", resource={"GPU": 0.00001})),
        "role 'actor' asks for 1e-05 GPU; the smallest share of a device is 0.0001",
    ),
    "nothing left": (
        job(role("actor", resource={"GPU": 1}), role("rollout"), **TOGETHER),
        "the roles 'actor', 'rollout' share one device; 1 GPU for 'actor' leaves nothing to 'rollout'",
    ),
    "more than one device": (
        job(role("actor", resource={"GPU": 0.7}), role("rollout", resource={"GPU": 0.7}), **TOGETHER),
        "the roles 'actor', 'rollout' share one device and ask for 1.4 GPU of it; "
        "their shares must add up to at most 1",
    ),
    "spread and packed": (
        job(role("actor", spread_over="zone", pack_into="zone")),
        "role 'actor' is to be spread over and packed into 'zone'; choose one",
    ),
    "spread and packed together": (
        job(role("actor", spread_over="zone"), role("rollout", pack_into="zone"), **BESIDE),
        "the roles 'actor', 'rollout' share nodes; they can't be spread over and packed into 'zone'",
    ),
    "labels that do not meet": (
        job(role("actor", node_labels={"zone": ("x",)}), role("rollout", node_labels={"zone": ("y",)}), **BESIDE),
        "the roles 'actor', 'rollout' share nodes, and no value of the node label 'zone' suits all",
    ),
    "collocated unequal": (
        pair(2, 1, **TOGETHER),
        "collocated roles need equal total and per_node, so that rank i of each is on one device: "
        "'actor' total=2 per_node=None; 'rollout' total=1 per_node=None",
    ),
    "collocated unequal min_total": (
        job(role("actor", 2, min_total=1), role("rollout", 2), **TOGETHER),
        "collocated roles need equal total and per_node, so that rank i of each is on one device: "
        "'actor' total=2 per_node=None min_total=1; 'rollout' total=2 per_node=None",
    ),
    "host collocation no multiple": (
        pair(2, 3, **BESIDE),
        "role 'rollout' has total=3 and shares nodes with 'actor', which has total=2; "
        "it must be a multiple of 2, so that each rank of 'actor' gets as many",
    ),
    "host collocation cuts a block": (
        job(role("actor", 2), role("rollout", 4, 1), **BESIDE),
        "role 'rollout' has per_node=1 and shares nodes with 'actor', of which each rank gets 2 of it; "
        "per_node must be a multiple of 2",
    ),
    "host collocation out of proportion": (
        job(role("actor", 2, 1), role("rollout", 4, 4), **BESIDE),
        "roles that share nodes need per_node and min_total in proportion to their total: "
        "'actor' total=2 per_node=1; 'rollout' total=4 per_node=4",
    ),
    "host collocation with one min_total": (
        job(role("actor", 2, min_total=1), role("rollout", 4), **BESIDE),
        "roles that share nodes need per_node and min_total in proportion to their total: "
        "'actor' total=2 per_node=None min_total=1; 'rollout' total=4 per_node=None",
    ),
    "same device and another device": (
        pair(2, 2, **TOGETHER, **BESIDE),
        "the roles 'actor', 'rollout' are to share devices and to have devices of their own; choose one",
    ),
    "collocated and separated": (
        pair(2, 2, **TOGETHER, **APART),
        "the roles 'actor' and 'rollout' are collocated and separated; choose one",
    ),
    "host collocated and separated": (
        pair(2, 2, **BESIDE, **APART),
        "the roles 'actor' and 'rollout' are collocated and separated; choose one",
    ),
    "separated from its own part": (
        parts("a", "b").model_copy(update={"without_collocation": (("actor", "actor.a"),)}),
        "separation of 'actor' from 'actor.a', which is a part of it; name the parts to separate",
    ),
    "separation of one": (
        job(role("actor"), without_collocation=(("actor", "actor"),)),
        "separation of 'actor', 'actor' needs at least two different roles",
    ),
    "separation of an unknown role": (
        job(role("actor"), without_collocation=(("actor", "critic"),)),
        "role 'critic' is separated but the job has no such role",
    ),
    "collocation of an unknown role": (
        job(role("actor"), with_collocation=(("actor", "critic"),)),
        "role 'critic' is collocated but the job has no such role",
    ),
    "in two host collocations": (
        job(role("actor"), role("rollout"), role("critic"), with_host_collocation=(("actor", "rollout"), ("actor", "critic"))),
        "role 'actor' is in more than one host collocation; a role shares nodes in one group only",
    ),
    "a role that has parts": (
        job(*parts("a", "b").roles, role("rollout"), **TOGETHER),
        "role 'actor' has parts; say which is in the collocation: 'actor.a', 'actor.b'",
    ),
    "an unknown part": (
        job(*parts("a", "b").roles, role("rollout"), with_collocation=(("actor.c", "rollout"),)),
        "role 'actor' has no part 'c'; its parts are 'actor.a', 'actor.b'",
    ),
    "a part of a role without": (
        job(role("actor"), role("rollout"), with_collocation=(("actor.c", "rollout"),)),
        "role 'actor' has no part 'c'; it has no parts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told(case):
    spec, message = MISTAKES[case]
    assert message in [problem.text for problem in problems_of(spec)]


@pytest.mark.parametrize(
    "spec",
    [
        pair(2, 2, **TOGETHER),
        pair(2, 6, **BESIDE),
        pair(6, 2, **APART),
        job(role("actor", 2, 1), role("rollout", 6, 3), **BESIDE),
        job(role("actor", 2, min_total=1), role("rollout", 6, min_total=3), **BESIDE),
        job(role("actor", resource={"GPU": 4})),
        job(role("actor", 12, 2, min_total=8)),
        job(*(role(name, resource={"GPU": 0.3334}) for name in ("actor", "rollout", "critic")),
            with_collocation=(("actor", "rollout", "critic"),)),
        job(role("actor", resource={"CPU": 1.5}), device_type="CPU"),
        job(role("rollout"), *parts("a", "b").roles, without_collocation=(("actor", "rollout"), ("actor.a", "actor.b"))),
    ],
)  # fmt: skip
def test_what_is_right_has_no_problems(spec):
    assert problems_of(spec) == []


def test_collocations_of_both_kinds_join_into_one_host_group():
    spec = job(
        *(role(name, 2) for name in ("actor", "rollout", "critic", "reward")),
        with_collocation=(("critic", "actor"),),
        with_host_collocation=(("critic", "reward"),),
    )
    assert device_groups(spec) == [("actor", "critic"), ("rollout",), ("reward",)]
    assert host_groups(spec) == [(("actor", "critic"), ("reward",)), (("rollout",),)]


def test_a_role_that_is_separated_is_separated_with_all_its_parts():
    spec = job(role("rollout"), *parts("a", "b").roles, without_collocation=(("rollout", "actor", "actor"),))
    expected = {("rollout", "actor.a"), ("rollout", "actor.b")}
    assert separated_pairs(spec) == expected | {(two, one) for one, two in expected}
