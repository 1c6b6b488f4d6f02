"""`dlrl frameworks`: the plugins that are installed, and the frameworks they bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrl_core.cli.app import usable_commands
from dlrl_core.cli.output import console, list_table, print_json, print_problems, quiet_plugins, state_style
from dlrl_core.errors import FrameworkUnavailableError

if TYPE_CHECKING:
    from dlrl_core.plugin import FrameworkAdapter, PluginHost, PluginRecord


def show_frameworks(*, as_json: bool) -> None:
    """Print all plugins with what became of them, and every problem on stderr."""
    with quiet_plugins() as host:
        host.import_all()
        usable_commands(host)
    rows = [_plugin(record, host) for record in host.records]
    if as_json:
        print_json({"plugins": rows, "problems": host.problems()})
        return
    _print(rows)
    print_problems(host.problems())


def _framework(adapter: FrameworkAdapter) -> dict[str, Any]:
    """One framework: what is installed of it, and what its adapter supports."""
    try:
        adapter.check_available()
        problem = None
    except FrameworkUnavailableError as error:
        problem = str(error)
    return {
        "name": adapter.name,
        "description": adapter.description,
        "distribution": adapter.distribution,
        "installed": adapter.installed_version(),
        "supported": adapter.versions,
        "is_available": problem is None,
        "problem": problem,
    }


def _plugin(record: PluginRecord, host: PluginHost) -> dict[str, Any]:
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "target": record.target,
        "status": record.status.value,
        "error": record.error,
        "frameworks": [_framework(one) for one in host.frameworks_of(record)],
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.text import Text

    table = list_table("plugin", "distribution", "version", "status", "framework", "installed", "supported")
    for row in rows:
        for framework in row["frameworks"] or [None]:
            table.add_row(
                Text(row["name"]),
                row["distribution"] or "",
                row["version"] or "",
                Text(row["status"], style=state_style(row["status"])),
                *_cells(framework),
            )
    console().print(table)


def _cells(framework: dict[str, Any] | None) -> tuple[Any, ...]:
    from rich.text import Text

    if framework is None:
        return "", "", ""
    if framework["distribution"] is None:
        return framework["name"], Text("with the plugin", style="green"), ""
    installed = framework["installed"]
    style = "green" if framework["is_available"] else "yellow" if installed is None else "bold red"
    return framework["name"], Text(installed or "not installed", style=style), framework["supported"]
