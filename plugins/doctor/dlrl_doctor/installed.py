"""What is installed: Python and the packages that dlrl needs, plugins, and frameworks without a check of their own."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator

from dlrl_core.cli.app import usable_commands
from dlrl_core.cli.output import quiet_plugins
from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import FrameworkAdapter
from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

DISTRIBUTION = "dlrl"


def check_versions(_: DoctorRequest) -> Iterator[Verdict]:
    """Python and each required package, against the ranges in the metadata of dlrl."""
    from packaging.requirements import Requirement

    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        yield warning(
            "versions",
            "dlrl runs from a folder and is not installed, so the versions it needs are not known",
            "install it: pip install dlrl",
        )
        return
    yield _python(metadata["Requires-Python"] or "")
    for text in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement.name, str(requirement.specifier))


def check_plugins(_: DoctorRequest) -> Iterator[Verdict]:
    """Everything that can't be used of the installed plugins."""
    with quiet_plugins() as host:
        host.import_all()
        usable_commands(host)
        problems = host.problems()
    for sentence in problems:
        yield problem("plugins", sentence, "see: dlrl frameworks")
    if not problems:
        yield ok("plugins", f"{len(host.records)} found: {', '.join(record.name for record in host.records)}")


def check_framework(adapter: FrameworkAdapter, _: DoctorRequest) -> Iterator[Verdict]:
    """Whether the framework is there, in a version that its adapter supports."""
    subject, installed = f"framework {adapter.name}", adapter.installed_version()
    try:
        adapter.check_available()
    except FrameworkUnavailableError as error:
        todo = error.run or "see the documentation of its adapter"
        if installed is None:
            yield ok(subject, f"is not installed; to use it: {todo}")
        else:
            yield problem(subject, str(error), todo)
    else:
        yield ok(subject, installed or "comes with its plugin")


def _python(supported: str) -> Verdict:
    from packaging.specifiers import SpecifierSet

    version = platform.python_version()
    if SpecifierSet(supported).contains(version, prereleases=True):
        return ok("python", f"{version} (supported: {supported})")
    return problem("python", f"{version} is not supported ({supported})", "make an environment with a supported Python")


def _package(name: str, supported: str) -> Verdict:
    from packaging.specifiers import SpecifierSet

    todo = f"run: pip install '{name}{supported}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return problem(name, f"is not installed (supported: {supported})", todo)
    if SpecifierSet(supported).contains(version, prereleases=True):
        return ok(name, f"{version} (supported: {supported})")
    return problem(name, f"{version} is not supported ({supported})", todo)
