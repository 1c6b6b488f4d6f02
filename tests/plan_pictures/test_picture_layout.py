"""Whatever is folded or left out, every workload and every device of a plan is counted once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from svg_reader import SvgPicture

from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import RoleType
from dlrl_pages.layout import Row, layout_of
from dlrl_pages.text_picture import workload_count


@st.composite
def plans(draw) -> ExecutionPlan:
    """Any roles, alone or sharing, with or without devices, in runs over any of the nodes."""
    node_num = draw(st.integers(1, 12))
    roles = draw(st.lists(st.sampled_from(list(RoleType)), min_size=1, unique=True))
    next_device = [0] * node_num
    groups = []
    while roles:
        width = draw(st.sampled_from([0, 1, 1, 2, 20]))
        members = [roles.pop() for _ in range(draw(st.integers(1, len(roles))))]
        runs = []
        for node in draw(st.lists(st.integers(0, node_num - 1), min_size=1, unique=True)):
            seats = draw(st.sampled_from([1, 2, 2, 2, 8, 40]))
            runs.append((node, seats, next_device[node]))
            next_device[node] += seats * width
        total = sum(seats for _, seats, _ in runs)
        share = f"{width}/{len(members)}"
        member = {"world_size": total, "share": share, "resources": {"CPU": 1}}
        groups.append(
            {
                "members": [{"role": role, **member} for role in members],
                "devices_per_seat": width,
                "resources": {"CPU": len(members)},
                "runs": runs,
            }
        )
    nodes = [{"node_id": f"node-{i}"} for i in range(node_num)]
    return ExecutionPlan.model_validate({"device_type": "GPU", "nodes": nodes, "groups": groups})


@settings(max_examples=150, deadline=None)
@given(plans(), st.integers(1, 80))
def test_drawn_folded_and_left_out_workloads_add_up(plan, most_rows):
    layout = layout_of(plan, most_rows)
    drawn = sum(row.workloads for node in layout.nodes for row in node.rows)
    folded = sum(node.others_workloads for node in layout.nodes)
    nodes = sum(1 + sum(map(len, node.others)) for node in layout.nodes)

    assert drawn + folded + layout.left_out_workloads == workload_count(plan) == len(plan.workloads)
    assert nodes + layout.left_out_nodes == len(plan.nodes)


@settings(max_examples=100, deadline=None)
@given(plans())
def test_a_row_says_of_each_device_what_the_plan_says(plan):
    guests = {}
    for workload in plan.workloads:
        bundle = plan.bundles[workload.bundle]
        for device in bundle.devices:
            guests.setdefault((bundle.node, device), set()).add((workload.role, workload.rank))
    found = {}
    for node in layout_of(plan, 10_000).nodes:
        for row in node.rows:
            for device in row.devices:
                seat = row.first_seat + (device - row.first_device) // row.group.devices_per_seat
                found[node.node, device] = {(member.role, member.first_rank + seat) for member in row.group.members}

    assert found == guests


@settings(max_examples=60, deadline=None)
@given(plans())
def test_a_picture_shows_each_device_and_each_workload_once(plan):
    picture = SvgPicture(plan.to_svg())

    assert len(set(picture.devices)) == len(picture.devices)
    assert picture.device_count == plan.device_count
    assert picture.workload_count == len(plan.workloads)
    assert set(picture.workloads) <= {workload.name for workload in plan.workloads}
    assert plan.to_svg() == ExecutionPlan.from_json(plan.to_json()).to_svg()


def test_a_row_without_devices_has_none():
    group = ExecutionPlan.model_validate(
        {
            "device_type": "GPU",
            "nodes": [{"node_id": "a"}],
            "groups": [{"members": [], "devices_per_seat": 0, "resources": {}, "runs": [[0, 3, 7]]}],
        }
    ).groups[0]

    assert list(Row(group, 0, 3, 7).devices) == []
