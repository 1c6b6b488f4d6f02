"""The Master: one detached, named Ray actor for each job. It never runs user code.

Every process of the job that gets a handle of the Master imports this module. So it imports only what it needs before
a Master is constructed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import ray

from dlrl_core.context.job_state import JobState
from dlrl_core.errors import DlrlError
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.roles import MASTER, TRAINER, namespace_of

if TYPE_CHECKING:
    from dlrl_core.context import JobContext, JobEnding, JobView, ProcessReport
    from dlrl_core.master.control_loop import ControlLoop
    from dlrl_core.plugin import EventSinks
    from dlrl_core.trainer.progress import ProgressReport
    from dlrl_core.trainer.workload_directory import DirectorySnapshot
    from dlrl_core.workload.fault import MasterFault


_GRACE_S = 0.1
_ANSWER_S = 5.0


class Master:
    """What drivers, trainers and workloads can ask of a job's Master. All the work is done by its ControlLoop."""

    def __init__(self, launch: MasterLaunch) -> None:
        from dlrl_core.scheduler.cluster_probe import restarts_of_this_actor
        from dlrl_core.workload.process import ProcessSetup, end_with_node

        end_with_node()
        ProcessSetup(python_path=launch.python_path, plugins=launch.plugins).set_environment()  # for plugins
        self._launch = launch
        self._ending: JobEnding | None = None
        self._ended = asyncio.Event()
        self._waiting = 0
        self._stop_reason: str | None = None
        self._stop_asked = asyncio.Event()
        self._refusal: DlrlError | None = None
        """Why the record could not be loaded or created, or not yet."""
        self._answered = asyncio.Event()
        """The record is loaded, or there is a refusal."""
        self._loaded = asyncio.Event()
        self._loop: ControlLoop
        self._context: JobContext
        self._sinks: EventSinks
        runtime = ray.get_runtime_context()
        self._address: str = runtime.gcs_address
        self._restarts_of = restarts_of_this_actor
        self._restarts = restarts_of_this_actor()
        self._is_successor = self._restarts > 0
        # Ray runs this constructor on the actor's event loop. A call to ourselves would fail during a restart.
        self._working = asyncio.get_running_loop().create_task(self._live())

    def __repr__(self) -> str:
        """How Ray names this process where the driver shows its output."""
        return MASTER

    async def opened(self) -> None:
        """Answers when the Master is up; raises if it could not take up the job, or not yet."""
        await self._answered.wait()
        if self._refusal is not None:
            raise self._refusal

    # ---- the life of the Master

    async def _live(self) -> None:
        from dlrl_core.master.beginning_and_end import until_loaded

        if not self._is_successor:
            try:
                await self._load()
            except DlrlError as error:
                self._refusal = error
                self._answered.set()
                await self._give_up()
                return
        elif not await until_loaded(
            self._load, job=self._launch.job, stop=self._stop_asked, on_failure=self._say_waiting
        ):
            self._end_without_record()
        if self._loaded.is_set():
            await self._drive()
        await asyncio.sleep(self._launch.limits.linger_s)
        await self.leave()

    async def _load(self) -> None:
        from dlrl_core.context import open_store
        from dlrl_core.master.beginning_and_end import load_or_create
        from dlrl_core.master.control_loop import ControlLoop
        from dlrl_core.plugin import EventSinks

        self._store = open_store(self._launch.store_url)
        context = await asyncio.to_thread(
            load_or_create, self._store, self._launch, self._address, is_successor=self._is_successor
        )
        context.on_conflict(_vanish)
        self._context, self._loop, self._refusal = context, ControlLoop(self._launch, context), None
        self._loop.before_acting = self._check_is_present
        self._sinks = EventSinks(self._launch.job)
        context.on_events(lambda events: self._sinks.add(event.shown() for event in events))
        self._answered.set()
        self._loaded.set()

    def _say_waiting(self, error: DlrlError) -> None:
        if type(error) is not type(self._refusal):
            print(f"dlrl: {error}", file=sys.stderr, flush=True)
        self._refusal = error
        self._answered.set()

    async def _give_up(self) -> None:
        """The driver that submitted gets the reason and cleans up; if it is gone, the Master does."""
        await asyncio.sleep(self._launch.limits.linger_s)
        self._end_all()
        self._end_self()

    def _end_all(self) -> None:
        from dlrl_core.master.process_launches import end_all

        end_all(self._launch)

    def _end_without_record(self) -> None:
        """A job whose record can't be reached is stopped: its processes are ended, and the record does not say so."""
        from dlrl_core.context import JobEnding

        self._end_all()
        self._ending = JobEnding(state=JobState.STOPPED, why=self._stop_reason)
        self._ended.set()

    async def _drive(self) -> None:
        """The whole life of the job, or what an earlier Master left of it."""
        from dlrl_core.master.beginning_and_end import written_ending

        try:
            ending = written_ending(self._context.record) or await self._work_until_stopped()
        except Exception:  # noqa: BLE001 - the control loop has written what there is to write about it
            await self._write_all()
            _vanish()  # Ray starts another one, which adopts the job
        try:
            await self._loop.tear_down(ending)
        except Exception:  # noqa: BLE001 - what can be ended is ended, and the driver must be told
            traceback.print_exc()
        await self._write_all()
        self._ending = ending
        self._ended.set()

    async def _work_until_stopped(self) -> JobEnding:
        work = asyncio.ensure_future(self._loop.run())
        stop = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        elif not self._stop_asked.is_set() or work.result().state == JobState.FINISHED:
            return work.result()
        from dlrl_core.context import JobEnding

        return JobEnding(state=JobState.STOPPED, why=self._stop_reason)

    # ---- asked by drivers

    async def ended(self, timeout_s: float | None) -> JobEnding | None:
        """How the job ended; None if it has not within the time."""
        self._waiting += 1
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1
        return self._ending

    async def status(self) -> JobView:
        await self.opened()
        return self._context.snapshot(reports=self._loop.detection.reports)

    async def stop(self, reason: str) -> None:
        """End the job; one whose record can't be reached too."""
        await self._answered.wait()
        if self._ended.is_set() or self._stop_asked.is_set():
            return
        if self._loaded.is_set():
            if self._context.record.ending is not None:
                return  # it ends already, in its own way
            with self._context.change() as change:
                change.job(state=JobState.STOPPING, why=reason)
                change.event("stop", reason, subject="job")
        elif not self._is_successor:
            await self.opened()
        self._stop_reason = reason
        self._stop_asked.set()

    async def leave(self) -> None:
        """End this actor once the job has ended and every pending `ended` call has its answer."""
        await self._ended.wait()
        while self._waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(_GRACE_S)  # their answers are on the way
        try:
            if self._loaded.is_set():
                self._end_all()  # a slow driver may have started one again
                await asyncio.to_thread(self._sinks.close)
                self._store.close()
        finally:
            self._end_self()

    async def _write_all(self) -> None:
        """Write what still waits for the store. What it does not take in time is lost: that is printed, and `status`
        has it as 'degraded'."""
        try:
            await asyncio.to_thread(self._context.close, self._launch.limits.last_writes_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, drivers wait for the end
            print(f"dlrl: {error}", file=sys.stderr, flush=True)

    def _end_self(self) -> None:
        # Not exit_actor: it would wait for calls that are still being answered.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    # ---- asked by the trainer

    async def restored(self, name: str, actor_id: str) -> DirectorySnapshot | None:
        """Wait until this process of a workload was replaced or is confirmed alive; returns the current processes.

        None if that takes longer than a few seconds: ask again, so that no caller waits long for a Master that is gone.
        """
        return await self._bounded(lambda loop: loop.restored(name, actor_id))

    async def settled(self) -> DirectorySnapshot | None:
        """Wait until nothing is being restarted; returns the current processes. None if that takes longer."""
        return await self._bounded(lambda loop: loop.stable())

    async def escalate(self, name: str, method: str, term: int | None) -> None:
        """A call was interrupted that must not be repeated; `settled` returns when that is handled."""
        await self._loaded.wait()
        self._loop.escalate(name, method, term)

    async def _bounded(
        self, ask: Callable[[ControlLoop], Coroutine[Any, Any, DirectorySnapshot]]
    ) -> DirectorySnapshot | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                await self._loaded.wait()
                return await ask(self._loop)
        return None

    # ---- told by the trainer and the workloads

    async def trainer_progress(self, report: ProgressReport) -> bool | None:
        """Whether the trainer may go on; False if another one replaces it, None if that is not known yet: ask again."""
        is_early = report.has_lease and not self._loaded.is_set()  # while its lease holds, no other one was started
        if not is_early:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._loaded.wait(), _ANSWER_S)
        await self._check_is_present()
        if is_early or not self._loaded.is_set():
            return is_early or None
        is_current = not self._ended.is_set() and self._loop.trainer.record_progress(report)
        if is_current:
            self._loop.detection.note_life(TRAINER)
        return is_current

    async def trainer_left(self, actor_id: str) -> None:
        """This process of the trainer was refused, and calls no workload any more."""
        await self._loaded.wait()
        self._loop.trainer.left.add(actor_id)

    async def _check_is_present(self) -> None:
        """End this process if another Master owns the job. The store tells; while it is away, Ray does."""
        if not self._loaded.is_set() or self._context.degraded is not None:
            with contextlib.suppress(Exception):  # while both are away, nothing tells
                if await asyncio.to_thread(self._restarts_of) != self._restarts:
                    _vanish()

    async def report(self, report: ProcessReport) -> bool:
        """Take the report; False if another process replaced the one that sent it."""
        if not self._loaded.is_set():
            return True
        record = self._context.workloads[report.name]
        is_current = report.incarnation >= record.incarnation and record.actor_id in (None, report.actor_id)
        if is_current:
            self._loop.detection.hear(report)
        return is_current and not self._ended.is_set()

    async def inject(self, fault: MasterFault) -> None:
        """Chaos: let this fault happen to the Master, or to its store; or note that another process got one."""
        await self.opened()
        self._loop.chaos.inject(fault)

    async def ping(self) -> float:
        return time.time()


def _vanish() -> NoReturn:
    """End this process at once: another Master owns the job, as Ray had given up this one's node, or will own it.

    Not through Ray, which would end the other one: both are the same actor to it.
    """
    os._exit(1)


def start_master(launch: MasterLaunch) -> Any:
    """The handle of a new Master. Ray's ValueError if the job has one already."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from dlrl_core.workload.actors import actor_class

    return (
        actor_class(Master)
        .options(
            name=MASTER,
            namespace=namespace_of(launch.job),
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=1000,
            num_cpus=0,
            # Where the driver is, so that a Master that is restarted finds the same files.
            scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True),
        )
        .remote(launch)
    )
