"""Detection: what detectors find in the reports of a job's processes, and whether a silent one is frozen."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from asyncio import Queue
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dlrl_core.context import JobContext, ProcessReport
from dlrl_core.failover import WorkloadHangs
from dlrl_core.failover.finding import JobLook
from dlrl_core.master.workload_processes import answers
from dlrl_core.plugin import plugin_host
from dlrl_core.roles import TRAINER
from dlrl_core.scheduler.cluster_probe import why_frozen
from dlrl_core.spec import JobSpec

_LOOK_S = 0.5
_AGAIN_S = 10.0
_OWN_PAUSE_S = 5.0
"""After a longer pause between two looks this process was stopped itself, and reports wait to be read."""


class Detection:
    """Keeps the last report of each workload, and has detectors look at them unless it `is_paused`."""

    def __init__(self, spec: JobSpec, context: JobContext, host_of: Callable[[str], Any], seen: Queue[Any]) -> None:
        self._spec = spec
        self._context = context
        self._host_of = host_of
        self._seen = seen
        self._heard: dict[str, float] = {}
        self._look_again: dict[str, float] = {}
        """By actor id, when a silent process that was found well is looked at again."""
        self._since = time.monotonic()
        self.reports: dict[str, ProcessReport] = {}
        self.is_paused = True
        """While something is restarted; a call may end until then."""
        self.hanging: set[str] = set()
        """Actor ids of processes that a detector judged to hang, and that wait to be handled."""

    def hear(self, report: ProcessReport) -> None:
        """A workload has sent a report; its age is counted from now on, by the clock of this process."""
        self.reports[report.name] = report
        self.note_life(report.name)

    def note_life(self, name: str) -> None:
        """A sign of life of a workload or the trainer; silence is counted from now on."""
        self._heard[name] = time.monotonic()

    async def run(self) -> None:
        """Look at the job again and again; what a detector finds is an observation like any other."""
        detectors = await asyncio.to_thread(lambda: plugin_host().detectors())
        failed: set[str] = set()
        while True:
            slept = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            if self.is_paused or time.monotonic() - slept > _OWN_PAUSE_S:
                self._since = time.monotonic()
                continue
            for name, detector in detectors.items():
                try:
                    await self._observe(detector(self._look()))
                except Exception as error:  # noqa: BLE001 - code of a plugin: the other detectors must go on
                    if name not in failed:
                        failed.add(name)
                        text = f"dlrl: detector '{name}' failed: {type(error).__name__}: {error}"
                        print(text, file=sys.stderr, flush=True)

    def _look(self) -> JobLook:
        return JobLook(
            now=time.monotonic(),
            since=self._since,
            spec=self._spec,
            workloads=self._context.workloads,
            trainer=self._context.record.trainer,
            reports=self.reports,
            heard=self._heard,
        )

    async def _observe(self, hangs: Iterable[WorkloadHangs]) -> None:
        """Report each process that hangs, once. Raises TypeError for what is no judgement on one of them."""
        silent = []
        for found in hangs:
            if not isinstance(found, WorkloadHangs) or found.name not in (*self._context.workloads, TRAINER):
                raise TypeError(f"it must yield WorkloadHangs of workloads of the job or its trainer, not {found!r}")
            if found.actor_id not in self.hanging and not found.is_silent:
                self._tell(found)
            elif found.actor_id not in self.hanging and time.monotonic() >= self._look_again.get(found.actor_id, 0.0):
                silent.append(found)
        for found, reason in zip(silent, await self._why_frozen([one.name for one in silent]), strict=True):
            if reason is None:  # it is silent as before: beyond `hang_limit` that is a hang
                self._look_again[found.actor_id] = time.monotonic() + _AGAIN_S
            else:
                self._tell(replace(found, reason=f"{found.reason}, does not answer, and {reason}"))

    def _tell(self, found: WorkloadHangs) -> None:
        self.hanging.add(found.actor_id)
        self._seen.put_nowait(found)

    async def _why_frozen(self, names: Sequence[str]) -> list[str | None]:
        """Why each of them is frozen; None for one that answers or uses CPU: user code may hold Python's lock.

        Each node is asked once, for all of its processes.
        """
        records = [self._context.process(name) for name in names]
        pids: dict[str, list[int]] = {}
        for one in records:
            if one.pid is not None:
                pids.setdefault(one.node_id or "", []).append(one.pid)
        looks = asyncio.gather(*itertools.starmap(why_frozen, pids.items()))
        are_alive = await asyncio.gather(*(answers(self._host_of(name)) for name in names))
        frozen = dict(zip(pids, await looks, strict=True))
        reasons = [frozen.get(one.node_id or "", {}).get(one.pid or 0) for one in records]
        return [None if is_alive else reason for is_alive, reason in zip(are_alive, reasons, strict=True)]
