"""How a Master takes up a job: a new record, or the one that its predecessor left."""

from __future__ import annotations

import socket
import time

from dlrl_core.context import JobContext, JobRecord, JobState, Store
from dlrl_core.errors import JobExistsError
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.placing import workload_records
from dlrl_core.plan import ExecutionPlan

_PROBE_S = 2.0


def take_up(store: Store, launch: MasterLaunch, address: str) -> JobContext:
    """The record of this run, this Master counted in it. Raises JobExistsError if the job lives on another cluster."""
    context = _existing(store, launch)
    if context is None:
        context = _new(store, launch, address)
    with context.change(is_durable=True) as change:  # who owns the record must be in the store
        change.job(master_incarnation=context.record.master_incarnation + 1)
    return context


def _existing(store: Store, launch: MasterLaunch) -> JobContext | None:
    if store.load(launch.job) is None:
        return None
    context = JobContext.load(store, launch.job)
    return context if context.record.run_id == launch.run_id else None


def _new(store: Store, launch: MasterLaunch, address: str) -> JobContext:
    record = _first_record(launch, address)
    workloads = workload_records(ExecutionPlan.from_json(launch.plan_json)) if launch.plan_json else []
    try:
        return JobContext.create(store, record, workloads)
    except JobExistsError as error:
        old = JobContext.load(store, launch.job).record
        # On our own cluster the name was free, so that run is dead; elsewhere, its cluster may be alive.
        if old.address not in (None, address) and _answers(old.address):
            raise JobExistsError(
                launch.job,
                f"job '{launch.job}' is already running on the cluster at {old.address}; choose another name, "
                "or set DLRL_STORE to keep the records of both apart",
            ) from error
        return JobContext.create(store, record, workloads, takeover=True)


def _answers(address: str | None) -> bool:
    """Whether something listens at a cluster's address."""
    host, _, port = (address or "").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def _first_record(launch: MasterLaunch, address: str) -> JobRecord:
    now = time.time()
    return JobRecord(
        name=launch.job,
        run_id=launch.run_id,
        state=JobState.SUBMITTED,
        state_since=now,
        spec_json=launch.spec_json,
        plan_json=launch.plan_json,
        plan_number=1 if launch.plan_json else 0,
        store_url=launch.store_url,
        address=address,
        submitted_at=now,
    )
