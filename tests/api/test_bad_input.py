"""Every wrong input is refused before anything starts, in words that say what to do."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.api.job import _durable_folder
from dlrl_core.errors import JobError, PlanError, SpecError
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec

WORK = "sample_jobs.endings"


def good() -> RLJobBuilder:
    return RLJobBuilder().trainer(WORK, "Finishes").actor(WORK, "Worker")


BAD_BUILDS = {
    "no trainer": (
        lambda: RLJobBuilder().actor(WORK, "Worker"),
        "the job has no trainer; call .trainer(module, class) or .framework(name)",
    ),
    "no actor": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").rollout(WORK, "Worker"),
        "the job has no role 'actor', which is mandatory; call .actor(module, class) or .framework(name)",
    ),
    "node_num 0": (lambda: good().node_num(0), "node_num is 0; it must be at least 1"),
    "node_num negative": (lambda: good().node_num(-3), "node_num is -3; it must be at least 1"),
    "node_num a text": (lambda: good().node_num("3"), "node_num is '3'; it must be a whole number"),
    "node_num a fraction": (lambda: good().node_num(1.5), "node_num is 1.5; it must be a whole number"),
    "node_num a boolean": (lambda: good().node_num(True), "node_num is True; it must be a whole number"),
    "device_per_node negative": (
        lambda: good().device_per_node(-1),
        "device_per_node is -1; it must be at least 1",
    ),
    "device_type unknown": (
        lambda: good().device_type("TPU"),
        "device_type is 'TPU'; it must be one of GPU, NPU, CPU",
    ),
    "device_type empty": (lambda: good().device_type(""), "device_type is ''; it must be a text that is not empty"),
    "total 0": (lambda: good().total(0), "total of role 'actor' is 0; it must be at least 1"),
    "total negative": (lambda: good().total(-2), "total of role 'actor' is -2; it must be at least 1"),
    "total a text": (lambda: good().total("2"), "total of role 'actor' is '2'; it must be a whole number"),
    "per_node negative": (lambda: good().per_node(-1), "per_node of role 'actor' is -1; it must be at least 1"),
    "total not a multiple of per_node": (
        lambda: good().node_num(2).total(3).per_node(2),
        "role 'actor' has total=3 and per_node=2; total must be a multiple of per_node",
    ),
    "more nodes than the job has": (
        lambda: good().node_num(2).total(6).per_node(2),
        "role 'actor' has total=6 and per_node=2, which takes 3 nodes; the job has node_num=2",
    ),
    "total before a role": (
        lambda: RLJobBuilder().total(2).trainer(WORK, "Finishes").actor(WORK, "Worker"),
        ".total() has no role to belong to; call it after .actor(...) or another role",
    ),
    "env before a role": (
        lambda: RLJobBuilder().env({"A": "1"}).trainer(WORK, "Finishes").actor(WORK, "Worker"),
        ".env() has no role to belong to; call it after .actor(...) or another role",
    ),
    "a role given twice": (
        lambda: good().actor(WORK, "Worker"),
        "role 'actor' is given 2 times; give it once",
    ),
    "collocation of an unknown role": (
        lambda: good().with_collocation("actor", "rolout"),
        "unknown role 'rolout'; did you mean 'rollout'?",
    ),
    "collocation of a strange word": (
        lambda: good().with_collocation("actor", "xyz"),
        "unknown role 'xyz'; roles are: actor, rollout, reward, reference, critic",
    ),
    "collocation of a missing role": (
        lambda: good().with_collocation("actor", "critic"),
        "role 'critic' is collocated but the job has no such role",
    ),
    "collocation of one role": (
        lambda: good().with_collocation("actor"),
        "collocation of 'actor' needs at least two different roles",
    ),
    "collocation of nothing": (
        lambda: good().with_collocation(),
        "collocation of no role needs at least two different roles",
    ),
    "a role in two collocations": (
        lambda: good().rollout(WORK, "Worker").critic(WORK, "Worker")
        .with_collocation("actor", "rollout").with_collocation("rollout", "critic"),
        "role 'rollout' is in more than one collocation; a role shares devices in one group only",
    ),
    "collocation of unequal roles": (
        lambda: good().total(2).rollout(WORK, "Worker").total(1).with_collocation("actor", "rollout"),
        "collocated roles need equal total and per_node, so that rank i of each is on one device: "
        "'actor' total=2 per_node=None; 'rollout' total=1 per_node=None",
    ),
    "role() of an unknown role": (
        lambda: good().role("criticc").total(2),
        "unknown role 'criticc'; did you mean 'critic'?",
    ),
    "no such module": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor("sample_jobs.missing", "Worker"),
        "role 'actor' is 'sample_jobs.missing.Worker': there is no module 'sample_jobs.missing'",
    ),
    "no such package": (
        lambda: RLJobBuilder().trainer("not_a_package.trainer", "T").actor(WORK, "Worker"),
        "the trainer is 'not_a_package.trainer.T': there is no module 'not_a_package'",
    ),
    "no such class": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor(WORK, "Wroker"),
        "role 'actor' is 'sample_jobs.endings.Wroker', which can't be imported: AttributeError: "
        "module 'sample_jobs.endings' has no class 'Wroker'; did you mean 'Worker'?",
    ),
    "a function instead of a class": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor(WORK, "helper_function"),
        "role 'actor' is 'sample_jobs.endings.helper_function', which can't be imported: TypeError: "
        "'sample_jobs.endings.helper_function' is a function, not a class",
    ),
    "an actor that is no workload": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor(WORK, "Finishes"),
        "role 'actor' is 'sample_jobs.endings.Finishes', which does not extend dlrl_core.BaseWorkload",
    ),
    "a trainer that is no trainer": (
        lambda: RLJobBuilder().trainer(WORK, "Worker").actor(WORK, "Worker"),
        "the trainer is 'sample_jobs.endings.Worker', which does not extend dlrl_core.BaseTrainer",
    ),
    "a trainer without fit": (
        lambda: RLJobBuilder().trainer(WORK, "_Trainer").actor(WORK, "Worker"),
        "the trainer is 'sample_jobs.endings._Trainer', which does not define 'fit'",
    ),
    "a module that raises": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor("sample_jobs.raises_on_import", "Worker"),
        "role 'actor' is 'sample_jobs.raises_on_import.Worker', which can't be imported: RuntimeError: no licence found",
    ),
    "a class of __main__": (
        lambda: RLJobBuilder().trainer("__main__", "T").actor(WORK, "Worker"),
        "the trainer is '__main__.T': other processes can't import '__main__'; put the class into a module",
    ),
    "an empty class name": (
        lambda: RLJobBuilder().trainer(WORK, "").actor(WORK, "Worker"),
        "the trainer is 'sample_jobs.endings.'; module and class must not be empty",
    ),
    "a module that is no text": (
        lambda: RLJobBuilder().trainer(WORK, "Finishes").actor(None, "Worker"),
        "module of role 'actor' is None; it must be a text that is not empty",
    ),
    "env that is no mapping": (
        lambda: good().env(["A=1"]),
        "env of role 'actor' is a list; it must be a mapping such as {'LOG_LEVEL': 'info'}",
    ),
    "env value None": (
        lambda: good().env({"A": None}),
        "'A' in env of role 'actor' is empty; an environment variable is a text or a number",
    ),
    "env value a boolean": (
        lambda: good().global_env({"A": True}),
        "'A' in global_env is a bool; an environment variable is a text or a number",
    ),
    "env name with '='": (
        lambda: good().global_env({"A=B": "1"}),
        "'A=B' in global_env is no name of an environment variable; such a name is not empty and has no '='",
    ),
    "env name that is no text": (
        lambda: good().global_env({1: "1"}),
        "'1' in global_env is 1; it must be a text that is not empty",
    ),
    "resource that is no mapping": (
        lambda: good().resource(4),
        "resource of role 'actor' is an int; it must be a mapping such as {'CPU': 2, 'GPU': 0.5}",
    ),
    "resource that is no number": (
        lambda: good().resource({"CPU": "two"}),
        "'CPU' in resource of role 'actor' is 'two'; it must be a number",
    ),
    "negative resource": (
        lambda: good().resource({"CPU": -1}),
        "'CPU' in resource of role 'actor' is -1; it must be at least 0",
    ),
    "infinite resource": (
        lambda: good().resource({"CPU": math.inf}),
        "'CPU' in resource of role 'actor' is inf; it must be a finite number",
    ),
    "resource without a name": (
        lambda: good().resource({"": 1}),
        "'' in resource of role 'actor' is ''; it must be a text that is not empty",
    ),
    "min_total 0": (lambda: good().min_total(0), "min_total of role 'actor' is 0; it must be at least 1"),
    "part total 0": (lambda: good().part("a").total(0), "total of part 'actor.a' is 0; it must be at least 1"),
    "label without values": (
        lambda: good().node_labels({"zone": []}),
        "'zone' in node_labels of role 'actor' is []; it must be a list that is not empty",
    ),
    "label that is a number": (
        lambda: good().node_labels({"zone": 1}),
        "'zone' in node_labels of role 'actor' is an int; it must be a text, or a list of texts",
    ),
    "label that is no text": (
        lambda: good().node_labels({"zone": ["a", 7]}),
        "'zone[1]' in node_labels of role 'actor' is 7; it must be a text that is not empty",
    ),
    "failover unknown": (
        lambda: good().failover("nothing"),
        "failover of role 'actor' is 'nothing'; it must be one of 'workload', 'role', 'subgraph', 'job' or 'stop'",
    ),
    "hang_limit 0": (lambda: good().hang_limit(0), "hang_limit of role 'actor' is 0; it must be greater than 0"),
    "concurrency 0": (lambda: good().concurrency(0), "concurrency of role 'actor' is 0; it must be at least 1"),
    "a budget unknown": (
        lambda: good().restart_budget(workloads=3),
        "restart_budget has the unknown key 'workloads'; did you mean 'workload'?",
    ),
    "a budget negative": (
        lambda: good().restart_budget(job=-1),
        "'job' in restart_budget is -1; it must be at least 0",
    ),
    "a role that is nowhere": (
        lambda: good().role("critic").total(2),
        "role 'critic' has no class; say its module and class, or a framework that fills it",
    ),
    "config a number": (
        lambda: good().config(7),
        "config is an int; it must be a dict, an OmegaConf, a YAML file or a framework's words",
    ),
    "config with an open quote": (
        lambda: good().config("it's"),
        "config is a text that no shell could split into words: No closing quotation",
    ),
    "override a number": (
        lambda: good().override(5, "lr=0.1"),
        "override is an int; it must be a text such as 'lr=0.1'",
    ),
    "a huge per_node": (
        lambda: good().total(3).per_node(10**400).rollout(WORK, "Worker").with_host_collocation("actor", "rollout"),
        "total must be a multiple of per_node",
    ),
    "a huge resource": (
        lambda: good().resource({"CPU": "1e400"}),
        "'CPU' in resource of role 'actor' is '1e400'; it must be a number",
    ),
    "an empty role": (lambda: good().role(""), "unknown role ''; roles are: actor"),
    "config words without a framework": (
        lambda: good().config(["lr=0.1", "steps=3"]),
        "config is 'lr=0.1 steps=3'; without a framework it must be a dict, an OmegaConf or a YAML file",
    ),
    "config file missing": (
        lambda: good().config("nowhere.yaml"),
        "can't read 'nowhere.yaml': No such file or directory",
    ),
    "config with a set": (
        lambda: good().config({"model": {"sizes": {1, 2}}}),
        "config can't be held by OmegaConf: Value 'set' is not a supported primitive type",
    ),
    "framework unknown": (
        lambda: good().framework("verll"),
        "unknown framework 'verll'; did you mean 'verl'?",
    ),
    "framework empty": (lambda: good().framework(""), "framework is ''; it must be a text that is not empty"),
    "framework not installed": (
        lambda: RLJobBuilder().framework("verl").config(["trainer.n_gpus_per_node=8"]),
        "verl and hydra-core are not installed here; run: pip install 'dlrl[verl]', or give the composed YAML",
    ),
    "policy unknown": (lambda: good().policy("colocate_snyc"), "did you mean 'colocate_sync'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_BUILDS, ids=str)
def test_build_refuses(case):
    make, message = BAD_BUILDS[case]
    with pytest.raises(SpecError) as raised:
        make().build()
    assert any(message in problem for problem in raised.value.problems), raised.value
    assert pickle.loads(pickle.dumps(raised.value)).problems == raised.value.problems


def test_build_reports_all_problems_at_once():
    with pytest.raises(SpecError) as raised:
        (
            RLJobBuilder()
            .node_num(-1)
            .rollout(WORK, "Wroker").total(3).per_node(2)
            .framework("verll")
            .policy("nope")
            .build()
        )  # fmt: skip
    text = str(raised.value)
    assert text.startswith("5 problems in the job:\n  - ")
    for part in (
        "unknown framework 'verll'",
        "'nope'",
        "node_num is -1",
        "total must be a multiple",
        "no class 'Wroker'",
    ):
        assert part in text


def test_what_follows_from_a_refused_value_is_not_told_too():
    with pytest.raises(SpecError) as raised:
        good().node_num(0).total("4").per_node(2).rollout(WORK, "Worker").total(4).per_node(2).build()
    assert raised.value.problems == (
        "node_num is 0; it must be at least 1",
        "total of role 'actor' is '4'; it must be a whole number",
    )


def test_a_refused_environment_variable_is_not_shown():
    with pytest.raises(SpecError) as raised:
        good().env({"TOKEN": ["hush"]}).global_env({"KEY": {"a": "hush"}, "NUL": "hush\0"}).build()
    assert len(raised.value.problems) == 3
    assert "hush" not in str(raised.value)


BAD_FILES = {
    "not YAML": ("trainer: [", "is not valid YAML"),
    "a list": ("- 1\n- 2\n", "holds a list; it must be a mapping at the top"),
    "empty roles": ("trainer: {module: m, class: C}\nroles: 3\n", "'roles' is an int; it must be a mapping of roles"),
    "unknown key": ("nodenum: 3\n", "has the unknown key 'nodenum'; did you mean 'node_num'?"),
    "unknown role": ("roles:\n  acter: {module: m, class: C}\n", "unknown role 'acter'; did you mean 'actor'?"),
    "unknown role key": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, totl: 2}}\n",
        "role 'actor' has the unknown key 'totl'; did you mean 'total'?",
    ),
    "a role that is a text": ("roles:\n  actor: Worker\n", "role 'actor' is a str; it must be a mapping"),
    "a trainer that is a text": (
        "trainer: Finishes\n",
        "the trainer is a str; it must be a mapping with module and class",
    ),
    "parts that are no mapping": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, parts: [a]}}\n",
        "parts of role 'actor' is a list; it must be a mapping",
    ),
    "a part that is a number": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, parts: {{a: 2}}}}\n",
        "part 'actor.a' is an int; it must be a mapping",
    ),
    "unknown key of a part": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, parts: {{a: {{failover: role}}}}}}\n",
        "part 'actor.a' has the unknown key 'failover'",
    ),
    "unknown key of the trainer": (
        "trainer: {module: m, class: C, clas: D}\n",
        "the trainer has the unknown key 'clas'; did you mean 'class'?",
    ),
    "the schema of a record": ("spec_schema: 99\n", "job.yaml' has the unknown key 'spec_schema'"),
    "cls of the job": ("cls: 3\n", "job.yaml' has the unknown key 'cls'"),
    "role in a role": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, role: critic}}\n",
        "role 'actor' has the unknown key 'role'",
    ),
    "cls in a role": (
        "roles:\n  actor: {cls: 0}\n",
        "role 'actor' has the unknown key 'cls'; did you mean 'class'?",
    ),
    "class_name in a role": (
        f"roles:\n  actor: {{module: {WORK}, class_name: Worker}}\n",
        "role 'actor' has the unknown key 'class_name'",
    ),
    "name in a part": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, parts: {{a: {{name: b}}}}}}\n",
        "part 'actor.a' has the unknown key 'name'",
    ),
    "cls in a part": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, parts: {{a: {{cls: b}}}}}}\n",
        "part 'actor.a' has the unknown key 'cls'",
    ),
    "cls of the trainer": ("trainer: {cls: 3}\n", "the trainer has the unknown key 'cls'; did you mean 'class'?"),
    "class_name of the trainer": (
        "trainer: {module: m, class_name: C}\n",
        "the trainer has the unknown key 'class_name'; did you mean 'class'?",
    ),
    "a role without a name": ('roles:\n  "": {module: m, class: C}\n', "unknown role ''; roles are: actor"),
    "a role without anything": ("roles:\n  actor:\n", "role 'actor' is empty; it must be a mapping"),
    "a role in two spellings": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker}}\n  Actor: {{module: {WORK}, class: Worker}}\n",
        "role 'actor' is given 2 times; give it once",
    ),
    "a key by its old and its new name": (
        "collocations: []\nwith_collocation: []\n",
        "'with_collocation' is given 2 times, as 'collocations' too; give it once, as 'with_collocation'",
    ),
    "keys that look like those of a class": (
        f"roles:\n  actor: {{module: {WORK}, class: Worker, env: {{cls: []}}}}\n",
        "'cls' in env of role 'actor' is a list; an environment variable is a text or a number",
    ),
    "a class without its name": (
        f"roles:\n  actor: {{module: {WORK}}}\n",
        "role 'actor' has no 'class', which is mandatory",
    ),
    "groups that are no lists": (
        "with_collocation: [actor, rollout]\n",
        "with_collocation[0] is a str; it must be a list",
    ),
    "a number as a text": ("node_num: two\n", "node_num is 'two'; it must be a whole number"),
    "config file missing": ("config: nowhere.yaml\n", "nowhere.yaml': No such file or directory"),
}


@pytest.mark.parametrize("case", BAD_FILES, ids=str)
def test_a_job_file_is_refused(case, tmp_path):
    text, message = BAD_FILES[case]
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as raised:
        RLJobBuilder.from_file(path).build()
    assert any(message in problem for problem in raised.value.problems), raised.value


@pytest.mark.parametrize("name", ["", " x", "-x", "a/b", "a b", "x" * 64, None, 3, "ünïcode"])
def test_submit_refuses_names_that_could_not_be_kept_apart(name):
    with pytest.raises(SpecError, match="is not allowed; use 1 to 63 letters"):
        good().build().submit(name)


@pytest.mark.parametrize("action", ["wait", "status", "stop"])
def test_a_job_that_was_not_submitted_can_not_be_asked(action):
    with pytest.raises(JobError, match="there is no job to .*; call submit first"):
        getattr(good().build(), action)()


def role(total: int, **more) -> RoleSpec:
    return RoleSpec(role="actor", cls=ClassRef(module=WORK, class_name="Worker"), total=total, **more)


@pytest.mark.parametrize(
    ("spec", "cluster", "message"),
    [
        (
            {"roles": [role(3)], "device_per_node": 2},
            None,
            "role 'actor' needs 3 x 1 GPU; the job has node_num=1 x device_per_node=2; "
            "it would fit with node_num=2, or with device_per_node=3",
        ),
        (
            {"roles": [role(4, per_node=2)], "node_num": 2},
            None,
            "role 'actor' needs 2 nodes with 2 GPU free each; the job has node_num=2 x device_per_node=1; "
            "it would fit with device_per_node=2",
        ),
        (
            {"roles": [role(1, resource={"GPU": 2})]},
            None,
            "role 'actor' needs 2 GPU on one node; the job has node_num=1 x device_per_node=1; "
            "it would fit with device_per_node=2",
        ),
        (
            {"roles": [role(8)], "device_per_node": 8},
            (1, {"CPU": 8, "GPU": 6}),
            "role 'actor' needs 8 x (1 GPU, 1 CPU); the cluster has 6 GPU and 8 CPU free on 1 node, and the job may use "
            "node_num=1 x device_per_node=8; it would fit with total=6 for 'actor', "
            "or with node_num=2 and 1 more node like node-0",
        ),
        (
            {"roles": [role(8)], "device_per_node": 8},
            (1, {"CPU": 4, "GPU": 8}),
            "role 'actor' needs 8 x (1 GPU, 1 CPU); the cluster has 8 GPU and 4 CPU free on 1 node, and the job may use "
            "node_num=1 x device_per_node=8; it would fit with total=4 for 'actor', or with CPU=0.5 for 'actor'",
        ),
        (
            {"roles": [role(4, per_node=2)], "node_num": 2, "device_per_node": 2},
            (1, {"CPU": 8, "GPU": 8}),
            "role 'actor' needs 2 nodes with 2 GPU and 2 CPU free each; the cluster has 8 GPU and 8 CPU free on 1 node, "
            "and the job may use node_num=2 x device_per_node=2; it would fit with total=2 for 'actor', "
            "or with 1 more node like node-0",
        ),
        (
            {"roles": [role(4)], "device_per_node": 4},
            (2, {"CPU": 8, "GPU": 3}),
            "role 'actor' needs 4 x (1 GPU, 1 CPU); the cluster has 6 GPU and 16 CPU free on 2 nodes, at most 3 GPU on "
            "one, and the job may use node_num=1 x device_per_node=4; it would fit with node_num=2, "
            "or with total=3 for 'actor'",
        ),
    ],
)
def test_a_job_that_does_not_fit_says_what_is_missing(spec, cluster, message):
    from dlrl_core.plan import ClusterView, make_plan, needed_cluster

    job = JobSpec(trainer=ClassRef(module=WORK, class_name="Finishes"), **spec)
    with pytest.raises(PlanError) as raised:
        view = ClusterView.described(node_num=cluster[0], resources=cluster[1]) if cluster else needed_cluster(job)
        make_plan(job, view)
    assert str(raised.value) == message


BAD_INVOCATIONS = {
    "pre_function": (
        {"pre_function": print},
        "trainer_invocation has no attribute 'pre_function'; did you mean 'pre_func'?",
    ),
    "timeout 0": ({"timeout": 0}, "timeout=0; it must be a number of seconds greater than 0"),
    "timeout text": ({"timeout": "10"}, "timeout='10'; it must be a number of seconds greater than 0"),
    "target": ({"target": "RANK1"}, "target='RANK1'; it must be 'ALL' or 'RANK0'"),
    "blocking": ({"blocking": "no"}, "blocking='no'; it must be True or False"),
    "post_func": ({"post_func": 3}, "post_func=3; it must be a function or None"),
}


@pytest.mark.parametrize("case", BAD_INVOCATIONS, ids=str)
def test_trainer_invocation_refuses(case):
    from dlrl_core import trainer_invocation

    given, message = BAD_INVOCATIONS[case]
    with pytest.raises(SpecError) as raised:
        trainer_invocation(**given)
    assert message in str(raised.value)


def test_a_missing_dependency_of_a_users_module_is_left_for_the_workers():
    """The driver of a cluster job often lacks what its nodes have, such as torch."""
    job = RLJobBuilder().trainer(WORK, "Finishes").actor("sample_jobs.needs_more", "Worker").build()
    assert str(job.spec.roles[0].cls) == "sample_jobs.needs_more.Worker"


def test_an_unreachable_cluster_is_named():
    from dlrl_core.errors import ClusterError

    with pytest.raises(ClusterError, match=r"can't join the Ray cluster at '127\.0\.0\.1:1'"):
        good().build().submit("x", address="127.0.0.1:1")


def test_paths_in_messages_are_the_users(tmp_path: Path):
    path = tmp_path / "conf.yaml"
    path.write_text("a: [1, 2\n")
    with pytest.raises(SpecError, match="conf.yaml' is not valid YAML"):
        good().config(path).build()


@pytest.mark.parametrize(
    ("state_folder", "expected"),
    [
        ("/shared", "/shared/job/run"),
        ("/shared/", "/shared/job/run"),
        ("s3://bucket", "s3://bucket/job/run"),
        ("s3://bucket/folder/", "s3://bucket/folder/job/run"),
        ("memory://", "memory://job/run"),
    ],
)
def test_the_place_of_a_run_is_below_the_state_folder_a_path_or_a_url(state_folder, expected):
    here = "sample_jobs.keeping"
    builder = RLJobBuilder().config({}).trainer(here, "KeepingTrainer").actor(here, "Keeper")
    spec = builder.commits(state_folder=state_folder).build().spec
    assert _durable_folder(spec, "job", "run") == expected
