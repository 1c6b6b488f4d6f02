"""A framework in a distribution of its own, installed by pip, needs no line of dlrl changed."""

from __future__ import annotations

import json

SETUP = """
import json, sys
from dlrl_core.plugin import ConfigKind, ConfigSource, plugin_host
acme = plugin_host().framework("acme")
"""


def test_the_installed_framework_is_registered_under_its_distribution(run_python, acme_site):
    out = run_python(
        SETUP
        + """
[record] = [record for record in plugin_host().records if record.name == "acme"]
print(json.dumps([record.distribution, record.version, record.target, record.status, record.error]))
""",
        acme_site,
    )

    assert json.loads(out) == ["dlrl-acme", "1.0.0", "acme_rl.plugin", "loaded", None]


def test_a_mapping_a_yaml_file_and_words_give_the_same_config(run_python, acme_site, tmp_path):
    (tmp_path / "acme.yaml").write_text("lr: 0.1\nsteps: 3\nroles:\n  rollout: 2\n")
    out = run_python(
        SETUP
        + """
from pathlib import Path
from omegaconf import OmegaConf
plain = {"lr": 0.1, "steps": 3, "roles": {"rollout": 2}}
sources = [
    ConfigSource(ConfigKind.MAPPING, plain),
    ConfigSource(ConfigKind.MAPPING, OmegaConf.create(plain)),
    ConfigSource(ConfigKind.YAML, Path("acme.yaml")),
    ConfigSource(ConfigKind.WORDS, ("lr=0.1", "steps=3", "roles.rollout=2")),
]
print(json.dumps([acme.read_config(source) for source in sources]))
""",
        acme_site,
    )

    given = {"steps": 3, "lr": 0.1, "roles": {"actor": 1, "rollout": 2}}
    own = {"batch": 8, "goal": 2.0, "pull_s": 0.0, "save_to": None, "resume": False}
    assert json.loads(out) == [{**given, **own}] * 4


def test_wrong_configs_are_spec_errors_that_list_all_problems(run_python, acme_site):
    out = run_python(
        SETUP
        + """
from pathlib import Path
from dlrl_core.errors import SpecError
sources = [
    ConfigSource(ConfigKind.WORDS, ("steps=0", "roles.rollout=many")),
    ConfigSource(ConfigKind.WORDS, ("stepz=1",)),
    ConfigSource(ConfigKind.YAML, Path("missing.yaml")),
]
for source in sources:
    try:
        acme.read_config(source)
    except SpecError as error:
        print(json.dumps(error.problems))
""",
        acme_site,
    )

    counts, unknown, missing = map(json.loads, out.splitlines())
    assert counts == [
        "acme has steps=0; it must be a number from 1 on",
        "acme has roles.rollout='many'; it must be a number from 1 on",
    ]
    assert "stepz" in unknown[0]
    assert "missing.yaml" in missing[0]


def test_its_defaults_make_a_job_without_a_problem(run_python, acme_site):
    """The filled spec passes every rule, and filling imports no class of the framework."""
    out = run_python(
        SETUP
        + """
from dlrl_core.spec import JobSpec, RoleSpec, problems_of
filled = acme.fill(acme.read_config(ConfigSource(ConfigKind.WORDS, ("roles.rollout=2",))))
roles = tuple(
    RoleSpec(role=role, cls=item.cls, total=item.total, per_node=item.per_node)
    for role, item in filled.roles.items()
)
spec = JobSpec(
    framework="acme", trainer=filled.trainer, roles=roles, node_num=filled.node_num,
    device_per_node=filled.device_per_node, device_type=filled.device_type,
)
print(json.dumps({
    "problems": problems_of(spec),
    "classes": [str(spec.trainer), *(str(role.cls) for role in roles)],
    "devices": [spec.node_num, spec.device_per_node, spec.device_type],
    "imported": sorted({"acme_rl.roles", "ray", "torch"} & set(sys.modules)),
}))
""",
        acme_site,
    )

    assert json.loads(out) == {
        "problems": [],
        "classes": ["acme_rl.roles.AcmeTrainer", "acme_rl.roles.AcmeActor", "acme_rl.roles.AcmeRollout"],
        "devices": [1, 3, "CPU"],
        "imported": [],
    }


