"""An adapter that raises what it should not is named, with what it raised."""

from __future__ import annotations

import pickle

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.errors import PluginError
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
