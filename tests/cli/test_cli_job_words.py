"""What stands behind `--set` and behind a plan without imports: overrides, and classes read from source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dlrl_core.api.assemble import overridden, source_problems
from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_core.spec import ClassRef


def changed(config, *overrides):
    source = overridden(ConfigSource(ConfigKind.MAPPING, config), overrides, is_whole=False)
    return OmegaConf.to_container(source.value, resolve=False)


@pytest.mark.parametrize(
    ("override", "config"),
    [
        ("lr=0.1", {"lr": 0.1, "model": {"path": "m", "dims": [1, 2]}, "link": "${model.path}"}),
        ("model.path=a=b", {"lr": 1, "model": {"path": "a=b", "dims": [1, 2]}, "link": "${model.path}"}),
        ("model.dims=[3]", {"lr": 1, "model": {"path": "m", "dims": [3]}, "link": "${model.path}"}),
        ("model.new.key=true", {"lr": 1, "model": {"path": "m", "dims": [1, 2], "new": {"key": True}},
                                "link": "${model.path}"}),
        ("lr=null", {"lr": None, "model": {"path": "m", "dims": [1, 2]}, "link": "${model.path}"}),
    ],
)  # fmt: skip
def test_an_override_changes_one_value_and_leaves_the_rest(override, config):
    given = {"lr": 1, "model": {"path": "m", "dims": [1, 2]}, "link": "${model.path}"}

    assert changed(given, override) == config
    assert given == {"lr": 1, "model": {"path": "m", "dims": [1, 2]}, "link": "${model.path}"}


def test_the_users_own_config_object_is_not_changed():
    given = OmegaConf.create({"lr": 1})
    OmegaConf.set_readonly(given, True)

    assert changed(given, "lr=2") == {"lr": 2}
    assert given.lr == 1


def test_all_wrong_overrides_are_said_at_once():
    with pytest.raises(SpecError) as caught:
        changed({"lr": 1}, "lr", "=2", "a=[1")

    assert len(caught.value.problems) == 3


MODULE = """
import missing_framework
from elsewhere import Imported as Renamed

class Plain: ...
Assigned = decorate(Plain)
if missing_framework:
    class Conditional: ...
raise RuntimeError("importing this is an error; reading it is not")
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src_plain.py").write_text(MODULE)
    (tmp_path / "src_package").mkdir()
    (tmp_path / "src_package" / "__init__.py").write_text("raise RuntimeError('a package is not imported either')")
    (tmp_path / "src_package" / "inner.py").write_text("class Inner: ...\n")
    (tmp_path / "src_star.py").write_text("from src_plain import *\n")
    (tmp_path / "src_torn.py").write_text("class Torn(:\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("module", "name", "problem"),
    [
        ("src_plain", "Plain", None),
        ("src_plain", "Renamed", None),
        ("src_plain", "Assigned", None),
        ("src_plain", "Conditional", None),
        ("src_plain", "Plane", "module 'src_plain' has no class 'Plane'; did you mean 'Plain'?"),
        ("src_plain", "Imported", "module 'src_plain' has no class 'Imported'"),
        ("src_package.inner", "Inner", None),
        ("src_package.outer", "Inner", "there is no module 'src_package.outer'"),
        ("src_plain.inner", "Inner", "there is no module 'src_plain.inner'"),
        ("src_nowhere.inner", "Inner", "there is no module 'src_nowhere'"),
        ("src_star", "Whatever", None),
        ("src_torn", "Torn", "can't be imported: SyntaxError"),
        ("math", "Compiled", None),
    ],
)
def test_a_class_is_looked_for_in_source_and_never_imported(module, name, problem):
    found = source_problems("role 'actor'", ClassRef(module=module, class_name=name))

    assert [problem is not None] == [bool(found)]
    assert not problem or problem in found[0]
    assert not [loaded for loaded in sys.modules if loaded.startswith("src_")]
