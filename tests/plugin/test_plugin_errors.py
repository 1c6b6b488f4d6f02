"""What the code of a plugin raises is an error of that plugin: its name, the place, and what it raised."""

from __future__ import annotations

import importlib.metadata
import linecache

import pytest

from dlrl_core.errors import PluginError, SpecError
from dlrl_core.plugin import PluginHost
from dlrl_core.plugin.contract import ConfigKind, ConfigSource

CODE = """
import json
from dlrl_core.errors import SpecError
from dlrl_core.plugin import FrameworkAdapter, hookimpl

class Acme(FrameworkAdapter):
    name = "acme"
    def read_config(self, source): return json.loads("{")
    def fill(self, config): return config["model"]
    def prepare_process(self, role): raise SystemExit(3)
    def installed_version(self): raise KeyboardInterrupt
    def check_available(self): raise SpecError(["this config is wrong"])

def policy(spec): raise ValueError("two\\nlines")
def opener(url): return 1 / 0
def starter(): raise OSError(2, "no such cluster")
def plan_format(plan): return plan.no_such_field

def check(request):
    yield "first"
    raise RuntimeError("the second check")

@hookimpl
def dlrl_frameworks(): return [Acme]
@hookimpl
def dlrl_policies(): return {"p": policy}
@hookimpl
def dlrl_stores(): return {"s": opener}
@hookimpl
def dlrl_clusters(): return {"c": starter}
@hookimpl
def dlrl_plan_formats(): return {"f": plan_format}
@hookimpl
def dlrl_doctor_checks(): return {"d": check}
"""


@pytest.fixture
def host(site) -> PluginHost:
    site.install("acme-dist", CODE)
    dists = importlib.metadata.distributions(path=[str(site.path)])
    return PluginHost.discover(None, [entry for dist in dists for entry in dist.entry_points])


SOURCE = ConfigSource(ConfigKind.WORDS, ("x",))
ERRORS = {
    "fill": (lambda host: host.framework("acme").fill({}), "'fill' of framework 'acme'", "KeyError: 'model'"),
    "a library that it calls": (
        lambda host: host.frameworks()["acme"].read_config(SOURCE),
        "'read_config' of framework 'acme'",
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "an exit": (
        lambda host: host.framework("acme").prepare_process(role=None),
        "'prepare_process' of framework 'acme'",
        "SystemExit: 3",
    ),
    "policy": (lambda host: host.policy("p")(None), "policy 'p'", "ValueError: two"),
    "store": (lambda host: host.store_opener("s")("s://"), "store scheme 's'", "ZeroDivisionError: division by zero"),
    "cluster": (
        lambda host: host.cluster_starter("c")(),
        "cluster 'c'",
        "FileNotFoundError: [Errno 2] no such cluster",
    ),
    "plan format": (
        lambda host: host.plan_format("f")(None),
        "plan format 'f'",
        "AttributeError: 'NoneType' object has no attribute 'no_such_field'",
    ),
    "doctor check": (
        lambda host: list(host.doctor_checks()["d"](None)),
        "doctor check 'd'",
        "RuntimeError: the second check",
    ),
}


@pytest.mark.parametrize(("ask", "what", "raised"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_the_plugin_what_it_was_asked_for_and_the_place(host, ask, what, raised):
    with pytest.raises(PluginError) as caught:
        ask(host)

    begin = f"plugin 'acme' (acme-dist 1.0) failed in {what} at "
    place, _, text = str(caught.value).removeprefix(begin).partition(": ")
    assert text == raised
    path, _, line = place.rpartition(":")
    asked_for = linecache.getline(path, int(line))
    assert "raise" in asked_for or "return" in asked_for
    assert caught.value.cause.type_name == type(caught.value.__cause__).__name__ == raised.partition(":")[0]


def test_what_a_check_found_before_it_failed_is_kept(host):
    assert next(iter(host.doctor_checks()["d"](None))) == "first"


def test_an_error_of_dlrl_that_an_adapter_raises_on_purpose_passes(host):
    with pytest.raises(SpecError, match="this config is wrong"):
        host.framework("acme").check_available()


def test_an_interrupt_passes(host):
    with pytest.raises(KeyboardInterrupt):
        host.framework("acme").installed_version()
