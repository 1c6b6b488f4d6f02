"""How the parts of a job are named in Ray, so that jobs never meet each other's."""

from __future__ import annotations

MASTER = "master"
TRAINER = "trainer"
_PREFIX = "dlrl/"


def namespace_of(job: str) -> str:
    """The Ray namespace that holds all actors of a job: 'master', 'trainer', 'actor-0', ..."""
    return f"{_PREFIX}{job}"


def reservation_name(job: str) -> str:
    return f"{_PREFIX}{job}/reservation"


def job_of_namespace(namespace: str) -> str | None:
    """The job behind a Ray namespace; None if the namespace is not ours."""
    return namespace.removeprefix(_PREFIX) if namespace.startswith(_PREFIX) else None


def job_of_reservation(name: str) -> str | None:
    """The job behind a placement group's name; None if it is not ours."""
    if name.startswith(_PREFIX) and name.endswith("/reservation"):
        return name.removeprefix(_PREFIX).removesuffix("/reservation")
    return None
