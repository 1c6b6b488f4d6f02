"""Placing: how a job gets its place on the cluster, and keeps it over the death of a Master.

The driver plans and asks first, so that nothing waits for the Master. If the cluster does not grant that, or had
no room from the start, the Master plans again on what is free, until there is a place or the time is over. All the
while the job's record says what is missing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dlrl_core.context import JobContext, JobState, WorkloadRecord
from dlrl_core.errors import PlanError, ReservationError
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan, NodeView, WorkloadPlan, make_plan
from dlrl_core.plan.execution_plan import PlannedNode
from dlrl_core.scheduler import reservation, workload_launcher
from dlrl_core.scheduler.cluster_probe import standing_reservations, view_capacity, view_cluster
from dlrl_core.scheduler.reservation import Reservation
from dlrl_core.spec import JobSpec

_GRANT_S = 3.0
"""What is free is granted at once. After this, somebody else was faster."""
_LOOK_AGAIN_S = 0.5
_NAMES_FREE_S = 10.0


class Placing:
    """The plan that the job follows, and what is reserved for it."""

    def __init__(self, launch: MasterLaunch, spec: JobSpec, context: JobContext) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._plan: ExecutionPlan | None = None
        self._reservation: Reservation | None = None
        self._moves: dict[int, Any] = {}
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
        return self._moves[workload.node], self.plan.bundles_on(workload.node).index(workload.bundle)

    def take_up(self) -> None:
        """Follow the plan that is written down; what was asked for with it stands, or is asked for again."""
        record = self._context.record
        assert record.plan_json is not None
        self._plan = ExecutionPlan.from_json(record.plan_json)
        self._moves = {
            index: reservation.ask_for_move(*self._run(), self.plan, index)
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

    def _run(self) -> tuple[str, str, int]:
        return self._launch.job, self._launch.run_id, self._context.record.plan_number

    async def settle(self) -> None:
        """Come to a plan whose reservation is granted. Raises ReservationError with what is missing after the limit."""
        deadline = time.monotonic() + self._launch.limits.reserve_s
        if self._context.record.plan_json is not None:
            self.take_up()
            if await self._is_granted(deadline):
                return
        while not await self._is_placed(deadline):
            if time.monotonic() >= deadline:
                raise ReservationError(self._overdue())
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _is_placed(self, deadline: float) -> bool:
        """Plan on what is free now, and reserve it."""
        try:
            plan = await asyncio.to_thread(lambda: make_plan(self._spec, view_cluster()))
        except PlanError as error:
            self._say_waiting(f"{error}{await asyncio.to_thread(self._holders)}")
            return False
        self._write(plan)
        self.take_up()
        return await self._is_granted(deadline)

    async def _is_granted(self, deadline: float) -> bool:
        assert self._reservation is not None
        patience = min(_GRANT_S, max(_LOOK_AGAIN_S, deadline - time.monotonic()))
        if await reservation.granted(self._reservation, patience):
            self._say_waiting(None)
            return True
        nodes = ", ".join(node.shown for node in self.plan.nodes[:8])
        self._say_waiting(f"what the plan needs on {nodes} is not granted{await asyncio.to_thread(self._holders)}")
        reservation.release(self._reservation)
        await self._end_processes()
        return False

    async def _end_processes(self) -> None:
        """The driver may have asked for processes in what was not granted. Their names must be free again."""
        job = self._launch.job
        workload_launcher.kill_all(job)
        deadline = time.monotonic() + _NAMES_FREE_S
        while workload_launcher.processes_of(job) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _write(self, plan: ExecutionPlan) -> None:
        """Written before it is asked for: a Master that comes after us finds what we asked for by its number."""
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

    def _say_waiting(self, what: str | None) -> None:
        if what == self._context.record.waiting_for:
            return
        with self._context.change() as change:
            change.job(waiting_for=what)
            if what is not None:
                change.event("waiting", f"waiting for resources: {what}", subject="job")

    def _overdue(self) -> str:
        limit = f"job '{self._launch.job}' was not granted its reservation within {self._launch.limits.reserve_s:g} s"
        return f"{limit}: {self._context.record.waiting_for}"

    # ---- nodes that are lost

    async def replace_lost_nodes(self) -> None:
        """Another node for each one of the plan that is gone, or fails too often: a spare, or one that is free.

        Raises ReservationError with what is missing if there is none within the limit.
        """
        for index in await asyncio.to_thread(self._lost):
            await self._replace(index)

    def _lost(self) -> list[int]:
        living = {node.node_id for node in view_capacity().nodes}
        failing = self.failing_nodes()
        return [
            index for index, node in enumerate(self.plan.nodes) if node.node_id not in living or node.node_id in failing
        ]

    def failing_nodes(self) -> set[str]:
        """Nodes on which too many processes died lately."""
        budget, now = self._spec.budget, time.time()
        deaths = [
            one.node_id for one in self._context.record.restarts if now - one.at <= budget.window_s and one.node_id
        ]
        return {node for node in deaths if deaths.count(node) >= budget.node > 0}

    async def _replace(self, index: int) -> None:
        old = self.plan.nodes[index]
        deadline = time.monotonic() + self._launch.limits.reserve_s
        while not await self._is_replaced(index):
            needs = ", ".join(f"{amount:g} {name}" for name, amount in self._needs(index).items())
            roles = ", ".join(sorted({f"'{one.role}'" for one in self.plan.workloads if one.node == index}))
            self._say_waiting(f"node {old.shown} is lost, and no other node has {needs} free for role {roles}")
            if time.monotonic() > deadline:
                raise ReservationError(self._overdue())
            await asyncio.sleep(_LOOK_AGAIN_S)
        self._say_waiting(None)

    async def _is_replaced(self, index: int) -> bool:
        """Move the seats of a node that is lost to another one, if there is one now."""
        old = self.plan.nodes[index]
        new = await asyncio.to_thread(self._substitute, index)
        if new is None:
            return False
        plan = self.plan.moved(index, new.node_id, new.address)
        with self._context.change() as change:  # written before it is asked for, as any plan
            change.job(plan_json=plan.to_json())
            change.event("moved", f"node {new.shown} takes the place of {old.shown}, which is lost", subject="job")
        self._plan = plan
        await asyncio.to_thread(reservation.release_spare, *self._run()[:2], new.node_id)
        self._moves[index] = reservation.ask_for_move(*self._run(), plan, index)
        return await reservation.is_granted(self._moves[index], _GRANT_S)

    def _substitute(self, index: int) -> NodeView | PlannedNode | None:
        """A living spare that can replace the node, else a free node with enough room and the labels its roles need."""
        view, failing = view_cluster(), self.failing_nodes()
        living = {node.node_id for node in view.nodes}
        for spare in self.plan.spares:
            if index in spare.replaces and spare.node_id in living and spare.node_id not in failing:
                return spare
        taken = {node.node_id for node in self.plan.nodes} | {spare.node_id for spare in self.plan.spares}
        needs = self._needs(index)
        fitting = [
            node
            for node in view.nodes
            if node.node_id not in taken | failing
            and all(node.free.get(name, 0) >= amount for name, amount in needs.items())
            and self._has_labels(node, index)
        ]
        return min(fitting, key=lambda node: (node.free.get(self.plan.device_type, 0), node.node_id), default=None)

    def _needs(self, index: int) -> dict[str, float]:
        needs: dict[str, float] = {}
        for bundle in self.plan.bundles_on(index):
            for name, amount in self.plan.bundles[bundle].resources.items():
                needs[name] = round(needs.get(name, 0) + amount, 4)
        return needs

    def _has_labels(self, node: NodeView, index: int) -> bool:
        names = {
            f"{one.role}.{one.part}" if one.part else str(one.role) for one in self.plan.workloads if one.node == index
        }
        wishes = [self._spec.seatings[name].node_labels for name in names]
        return all(node.labels.get(label) in values for wish in wishes for label, values in wish.items())

    def release(self) -> None:
        """Give back everything that this run ever asked for."""
        reservation.release_all(self._launch.job, self._launch.run_id)

    def is_settled(self) -> bool:
        """Whether an earlier Master had the reservation granted."""
        return self._context.record.state not in (JobState.SUBMITTED, JobState.RESERVING)


def workload_records(plan: ExecutionPlan) -> list[WorkloadRecord]:
    """The records of a plan's workloads, none of them started."""
    return [WorkloadRecord(name=one.name, role=one.role, rank=one.rank, part=one.part) for one in plan.workloads]
