"""The adapter's own promises: availability by metadata, and sources that keep secrets."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import ConfigKind, ConfigSource, FrameworkAdapter
from dlrl_openrlhf.plugin import OpenRLHFAdapter
from dlrl_verl.plugin import VerlAdapter

SOURCE = ConfigSource(ConfigKind.MAPPING, {"api_key": "hunter2"})
ADAPTERS = [OpenRLHFAdapter, VerlAdapter]


class EngineAdapter(FrameworkAdapter):
    """Needs a distribution that the tests install, in several versions, as metadata alone."""

    name = "acme"
    distribution = "acme-engine"
    versions = ">=1.2,<2"

    def read_config(self, source):
        return {}

    def fill(self, config):
        raise NotImplementedError


def message_of(adapter: FrameworkAdapter) -> str | None:
    try:
        adapter.check_available()
    except FrameworkUnavailableError as error:
        return str(error)
    return None


def test_a_missing_framework_is_named_with_the_command_that_installs_it():
    assert message_of(EngineAdapter()) == (
        "framework 'acme' is registered but acme-engine is not installed; run: pip install 'acme-engine>=1.2,<2'"
    )


@pytest.mark.parametrize("version", ["1.2", "1.2+cpu", "1.9.9", "1.3.dev4"])
def test_a_supported_version_is_available(site, version):
    site.install("acme-engine", version=version, entry_points="")

    assert EngineAdapter().installed_version() == version
    assert message_of(EngineAdapter()) is None


@pytest.mark.parametrize("version", ["1.1.9", "2.0", "2.0rc1", "1.2.dev1", "not-a-version"])
def test_an_unsupported_version_is_named_with_the_range(site, version):
    site.install("acme-engine", version=version, entry_points="")

    assert message_of(EngineAdapter()) == (
        f"framework 'acme' supports acme-engine >=1.2,<2, installed is {version}; "
        "run: pip install 'acme-engine>=1.2,<2'"
    )


@pytest.mark.parametrize("versions", ["", "any nightly since May"])
def test_versions_in_words_are_not_enforced(site, versions):
    site.install("acme-engine", version="0.1", entry_points="")
    adapter = type("Lenient", (EngineAdapter,), {"versions": versions})()

    assert message_of(adapter) is None


def test_a_framework_that_comes_with_its_adapter_is_always_available():
    adapter = type("Alone", (EngineAdapter,), {"distribution": None})()

    assert (adapter.installed_version(), message_of(adapter)) == (None, None)


def test_a_source_does_not_print_what_it_holds():
    assert "hunter2" not in repr(SOURCE)


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("cls", ADAPTERS)
def test_our_adapters_name_the_extra_that_installs_their_framework(cls):
    if is_installed(cls.distribution):
        pytest.skip(f"{cls.distribution} is installed here")

    assert message_of(cls()) == (
        f"framework '{cls.name}' is registered but {cls.name} is not installed; run: pip install 'dlrl[{cls.name}]'"
    )


def test_openrlhf_is_read_and_filled_where_it_is_missing():
    if is_installed(OpenRLHFAdapter.distribution):
        pytest.skip("openrlhf is installed here")
    adapter = OpenRLHFAdapter()
    models = "--actor.model_name_or_path policy --reward.remote_url score.py --vllm.num_engines 1"
    flags = tuple(f"{models} --data.prompt_dataset prompts".split())
    config = adapter.read_config(ConfigSource(ConfigKind.WORDS, flags))

    assert adapter.fill(config).trainer.class_name == "OpenRLHFTrainer"


def test_verl_says_what_it_needs_to_read_overrides_where_it_is_missing():
    if is_installed(VerlAdapter.distribution):
        pytest.skip("verl is installed here")

    with pytest.raises(FrameworkUnavailableError, match=r"laid over verl's own config files .* run: pip install 'dlrl"):
        VerlAdapter().read_config(ConfigSource(ConfigKind.WORDS, ("trainer.nnodes=2",)))


@pytest.mark.parametrize("cls", ADAPTERS)
def test_our_adapters_refuse_a_version_they_do_not_support(site, cls):
    site.install(cls.distribution, version="0.1.0", entry_points="")

    with pytest.raises(FrameworkUnavailableError) as caught:
        cls().fill({})

    assert str(caught.value) == (
        f"framework '{cls.name}' supports {cls.name} {cls.versions}, installed is 0.1.0; "
        f"run: pip install 'dlrl[{cls.name}]'"
    )


def test_the_extras_of_dlrl_pin_what_our_adapters_support():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for cls in ADAPTERS:
        requirements = {one.name: one for one in map(Requirement, project["optional-dependencies"][cls.extra])}
        requirement = requirements[cls.distribution]
        assert requirement.specifier == SpecifierSet(cls.versions)
        assert project["entry-points"]["dlrl"][cls.name] == cls.__module__


def test_discovery_and_our_plugins_import_nothing_heavy(run_python):
    """Workloads of a job with a framework load all plugins."""
    heavy = run_python(
        """
        import sys
        from dlrl_core.plugin import PluginHost, PluginRecord, plugin_host
        from dlrl_core.plugin.loading import load_plugin

        plugin_host()
        names = ("chaos", "doctor", "event_log", "openrlhf", "pages", "redis", "verl", "vllm")
        ours = [PluginRecord(name=name, distribution="dlrl", version="1", target=f"dlrl_{name}.plugin") for name in names]
        host = PluginHost(load_plugin(record) for record in ours)
        assert sorted(host.frameworks()) == ["openrlhf", "verl"], host.problems()
        frameworks = {"torch", "verl", "openrlhf", "vllm"}
        print(sorted({*frameworks, "ray", "numpy", "omegaconf", "pydantic", "typer", "rich", "redis"} & set(sys.modules)))
        """
    )

    assert heavy == "[]\n"


def test_importing_the_room_discovers_nothing(run_python):
    assert run_python("from dlrl_core.plugin import plugin_host; print(plugin_host.cache_info().currsize)") == "0\n"
