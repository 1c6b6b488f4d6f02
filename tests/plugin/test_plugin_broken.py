"""A plugin that can't be loaded breaks only whoever asks for its name."""

from __future__ import annotations

import pytest

from dlrl_core.errors import PluginError
from dlrl_core.plugin import API_VERSION, PluginHost, PluginRecord, PluginStatus


def record_of(host: PluginHost, name: str) -> PluginRecord:
    [record] = [record for record in host.records if record.name == name]
    return record


BROKEN_CODE = {
    "a missing import": (
        "import no_such_module_here",
        "ModuleNotFoundError: No module named 'no_such_module_here'",
    ),
    "a syntax error": ("def broken(:", "SyntaxError: "),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "a bare exception": ("raise RuntimeError", "RuntimeError"),
    "a BaseException": ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "an exception that can't be printed": (
        "class Mute(Exception):\n    def __str__(self): raise TypeError\nraise Mute",
        "Mute",
    ),
    "no hook": (
        "x = 1",
        "it implements no hook; mark one of dlrl_clusters, dlrl_commands, dlrl_detectors, dlrl_doctor_checks, ",
    ),
    "an unknown hook": (
        "from dlrl_core import hookimpl\n@hookimpl\ndef dlrl_framework(): return []",
        "it implements the unknown hook 'dlrl_framework'; did you mean 'dlrl_frameworks'?",
    ),
    "a hook with arguments": (
        "from dlrl_core import hookimpl\n@hookimpl\ndef dlrl_frameworks(config): return []",
        "PluginValidationError: ",
    ),
    "an API version in words": (
        "DLRL_API_VERSION = 'one'",
        "DLRL_API_VERSION is 'one'; it must be an integer",
    ),
}


@pytest.mark.parametrize(("code", "words"), BROKEN_CODE.values(), ids=BROKEN_CODE)
def test_a_broken_module_is_on_record_and_the_others_load_on(site, code, words):
    site.install("torn-dist", code, entry="torn")
    site.install_framework("acme-dist", "acme")

    host = PluginHost.discover()

    record = record_of(host, "torn")
    assert record.status is PluginStatus.BROKEN
    assert record.error.startswith("plugin 'torn' (torn-dist 1.0) is broken; update or uninstall torn-dist: ")
    assert words in record.error
    assert host.framework("acme").name == "acme"
    with pytest.raises(PluginError, match=r"plugin 'torn' \(torn-dist 1\.0\) is broken"):
        host.framework("torn")


WRONG_RETURNS = {
    "no return": (
        "dlrl_frameworks",
        "pass",
        "dlrl_frameworks returned None; it must return a list of adapter classes",
    ),
    "a tuple": ("dlrl_frameworks", "return (Whole,)", "dlrl_frameworks returned a value of type 'tuple'"),
    "a generator": ("dlrl_frameworks", "yield Whole", "dlrl_frameworks returned a value of type 'generator'"),
    "another class": (
        "dlrl_frameworks",
        "return [dict]",
        "a list with the class 'dict'; each item must be a subclass",
    ),
    "an instance": ("dlrl_frameworks", "return [Whole()]", "a list with a value of type 'Whole'"),
    "an empty name": ("dlrl_frameworks", "return [Nameless]", "adapter 'Nameless' has the name ''"),
    "the base class": (
        "dlrl_frameworks",
        "return [FrameworkAdapter]",
        "adapter 'FrameworkAdapter' has the name None",
    ),
    "an abstract class": ("dlrl_frameworks", "return [Half]", "adapter 'Half' does not implement fill"),
    "a constructor that raises": ("dlrl_frameworks", "return [Unborn]", "RuntimeError: no instance today"),
    "a name twice": (
        "dlrl_frameworks",
        "return [Whole, Whole]",
        "dlrl_frameworks returned the framework 'whole' twice",
    ),
    "a hook that raises": ("dlrl_frameworks", "raise KeyError('lost')", "KeyError: 'lost'"),
    "a hook that exits": ("dlrl_frameworks", "raise SystemExit", "SystemExit"),
    "policies in a list": ("dlrl_policies", "return [len]", "dlrl_policies returned a value of type 'list'"),
    "a policy without a name": ("dlrl_policies", "return {'': len}", "dlrl_policies returned the name ''"),
    "a policy that is no function": (
        "dlrl_policies",
        "return {'p': 3}",
        "dlrl_policies returned a value of type 'int' for 'p'; it must be callable, or an import path",
    ),
    "a path without a function": (
        "dlrl_commands",
        "return {'c': 'acme.commands'}",
        "dlrl_commands returned a value of type 'str' for 'c', 'acme.commands'; an import path is 'module:function'",
    ),
    "stores that are None": (
        "dlrl_stores",
        "return None",
        "dlrl_stores returned None; it must return a dict",
    ),
    "a scheme that is no string": ("dlrl_stores", "return {1: open}", "dlrl_stores returned the name 1"),
}


