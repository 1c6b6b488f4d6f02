"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dlrl_core.errors import DlrlError
from dlrl_core.plugin.verdict import Verdict, problem
from dlrl_doctor import clusters, home, leftovers, machine, plugins, ray_auth, versions

Check = Callable[[], Iterator[Verdict]]


def examine(address: str | None, *, clean: bool) -> Iterator[Verdict]:
    """Every verdict as it is found. With `clean`, folders of dead local clusters are removed on the way."""
    yield from _run("versions", versions.check)
    yield from _run("plugins", plugins.check)
    yield from _run("ray auth", ray_auth.check)
    yield from _run("machine", machine.check)
    yield from _run("home", home.check)
    yield from _run("leftovers", lambda: leftovers.check(clean=clean))
    yield from _run("cluster", lambda: clusters.check(address))


def _run(subject: str, check: Check) -> Iterator[Verdict]:
    """A check that can't be made is a problem, and the others go on."""
    try:
        yield from check()
    except (DlrlError, OSError) as error:
        yield problem(subject, f"this could not be checked: {error}", "see to that, then run dlrl doctor again")
