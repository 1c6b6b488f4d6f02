"""Placement groups are known by exact names, whatever the job is called."""

from __future__ import annotations

import pytest

from dlrl_core.scheduler import reservation
from dlrl_core.scheduler.reservation import GroupKind, _Group


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (_Group(number=3), "dlrl/job/run/plan3"),
        (_Group(number=3, kind=GroupKind.SPARE, index=1), "dlrl/job/run/plan3-spare1"),
        (_Group(number=12, kind=GroupKind.MOVE, index=2), "dlrl/job/run/plan12-move2"),
    ],
)
def test_a_name_tells_number_and_kind(group, name):
    assert group.name("job", "run") == name
    assert _Group.of(name) == group


def test_seats_of_a_job_named_like_a_spare_are_no_spare(monkeypatch):
    removed = []
    rows = [
        ("dlrl/my-spare0/run-spare1/plan1", "aa"),
        ("dlrl/my-spare0/run-spare1/plan1-spare0", "bb"),
        ("dlrl/my-spare0/run-spare1/plan1-move1", "cc"),
    ]
    table = {
        id_: {"name": name, "state": "CREATED", "placement_group_id": id_, "bundles_to_node_id": {0: "node"}}
        for name, id_ in rows
    }
    monkeypatch.setattr(reservation, "placement_group_table", lambda: table)
    monkeypatch.setattr(reservation, "_handle", lambda row: row["placement_group_id"])
    monkeypatch.setattr(reservation, "remove_placement_group", removed.append)
    reservation.release_spare("my-spare0", "run-spare1", "node")
    assert removed == ["bb"]


def test_releasing_all_but_one_plan_keeps_its_spares_and_moves_only(monkeypatch):
    removed = []
    names = ["plan1", "plan1-spare0", "plan1-move1", "plan11", "plan2-spare0"]
    table = {name: {"name": f"dlrl/job/run/{name}", "state": "CREATED", "placement_group_id": name} for name in names}
    monkeypatch.setattr(reservation, "placement_group_table", lambda: table)
    monkeypatch.setattr(reservation, "_handle", lambda row: row["placement_group_id"])
    monkeypatch.setattr(reservation, "remove_placement_group", removed.append)
    reservation.release_all("job", "run", but=1)
    assert removed == ["plan11", "plan2-spare0"]
