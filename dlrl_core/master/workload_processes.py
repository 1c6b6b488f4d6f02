"""WorkloadProcesses: the processes of all workloads, as the Master holds them; and how it asks whether one lives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, ProcessReport, WorkloadState
from dlrl_core.errors import ClusterError, DlrlError, WorkloadStartError
from dlrl_core.failover import WorkloadGone
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.plan_and_reservation import PlanAndReservation
from dlrl_core.master.process_launches import start_workload
from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import MASTER, RoleType, namespace_of
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.cluster_probe import view_capacity
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.workload_directory import DirectorySnapshot, WorkloadHandle
from dlrl_core.workload.actors import GONE, MasterHandle, death_reason
from dlrl_core.workload.process import check_run

_PING_S = 2.0
_STACKS_S = 5.0


class ProcessDiedError(Exception):
    """A process died while it was started, constructed or ended."""

    def __init__(self, name: str, doing: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"'{name}' died during '{doing}': {reason}")


async def answers(host: Any | None) -> bool:
    """Whether there is a process, and it answers."""
    try:
        return host is not None and bool(await asyncio.wait_for(answer(host.facts.remote()), _PING_S))
    except (TimeoutError, RayTaskError, *GONE):
        return False


async def stacks_of(host: Any) -> str:
    """The stacks of the process's threads; why there are none if there are none."""
    try:
        return str(await asyncio.wait_for(answer(host.stacks.remote()), _STACKS_S))
    except (TimeoutError, RayTaskError, *GONE) as error:
        return f"it does not answer: {type(error).__name__}"