def test_its_policy_collocates_actor_and_rollout(run_python, acme_site):
    out = run_python(
        SETUP
        + """
from dlrl_core import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec
cls = ClassRef(module="m", class_name="C")
spec = JobSpec(roles=tuple(RoleSpec(role=role, cls=cls) for role in ("actor", "critic", "rollout")))
print(json.dumps(plugin_host().policy("acme_pair")(spec).with_collocation))
""",
        acme_site,
    )

    assert json.loads(out) == [["actor", "rollout"]]


def test_preparing_a_process_leaves_a_mark_that_its_workloads_can_see(run_python, acme_site):
    out = run_python(
        SETUP
        + """
import os
from dlrl_core import RoleType
seen = []
for role in (RoleType.ROLLOUT, None):
    acme.prepare_process(role)
    seen.append(os.environ["ACME_PREPARED_FOR"])
print(json.dumps(seen))
""",
        acme_site,
    )

    assert json.loads(out) == ["rollout", "trainer"]


def test_the_environment_of_a_process_leaves_plugins_out(run_python, acme_site):
    out = run_python(
        """
        from dlrl_core.errors import PluginError
        from dlrl_core.plugin import plugin_host
        try:
            plugin_host().framework("acme")
        except PluginError as error:
            print(error)
        """,
        acme_site,
        DLRL_PLUGINS="",
    )

    assert out == "plugin 'acme' (dlrl-acme 1.0.0) is left out by DLRL_PLUGINS=''; add 'acme' to it\n"


DLRL = """
import sys
from dlrl_core.cli.app import main
sys.argv = ["dlrl", *{words}]
main()
"""


def test_its_command_is_one_of_dlrl(run_python, acme_site):
    listed = run_python(DLRL.format(words=["--help"]), acme_site, COLUMNS="100")
    shown = run_python(DLRL.format(words=["acme-defaults", "--json"]), acme_site)

    assert "│ acme-defaults  Print acme's own values, over which a config is laid." in listed
    assert json.loads(shown)["goal"] == 2.0


def test_its_check_is_made_by_doctor_after_those_of_dlrl_and_before_those_of_the_machine(
    run_python, acme_site, tmp_path
):
    own = {"HOME": str(tmp_path), "DLRL_HOME": str(tmp_path / "home")}  # what lies in the user's home is checked too
    out = run_python(DLRL.format(words=["doctor", "--json"]), acme_site, **own)

    seen = {check["subject"]: check["seen"] for check in json.loads(out)["checks"]}
    assert seen["acme goal"] == "the best arm is 2.0; cluster: None"
    assert seen["framework acme"] == "comes with its plugin"
    order = ["plugins", "framework acme", "acme goal", "framework openrlhf", "framework verl", "ray auth"]
    assert [subject for subject in seen if subject in order] == order


def test_its_plan_format_is_one_of_every_plan(run_python, acme_site):
    out = run_python(
        """
        from dlrl_core import RLJobBuilder
        job = RLJobBuilder().framework("acme").config(["roles.rollout=2"]).build(import_classes=False)
        print(job.plan().in_format("csv"), end="")
        """,
        acme_site,
    )

    assert out.splitlines() == ["actor-0,node-0", "rollout-0,node-0", "rollout-1,node-0"]


def test_its_adviser_is_heard_where_a_job_does_not_fit_and_its_failure_hides_nothing(run_python, acme_site):
    out = run_python(
        """
        from dlrl_core import RLJobBuilder
        from dlrl_core.errors import PlanError
        from dlrl_core.plan import ClusterView
        job = RLJobBuilder().framework("acme").config(["roles.rollout=2"]).build(import_classes=False)
        try:
            job.plan(ClusterView.described(node_num=1, resources={"CPU": 1}))
        except PlanError as error:
            print(error)
        """,
        acme_site,
    )

    assert "; it would fit with 1 rented nodes, or with " in out


def test_its_detector_and_its_event_sink_are_there_for_the_master(run_python, acme_site):
    out = run_python(
        SETUP
        + """
imported_before = "acme_rl.extras" in sys.modules
findings = list(plugin_host().detectors()["acme"](None))
plugin_host().event_sinks()["acme"]("job", {"kind": "state"})
print(json.dumps([imported_before, findings, sys.modules["acme_rl.extras"].EVENTS]))
""",
        acme_site,
    )

    assert json.loads(out) == [False, [], [["job", {"kind": "state"}]]]
