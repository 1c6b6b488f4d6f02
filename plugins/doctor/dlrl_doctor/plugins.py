"""Plugins that did not load, and frameworks of a version that their adapter does not support."""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_core.cli.framework_list import framework_row, quiet_host
from dlrl_core.plugin.verdict import Verdict, ok, problem
from dlrl_doctor import openrlhf, verl

_EXAMINED = {"openrlhf": openrlhf.check, "verl": verl.check}
"""Frameworks whose parts are looked at too."""


def check() -> Iterator[Verdict]:
    host = quiet_host()
    problems = host.problems()
    for sentence in problems:
        yield problem("plugins", sentence, "see: dlrl frameworks")
    if not problems:
        yield ok("plugins", f"{len(host.records)} found: {', '.join(record.name for record in host.records)}")
    for adapter in host.frameworks().values():
        row = framework_row(adapter)
        if adapter.name in _EXAMINED:
            yield from _EXAMINED[adapter.name](row["installed"], row["problem"])
        elif row["is_available"]:
            yield ok(f"framework {adapter.name}", row["installed"] or "comes with its plugin")
        elif row["installed"] is None:
            yield ok(f"framework {adapter.name}", f"is not installed; to use it: {_install(row['problem'])}")
        else:
            yield problem(f"framework {adapter.name}", row["problem"], _install(row["problem"]))


def _install(sentence: str) -> str:
    """The command at the end of an adapter's complaint."""
    return sentence.rpartition("run: ")[2]
