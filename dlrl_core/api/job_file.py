"""The job file: a whole job in YAML, with the words of the builder."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import SpecError
from dlrl_core.spec.job_spec import read_yaml

if TYPE_CHECKING:
    from dlrl_core.api.builder import RLJobBuilder

_SIMPLE = ("node_num", "device_per_node", "spare_nodes", "device_type", "config", "global_env", "framework", "policy")
_MODELS = ("restart_budget", "commits")
_GROUPS = {
    "with_collocation": "with_collocation",
    "with_host_collocation": "with_host_collocation",
    "without_collocation": "without_collocation",
}
_KEYS = (*_SIMPLE, *_MODELS, "allow_chaos", "trainer", "roles", *_GROUPS, "collocate_all")
_SEATING_KEYS = ("total", "min_total", "per_node", "env", "resource", "node_labels", "spread_over", "pack_into")
_ROLE_ONLY = ("visible_devices", "failover", "hang_limit", "concurrency")
_ROLE_KEYS = ("module", "class", *_SEATING_KEYS, *_ROLE_ONLY, "parts")


def tell(builder: RLJobBuilder, path: Path) -> None:
    """Tell the builder what the file says. Only an unreadable file raises here; the rest waits for `build`."""
    said = read_yaml(path)
    problems = builder._draft.problems
    problems += _unknown(said, _KEYS, str(path))
    for key in _SIMPLE:
        if said.get(key) is not None:
            getattr(builder, key)(_relative(said[key], path) if key == "config" else said[key])
    if said.get("allow_chaos"):
        builder.allow_chaos()
    for key in _MODELS:
        _tell_model(builder, key, said.get(key) or {}, problems)
    if said.get("trainer") is not None:
        _tell_trainer(builder, said["trainer"], problems)
    _tell_roles(builder, said.get("roles") or {}, problems)
    for key, method in _GROUPS.items():
        for group in said.get(key) or []:
            getattr(builder, method)(*(group if isinstance(group, list) else [group]))
    if said.get("collocate_all"):
        builder.with_collocation_all()


def _tell_model(builder: RLJobBuilder, key: str, said: Any, problems: list[str]) -> None:
    if not isinstance(said, dict):
        problems.append(f"'{key}' is a {type(said).__name__}; it must be a mapping")
    elif said:
        getattr(builder, key)(**{str(name): value for name, value in said.items()})


def _tell_roles(builder: RLJobBuilder, roles: Any, problems: list[str]) -> None:
    if not isinstance(roles, dict):
        problems.append(f"'roles' is a {type(roles).__name__}; it must be a mapping of roles")
        return
    for name, said in roles.items():
        role = builder._draft.role_named(name)
        if role is None:
            continue
        if not isinstance(said, dict):
            problems.append(f"'roles.{name}' is a {type(said).__name__}; it must be a mapping with module and class")
            continue
        problems += _unknown(said, _ROLE_KEYS, f"roles.{name}")
        if "module" in said or "class" in said:
            getattr(builder, role.value)(said.get("module"), said.get("class"))
        else:
            builder.role(role)
        _tell_seating(builder, said)
        for key in _ROLE_ONLY:
            if said.get(key) is not None:
                getattr(builder, key)(said[key])
        _tell_parts(builder, f"roles.{name}.parts", said.get("parts") or {}, problems)


def _tell_parts(builder: RLJobBuilder, owner: str, parts: Any, problems: list[str]) -> None:
    if not isinstance(parts, dict):
        problems.append(f"'{owner}' is a {type(parts).__name__}; it must be a mapping of parts")
        return
    for name, said in parts.items():
        if not isinstance(said, dict):
            problems.append(f"'{owner}.{name}' is a {type(said).__name__}; it must be a mapping with total")
            continue
        problems += _unknown(said, _SEATING_KEYS, f"{owner}.{name}")
        builder.part(str(name))
        _tell_seating(builder, said)


def _tell_seating(builder: RLJobBuilder, said: dict[str, Any]) -> None:
    for key in _SEATING_KEYS:
        if said.get(key) is not None:
            getattr(builder, key)(said[key])


def _tell_trainer(builder: RLJobBuilder, said: Any, problems: list[str]) -> None:
    if not isinstance(said, dict):
        problems.append(f"'trainer' is a {type(said).__name__}; it must be a mapping with module and class")
        return
    problems += _unknown(said, ("module", "class"), "trainer")
    module: Any = said.get("module")
    class_name: Any = said.get("class")
    builder.trainer(module, class_name)


def _unknown(said: dict[str, Any], known: tuple[str, ...], owner: str) -> list[str]:
    problems = []
    for key in said:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            problems.append(f"'{owner}' has the unknown key '{key}'; {hint}")
    return problems


def _relative(config: Any, path: Path) -> Any:
    """A config file is named relative to the job file."""
    if isinstance(config, str) and config.endswith((".yaml", ".yml")):
        return path.parent / config
    return config


def job_name_of(path: Path) -> str:
    """The name a job file gives its job when none is said: the file's own."""
    name = path.stem
    if not name:
        raise SpecError([f"'{path}' has no name to call the job by; say --name"])
    return name
