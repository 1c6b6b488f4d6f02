"""How a job ends: the ending is written, then every process of the job is ended, then its record is closed.

A Master that dies in between leaves its successor nothing to decide: it completes the ending that is written.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, JobEnding, JobRecord, JobState, TrainerState, WorkloadState
from dlrl_core.errors import DlrlError, RemoteCause
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.liveness import quiet
from dlrl_core.master.process_launches import end_all
from dlrl_core.scheduler import workload_launcher
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.state_files import forget_run

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
    elif isinstance(error, (RayTaskError, *GONE)):
        why = death_reason(error)
    else:
        why = f"the master failed: {type(error).__name__}: {error}"
    return JobEnding(state=JobState.FAILED, why=why, cause=cause)


async def tear_down(launch: MasterLaunch, context: JobContext, ending: JobEnding) -> None:
    """Write how the job ends; kill and release everything, whatever state it is in; then write that it has ended."""
    if context.record.ending is None and not context.record.state.is_final:
        with context.change() as change:
            change.job(ending=ending.kept())
    await _let_processes_clean_up(launch, context)
    end_all(launch)
    await asyncio.to_thread(forget_run, launch.run_id)  # on this node; on others, their workloads have done it
    if not context.record.state.is_final:
        _close_record(context, ending)
    if ending.state is JobState.FINISHED and launch.durable_folder is not None:
        await asyncio.to_thread(shutil.rmtree, launch.durable_folder, ignore_errors=True)


def _close_record(context: JobContext, ending: JobEnding) -> None:
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
