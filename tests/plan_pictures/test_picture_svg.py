"""The SVG picture: complete, readable without colour, safe with any name, and small for large plans."""

from __future__ import annotations

import re

import pytest
from picture_plans import large, parts, thirds
from svg_reader import SVG, SvgPicture

from dlrl_core.plan.execution_plan import PlannedNode
from dlrl_core.roles import RoleType
from dlrl_pages.role_colours import NOBODY, ROLE_COLOURS


def test_each_device_is_drawn_once_with_a_tooltip_that_says_who_sits_on_it():
    picture = SvgPicture(thirds().to_svg())

    assert sorted(picture.devices) == [(node, device) for node in range(2) for device in range(3)]
    assert picture.tooltip(1, 2) == "GPU 2 of node 1 (node-1): actor-3 1/3, rollout-3 1/3, reference-3 1/3"
    assert picture.tooltip(0, 1) == picture.tooltip(0, 2).replace("GPU 2", "GPU 1")


def test_each_workload_stands_on_its_device_with_its_share():
    plan = parts()
    picture = SvgPicture(plan.to_svg())

    assert sorted(picture.workloads) == sorted(workload.name for workload in plan.workloads)
    assert picture.texts("workload") == [
        ["actor-0", "50%"],
        ["rollout-0", "100%", "prefill"],
        ["rollout-1", "100%", "decode"],
        ["rollout-2", "100%", "decode"],
    ]
    assert picture.texts("unused") == [["unused", "50%"]]


def test_a_workload_of_several_devices_is_drawn_across_all_of_them():
    picture = SvgPicture(thirds().to_svg())
    seat = next(one for one in picture.groups("seat") if "critic-0" in (one.findtext(f"{SVG}title") or ""))
    heads = [one.find(f"{SVG}rect") for one in seat if one.get("class") == "device"]
    body = next(one for one in seat if one.get("class") == "workload").find(f"{SVG}rect")

    assert len(heads) == 2
    assert sum(int(head.get("width")) for head in heads) == int(body.get("width"))


def test_heights_are_shares():
    plan = thirds()
    heights = [int(one.find(f"{SVG}rect").get("height")) for one in SvgPicture(plan.to_svg()).groups("workload")]

    assert heights[:4] == [20, 20, 20, 60]


def test_the_legend_the_workloads_without_device_and_the_spares_are_named():
    picture = SvgPicture(thirds().to_svg())

    assert picture.texts("role") == [["4 actor"], ["4 rollout"], ["4 reference"], ["1 critic"], ["3 reward"]]
    assert picture.texts("no-device") == [["no device", "reward-0..1 (each 2 CPU)"], ["no device", "reward-2 (2 CPU)"]]
    assert picture.texts("spare") == [["1 spare node (node-2): can replace nodes 0-1, holds 3 GPU, 11 CPU"]]


def test_no_text_leaves_the_picture():
    for plan in (thirds(), parts(), large(2_000)):
        picture = SvgPicture(plan.to_svg())
        width, height = int(picture.root.get("width")), int(picture.root.get("height"))
        for text in picture.root.iter(f"{SVG}text"):
            length = 0 if text.get("text-anchor") == "end" else 7 * len(text.text)
            assert 0 <= int(text.get("x")) <= width - length
            assert 0 <= int(text.get("y")) <= height


def test_a_hundred_thousand_workloads_are_a_small_picture_whose_counts_add_up():
    plan = large()
    svg = plan.to_svg()
    picture = SvgPicture(svg)

    assert len(svg) < 100_000
    assert picture.device_count == plan.device_count
    assert picture.workload_count == 100_000
    assert ["nodes 9-6248: as node 8", "actor-72..49991"] in picture.texts("folded-nodes")


@pytest.mark.parametrize("name", ['<b>&"quoted"</b>', "]]><script>", "bell\x07\x00\x1b[31m", "\ud800 half", "中文"])
def test_any_node_name_is_shown_as_text(name):
    plan = parts().model_copy(update={"nodes": (PlannedNode.model_construct(node_id="n", address=name),)})
    picture = SvgPicture(plan.to_svg())
    shown = re.sub("[\x00-\x08\x0b-\x1f\ud800-\udfff]", "?", name)

    assert picture.tooltip(0, 1) == f"GPU 1 of node 0 ({shown}): rollout-0 (prefill) 100%"


def test_it_refers_to_nothing_outside():
    svg = thirds().to_svg()

    assert re.findall(r"https?://[^\"']+", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|<script|<image|@import", svg)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*ROLE_COLOURS.values(), NOBODY])
def test_text_on_every_colour_can_be_read(colour):
    light, dark = sorted((_luminance(colour.fill), _luminance(colour.text)), reverse=True)

    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_every_role_has_a_colour_of_its_own():
    assert set(ROLE_COLOURS) == set(RoleType)
    assert len({colour.fill for colour in ROLE_COLOURS.values()}) == len(RoleType)
