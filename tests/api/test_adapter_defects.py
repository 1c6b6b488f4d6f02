"""An adapter that raises what it should not is named, with what it raised."""

from __future__ import annotations

import pickle

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.errors import PluginError, SpecError
from dlrl_core.plugin import RoleDefaults
from dlrl_core.spec import ClassRef
from dlrl_openrlhf.plugin import OpenRLHFAdapter


@pytest.mark.parametrize("method", ["read_config", "fill"])
def test_an_unexpected_exception_of_an_adapter_is_a_plugin_error(method, monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "read_config", lambda *_: {})
    monkeypatch.setattr(OpenRLHFAdapter, method, lambda *_: {}["workers"])
    with pytest.raises(PluginError) as raised:
        RLJobBuilder().framework("openrlhf").build()

    assert str(raised.value) == (
        f"framework 'openrlhf' can't be used with this config: its adapter's {method} raised KeyError: 'workers'"
    )
    assert isinstance(raised.value.__cause__, KeyError)
    assert pickle.loads(pickle.dumps(raised.value)).cause.type_name == "KeyError"


def test_a_count_that_an_adapter_takes_from_a_config_is_refused_as_the_users_would_be(monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "read_config", lambda *_: {})
    monkeypatch.setattr(
        OpenRLHFAdapter, "fill", lambda *_: RoleDefaults(cls=ClassRef(module="m", class_name="C"), total=0)
    )
    with pytest.raises(SpecError) as raised:
        RLJobBuilder().framework("openrlhf").build()

    assert raised.value.problems == (
        "framework 'openrlhf' fills a role that can't be: total is 0; it must be at least 1",
    )
