"""Which entry points become plugins: clashes, copies, malformed metadata and DLRL_PLUGINS."""

from __future__ import annotations

import importlib.metadata
import logging
import sys

import pytest

from dlrl_core.errors import PluginError
from dlrl_core.plugin import PluginHost, PluginRecord, PluginStatus, plugin_host, reset_plugin_host


def records_of(host: PluginHost, name: str) -> list[PluginRecord]:
    return [record for record in host.records if record.name == name]


def test_an_installed_plugin_is_on_record_with_its_distribution(site):
    module = site.install_framework("acme-dist", "acme", version="2.1")

    [record] = records_of(PluginHost.discover(), "acme")

    assert record == PluginRecord(
        name="acme",
        distribution="acme-dist",
        version="2.1",
        target=module,
        status=PluginStatus.LOADED,
        error=None,
    )


def test_an_object_can_be_a_plugin(site):
    site.install(
        "acme-dist",
        """
        from dlrl_core.plugin import hookimpl

        class Plugin:
            DLRL_API_VERSION = 2

            @hookimpl
            def dlrl_policies(self):
                return {"acme_policy": lambda spec: spec}

        plugin = Plugin()
        """,
        target="plugin_object:plugin",
    )
    (site.path / next(site.path.glob("plugin_of_*.py"))).rename(site.path / "plugin_object.py")

    assert PluginHost.discover().policy("acme_policy")(1) == 1


def test_two_distributions_with_one_entry_name_clash_and_neither_is_imported(site):
    modules = [site.install_framework("dist-a", "one"), site.install_framework("dist-b", "two")]

    host = PluginHost.discover()

    assert [record.status for record in records_of(host, "acme")] == [PluginStatus.CLASH] * 2
    assert not set(modules) & set(sys.modules)
    assert "one" not in host.frameworks()
    with pytest.raises(PluginError) as caught:
        host.framework("acme")
    assert str(caught.value) == (
        f"plugin 'acme' is registered by dist-a 1.0 ({modules[0]}) and dist-b 1.0 ({modules[1]}), so neither "
        "is loaded; uninstall one, or set DLRL_PLUGINS to the plugins you want, with 'dist-a:acme' to choose "
        "that one"
    )


def test_a_clash_is_one_problem_and_one_warning(site, caplog):
    site.install_framework("dist-a", "one")
    site.install_framework("dist-b", "two")

    host = PluginHost.discover()

    assert len([problem for problem in host.problems() if "'acme'" in problem]) == 1
    assert len([message for message in caplog.messages if "'acme'" in message]) == 1


def test_a_clash_leaves_other_plugins_alone(site):
    site.install_framework("dist-a", "one")
    site.install_framework("dist-b", "two")
    site.install_framework("dist-c", "three", entry="three")

    assert PluginHost.discover().framework("three").name == "three"


@pytest.mark.parametrize("spelling", ["dist-b:acme", "Dist_B:acme", " dist-b:acme , nothing-else"])
def test_a_qualified_name_chooses_between_two_that_clash(site, spelling):
    site.install_framework("dist-a", "one")
    site.install_framework("dist-b", "two")

    host = PluginHost.discover(allow=spelling)

    assert set(host.frameworks()) == {"two"}
    assert [record.status for record in records_of(host, "acme")] == [
        PluginStatus.NOT_ALLOWED,
        PluginStatus.LOADED,
    ]


def test_a_plain_name_does_not_choose_between_two_that_clash(site):
    site.install_framework("dist-a", "one")
    site.install_framework("dist-b", "two")

    host = PluginHost.discover(allow="acme")

    assert {record.status for record in records_of(host, "acme")} == {PluginStatus.CLASH}


def test_the_same_distribution_twice_on_the_path_is_one_plugin(site, monkeypatch):
    site.install_framework("Acme_Dist", "acme")
    monkeypatch.setattr(sys, "path", [str(site.path), *sys.path, str(site.path)])

    host = PluginHost.discover()

    assert [record.status for record in records_of(host, "acme")] == [PluginStatus.LOADED]


def test_a_shadowed_copy_of_a_distribution_is_not_a_rival(site, tmp_path, monkeypatch):
    """Python imports the first copy's modules, so the first copy's entry point counts."""
    older = type(site)(tmp_path / "older")
    monkeypatch.syspath_prepend(older.path)
    monkeypatch.syspath_prepend(site.path)
    older.install_framework("acme-dist", "acme", version="0.9")
    site.install_framework("acme.dist", "acme", version="1.0")

    [record] = records_of(PluginHost.discover(), "acme")

    assert (record.version, record.status) == ("1.0", PluginStatus.LOADED)


