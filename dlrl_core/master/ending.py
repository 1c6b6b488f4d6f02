"""How a job ends: it is written down, then everything of the job is ended, then its record is closed.

A Master that dies in between leaves the next one nothing to decide: it finishes that, and tells the same ending.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import EndingRecord, JobContext, JobRecord, JobState, WorkloadState
from dlrl_core.errors import DlrlError, RemoteCause
from dlrl_core.master.launch import JobEnding, MasterLaunch
from dlrl_core.master.liveness import quiet
from dlrl_core.master.process_launches import end_all
from dlrl_core.scheduler import workload_launcher
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.state_files import forget_run

_LAST_WORD_S = 3.0
_LARGEST_RESULT = 1024 * 1024
"""A larger result is in memory only: it is lost if the Master dies before the driver has it, and that is said."""


def written_ending(record: JobRecord) -> JobEnding | None:
    """The ending that is written down; None while the job goes on."""
    if (ending := record.ending) is not None:
        result = None if ending.result is None else base64.b64decode(ending.result)
        return JobEnding(state=ending.state, why=ending.why, result=result)
    if record.state is JobState.STOPPING:
        return JobEnding(state=JobState.STOPPED, why=record.why)
    return JobEnding(state=record.state, why=record.why) if record.state.is_final else None


def failed_by(error: Exception) -> JobEnding:
    """The ending of a job that can't go on for this."""
    cause: RemoteCause | None = RemoteCause.of(error)
    if isinstance(error, DlrlError):
        cause, why = getattr(error, "cause", None), getattr(error, "summary", None) or str(error)
    elif isinstance(error, (RayTaskError, *GONE)):
        why = death_reason(error)
    else:
        why = f"the master failed: {type(error).__name__}: {error}"
    return JobEnding(state=JobState.FAILED, why=why, cause=cause)


def ending_record(ending: JobEnding) -> EndingRecord:
    """The ending as it is written down."""
    kept = None
    if ending.result is not None and len(ending.result) <= _LARGEST_RESULT:
        kept = base64.b64encode(ending.result).decode()
    return EndingRecord(state=JobState(ending.state), why=ending.why, result=kept)


async def tear_down(launch: MasterLaunch, context: JobContext, ending: JobEnding) -> None:
    """Write how the job ends; kill and release everything, whatever state it is in; then write that it has ended."""
    if context.record.ending is None and not context.record.state.is_final:
        with context.change() as change:
            change.job(ending=ending_record(ending))
    await _hear_last_words(launch, context)
    end_all(launch)
    await asyncio.to_thread(forget_run, launch.run_id)  # on this node; on others, their workloads have done it
    if not context.record.state.is_final:
        _close_record(context, ending)
    if ending.state == JobState.FINISHED and launch.durable_folder is not None:
        await asyncio.to_thread(shutil.rmtree, launch.durable_folder, ignore_errors=True)


def _close_record(context: JobContext, ending: JobEnding) -> None:
    with context.change() as change:
        for name, workload in context.workloads.items():
            if workload.state is not WorkloadState.DEAD:
                change.workload(name, state=WorkloadState.ENDED)
        change.job(state=JobState(ending.state), why=ending.why)
        change.event("ended", ending.why or "the trainer returned", subject="job", state=ending.state)


async def _hear_last_words(launch: MasterLaunch, context: JobContext) -> None:
    """Each process that was heard of ends what it had started; one that waits for its place has no last word to say."""
    processes = workload_launcher.processes_of(launch.job)
    ends: list[Any] = [
        asyncio.ensure_future(quiet(actor.end.remote())) for name, actor in processes.items() if _is_up(context, name)
    ]
    if ends:
        await asyncio.wait(ends, timeout=_LAST_WORD_S)


def _is_up(context: JobContext, name: str) -> bool:
    record = context.workloads.get(name)
    return (record.pid if record else context.record.trainer.pid) is not None
