"""The first and the last thing that a Master does: the record that it starts from, and how the job ends.

The ending is written, then every process of the job is ended, then the record is closed. A Master that dies in between
leaves its successor nothing to decide: it completes the ending that is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import ray
from ray.exceptions import RayError

from dlrl_core.context import JobContext, JobEnding, JobRecord, JobState, Store, TrainerState, WorkloadState
from dlrl_core.errors import ClusterError, DlrlError, JobExistsError, RemoteCause, StoreError, StoreUnavailableError
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.plan_and_reservation import workload_records
from dlrl_core.master.process_launches import end_all
from dlrl_core.master.workload_processes import quiet
from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import TRAINER
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.cluster_probe import no_answer
from dlrl_core.scheduler.workload_launcher import processes_of
from dlrl_core.spec import JobSpec
from dlrl_core.workload.actors import death_reason
from dlrl_core.workload.state_keeper import keeper_class

_PROBE_S = 2.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
"""Between two looks for a record that can't be reached."""


def load_or_create(store: Store, launch: MasterLaunch, address: str, *, is_successor: bool = False) -> JobContext:
    """The record of this run, this Master counted in it.

    Raises JobExistsError if the job lives on another cluster; StoreError if a successor finds the job under way, and
    no record of it. Nothing is written then, and the store is closed.
    """
    try:
        context = _existing(store, launch)
        if context is None:
            if is_successor and _is_under_way(launch):
                raise StoreError(
                    f"job '{launch.job}' is under way, and the store {store.label} has no record of its run "
                    f"'{launch.run_id}'; bring the record back, or end the job with: dlrl stop {launch.job}"
                )
            context = _new(store, launch, address)
        with context.change(is_durable=True) as change:  # the store must know which Master owns the record
            change.job(master_incarnation=context.record.master_incarnation + 1)
    except DlrlError:
        store.close()
        raise
    except Exception as error:
        store.close()
        raise ClusterError(f"the master of job '{launch.job}' failed: {type(error).__name__}: {error}") from error
    return context


async def until_loaded(
    attempt: Callable[[], Awaitable[None]],
    *,
    job: str,
    stop: asyncio.Event,
    on_failure: Callable[[StoreUnavailableError], None],
) -> bool:
    """Attempt it for as long as it takes; False if the job is stopped before.

    For a Master that was restarted: its job goes on without it, so that no failure to read the record may end it.
    """
    pause_s = _FIRST_PAUSE_S
    while not stop.is_set():
        try:
            await attempt()
            return True
        except DlrlError as error:
            message = (
                f"the master of job '{job}' was restarted and can't take it up yet; nothing of the job is touched, "
                f"and it asks again until it can: {error}"
            )
            on_failure(StoreUnavailableError(message))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return False


def _is_under_way(launch: MasterLaunch) -> bool:
    """Whether an earlier Master let the job run. Processes alone don't tell: the driver starts them ahead."""
    processes = processes_of(launch.job)
    trainer = processes.get(TRAINER)
    if trainer is None:
        return bool(processes)
    try:
        return bool(ray.get(trainer.is_running.remote(), timeout=_PROBE_S))
    except ray.exceptions.GetTimeoutError:
        return True
    except ray.exceptions.RayError:
        return len(processes) > 1


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
        if old.address not in (None, address) and no_answer(old.address or "", _PROBE_S) is None:
            raise JobExistsError(
                launch.job,
                f"job '{launch.job}' is already running on the cluster at {old.address}; choose another name, "
                "or set DLRL_STORE to keep the records of both apart",
            ) from error
        return JobContext.create(store, record, workloads, takeover=True)


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


_LAST_CALL_S = 3.0


def written_ending(record: JobRecord) -> JobEnding | None:
    """The ending that is written down; None while the job goes on."""
    if record.ending is not None:
        return record.ending
    if record.state is JobState.STOPPING:
        return JobEnding(state=JobState.STOPPED, why=record.why)
    return JobEnding(state=record.state, why=record.why) if record.state.is_final else None


def failed_by(error: Exception) -> JobEnding:
    """The ending of a job that can't go on after this error."""
    cause: RemoteCause | None = RemoteCause.of(error)
    if isinstance(error, DlrlError):
        cause, why = getattr(error, "cause", None), getattr(error, "summary", None) or str(error)
    else:
        why = death_reason(error) if isinstance(error, RayError) else f"{type(error).__name__}: {error}"
    return JobEnding(state=JobState.FAILED, why=why, cause=cause)


async def tear_down(launch: MasterLaunch, context: JobContext, ending: JobEnding) -> None:
    """Write how the job ends; kill and release everything, whatever state it is in; then write that it has ended.

    Each part is done, whatever those before it raise; that is raised at the end.
    """
    keeper = keeper_class(launch.state_keeper)
    async with contextlib.AsyncExitStack() as last_first:
        if ending.state is JobState.FINISHED and launch.durable_folder is not None:
            os.environ.update(JobSpec.from_json(launch.spec_json).global_env)  # maybe with credentials of the storage
            last_first.push_async_callback(asyncio.to_thread, keeper.forget_durable, launch.durable_folder)
        last_first.callback(_close_record, context, ending)
        last_first.push_async_callback(asyncio.to_thread, keeper.forget_run, launch.run_id)
        last_first.callback(end_all, launch)
        last_first.push_async_callback(_let_processes_clean_up, launch, context)
        if context.record.ending is None and not context.record.state.is_final:
            with context.change() as change:
                change.job(ending=ending.kept())


def _close_record(context: JobContext, ending: JobEnding) -> None:
    if context.record.state.is_final:
        return
    with context.change() as change:
        for name, workload in context.workloads.items():
            if workload.state is not WorkloadState.DEAD:
                change.workload(name, state=WorkloadState.ENDED)
        change.trainer(state=TrainerState.ENDED)
        change.job(state=ending.state, why=ending.why)
        change.event("ended", ending.why or "the trainer returned", subject="job", state=str(ending.state))


async def _let_processes_clean_up(launch: MasterLaunch, context: JobContext) -> None:
    """Have each process that is known to be up end its children. One that still waits for its place is left out."""
    processes = workload_launcher.processes_of(launch.job)
    ends: list[Any] = [
        asyncio.ensure_future(quiet(actor.end.remote())) for name, actor in processes.items() if _is_up(context, name)
    ]
    if ends:
        await asyncio.wait(ends, timeout=_LAST_CALL_S)


def _is_up(context: JobContext, name: str) -> bool:
    record = context.workloads.get(name)
    return (record.pid if record else context.record.trainer.pid) is not None
