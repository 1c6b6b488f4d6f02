"""An adapter that raises what it should not is named, with what it raised."""

from __future__ import annotations

import pickle

import pytest

from dlrl_core import RLJobBuilder, __version__
from dlrl_core.errors import PluginError, SpecError
from dlrl_core.plugin import FrameworkDefaults, RoleDefaults
from dlrl_core.spec import ClassRef
from dlrl_openrlhf.plugin import OpenRLHFAdapter


@pytest.mark.parametrize("method", ["read_config", "fill"])
def test_an_unexpected_exception_of_an_adapter_is_a_plugin_error(method, monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "read_config", lambda *_: {})
    monkeypatch.setattr(OpenRLHFAdapter, method, lambda *_: {}["workers"])
    with pytest.raises(PluginError) as raised:
        RLJobBuilder().framework("openrlhf").build()

    begin = f"plugin 'openrlhf' (dlrl {__version__}) failed in '{method}' of framework 'openrlhf' at {__file__}:"
    assert str(raised.value).startswith(begin)
    assert str(raised.value).endswith(": KeyError: 'workers'")
    assert isinstance(raised.value.__cause__, KeyError)
    assert pickle.loads(pickle.dumps(raised.value)).cause.type_name == "KeyError"


CLS = ClassRef(module="m", class_name="C")
BAD_DEFAULTS = {
    "node_num": (
        lambda: FrameworkDefaults(trainer=CLS, roles={}, node_num=0, device_type="TPU"),
        ["node_num is 0; it must be at least 1", "device_type is 'TPU'; it must be one of GPU, NPU, CPU"],
    ),
    "an old name": (
        lambda: FrameworkDefaults(trainer=CLS, roles={}, env={}),
        ["the job has the unknown key 'env'; known: "
         + ", ".join(FrameworkDefaults.model_fields)],
    ),
    "a trainer that is a text": (
        lambda: FrameworkDefaults(trainer="m.C", roles={}),
        ["the trainer is a str; it must be a mapping with module and class"],
    ),
    "an unknown role": (
        lambda: FrameworkDefaults(trainer=CLS, roles={"acter": RoleDefaults(cls=CLS)}),
        ["role 'acter' is 'acter'; it must be one of 'actor', 'rollout', 'reward', 'reference' or 'critic'"],
    ),
    "no class": (lambda: RoleDefaults(total=2), ["the job has no 'cls', which is mandatory"]),
    "an empty class": (
        lambda: RoleDefaults(cls={"module": "m", "class_name": 3}),
        ["class is 3; it must be a text that is not empty"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_DEFAULTS, ids=str)
def test_wrong_defaults_of_an_adapter_name_the_field_and_its_value(case, monkeypatch):
    fill, texts = BAD_DEFAULTS[case]
    monkeypatch.setattr(OpenRLHFAdapter, "read_config", lambda *_: {})
    monkeypatch.setattr(OpenRLHFAdapter, "fill", lambda *_: fill())
    with pytest.raises(SpecError) as raised:
        RLJobBuilder().framework("openrlhf").build()

    begin = "framework 'openrlhf' gives defaults that can't be: "
    assert raised.value.problems == tuple(begin + text for text in texts)


def test_a_count_that_an_adapter_takes_from_a_config_is_refused_as_the_users_would_be(monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "read_config", lambda *_: {})
    monkeypatch.setattr(
        OpenRLHFAdapter, "fill", lambda *_: RoleDefaults(cls=ClassRef(module="m", class_name="C"), total=0)
    )
    with pytest.raises(SpecError) as raised:
        RLJobBuilder().framework("openrlhf").build()

    assert raised.value.problems == (
        "framework 'openrlhf' gives defaults that can't be: total is 0; it must be at least 1",
    )
