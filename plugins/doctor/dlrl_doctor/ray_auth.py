"""Ray's token authentication: is it on, where is the token, and which users can read it?"""

from __future__ import annotations

import importlib.metadata
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

_SUBJECT = "ray auth"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SILENT_SINCE = (2, 60)
"""From this Ray on, a token file that is there turns authentication on unless RAY_AUTH_MODE is set."""


def check(_: DoctorRequest) -> Iterator[Verdict]:
    path = _token_path()
    has_token = bool(os.environ.get("RAY_AUTH_TOKEN")) or path.is_file()
    yield _mode(os.environ.get("RAY_AUTH_MODE"), path, has_token=has_token)
    if path.is_file():
        yield _file_mode(path)


def _token_path() -> Path:
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"


def _mode(mode: str | None, path: Path, *, has_token: bool) -> Verdict:
    if mode is None:
        return _unset(path, has_token=has_token)
    if mode.lower() == "disabled":
        return ok(_SUBJECT, "off (RAY_AUTH_MODE=disabled): whoever reaches the cluster's ports can run code on it")
    if mode.lower() != "token":
        return problem(_SUBJECT, f"RAY_AUTH_MODE is '{mode}'", "set it to 'token' or 'disabled'")
    if has_token:
        return ok(_SUBJECT, "on (RAY_AUTH_MODE=token), and there is a token")
    return problem(
        _SUBJECT,
        f"on (RAY_AUTH_MODE=token), but there is no token in RAY_AUTH_TOKEN or '{path}'",
        "run: ray get-auth-token --generate, and give the same token to every node",
    )


def _unset(path: Path, *, has_token: bool) -> Verdict:
    if not has_token:
        return ok(_SUBJECT, "off (RAY_AUTH_MODE is not set, and there is no token); set it before you share a cluster")
    where = "RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else f"'{path}'"
    if not _is_silent():
        return ok(_SUBJECT, f"off (RAY_AUTH_MODE is not set), though there is a token in {where}")
    return warning(
        _SUBJECT,
        f"RAY_AUTH_MODE is not set, and Ray turns authentication on by itself because of the token in {where}",
        "set RAY_AUTH_MODE to 'token' or 'disabled', the same on all nodes",
    )


def _is_silent() -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(importlib.metadata.version("ray")).release[:2] >= _SILENT_SINCE
    except (importlib.metadata.PackageNotFoundError, InvalidVersion):
        return False


def _file_mode(path: Path) -> Verdict:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        return problem("ray token", f"'{path}' has mode {mode:04o}; others can read it", f"run: chmod 600 '{path}'")
    return ok("ray token", f"'{path}' has mode {mode:04o}")
