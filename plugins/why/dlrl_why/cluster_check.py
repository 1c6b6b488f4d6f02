"""The cluster that is named: are there records, actors or placement groups of jobs that have no Master?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlrl_core.cli.app import is_cluster_named
from dlrl_core.errors import ClusterError
from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning
from dlrl_why.job_lookup import KnownJob, all_jobs
from dlrl_why.masters import Masters, masters_of

if TYPE_CHECKING:
    from dlrl_core.context import Store


def check(request: DoctorRequest) -> Iterator[Verdict]:
    from dlrl_core.context import default_store_url, open_store

    with open_store(default_store_url()) as store:
        if not is_cluster_named(request.address):
            yield from _unasked(store)
            return
        try:
            with masters_of(request.address) as masters:
                yield ok("cluster", "can be reached")
                yield from _records(store, masters)
                yield from _orphans()
        except ClusterError as error:
            yield problem("cluster", str(error), "start it, or name another with --address or RAY_ADDRESS")


def _unasked(store: Store) -> Iterator[Verdict]:
    going = [job.name for job in all_jobs(store, None).jobs if _says_it_runs(job)]
    if going:
        yield ok(
            "records",
            f"{len(going)} not ended by their records: {', '.join(going)}; name their cluster to have them checked",
        )


def _says_it_runs(job: KnownJob) -> bool:
    return job.status is not None and not job.status.is_final


def _records(store: Store, masters: Masters | None) -> Iterator[Verdict]:
    """Jobs whose record is not final, though this cluster has no Master of them."""
    known = all_jobs(store, masters)
    if known.store_problem is not None:
        yield problem(
            "records", f"can't be read: {known.store_problem}", "see to the store, then run dlrl doctor again"
        )
        return
    dead = [job for job in known.jobs if _says_it_runs(job) and job.source == "store"]
    for job in dead:
        yield warning(
            "records",
            job.note or f"the record of job '{job.name}' was not ended",
            f"if it died, run it again under the name '{job.name}': that replaces the record",
        )
    if not dead:
        yield ok("records", "every job that says it runs has a master")


def _orphans() -> Iterator[Verdict]:
    from dlrl_core.roles import MASTER, namespace_of
    from dlrl_core.scheduler.cluster_probe import living_actors
    from dlrl_core.scheduler.workload_launcher import find_actor

    actors, groups = living_actors(), _placement_groups()
    # Asked by name: a master that is being restarted is not in Ray's list, but keeps its name.
    masterless = [job for job in sorted({*actors, *groups}) if find_actor(job, MASTER) is None]
    for job in masterless:
        if names := actors.get(job):
            yield problem(
                "orphans",
                f"job '{job}' has no master, but the actors {', '.join(names)}",
                f"end each: ray.kill(ray.get_actor('{names[0]}', namespace='{namespace_of(job)}'))",
            )
        for group in groups.get(job, []):
            yield problem(
                "orphans",
                f"job '{job}' has no master, but holds the placement group {group}",
                "remove it by its id, as docs/reference/cli.md shows",
            )
    if not masterless:
        yield ok("orphans", "no actor or placement group is without its master")


def _placement_groups() -> dict[str, list[str]]:
    """Ids of the placement groups of each job. A name would not do: only the driver that made one finds it by name."""
    from ray.util.placement_group import placement_group_table

    from dlrl_core.roles import job_of_reservation

    found: dict[str, list[str]] = {}
    for group_id, group in placement_group_table().items():
        job = job_of_reservation(group["name"])
        if job is not None and group["state"] != "REMOVED":
            found.setdefault(job, []).append(group_id)
    return found
