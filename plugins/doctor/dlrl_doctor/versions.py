"""Python and the packages we need, against the ranges that our own metadata names."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator

from dlrl_core.plugin.verdict import Verdict, ok, problem, warning

DISTRIBUTION = "dlrl"


def check() -> Iterator[Verdict]:
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
