"""The kit finds what is wrong with an adapter, and says it."""

from __future__ import annotations

import pytest

from dlrl_conformance import AdapterConformance

STEPS = 12


def conformance(name: str, **attributes) -> AdapterConformance:
    """The tests of a framework with acme's config."""
    config = {"steps": STEPS, "pull_s": 0.2, "roles": {"actor": 1, "rollout": 1}}
    attributes = {"framework": name, "steps": STEPS, "config": config, "gone_s": 2.0, **attributes}
    return type(f"Test{name.title()}", (AdapterConformance,), attributes)()


def fails_with(test) -> str:
    with pytest.raises(AssertionError) as failure:
        test()
    return str(failure.value)


def test_a_module_that_imports_its_framework_is_found():
    tests = conformance("heavy")
    message = fails_with(tests.test_its_module_imports_neither_its_framework_nor_torch)
    assert message == "the plugin's module imports 'heavy_engine'; import it where it runs"
    assert "ModuleNotFoundError: import of heavy_engine halted" in fails_with(
        tests.test_it_plans_without_its_framework_and_imports_no_class
    )


def test_attributes_that_say_nothing_are_all_named():
    message = fails_with(conformance("heavy").test_it_is_registered_and_says_what_it_is)
    for problem in (
        "description is empty",
        "versions is '2.x'; it must be a PEP 440 specifier",
        "extra is 'heavy'; dlrl has ",
    ):
        assert problem in message


def test_filling_something_else_each_time_is_found():
    message = fails_with(conformance("fickle").test_filling_is_pure_and_always_the_same)
    assert message == "fill: fill returned something else the second time, in: roles"


def test_writing_to_the_given_config_is_found():
    message = fails_with(conformance("grasping").test_filling_is_pure_and_always_the_same)
    assert "fill changed the config it was given, in: steps" in message


def test_taking_an_unknown_key_is_found():
    message = fails_with(conformance("lenient").test_an_unknown_key_is_refused_before_anything_starts)
    assert message == "read_config takes 'no_such_key', which is no key of the framework"


def test_classes_counts_and_scopes_that_are_none_are_all_named():
    message = fails_with(conformance("nowhere").test_every_role_has_a_class_a_count_and_a_scope)
    for problem in (
        "module 'acme_rl.roles' has no class 'AcmeRolout'; did you mean 'AcmeRollout'?",
        "role 'rollout' has total=0; it must be at least 1",
        "role 'rollout' declares 'sometimes'; the scopes are 'workload', 'role', 'subgraph', 'job', 'stop'",
    ):
        assert problem in message


def test_importing_classes_to_plan_is_found():
    message = fails_with(conformance("eager").test_it_plans_without_its_framework_and_imports_no_class)
    assert message == "planning imports 'acme_rl.roles'"


def test_a_framework_that_is_not_installed_is_not_run():
    class Missing(AdapterConformance):
        framework = "openrlhf"
        steps = STEPS

        @property
        def config(self):
            raise AssertionError("it was read")

    with pytest.raises(pytest.skip.Exception, match="openrlhf is not installed"):
        Missing().test_it_survives_every_death()


def test_a_trainer_that_never_commits_is_found(ray_2_nodes_8_gpus):
    message = fails_with(conformance("uncommitted").test_it_runs_to_the_end_and_commits_every_step)
    assert message == "nothing was committed; call self.commit(step) in `fit` at the end of every step"


def test_lost_state_an_engine_left_behind_and_a_resume_from_nothing_are_found(ray_2_nodes_8_gpus):
    tests = conformance("forgetful", resume_config=lambda self, config: config)
    deaths = fails_with(tests.test_it_survives_every_death)
    assert "(sleep 20) outlived its death" in deaths
    assert "the end differs" in deaths
    resumed = fails_with(tests.test_it_resumes_after_what_it_had_saved)
    assert "it went on after step 0 of 12" in resumed
