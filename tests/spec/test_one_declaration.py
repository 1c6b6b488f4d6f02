"""An option is declared once, in JobSpec's schema, and has that name and that meaning everywhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml

from dlrl_core import RLJobBuilder
from dlrl_core.plugin import FrameworkDefaults, RoleDefaults
from dlrl_core.spec import JobSpec, PartSpec, RoleSpec
from dlrl_core.spec.job_spec import JobOptions, PlacementRequest, RoleOptions

WORK = "sample_jobs.endings"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
VALUES = {
    "total": 2,
    "min_total": 1,
    "per_node": 1,
    "env": {"A": "1"},
    "resource": {"CPU": 2.0},
    "node_labels": {"zone": ["a"]},
    "spread_over": "rack",
    "pack_into": "zone",
    "visible_devices": "role",
    "failover": "workload",
    "hang_limit": 60.0,
    "silence_limit": 10.0,
    "concurrency": 8,
    "state_size": {
        "parts": [
            {"size": 10**9, "first_rank": 0, "ranks": 1, "contents": None},
            {"size": 5, "first_rank": 1, "ranks": None, "contents": 1},
        ],
        "derivation": "as told",
    },
}
"""A value of each role option that is not its default."""


def words(text: str) -> str:
    """Text without its formatting, to compare what is said."""
    return " ".join(re.sub(r"[`.;]", " ", text).lower().split())


def in_record(spec: JobSpec, option: str) -> object:
    return spec.model_dump(mode="json")["roles"][0][option]


def builder() -> RLJobBuilder:
    return RLJobBuilder().node_num(2).trainer(WORK, "Finishes").actor(WORK, "Worker").total(2)


def test_each_role_option_has_a_value_to_try():
    assert list(VALUES) == list(RoleOptions.model_fields)


@pytest.mark.parametrize("option", RoleOptions.model_fields)
def test_a_role_option_goes_from_builder_and_job_file_to_the_record(option, tmp_path):
    role = {"module": WORK, "class": "Worker", "total": 2, option: VALUES[option]}
    job = {"node_num": 2, "trainer": {"module": WORK, "class": "Finishes"}, "roles": {"actor": role}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    built = getattr(builder(), option)(VALUES[option]).build().spec
    read = RLJobBuilder.from_file(tmp_path / "job.yaml").build().spec

    assert built == read == JobSpec.from_json(built.to_json())
    assert in_record(built, option) == VALUES[option]


@pytest.mark.parametrize("option", RoleOptions.model_fields)
def test_an_adapter_may_give_each_role_option(option):
    ref = {"module": "m", "class_name": "C"}
    defaults = RoleDefaults(cls=ref, **{option: VALUES[option]})

    assert defaults.model_dump(mode="json", exclude_unset=True) == {"cls": ref, option: VALUES[option]}


@pytest.mark.parametrize("option", RoleOptions.model_fields)
def test_builder_and_reference_say_of_a_role_option_what_its_declaration_says(option):
    meaning = words(RoleOptions.model_fields[option].description)
    [row] = re.findall(rf"^\| `{option}\(.*$", (REFERENCE / "builder.md").read_text(), re.MULTILINE)

    assert meaning in words(inspect.getdoc(getattr(RLJobBuilder, option)))
    assert meaning in words(row)
    for page in ("job-file.md", "plugin-api.md"):
        assert re.search(rf"^\|.*`{option}`", (REFERENCE / page).read_text(), re.MULTILINE), page


@pytest.mark.parametrize("option", JobSpec.keys())
def test_a_job_option_is_in_builder_and_reference(option):
    if option != "roles":
        assert inspect.getdoc(getattr(RLJobBuilder, option))
        assert re.search(rf"^\| `{option}\(", (REFERENCE / "builder.md").read_text(), re.MULTILINE)
    assert re.search(rf"^\|.*`{option}`", (REFERENCE / "job-file.md").read_text(), re.MULTILINE)


def test_the_models_of_user_adapter_and_record_share_their_fields():
    assert RoleSpec.model_fields.keys() - RoleOptions.model_fields == {"role", "cls", "parts"}
    assert PartSpec.model_fields.keys() - PlacementRequest.model_fields == {"name"}
    assert RoleDefaults.model_fields.keys() - RoleOptions.model_fields == {"cls"}
    assert FrameworkDefaults.model_fields.keys() - JobOptions.model_fields == {"trainer", "roles"}
    assert JobOptions.model_fields.keys() <= JobSpec.model_fields.keys()


def test_the_older_keys_of_a_job_file_are_still_read(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"device_per_node: 2\ntrainer: {{module: {WORK}, class: Finishes}}\n"
        f"roles:\n  actor: {{module: {WORK}, class: Worker}}\n  critic: {{module: {WORK}, class: Worker}}\n"
        "collocations: [[actor, critic]]\nhost_collocations: []\nseparations: []\n"
    )
    assert RLJobBuilder.from_file(path).build().spec.with_collocation == (("actor", "critic"),)


OLD_PLACE = """
"total": 1, "min_total": null, "per_node": null, "env": {}, "resource": {}, "node_labels": {}, "spread_over": null,
"pack_into": null
"""
OLD_RECORD = f"""
{{"spec_schema": 2, "framework": null, "node_num": 1, "device_per_node": 1, "device_type": "GPU",
"policy": "separate_sync", "config": {{"lr": 0.1}}, "global_env": {{}}, "trainer": {{"module": "m", "class_name": "C"}},
"roles": [
  {{{OLD_PLACE}, "role": "actor", "cls": {{"module": "m", "class_name": "C"}}, "parts": [], "visible_devices": "own",
  "failover": null, "hang_s": 9.0, "concurrency": 32}},
  {{{OLD_PLACE}, "role": "critic", "cls": {{"module": "m", "class_name": "C"}},
  "parts": [{{{OLD_PLACE}, "name": "a"}}], "visible_devices": "own", "failover": null, "hang_s": null,
  "concurrency": 32}}
],
"collocations": [["actor", "critic"]], "host_collocations": [], "separations": [],
"budget": {{"workload": 3, "role": 3, "job": 7, "node": 3, "window_s": 3600.0, "backoff_s": 1.0}},
"commits": {{"durable_every": 10, "state_folder": null}}, "allows_chaos": true, "spare_nodes": 0}}
"""
"""As dlrl wrote it when the schema was 2, key by key."""


def test_a_record_of_schema_2_is_still_read():
    spec = JobSpec.from_json(OLD_RECORD)
    assert (spec.roles[0].hang_limit, spec.restart_budget.job, spec.allow_chaos) == (9.0, 7, True)
    assert spec.with_collocation == (("actor", "critic"),)
    assert [part.name for part in spec.roles[1].parts] == ["a"]
