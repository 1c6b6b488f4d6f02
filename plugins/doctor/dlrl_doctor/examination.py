"""All checks that plugins registered, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dlrl_core.cli.output import quiet_plugins
from dlrl_core.errors import DlrlError
from dlrl_core.plugin.verdict import DoctorRequest, Verdict, problem
from dlrl_doctor.installed import check_framework
from dlrl_doctor.plugin import FIRST, LAST

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import DoctorCheck


def examine(request: DoctorRequest) -> Iterator[Verdict]:
    """Every verdict as it is found. With `clean`, folders of dead local clusters are removed on the way."""
    for name, check in _ordered_checks().items():
        yield from _verdicts(name, check, request)


def _ordered_checks() -> dict[str, DoctorCheck]:
    """What dlrl needs; then each framework and what other plugins check, by name; then this machine and the cluster."""
    with quiet_plugins() as host:
        checks: dict[str, DoctorCheck] = {
            **{name: partial(check_framework, adapter) for name, adapter in host.frameworks().items()},
            **host.doctor_checks(),
        }
    others = sorted({*checks} - {*FIRST, *LAST})
    return {name: checks[name] for name in (*FIRST, *others, *LAST) if name in checks}


def _verdicts(subject: str, check: DoctorCheck, request: DoctorRequest) -> Iterator[Verdict]:
    """A check that can't be made is a problem, and the next one is made."""
    try:
        for verdict in check(request):
            if not isinstance(verdict, Verdict):
                raise TypeError(f"a check yields values of Verdict, not of {type(verdict).__name__}")
            yield verdict
    except Exception as error:  # noqa: BLE001 - checks of other plugins may raise anything
        cause = str(error) if isinstance(error, DlrlError | OSError) else f"{type(error).__name__}: {error}"
        yield problem(subject, f"this could not be checked: {cause}", "see to that, then run dlrl doctor again")