def test_given_entry_points_are_used_instead_of_the_installed_ones(site):
    site.install_framework("acme-dist", "acme")
    [entry] = importlib.metadata.entry_points(group="dlrl", name="acme")

    host = PluginHost.discover(entry_points=[entry, entry])

    assert [(record.name, record.status) for record in host.records] == [
        ("builtin", PluginStatus.LOADED),
        ("acme", PluginStatus.LOADED),
    ]


def test_an_entry_point_without_a_distribution_is_named_as_such():
    entry = importlib.metadata.EntryPoint(name="loose", value="no_such_module_here", group="dlrl")

    host = PluginHost.discover(entry_points=[entry])

    [record] = records_of(host, "loose")
    assert (record.distribution, record.status) == (None, PluginStatus.BROKEN)
    assert host.problems() == [
        "plugin 'loose' (an unknown distribution) is broken; update or uninstall it: "
        "ModuleNotFoundError: No module named 'no_such_module_here'"
    ]


def test_malformed_entry_points_of_one_distribution_do_not_hide_the_others(site):
    site.install("torn-dist", entry_points="[dlrl]\nthis line has no equals sign\n")
    site.install_framework("acme-dist", "acme")

    host = PluginHost.discover()

    assert host.framework("acme").name == "acme"
    [record] = records_of(host, "torn-dist")
    assert record.status is PluginStatus.BROKEN
    assert "the entry points of torn-dist 1.0" in record.error


def test_a_distribution_without_metadata_is_on_record_by_its_place(site):
    site.install_framework("torn-dist", "torn")
    (site.path / "torn_dist-1.0.dist-info" / "METADATA").unlink()

    [record] = records_of(PluginHost.discover(), "unknown")

    assert (record.status, record.target) == (PluginStatus.BROKEN, f"{site.path}")


def test_malformed_entry_points_of_a_distribution_without_plugins_are_not_our_business(site):
    site.install("torn-dist", entry_points="[console_scripts]\nno equals sign\n")

    assert not records_of(PluginHost.discover(), "torn-dist")


@pytest.mark.parametrize(
    ("allow", "expected"),
    [
        (None, {"one", "two"}),
        ("", set()),
        (" , ", set()),
        ("one", {"one"}),
        ("one,two", {"one", "two"}),
        (" two ", {"two"}),
        ("dist-1:one", {"one"}),
        ("dist-2:one", set()),
    ],
)
def test_only_allowed_plugins_are_loaded(site, allow, expected):
    modules = {"one": site.install_framework("dist-1", "one", entry="one")}
    modules["two"] = site.install_framework("dist-2", "two", entry="two")

    host = PluginHost.discover(allow=allow)

    assert {name for name in ("one", "two") if name in host.frameworks()} == expected
    assert {name for name, module in modules.items() if module in sys.modules} == expected


def test_a_plugin_that_is_left_out_says_so_when_asked_for(site):
    site.install_framework("acme-dist", "acme")

    host = PluginHost.discover(allow="builtin")

    assert host.problems() == []
    with pytest.raises(PluginError) as caught:
        host.framework("acme")
    assert str(caught.value) == (
        "plugin 'acme' (acme-dist 1.0) is left out by DLRL_PLUGINS='builtin'; add 'acme' to it"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("acmee", "did you mean 'acme'?"),
        ("acme-dits:acme", "did you mean 'acme-dist:acme'?"),
        ("zzz", "; installed: "),
    ],
)
def test_a_word_of_the_allow_list_that_nothing_answers_to_is_reported(site, word, hint):
    site.install_framework("acme-dist", "acme")

    [problem] = PluginHost.discover(allow=f"acme,{word}").problems()

    assert problem.startswith(f"DLRL_PLUGINS names '{word}', which is not installed")
    assert hint in problem


def test_the_built_in_policies_can_not_be_left_out():
    host = PluginHost.discover(allow="")

    assert all(callable(host.policy(name)) for name in ("separate_sync", "colocate_sync"))


def test_the_host_of_a_process_reads_the_environment_once(site, monkeypatch):
    site.install_framework("acme-dist", "acme")
    monkeypatch.setenv("DLRL_PLUGINS", "")

    host = plugin_host()
    monkeypatch.setenv("DLRL_PLUGINS", "acme")

    assert plugin_host() is host
    assert "acme" not in host.frameworks()
    reset_plugin_host()
    assert "acme" in plugin_host().frameworks()


def test_each_problem_is_logged_once_per_process(site, caplog):
    site.install("acme-dist", "raise ValueError('first line\\nsecond line')")

    with caplog.at_level(logging.WARNING, logger="dlrl.plugin"):
        PluginHost.discover()
        PluginHost.discover()

    assert [(entry.name, entry.levelname, entry.message) for entry in caplog.records if "acme" in entry.message] == [
        (
            "dlrl.plugin",
            "WARNING",
            "plugin 'acme' (acme-dist 1.0) is broken; update or uninstall acme-dist: ValueError: first line",
        )
    ]
