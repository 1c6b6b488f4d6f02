"""PlanAndReservation: the plan that a job follows, and what the cluster reserves for it.

The driver plans and asks first, so that nothing waits for the Master. If the cluster does not grant that, or had
no room from the start, the Master plans again on what is free, until a reservation is granted or the time is over.
Meanwhile the job's record says which resources are missing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dlrl_core.context import JobContext, JobState, WorkloadRecord
from dlrl_core.errors import PlanError, ReservationError
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan, WorkloadPlan, make_plan
from dlrl_core.scheduler import reservation, workload_launcher
from dlrl_core.scheduler.cluster_probe import standing_reservations, view_cluster
from dlrl_core.scheduler.reservation import Reservation
from dlrl_core.spec import JobSpec

_GRANT_S = 3.0
"""What is free is granted at once; if it is not granted after this time, another job was faster."""
_LOOK_AGAIN_S = 0.5
_NAMES_FREE_S = 10.0


class PlanAndReservation:
    """The plan that the job follows, and what is reserved for it. Both survive the death of a Master."""

    def __init__(self, launch: MasterLaunch, spec: JobSpec, context: JobContext) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._plan: ExecutionPlan | None = None
        self._reservation: Reservation | None = None
        self.moves: dict[int, Any] = {}
        """The placement groups of nodes that took the place of another one, by their index in the plan."""

    @property
    def plan(self) -> ExecutionPlan:
        assert self._plan is not None
        return self._plan

    def seat_of(self, workload: WorkloadPlan) -> tuple[Any, int]:
        """The placement group of the workload's seat, and the number of its bundle there."""
        assert self._reservation is not None
        if self.plan.nodes[workload.node].move == 0:
            return self._reservation.seats, workload.bundle
        return self.moves[workload.node], self.plan.bundles_on(workload.node).index(workload.bundle)

    def load(self) -> None:
        """Follow the plan of the record; its reservation is taken as it is, or asked for again."""
        record = self._context.record
        assert record.plan_json is not None
        self._plan = ExecutionPlan.from_json(record.plan_json)
        self.moves = {
            index: reservation.ask_for_move(*self.run, self.plan, index)
            for index, node in enumerate(self.plan.nodes)
            if node.move
        }
        given: Reservation | None = self._launch.reservation
        if given is not None and given.number == record.plan_number:
            self._reservation = given
        else:
            self._reservation = reservation.ask_for(
                self._launch.job, self._launch.run_id, record.plan_number, self.plan
            )

    @property
    def run(self) -> tuple[str, str, int]:
        """Job, run and plan, by which what was asked for is named."""
        return self._launch.job, self._launch.run_id, self._context.record.plan_number

    async def reserve(self) -> None:
        """Make a plan whose reservation is granted. Raises ReservationError with what is missing after the limit."""
        deadline = time.monotonic() + self._launch.limits.reserve_s
        if self._context.record.plan_json is not None:
            self.load()
            if await self._is_granted(deadline):
                return
        while not await self._is_placed(deadline):
            if time.monotonic() >= deadline:
                raise ReservationError(self.overdue())
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _is_placed(self, deadline: float) -> bool:
        """Plan on what is free now, and reserve it."""
        try:
            plan = await asyncio.to_thread(lambda: make_plan(self._spec, view_cluster()))
        except PlanError as error:
            self.record_waiting(f"{error}{await asyncio.to_thread(self._holders)}")
            return False
        self._write(plan)
        self.load()
        return await self._is_granted(deadline)

    async def _is_granted(self, deadline: float) -> bool:
        assert self._reservation is not None
        patience = min(_GRANT_S, max(_LOOK_AGAIN_S, deadline - time.monotonic()))
        if await reservation.granted(self._reservation, patience):
            self.record_waiting(None)
            return True
        nodes = ", ".join(node.shown for node in self.plan.nodes[:8])
        self.record_waiting(f"what the plan needs on {nodes} is not granted{await asyncio.to_thread(self._holders)}")
        reservation.release(self._reservation)
        await self._end_processes()
        return False

    async def _end_processes(self) -> None:
        """End processes that the driver asked for in what was not granted, so that their names are free again."""
        job = self._launch.job
        workload_launcher.kill_all(job)
        deadline = time.monotonic() + _NAMES_FREE_S
        while workload_launcher.processes_of(job) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _write(self, plan: ExecutionPlan) -> None:
        """Write the plan before its reservation is asked for: a later Master finds the reservation by its number."""
        old, new = self._context.workloads, workload_records(plan)
        with self._context.change() as change:
            change.job(plan_json=plan.to_json(), plan_number=self._context.record.plan_number + 1)
            for name in old:
                change.remove_workload(name)
            for workload in new:
                change.add_workload(workload)

    def _holders(self) -> str:
        others = [job for job in standing_reservations() if job != self._launch.job]
        names = ", ".join(f"'{job}'" for job in others)
        return f"; other jobs hold resources: {names}" if others else ""

    def record_waiting(self, what: str | None) -> None:
        """Write to the record which resources are missing; None: none are."""
        if what == self._context.record.waiting_for:
            return
        with self._context.change() as change:
            change.job(waiting_for=what)
            if what is not None:
                change.event("waiting", f"waiting for resources: {what}", subject="job")

    def overdue(self) -> str:
        """The sentence for a reservation that was not granted in time, with what is missing."""
        limit = f"job '{self._launch.job}' was not granted its reservation within {self._launch.limits.reserve_s:g} s"
        return f"{limit}: {self._context.record.waiting_for}"

    def follow_moved(self, plan: ExecutionPlan) -> None:
        """Follow the same plan with one node replaced; written before it is asked for, as any plan."""
        with self._context.change() as change:
            change.job(plan_json=plan.to_json())
        self._plan = plan

    def is_reserved(self) -> bool:
        """Whether an earlier Master had the reservation granted."""
        return self._context.record.state not in (JobState.SUBMITTED, JobState.RESERVING)


def workload_records(plan: ExecutionPlan) -> list[WorkloadRecord]:
    """The records of a plan's workloads, none of them started."""
    return [WorkloadRecord(name=one.name, role=one.role, rank=one.rank, part=one.part) for one in plan.workloads]