async def replies_of(refs: Mapping[str, Any], *, doing: str, timeout_s: float) -> dict[str, Any]:
    """The reply of each named process.

    Raises the first failure at once, of a process that is gone ProcessDiedError; ClusterError with those that did not
    reply within the limit.
    """
    tasks = {name: asyncio.ensure_future(answer(ref)) for name, ref in refs.items()}
    try:
        _, pending = await asyncio.wait(tasks.values(), timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
        failed = {name: error for name, task in tasks.items() if task.done() and (error := task.exception())}
        for name, error in sorted(failed.items(), key=lambda one: not isinstance(one[1], GONE)):  # a death first
            raise ProcessDiedError(name, doing, death_reason(error)) if isinstance(error, GONE) else error
        if pending:
            missing = [name for name, task in tasks.items() if not task.done()]
            raise ClusterError(_no_reply(missing, len(tasks), doing, timeout_s))
        return {name: task.result() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


def _no_reply(missing: list[str], total: int, doing: str, timeout_s: float) -> str:
    names = ", ".join(f"'{name}'" for name in missing[:8]) + (", ..." if len(missing) > 8 else "")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return (
        f"{len(missing)} of {total} processes did not answer '{doing}' within {timeout_s:g} s: {names}; "
        f"{len(nodes)} nodes of the cluster are alive; see their Ray logs for these actors"
    )


async def answer(ref: Any) -> Any:
    return await ref


async def quiet(ref: Awaitable[Any]) -> None:
    """Wait for a reply; a process that is gone sends none, and that is no error here."""
    with contextlib.suppress(RayTaskError, *GONE):
        await ref


_NAME_FREE_S = 30.0
_DEATH_KNOWN_S = 2.0
"""How long after an error that a death caused the death itself may become known."""
_LAST_CALL_S = 2.0
_LOOK_S = 1.0

Gone = Callable[[WorkloadGone], None]


class NodeLostError(Exception):
    """A node where processes are being started is gone."""


class WorkloadProcesses:
    """Starts, constructs, restarts and watches the processes. What it does is written to the context first."""

    def __init__(self, launch: MasterLaunch, spec: JobSpec, context: JobContext, *, on_gone: Gone) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._on_gone = on_gone
        self._hosts: dict[str, Any] = {}
        self._facts: dict[str, ProcessReport] = {}
        self._watches: dict[str, asyncio.Task[str]] = {}
        self.tables: dict[RoleType, bytes] = {}
        self.master = MasterHandle(namespace=namespace_of(launch.job), name=MASTER)
        self._reserved: PlanAndReservation | None = None

    @property
    def is_complete(self) -> bool:
        """Whether each workload of the plan has a process: one that died while there was no Master has none."""
        return all(one.name in self._hosts for one in self.plan.workloads)

    def follow(self, reserved: PlanAndReservation) -> None:
        """Start processes where this plan places them, from now on."""
        self._reserved = reserved

    @property
    def plan(self) -> ExecutionPlan:
        assert self._reserved is not None
        return self._reserved.plan

    def handles(self) -> list[WorkloadHandle]:
        return [
            WorkloadHandle(
                name=one.name,
                role=str(one.role),
                rank=one.rank,
                ray_actor=self._hosts[one.name],
                part=one.part,
                node_id=self._facts[one.name].node_id,
            )
            for one in self.plan.workloads
        ]

    def roll(self) -> DirectorySnapshot:
        """The current process of each workload, for the trainer."""
        actors = {
            name: (self._facts[name].actor_id, host, self._facts[name].node_id) for name, host in self._hosts.items()
        }
        return DirectorySnapshot(epoch=self._context.record.epoch, actors=actors)

    # ---- coming up

    async def start(self, names: Collection[str]) -> None:
        """Start these processes, or find those that were started, and construct their classes together."""
        for workload in self.plan.workloads:
            if workload.name in names:
                incarnation = self._context.workloads[workload.name].incarnation
                assert self._reserved is not None
                group, bundle = self._reserved.seat_of(workload)
                seated = workload._replace(bundle=bundle)
                term = self._context.record.trainer.incarnation
                self._hosts[workload.name] = start_workload(self._launch, self._spec, seated, group, incarnation, term)
        await self._meet(names)
        await self._construct(names)

    async def adopt(self, found: Mapping[str, Any]) -> list[str]:
        """Take over processes that an earlier Master had ready; returns the names of those that are gone."""
        records = self._context.workloads
        ready = [one.name for one in self.plan.workloads if records[one.name].state is WorkloadState.READY]
        missing = [name for name in ready if name not in found]
        living = {name: found[name] for name in ready if name in found}
        are_adopted = await asyncio.gather(*(self._is_adopted(name, host) for name, host in living.items()))
        return [*missing, *(name for name, is_adopted in zip(living, are_adopted, strict=True) if not is_adopted)]

    async def _is_adopted(self, name: str, host: Any) -> bool:
        """Whether it is the process of the record, and answers."""
        asked = asyncio.gather(answer(host.facts.remote()), answer(host.method_table.remote()))
        try:
            fact, table = await asyncio.wait_for(asked, self._launch.limits.process_s)
        except (TimeoutError, RayTaskError, *GONE):
            return False
        if fact.actor_id != self._context.workloads[name].actor_id:
            return False
        self._hosts[name], self._facts[name] = host, fact
        if table is not None:
            self.tables[RoleType(name.rpartition("-")[0])] = table
        self._watch(name)
        return True

    async def _meet(self, names: Collection[str]) -> None:
        """Wait until all of them are up, and write their nodes and devices to the record."""
        facts = await self._facts_of(names)
        for fact in facts.values():
            check_run(fact, self._launch.run_id)
        with self._context.change(is_awaited=False) as change:
            for name, fact in facts.items():
                old = self._context.workloads[name]
                change.workload(
                    name,
                    state=WorkloadState.STARTING,
                    actor_id=fact.actor_id,
                    node_id=fact.node_id,
                    pid=fact.pid,
                    device_ids=fact.device_ids,
                    started=fact.started,
                    old_process=old.old_process if old.node_id == fact.node_id else None,
                )
        self._facts.update(facts)
        for name in names:
            self._watch(name)

    async def _facts_of(self, names: Collection[str]) -> dict[str, ProcessReport]:
        """The facts of all of them. Raises NodeLostError if one of their nodes is gone."""
        refs = {name: self._hosts[name].facts.remote() for name in names}
        answers = asyncio.ensure_future(self._answers(refs, "start", self._launch.limits.process_s))
        nodes = {self.plan.nodes[one.node].node_id for one in self.plan.workloads if one.name in names}
        try:
            while True:
                done, _ = await asyncio.wait({answers}, timeout=_LOOK_S)
                if done:
                    return answers.result()
                living = {node.node_id for node in (await asyncio.to_thread(view_capacity)).nodes}
                if not nodes <= living:
                    raise NodeLostError
        finally:
            answers.cancel()

    async def _construct(self, names: Collection[str]) -> None:
        """Construct all classes at once; the ranks of a role meet at a port of rank 0's node."""
        devices = self._devices_of_roles()
        refs = {}
        for workload in self.plan.workloads:
            if workload.name in names:
                own = self._facts[workload.name]
                first = self._facts.get(workload.role.workload_name(0), own)  # unless it died with its Master
                refs[workload.name] = self._hosts[workload.name].construct.remote(
                    self.master,
                    first.address,
                    first.offered_port or 0,
                    devices[workload.role, workload.node],
                    self._context.workloads[workload.name].old_process,
                )
        made = await self._answers(refs, "construct", self._launch.limits.construct_s)
        with self._context.change(is_awaited=False) as change:
            for name, (table, is_stateful) in made.items():
                change.workload(name, state=WorkloadState.READY, is_stateful=is_stateful, detail=None)
                if table is not None:
                    self.tables[RoleType(name.rpartition("-")[0])] = table

    def _devices_of_roles(self) -> dict[tuple[RoleType, int], tuple[str, ...]]:
        """The devices of each role on each node, in the order of local_rank."""
        devices: dict[tuple[RoleType, int], tuple[str, ...]] = {}
        for workload in self.plan.workloads:  # in rank order
            place = (workload.role, workload.node)
            devices[place] = (*devices.get(place, ()), *self._context.workloads[workload.name].device_ids)
        return devices

    async def _answers(self, refs: Mapping[str, Any], doing: str, timeout_s: float) -> dict[str, Any]:
        try:
            return await replies_of(refs, doing=doing, timeout_s=timeout_s)
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, DlrlError) else error
            if isinstance(cause, WorkloadStartError):
                await self._check_others(cause, doing)
            raise cause from None

    async def _check_others(self, error: WorkloadStartError, doing: str) -> None:
        """Raise ProcessDiedError if another process of the role died: then that is why this one could not start."""
        others = {watch: name for name, watch in self._watches.items() if name.rpartition("-")[0] == error.role}
        done, _ = await asyncio.wait(others, timeout=_DEATH_KNOWN_S, return_when=asyncio.FIRST_COMPLETED)
        for watch in done:
            raise ProcessDiedError(others[watch], doing, watch.result()) from None

    # ---- restarting

    async def restart(self, names: Collection[str]) -> None:
        """New processes for these workloads; those of them that live are ended first."""
        await self._end(names)
        await self.start(names)

    async def _end(self, names: Collection[str]) -> None:
        """End those that live, and wait until their names can be used again."""
        job = self._launch.job
        for name in names:
            if (watch := self._watches.pop(name, None)) is not None:
                watch.cancel()
        living = {name: actor for name in names if (actor := workload_launcher.find_actor(job, name)) is not None}
        last_calls = [asyncio.ensure_future(quiet(actor.end.remote(False))) for actor in living.values()]
        if last_calls:
            await asyncio.wait(last_calls, timeout=_LAST_CALL_S)
        for actor in living.values():
            workload_launcher.kill(actor)
        for left in await asyncio.to_thread(workload_launcher.wait_until_gone, job, living, _NAME_FREE_S):
            raise ProcessDiedError(left, "end", "its old process does not go away")

    # ---- watching

    def _watch(self, name: str) -> None:
        if (old := self._watches.get(name)) is not None:
            old.cancel()
        self._watches[name] = asyncio.ensure_future(self._watched(name, self._hosts[name], self._facts[name].actor_id))

    async def _watched(self, name: str, host: Any, actor_id: str) -> str:
        """A death is noticed because this pending call fails; its reason."""
        try:
            await host.watch.remote()
            return "it was asked to end"
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - a watch that ends without an observation would let the job hang
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        self._on_gone(WorkloadGone(name=name, reason=reason, actor_id=actor_id))
        return reason

    def host_of(self, name: str) -> Any | None:
        """The process behind the name; None if there is none."""
        return self._hosts.get(name)

    def stop_watching(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
