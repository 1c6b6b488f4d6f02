"""The cluster a command was given, and the Masters on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlrl_core.cli.app import is_cluster_named
from dlrl_core.errors import ClusterError

if TYPE_CHECKING:
    from dlrl_core.api import JobStatus

_ANSWER_S = 15.0


@contextmanager
def masters_of(address: str | None) -> Iterator[Masters | None]:
    """The Masters of the cluster that was named; None if none was. Raises ClusterError if it can't be reached."""
    if not is_cluster_named(address):
        yield None
        return
    from dlrl_core.api.connection import connect

    connection = connect(address)
    try:
        yield Masters()
    finally:
        connection.close()


class Masters:
    """All Masters of the cluster this process has joined."""

    def names(self) -> list[str]:
        """The jobs that have a living Master."""
        from dlrl_core.roles import MASTER
        from dlrl_core.scheduler.cluster_probe import living_actors

        return [job for job, actors in living_actors().items() if MASTER in actors]

    def status(self, job: str) -> JobStatus | None:
        """What its Master says; None if the job has none. Raises ClusterError if it does not answer in time."""
        import ray
        from ray.exceptions import RayError

        from dlrl_core.api import JobStatus
        from dlrl_core.roles import MASTER
        from dlrl_core.scheduler.workload_launcher import find_actor

        master = find_actor(job, MASTER)
        if master is None:
            return None
        try:
            return JobStatus(view=ray.get(master.status.remote(), timeout=_ANSWER_S))
        except RayError as error:
            raise ClusterError(
                f"the master of job '{job}' did not answer within {_ANSWER_S:g} s ({type(error).__name__})"
            ) from error
