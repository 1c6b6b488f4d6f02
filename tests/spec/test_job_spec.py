"""JobSpec and the config in it survive JSON exactly."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dlrl_core.errors import SchemaError, SpecError
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, ConfigValue, JobSpec, RoleSpec
from dlrl_core.spec.job_spec import SCHEMA

texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "${" not in text and text != "???")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary()
keys = texts | st.integers() | st.booleans()
configs = st.dictionaries(
    texts,
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(configs)
def test_any_config_comes_back_as_omegaconf_holds_it(config):
    spec = JobSpec(config=ConfigValue.of(config))
    back = JobSpec.from_json(spec.to_json())
    assert back == spec
    held = OmegaConf.to_container(OmegaConf.create(config))
    assert repr(OmegaConf.to_container(back.config.open())) == repr(held)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -1.5, float("inf"), "", "None", "true", "007", "1e-3", "two\nlines", "'", '"', "\\",
        "ünïcödé \u2028", b"\x00\xff", pathlib.Path("/data/x"), [], {}, [None, [True]], {"$bytes": "no tag"},
        {"$plain": {"$path": "x"}}, {1: "int key", "x": "text key"}, "$", {"a": {"b": {"c": None}}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_reaches_the_workload_unchanged(value):
    opened = JobSpec.from_json(JobSpec(config=ConfigValue.of({"x": value})).to_json()).config.open()
    assert repr(OmegaConf.to_container(opened)) == repr(OmegaConf.to_container(OmegaConf.create({"x": value})))


def test_interpolations_stay_unresolved_until_the_workload_reads_them():
    config = OmegaConf.create({"lr": 0.1, "same": "${lr}", "env": "${oc.env:HOME}", "missing": "???"})
    spec = JobSpec.from_json(JobSpec(config=ConfigValue.of(config)).to_json())
    assert spec.config.plain() == {"lr": 0.1, "same": "${lr}", "env": "${oc.env:HOME}", "missing": "???"}
    assert spec.config.open().same == 0.1


def test_a_newer_spec_is_refused_by_number_even_if_it_has_fields_unknown_here():
    text = f'{{"spec_schema": {SCHEMA + 1}, "flux": true}}'
    with pytest.raises(SchemaError, match=f"job spec has schema {SCHEMA + 1}, this dlrl reads up to {SCHEMA}"):
        JobSpec.from_json(text)


@pytest.mark.parametrize("text", ["{", "[]", '{"node_num": "x"}', '{"flux": 1}'])
def test_a_spec_that_can_not_be_read_says_where(text):
    with pytest.raises(SpecError):
        JobSpec.from_json(text)


def test_a_spec_is_frozen():
    spec = JobSpec()
    with pytest.raises(ValueError, match="frozen"):
        spec.node_num = 3


def test_a_whole_spec_round_trips():
    ref = ClassRef(module="m", class_name="C")
    spec = JobSpec(
        framework=None,
        node_num=3,
        device_per_node=2,
        config=ConfigValue.of({"a": None}),
        global_env={"A": "b"},
        trainer=ref,
        roles=(
            RoleSpec(role=RoleType.ACTOR, cls=ref, total=2, per_node=1, env={"X": "y"}, resource={"CPU": 0.5}),
            RoleSpec(role=RoleType.ROLLOUT, cls=ref, total=2, per_node=1),
        ),
        with_collocation=((RoleType.ACTOR, RoleType.ROLLOUT),),
    )
    assert JobSpec.from_json(spec.to_json()) == spec


def test_a_config_never_shows_in_a_repr():
    spec = JobSpec(config=ConfigValue.of({"api_key": "hush"}))
    assert "hush" not in repr(spec)
