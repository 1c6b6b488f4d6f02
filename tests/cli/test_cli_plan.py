"""`dlrl plan` shows who sits where, for job files and for a framework's own words."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from cli_shell import PACED, ROOT, acme_path

QUICKSTART = ROOT / "examples" / "quickstart" / "quickstart.yaml"

TWO_RACKS = """
nodes:
  - {count: 2, resources: {GPU: 1, CPU: 16}, labels: {rack: r1}}
  - {name: big, address: 10.0.0.9, resources: {GPU: 8}, labels: {rack: r2}}
"""


@pytest.fixture
def paced_job(tmp_path):
    """Writes a job file of the paced classes with these lines, and gives its path."""

    def write(text: str):
        (tmp_path / "paced_roles.py").write_text((PACED.parent / "paced_roles.py").read_text())
        path = tmp_path / "job.yaml"
        path.write_text(f"trainer: {{module: paced_roles, class: PacedTrainer}}\n{text}")
        return path

    return write


def test_the_table_has_a_row_for_each_workload(shell, tmp_path):
    """Classes are found beside the job file, whatever the current folder is."""
    ran = shell.run("plan", QUICKSTART, cwd=tmp_path)
    rows = [line.split() for line in ran.out.splitlines()]

    assert ran.code == 0
    assert ["workload", "node", "device", "share", "collocated", "with"] in rows
    assert ["actor-1", "node-0", "GPU", "1", "50%", "rollout"] in rows
    assert ["reward-0", "node-0", "none"] in rows
    assert "7 workloads on 1 node, 3 GPU devices" in ran.out


def test_the_picture_comes_first_then_what_each_death_restarts_then_the_table(shell):
    out = shell.run("plan", QUICKSTART).out
    deaths = shell.run("plan", QUICKSTART, "--json").json["deaths"]
    headline, _, rest = out.partition("\n")
    picture, _, after = rest.partition("\n\nwhen one dies\n")
    told, table = after[: after.index(" workload ")].rstrip(), after[after.index(" workload ") :]

    assert picture.splitlines() == [
        "node 0 (node-0)",
        "  GPU 0      | actor-0 50%       | rollout-0 50%     |",
        "  GPU 1      | actor-1 50%       | rollout-1 50%     |",
        "  GPU 2      | critic-0 100%                         |",
        "  no device  reference-0 (1 CPU)",
        "  no device  reward-0 (1 CPU)",
    ]
    assert set(deaths) == {"actor", "rollout", "reference", "reward", "critic"}
    assert told.splitlines() == [f"  {role:<9}  {what}" for role, what in deaths.items()]
    assert headline.startswith("7 workloads on 1 node") and " critic-0 " in table


def test_on_a_terminal_the_roles_have_colours(shell):
    ran = shell.run("plan", QUICKSTART, env={"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": None})

    assert "\x1b[37;44m actor-0 50%       \x1b[0m|\x1b[30;43m rollout-0 50%     \x1b[0m|" in ran.out


def test_the_json_has_everything(shell, paced_job):
    job = paced_job(
        "node_num: 2\ndevice_per_node: 2\nspare_nodes: 1\n"
        "roles: {actor: {module: paced_roles, class: PacedActor, total: 2, resource: {GPU: 2}}}\n"
    )
    plan = shell.run("plan", job, "--json").json

    assert (plan["device_type"], plan["device_count"]) == ("GPU", 4)
    assert [node["node_id"] for node in plan["nodes"]] == ["node-0", "node-1"]
    assert plan["spares"] == [
        {"node_id": "node-2", "address": "", "resources": {"GPU": 2.0, "CPU": 1.0}, "replaces": [0, 1]}
    ]
    assert plan["groups"][0]["runs"] == [[0, 1, 0], [1, 1, 0]]
    assert list(plan["deaths"]) == ["actor"]
    assert plan["workloads"][1] == {
        "workload": "actor-1", "role": "actor", "part": None, "rank": 1, "local_rank": 0, "node": "node-1",
        "node_index": 1, "devices": [0, 1], "share": "2", "resources": {"CPU": 1.0, "GPU": 2.0}, "collocated_with": [],
    }  # fmt: skip


def test_a_described_cluster_limits_only_what_was_said(shell):
    ran = shell.run("plan", QUICKSTART, "--nodes", "2", "--devices", "8", "--json")
    short = shell.run("plan", QUICKSTART, "--nodes", "2", "--devices", "8", "--cpus", "6", "--json")

    assert ran.code == 0
    assert (ran.json["device_type"], ran.json["device_count"], len(ran.json["workloads"])) == ("GPU", 3, 7)
    assert short.code == 3
    assert "12 CPU" in short.json["error"]["message"]


def test_a_cluster_file_describes_nodes_that_differ(shell, paced_job, tmp_path):
    """The role goes where its label is; the CPUs of that node are not said, so there are enough."""
    (tmp_path / "cluster.yaml").write_text(TWO_RACKS)
    job = paced_job(
        "device_per_node: 8\n"
        "roles: {actor: {module: paced_roles, class: PacedActor, total: 3, node_labels: {rack: r2}}}\n"
    )
    ran = shell.run("plan", job, "--cluster", tmp_path / "cluster.yaml", "--json")

    assert ran.code == 0
    assert ran.json["nodes"] == [{"node_id": "big", "address": "10.0.0.9"}]
    assert [row["devices"] for row in ran.json["workloads"]] == [[0], [1], [2]]


def test_a_key_of_a_cluster_file_without_a_value_is_not_said(shell, tmp_path):
    (tmp_path / "cluster.yaml").write_text("nodes:\n  - resources: {GPU: 8}\n    labels:\n    name:\n")
    assert shell.run("plan", QUICKSTART, "--cluster", tmp_path / "cluster.yaml").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes:\n", "cluster.yaml' needs 'nodes', a list with an entry for each kind of node"),
        ("nodes: [{resources: {}}]", "resources of nodes[0] is {}; it must be a mapping that is not empty"),
        ("nodes: [{resources: }]", "nodes[0] has no 'resources', which is mandatory"),
        ("nodes: [null]", "nodes[0] is empty; it must be a mapping"),
    ],
)
def test_a_cluster_file_that_lacks_something_is_told_what(shell, tmp_path, text, words):
    (tmp_path / "cluster.yaml").write_text(text)
    ran = shell.run("plan", QUICKSTART, "--cluster", tmp_path / "cluster.yaml")

    assert ran.code == 2
    assert words in " ".join(ran.err.split())


def test_a_job_that_a_cluster_file_has_no_room_for_is_refused(shell, tmp_path):
    (tmp_path / "cluster.yaml").write_text("nodes: [{resources: {GPU: 2}}]")
    ran = shell.run("plan", QUICKSTART, "--cluster", tmp_path / "cluster.yaml")

    assert ran.code == 3
    assert "2 GPU" in ran.err


def test_a_resource_that_only_some_nodes_name_is_not_on_the_others(shell, paced_job, tmp_path):
    (tmp_path / "cluster.yaml").write_text("nodes: [{resources: {GPU: 1}}, {name: fast, resources: {GPU: 1, nvme: 1}}]")
    job = paced_job("roles: {actor: {module: paced_roles, class: PacedActor, resource: {nvme: 1}}}\n")
    ran = shell.run("plan", job, "--cluster", tmp_path / "cluster.yaml", "--json")

    assert [node["node_id"] for node in ran.json["nodes"]] == ["fast"]


def test_all_problems_of_a_cluster_file_are_said_at_once(shell, tmp_path):
    (tmp_path / "cluster.yaml").write_text(
        "node: 3\n"
        "nodes:\n"
        "  - {count: 0, resource: {GPU: 2}, labels: {rack: yes}}\n"
        "  - {name: a, count: 2, address: 10.0.0.9, resources: {GPU: -1, CPU: many, nvme: 1}}\n"
        "  - {name: a-1, resources: {GPU: 1}}\n"
        "  - gpu\n"
    )
    ran = shell.run("plan", QUICKSTART, "--cluster", "cluster.yaml", "--json", cwd=tmp_path)

    assert ran.code == 2
    assert ran.json["error"]["problems"] == [
        "count of nodes[0] is 0; it must be at least 1",
        "nodes[0] has no 'resources', which is mandatory",
        "'rack' in labels of nodes[0] is True; it must be text, in quotes if need be",
        "nodes[0] has the unknown key 'resource'; did you mean 'resources'? "
        "known: count, resources, labels, name, address",
        "'GPU' in resources of nodes[1] is -1; it must be at least 0",
        "'CPU' in resources of nodes[1] is 'many'; it must be a number",
        "nodes[3] is a str; it must be a mapping",
        "'cluster.yaml' has the unknown key 'node'; did you mean 'nodes'? known: nodes",
        "2 nodes have the address '10.0.0.9'; an address is for one node",
        "2 nodes are named 'a-1'; give each another name",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "no.yaml"], "can't read 'no.yaml': No such file or directory"),
        (["--cluster", "empty.yaml"], "'empty.yaml' needs 'nodes', a list with an entry for each kind of node"),
        (["--cluster", "vast.yaml"], "the cluster has 2000000 nodes; at most 1000000 can be planned on"),
        (["--cluster", "no.yaml", "--address", "x:1"], "say either --cluster or --address, not both"),
        (["--cluster", "no.yaml", "--nodes", "1"], "say either --cluster or --nodes and --devices, not both"),
        (["--svg", "no/plan.svg"], "can't write 'no/plan.svg': there is no folder 'no'"),
        (["--html", "."], "can't write '.': Is a directory"),
    ],
)
def test_what_can_not_be_done_is_said(shell, tmp_path, words, message):
    (tmp_path / "empty.yaml").write_text("nodes: []\n")
    (tmp_path / "vast.yaml").write_text("nodes: [{count: 2000000, resources: {GPU: 1}}]\n")
    ran = shell.run("plan", QUICKSTART, *words, cwd=tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_the_plan_is_drawn_into_files(shell, tmp_path):
    ran = shell.run("plan", QUICKSTART, "--svg", "plan.svg", "--html", "plan.html", "--json", cwd=tmp_path)
    svg = ET.parse(tmp_path / "plan.svg").getroot()
    page = (tmp_path / "plan.html").read_text()

    assert ran.err == "dlrl: wrote 'plan.svg'\ndlrl: wrote 'plan.html'\n"
    assert {row["workload"] for row in ran.json["workloads"]} == {
        "actor-0", "actor-1", "rollout-0", "rollout-1", "reference-0", "reward-0", "critic-0"
    }  # fmt: skip
    assert [one.get("data-name") for one in svg.iter() if one.get("class") == "workload"] == [
        "actor-0", "rollout-0", "actor-1", "rollout-1", "critic-0"
    ]  # fmt: skip
    assert ran.json["deaths"]["actor"] in page


def test_nothing_is_drawn_of_a_job_that_does_not_fit(shell, tmp_path):
    ran = shell.run("plan", QUICKSTART, "--nodes", "1", "--devices", "1", "--svg", "plan.svg", cwd=tmp_path)

    assert ran.code == 3
    assert not (tmp_path / "plan.svg").exists()


def test_ray_is_not_imported_for_pictures_or_described_clusters(shell, tmp_path):
    """A ray that ends the command stands first on the path."""
    (tmp_path / "ray.py").write_text("raise SystemExit('ray was imported')\n")
    (tmp_path / "cluster.yaml").write_text("nodes: [{resources: {GPU: 8}}]")
    words = ["--cluster", "cluster.yaml", "--svg", "plan.svg", "--html", "plan.html"]
    ran = shell.run_process("plan", QUICKSTART, *words, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)

    assert ran.code == 0
    assert "ray was imported" not in ran.err


def test_a_hundred_thousand_workloads_are_planned_and_shown_in_short(shell, paced_job, tmp_path):
    job = paced_job(
        "node_num: 12500\ndevice_per_node: 8\n"
        "roles:\n"
        "  actor: {module: paced_roles, class: PacedActor, total: 50000}\n"
        "  rollout: {module: paced_roles, class: PacedActor, total: 50000}\n"
    )
    words = ["--nodes", "12500", "--devices", "8"]
    ran = shell.run("plan", job, *words, "--svg", "plan.svg", "--html", "plan.html", cwd=tmp_path)

    assert ran.code == 0
    assert "... 99984 more; --json has all" in ran.out
    assert "100000 workloads on 12500 nodes, 100000 GPU devices: 50000 actor, 50000 rollout" in ran.out
    assert "nodes 6251-12499: as node 6250, with rollout-8..49999" in ran.out
    assert len(ran.out.splitlines()) < 80
    assert (tmp_path / "plan.svg").stat().st_size < 100_000
    assert len(shell.run("plan", job, *words, "--json").json["workloads"]) == 100_000


@pytest.mark.parametrize("words", [["steps=3", "roles.rollout=2"], ["acme.yaml"]], ids=["words", "yaml"])
def test_a_framework_gets_its_own_words_or_its_yaml_file(shell, tmp_path, words):
    (tmp_path / "acme.yaml").write_text("steps: 3\nroles: {rollout: 2}\n")
    env = {"PYTHONPATH": acme_path(tmp_path)}
    ran = shell.run("plan", "--framework", "acme", "--json", "--", *words, env=env, cwd=tmp_path)

    assert ran.code == 0
    assert [row["workload"] for row in ran.json["workloads"]] == ["actor-0", "rollout-0", "rollout-1"]


def test_the_shape_of_the_job_can_be_said_beside_a_frameworks_words(shell, tmp_path):
    env = {"PYTHONPATH": acme_path(tmp_path)}
    shape = ("--node-num", "3", "--device-per-node", "1")
    ran = shell.run("plan", "--framework", "acme", *shape, "--json", "--", "roles.rollout=2", env=env, cwd=tmp_path)

    assert ran.code == 0
    assert len(ran.json["nodes"]) == 3


def test_what_a_framework_refuses_is_said_in_its_words(shell, tmp_path):
    env = {"PYTHONPATH": acme_path(tmp_path)}
    ran = shell.run("plan", "--framework", "acme", "--json", "--", "steps=0", "batch=0", env=env)

    assert ran.code == 2
    assert ran.json["error"]["problems"] == [
        "acme has steps=0; it must be a number from 1 on",
        "acme has batch=0; it must be a number from 1 on",
    ]


def test_an_override_of_a_key_that_is_not_there_is_told(shell):
    ran = shell.run_process("plan", PACED, "--set", "stepz=3")

    assert ran.code == 0
    assert "override adds 'stepz', which the config did not have" in ran.err
