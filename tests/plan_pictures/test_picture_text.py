"""A plan prints as a picture that can be read, however large it is."""

from __future__ import annotations

import time
from pathlib import Path

from picture_plans import ACTOR, CRITIC, REWARD, ROLLOUT, large, parts, planned, role, thirds

from dlrl_core.plan import ExecutionPlan
from dlrl_pages.text_picture import picture_lines


def text_of(lines) -> str:
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)


def test_shared_devices_are_cut_by_exact_shares():
    assert str(thirds()) == (
        "16 workloads on 2 nodes, 6 GPU devices: 4 actor, 4 rollout, 4 reference, 1 critic, 3 reward\n"
        "node 0 (node-0)\n"
        "  GPU 0             | actor-0 1/3 | rollout-0 1/3 | reference-0 1/3 |\n"
        "  GPU 1-2 together  | critic-0 100%                                 |\n"
        "  no device         reward-0..1 (each 2 CPU)\n"
        "node 1 (node-1)\n"
        "  GPU 0             | actor-1 1/3 | rollout-1 1/3 | reference-1 1/3 |\n"
        "  GPU 1             | actor-2 1/3 | rollout-2 1/3 | reference-2 1/3 |\n"
        "  GPU 2             | actor-3 1/3 | rollout-3 1/3 | reference-3 1/3 |\n"
        "  no device         reward-2 (2 CPU)\n"
        "1 spare node (node-2): can replace nodes 0-1, holds 3 GPU, 11 CPU"
    )


def test_the_reference_page_shows_this_picture():
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

    assert str(thirds()) in page.read_text()


def test_parts_are_named_and_what_nobody_uses_is_shown():
    assert str(parts()) == (
        "4 workloads on 1 node, 6 GPU devices: 1 actor, 3 rollout (1 prefill, 2 decode)\n"
        "node 0 (node-0)\n"
        "  GPU 0             | actor-0 50%       | unused 50%        |\n"
        "  GPU 1             | rollout-0 (prefill) 100%              |\n"
        "  GPU 2-3 together  | rollout-1 (decode) 100%               |\n"
        "  GPU 4-5 together  | rollout-2 (decode) 100%               |"
    )


def test_a_bar_shows_the_proportion_of_unequal_shares():
    plan = planned(role(ACTOR, resource={"GPU": 0.7}), role(ROLLOUT), with_collocation=(("actor", "rollout"),))
    bar = str(plan).splitlines()[2].split("|")

    assert [text.strip() for text in bar[1:3]] == ["actor-0 70%", "rollout-0 30%"]
    assert len(bar[1]) > 1.4 * len(bar[2])


def test_what_a_death_restarts_is_told_below_and_survives_json():
    plan = parts().model_copy(update={"deaths": {ACTOR: "the job fails", ROLLOUT: "itself alone"}})

    assert str(plan).endswith("|\n\nwhen one dies\n  actor    the job fails\n  rollout  itself alone")
    assert ExecutionPlan.from_json(plan.to_json()).deaths == plan.deaths


def test_a_narrow_terminal_gets_a_line_for_each_role_of_a_device():
    lines = text_of(picture_lines(thirds(), width=60)).splitlines()

    assert lines[2:5] == [
        "  GPU 0             | actor-0 1/3                           |",
        "                    | rollout-0 1/3                         |",
        "                    | reference-0 1/3                       |",
    ]


def test_nodes_that_are_alike_are_drawn_once():
    plan = planned(
        role(ACTOR, 20), role(ROLLOUT, 20), role(CRITIC, 20), node_num=30, device_per_node=2,
        with_collocation=(("actor", "rollout"),),
    )  # fmt: skip

    assert str(plan) == (
        "60 workloads on 20 nodes, 40 GPU devices: 20 actor, 20 rollout, 20 critic\n"
        "node 0 (node-0)\n"
        "  GPU 0  | actor-0 50%       | rollout-0 50%     |\n"
        "  GPU 1  | actor-1 50%       | rollout-1 50%     |\n"
        "nodes 1-9: as node 0, with actor-2..19, rollout-2..19\n"
        "node 10 (node-10)\n"
        "  GPU 0  | critic-0 100%                         |\n"
        "  GPU 1  | critic-1 100%                         |\n"
        "nodes 11-19: as node 10, with critic-2..19"
    )


def test_many_equal_seats_of_a_node_are_one_row():
    plan = planned(role(ACTOR, 64), role(REWARD, 40, resource={"CPU": 0}), device_type="CPU", device_per_node=64)

    assert str(plan).splitlines()[2:] == [
        "  CPU 0-63 each  | actor-0..63 100%                      |",
        "  no device      reward-0..39",
    ]


def test_a_hundred_thousand_workloads_are_a_few_dozen_lines_at_once():
    plan = large()
    before = time.process_time()
    lines = str(plan).splitlines()

    assert time.process_time() - before < 1.0
    assert "workloads" not in plan.__dict__  # they were never spelled out
    assert lines[0].startswith("100000 workloads on 12499 nodes, 99992 GPU devices")
    assert len(lines) < 60
    assert "nodes 9-6248: as node 8, with actor-72..49991" in lines


def test_nodes_that_are_all_different_are_cut_short_with_their_number():
    plan = ExecutionPlan.model_validate(
        {
            "device_type": "GPU",
            "nodes": [{"node_id": f"n{i}"} for i in range(100)],
            "groups": [
                {
                    "members": [{"role": "actor", "world_size": 5050, "share": "1", "resources": {"GPU": 1}}],
                    "devices_per_seat": 1,
                    "resources": {"GPU": 1},
                    "runs": [[i, i + 1, 0] for i in range(100)],
                }
            ],
        }
    )
    lines = str(plan).splitlines()

    assert lines[3:5] == ["node 1 (n1)", "  GPU 0-1 each   | actor-1..2 100%                       |"]
    assert lines[-1] == "... and 84 more nodes with 4914 workloads, each unlike those above"
