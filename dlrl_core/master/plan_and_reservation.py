"""PlanAndReservation: the plan that a job follows, and what the cluster reserves for it.

The driver plans and asks first, so that nothing waits for the Master. If the cluster does not grant that, or had
no room from the start, the Master plans again on what is free, until a reservation is granted or the time is over.
Meanwhile the job's record says which resources are missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from dlrl_core.context import Incident, JobContext, JobState, WorkloadRecord
from dlrl_core.errors import PlanError, ReservationError
from dlrl_core.failover.policy import node_use, recent_restarts
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan, NodeView, WorkloadPlan, make_plan
from dlrl_core.plan.execution_plan import PlannedNode
from dlrl_core.scheduler import reservation, workload_launcher
from dlrl_core.scheduler.cluster_probe import standing_reservations, view_capacity, view_cluster
from dlrl_core.scheduler.reservation import Reservation
from dlrl_core.spec import JobSpec
from dlrl_core.spec.job_spec import RestartBudget

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
            return self._reservation.groups[0], workload.bundle
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
        if given is None or given.number != record.plan_number:
            given = reservation.ask_for(*self.run, self.plan)
        self._reservation = given

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
        if await reservation.are_granted(self._reservation.groups, patience):
            self.record_waiting(None)
            return True
        nodes = ", ".join(node.shown for node in self.plan.nodes[:8])
        self.record_waiting(f"what the plan needs on {nodes} is not granted{await asyncio.to_thread(self._holders)}")
        reservation.release(self._reservation.groups)
        await self._end_processes()
        return False

    async def _end_processes(self) -> None:
        """End processes that the driver asked for in what was not granted, so that their names are free again."""
        job, names = self._launch.job, list(workload_launcher.processes_of(self._launch.job))
        workload_launcher.kill_all(job)
        await asyncio.to_thread(workload_launcher.wait_until_gone, job, names, _NAMES_FREE_S)

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


def failing_nodes(incidents: Sequence[Incident], budget: RestartBudget, now: float) -> dict[str, int]:
    """Nodes on which too many processes died lately, and how many."""
    recent = recent_restarts(incidents, budget, now)
    uses = {one.node_id: node_use(one.node_id, recent, budget) for one in recent if one.node_id}
    return {node: use.used for node, use in uses.items() if budget.node and not use.left}


class NodeMoves:
    """Finds another node and moves workloads there. Each move is written as a new plan before it is asked for."""

    def __init__(self, launch: MasterLaunch, spec: JobSpec, context: JobContext, reserved: PlanAndReservation) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._reserved = reserved
        self._kept: set[str] = set()
        """Failing nodes of which the journal says that no other node can replace them."""

    @property
    def _plan(self) -> ExecutionPlan:
        return self._reserved.plan

    async def replace_lost_nodes(self) -> set[int]:
        """Replace each node of the plan that is gone by a spare, or by a free node; the indices of those replaced.

        A job with a commit waits without limit; without one, ReservationError with what is missing after the limit.
        A node that lives but fails too often is left only if another one is there now.
        """
        living, before = await asyncio.to_thread(_living), self._plan.nodes
        for index in range(len(self._plan.nodes)):
            if not await self._stands(index, living):
                await self._replace(index)
            elif self._plan.nodes[index].node_id in self._failing():
                await self._leave(index)
        return {index for index, node in enumerate(before) if self._plan.nodes[index] != node}

    async def _stands(self, index: int, living: set[str]) -> bool:
        """Whether the node is there, and gives what was asked for on it when it took the place of another one."""
        node = self._plan.nodes[index]
        if node.node_id not in living or node.move == 0:
            return node.node_id in living
        group = self._reserved.moves.get(index)
        return group is not None and await reservation.are_granted([group], _GRANT_S)

    def _failing(self) -> dict[str, int]:
        return failing_nodes(self._context.record.incidents, self._spec.restart_budget, self._context.now())

    async def _replace(self, index: int) -> None:
        old = self._plan.nodes[index]
        deadline = time.monotonic() + self._launch.limits.reserve_s
        while not await self._is_moved(index):
            needs = ", ".join(f"{amount:g} {name}" for name, amount in self._needs(index).items())
            roles = ", ".join(sorted({f"'{one.role}'" for one in self._plan.workloads if one.node == index}))
            self._reserved.record_waiting(
                f"node {old.shown} is lost, and no other node has {needs} free for role {roles}"
            )
            if time.monotonic() > deadline and self._context.record.progress.commit_json is None:
                raise ReservationError(self._reserved.overdue())
            await asyncio.sleep(_LOOK_AGAIN_S)
            if index in self._reserved.moves and await self._stands(index, await asyncio.to_thread(_living)):
                break  # it was granted after all
        self._reserved.record_waiting(None)
        self._record_move(index, old, "which is lost")

    async def _leave(self, index: int) -> None:
        """Off a node that lives, if there is another one; else it is kept, which is better than none."""
        old, group = self._plan.nodes[index], self._reserved.moves.pop(index, None)
        if await self._is_moved(index):
            self._record_move(index, old, "on which too many processes died")
            return
        self._give_back(index)
        if group is not None:
            self._reserved.moves[index] = group
        if self._plan.nodes[index] != old:
            nodes = tuple(old if at == index else node for at, node in enumerate(self._plan.nodes))
            self._reserved.follow_moved(self._plan.model_copy(update={"nodes": nodes}))
        if old.node_id not in self._kept:
            self._kept.add(old.node_id)
            deaths, budget = self._failing().get(old.node_id, 0), self._spec.restart_budget
            message = (
                f"{deaths} processes died on node {old.shown} within {budget.window_s:g} s (limit {budget.node}); "
                "no other node can take its place, so it is kept"
            )
            with self._context.change() as change:
                change.event("kept", message, subject="job")

    async def _is_moved(self, index: int) -> bool:
        """Move the seats of a node to another one, if there is one now that grants them."""
        self._give_back(index)
        new = await asyncio.to_thread(self._substitute, index)
        if new is None:
            return False
        self._reserved.follow_moved(self._plan.moved(index, new.node_id, new.address))
        job, run_id, number = self._reserved.run
        await asyncio.to_thread(reservation.release_spare, job, run_id, new.node_id)
        self._reserved.moves[index] = reservation.ask_for_move(job, run_id, number, self._plan, index)
        return await reservation.are_granted([self._reserved.moves[index]], _GRANT_S)

    def _record_move(self, index: int, old: PlannedNode, why: str) -> None:
        with self._context.change() as change:
            message = f"node {self._plan.nodes[index].shown} takes the place of {old.shown}, {why}"
            change.event("moved", message, subject="job")

    def _give_back(self, index: int) -> None:
        """What was asked for on a node that did not grant it, or is gone, must not keep it from anybody."""
        if (group := self._reserved.moves.pop(index, None)) is not None:
            reservation.release([group])

    def _substitute(self, index: int) -> NodeView | PlannedNode | None:
        """A living spare that can replace the node, else a free node with enough room and the labels its roles need."""
        view, failing = view_cluster(), self._failing()
        living = {node.node_id for node in view.nodes}
        for spare in self._plan.spares:
            if index in spare.replaces and spare.node_id in living and spare.node_id not in failing:
                return spare
        others = [node.node_id for at, node in enumerate(self._plan.nodes) if at != index]
        taken = {*others, *(spare.node_id for spare in self._plan.spares), *failing}
        needs = self._needs(index)
        fitting = [
            node
            for node in view.nodes
            if node.node_id not in taken
            and all(node.free.get(name, 0) >= amount for name, amount in needs.items())
            and self._has_labels(node, index)
        ]
        return min(fitting, key=lambda node: (node.free.get(self._plan.device_type, 0), node.node_id), default=None)

    def _needs(self, index: int) -> dict[str, float]:
        needs: dict[str, float] = {}
        for bundle in self._plan.bundles_on(index):
            for name, amount in self._plan.bundles[bundle].resources.items():
                needs[name] = round(needs.get(name, 0) + amount, 4)
        return needs

    def _has_labels(self, node: NodeView, index: int) -> bool:
        names = {
            f"{one.role}.{one.part}" if one.part else str(one.role) for one in self._plan.workloads if one.node == index
        }
        wishes = [self._spec.placement_requests[name].node_labels for name in names]
        return all(node.labels.get(label) in values for wish in wishes for label, values in wish.items())


def _living() -> set[str]:
    return {node.node_id for node in view_capacity().nodes}
