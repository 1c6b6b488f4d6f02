"""A job planned in a process of its own: what that imports, and whether it works where a framework is missing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from typing import Any

from dlrl_core.plugin.loading import normalised

_LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class PlannedApart:
    """What the other process saw."""

    at_registration: frozenset[str] = frozenset()
    """Modules that it had imported, or tried to, when it knew the adapter."""
    at_plan: frozenset[str] = frozenset()
    """And when the job was planned."""
    spec_json: str | None = None
    error: str | None = None
    """Why it got no further."""


def plan_apart(
    framework: str, config: Any, *, hidden_modules: Iterable[str] = (), hidden_distribution: str | None = None
) -> PlannedApart:
    """Plan the job in a new process, in which these modules and this distribution are as if they were not installed."""
    order = (framework, config, sorted(hidden_modules), hidden_distribution)
    path = os.pathsep.join(place for place in sys.path if place)
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=pickle.dumps(order),
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"},
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        return PlannedApart(error=done.stderr.decode(errors="replace").strip()[-2000:] or f"exit {done.returncode}")
    told = json.loads(done.stdout.splitlines()[-1])
    return PlannedApart(
        at_registration=frozenset(told["at_registration"]),
        at_plan=frozenset(told["at_plan"]),
        spec_json=told["spec_json"],
        error=told["error"],
    )


def main() -> None:
    """In the new process: do what standard input says, tell standard output."""
    imported: set[str] = set()
    sys.addaudithook(lambda event, args: imported.add(args[0]) if event == "import" else None)
    framework, config, hidden_modules, hidden_distribution = pickle.loads(sys.stdin.buffer.read())
    sys.modules.update(dict.fromkeys(hidden_modules))  # None: such a module is not there
    if hidden_distribution is not None:
        _hide(hidden_distribution)
    told: dict[str, Any] = {"at_registration": [], "at_plan": [], "spec_json": None, "error": None}
    try:
        _plan(framework, config, imported, told)
    except Exception as error:  # noqa: BLE001 - an adapter may fail in any way; the test says how
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))


def _plan(framework: str, config: Any, imported: set[str], told: dict[str, Any]) -> None:
    from dlrl_core.api import RLJobBuilder
    from dlrl_core.plugin import plugin_host

    plugin_host().framework(framework)
    told["at_registration"] = sorted(imported | _loaded())
    job = RLJobBuilder().framework(framework).config(config).build(import_classes=False)
    job.plan()
    told["at_plan"] = sorted(imported | _loaded())
    told["spec_json"] = job.spec.to_json()


def _loaded() -> set[str]:
    return {name for name, module in sys.modules.items() if module is not None}


def _hide(distribution: str) -> None:
    find = Distribution.from_name

    def find_others(name: str) -> Distribution:
        if normalised(name) == normalised(distribution):
            raise PackageNotFoundError(name)
        return find(name)

    Distribution.from_name = find_others  # type: ignore[method-assign]
