"""What the how-to tells a plugin's author to write works as written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dlrl_core.plugin import ConfigKind, ConfigSource, PluginHost
from dlrl_core.roles import RoleType

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "register-a-framework.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_adapter_of_the_how_to_loads_and_fills(site):
    site.install("dlrl-acme", blocks("python")[0])
    site.install("acme-engine", version="2.4", entry_points="")

    acme = PluginHost.discover().framework("acme")
    filled = acme.fill(acme.read_config(ConfigSource(ConfigKind.WORDS, ("workers=2",))))

    assert {role: item.total for role, item in filled.roles.items()} == {
        RoleType.ACTOR: 2,
        RoleType.ROLLOUT: 2,
    }


def test_the_last_step_of_the_how_to_prints_the_description(site, capsys):
    site.install("dlrl-acme", blocks("python")[0])

    exec(blocks("python")[1], {})

    assert capsys.readouterr().out == "policy gradient the acme way\n[]\n"


def test_the_how_to_and_the_external_plugin_name_the_same_entry_point():
    [written] = map(tomllib.loads, blocks("toml"))
    built = tomllib.loads((ROOT / "tests" / "external_plugin" / "pyproject.toml").read_text())

    for key in ("name", "dependencies", "entry-points"):
        assert written["project"][key] == built["project"][key]