@pytest.mark.parametrize(("hook", "body", "words"), WRONG_RETURNS.values(), ids=WRONG_RETURNS)
def test_a_hook_that_returns_the_wrong_thing_makes_its_plugin_broken(site, hook, body, words):
    site.install_hook("torn-dist", hook, body, entry="torn")

    host = PluginHost.discover()

    record = record_of(host, "torn")
    assert record.status is PluginStatus.BROKEN
    assert words in record.error
    assert record.error.partition("\n")[0] in host.problems()


def test_a_plugin_that_breaks_in_one_hook_adds_nothing_through_another(site):
    site.install(
        "torn-dist",
        """
        from dlrl_core.plugin import hookimpl

        @hookimpl
        def dlrl_policies():
            return {"torn_policy": lambda spec: spec}

        @hookimpl
        def dlrl_stores():
            raise ValueError("no stores")
        """,
        entry="torn",
    )

    with pytest.raises(PluginError, match="unknown policy 'torn_policy'"):
        PluginHost.discover().policy("torn_policy")


def test_an_optional_hook_of_a_newer_dlrl_is_no_problem(site):
    site.install(
        "acme-dist",
        """
        from dlrl_core.plugin import hookimpl

        @hookimpl(optionalhook=True)
        def dlrl_detectors_of_tomorrow(): ...

        @hookimpl
        def dlrl_policies(): return {}
        """,
    )

    assert record_of(PluginHost.discover(), "acme").status is PluginStatus.LOADED


@pytest.mark.parametrize(
    ("version", "advice"), [(API_VERSION + 1, "update dlrl"), (1, "update acme-dist")], ids=["newer", "older"]
)
def test_a_plugin_of_another_api_version_is_not_asked_for_anything(site, version, advice):
    site.install(
        "acme-dist",
        f"""
        from dlrl_core.plugin import hookimpl
        DLRL_API_VERSION = {version}

        @hookimpl
        def dlrl_hook_of_that_version(): raise AssertionError
        """,
    )

    host = PluginHost.discover()

    words = f"plugin 'acme' (acme-dist 1.0) speaks plugin API {version}, this dlrl speaks {API_VERSION}; {advice}"
    assert record_of(host, "acme").status is PluginStatus.API_MISMATCH
    assert words in host.problems()
    with pytest.raises(PluginError) as caught:
        host.framework("acme")
    assert str(caught.value) == words


def test_a_plugin_that_does_not_say_its_api_version_is_of_the_first(site):
    site.install("acme-dist", "# no DLRL_API_VERSION\nfrom dlrl_core.plugin import hookimpl")

    problem = f"plugin 'acme' (acme-dist 1.0) speaks plugin API 1, this dlrl speaks {API_VERSION}; update acme-dist"
    assert problem in PluginHost.discover().problems()


def test_an_adapter_of_another_api_version_is_a_mismatch(site):
    site.install_hook("acme-dist", "dlrl_frameworks", "return [Newer]")

    assert record_of(PluginHost.discover(), "acme").status is PluginStatus.API_MISMATCH


@pytest.mark.parametrize("target", ["no spaces allowed", ":object"])
def test_a_malformed_target_is_named(site, target):
    site.install("torn-dist", entry="torn", target=target)

    assert f"its target '{target}' is not 'module' or 'module:object'" in record_of(PluginHost.discover(), "torn").error


def test_the_error_names_the_first_line_and_the_record_keeps_them_all(site):
    site.install("torn-dist", "raise ValueError('first\\nsecond')", entry="torn")

    host = PluginHost.discover()

    assert record_of(host, "torn").error.endswith("ValueError: first\nsecond")
    with pytest.raises(PluginError, match=r"ValueError: first$"):
        host.framework("torn")


def test_an_interrupt_by_the_user_is_not_a_broken_plugin(site):
    site.install("acme-dist", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        PluginHost.discover()
