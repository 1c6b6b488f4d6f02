"""The page: picture, deaths and workloads in one file that needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from picture_plans import ACTOR, ROLLOUT, large, parts, thirds
from svg_reader import SVG, SvgPicture

HTML = "{http://www.w3.org/1999/xhtml}"


def page_of(plan) -> ET.Element:
    return ET.fromstring(plan.to_html())


def table(page: ET.Element, name: str) -> list[list[str]]:
    found = next(one for one in page.iter(f"{HTML}table") if one.get("id") == name)
    return [["".join(cell.itertext()) for cell in row] for row in found.iter(f"{HTML}tr")]


def test_the_page_has_the_picture():
    plan = thirds()
    svg = page_of(plan).find(f".//{SVG}svg")

    assert sorted(SvgPicture(svg).workloads) == sorted(w.name for w in plan.workloads if w.share != "0")


def test_the_page_has_a_row_for_each_workload():
    assert table(page_of(parts()), "workloads") == [
        ["workload", "node", "device", "share", "resources", "collocated with"],
        ["actor-0", "node-0", "GPU 0", "50%", "1 CPU, 0.5 GPU", ""],
        ["rollout-0 (prefill)", "node-0", "GPU 1", "100%", "1 CPU, 1 GPU", ""],
        ["rollout-1 (decode)", "node-0", "GPU 2-3", "100%", "1 CPU, 2 GPU", ""],
        ["rollout-2 (decode)", "node-0", "GPU 4-5", "100%", "1 CPU, 2 GPU", ""],
    ]


def test_what_a_death_restarts_is_shown_as_text():
    plan = parts().model_copy(update={"deaths": {ACTOR: "<script>alert(1)</script> & more", ROLLOUT: "itself"}})

    assert "<script" not in plan.to_html()
    assert table(page_of(plan), "deaths") == [
        ["role", "what is restarted"],
        ["actor", "<script>alert(1)</script> & more"],
        ["rollout", "itself"],
    ]


def test_a_page_without_known_deaths_has_no_table_of_them():
    assert "deaths" not in parts().to_html()


def test_the_page_of_a_large_plan_stays_small_and_says_what_is_left_out():
    plan = large(2_000)
    page = page_of(plan)

    assert len(table(page, "workloads")) == 2_001
    assert page.find(f".//{HTML}p").text == "... and 14000 more; the JSON of the plan has all"
    assert len(plan.to_html()) < 1_000_000


def test_it_loads_nothing_and_can_be_read_in_the_dark():
    html = thirds().to_html()

    assert set(re.findall(r"https?://[^\"']+", html)) == {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}
    assert not re.search(r"href|url\(|<script|<img|<link|@import", html)
    assert "prefers-color-scheme: dark" in html
