"""Stand-ins for Ray, a workload's process and the Master: deaths and errors in exactly the order that a test wants."""

from __future__ import annotations

import copy
import itertools
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError

from dlrl_core.errors import RemoteCause, WorkloadCallError
from dlrl_core.roles import RoleType
from dlrl_core.trainer import commit_search, commits, role_call, role_group, workload_directory
from dlrl_core.trainer.progress import CallLog
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.trainer.workload_directory import DirectorySnapshot, WorkloadDirectory, WorkloadHandle
from dlrl_core.workload import actors
from dlrl_core.workload.invocation import InvocationOptions, MethodInfo


class Ref:
    """A result that is there: a value, an error, or nothing yet."""

    def __init__(self, outcome: Any = None, *, is_pending: bool = False) -> None:
        self.outcome = outcome
        self.is_pending = is_pending


class RayStandIn:
    """Time stands still here: what is pending stays so, and who would wait for it for ever fails."""

    exceptions = ray.exceptions

    def get(self, refs, timeout=None):
        if isinstance(refs, list):
            for ref in refs:
                if isinstance(ref.outcome, Exception) and not ref.is_pending:
                    raise ref.outcome  # as Ray does, while others still are on their way
            return [self.get(ref, timeout) for ref in refs]
        if refs.is_pending:
            assert timeout is not None, "this would wait for ever"
            raise GetTimeoutError
        if isinstance(refs.outcome, Exception):
            raise refs.outcome
        return refs.outcome

    def wait(self, refs, num_returns=1, timeout=None, fetch_local=True):
        return [ref for ref in refs if not ref.is_pending], [ref for ref in refs if ref.is_pending]

    def put(self, value):
        return Ref(copy.deepcopy(value))


def use_stand_in(monkeypatch) -> None:
    """From here on, the trainer's modules talk to it."""
    stand_in = RayStandIn()
    for module in (role_call, role_group, workload_directory, actors, commits, commit_search):
        monkeypatch.setattr(module, "ray", stand_in)
    monkeypatch.setattr(role_call, "get_local_object_locations", lambda refs: {ref: {"object_size": 1} for ref in refs})


_ids = itertools.count()


class ProcessStandIn:
    """A workload's process. `will` says what its next calls give; then each returns its own name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = f"{name}#{next(_ids)}"
        self._actor_id = SimpleNamespace(hex=lambda: self.id)
        self.is_alive = True
        self.will: deque[Any] = deque()
        self.done: Counter[str] = Counter()
        self.ping = self._answering("ping")
        self.sent: list[tuple[Any, ...]] = []
        """The arguments of its calls."""
        self.invoke = SimpleNamespace(remote=lambda method, *args, **kwargs: self._invoked(method, args))
        self.keeper = SimpleNamespace(remote=lambda method, *args: self._call(method))
        self.invoke_init = SimpleNamespace(remote=lambda number, method, *args, **kwargs: self._call(method))

    def __getattr__(self, method: str) -> Any:  # the host's own, such as `save`
        return SimpleNamespace(remote=lambda *args: self._call(method))

    def _answering(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda: Ref(method if self.is_alive else self.death()))

    def _invoked(self, method: str, args: tuple[Any, ...]) -> Ref:
        self.sent.append(args)
        return self._call(method)

    def _call(self, method: str) -> Ref:
        if not self.is_alive:
            return Ref(self.death())
        self.done[method] += 1
        outcome = self.will.popleft() if self.will else self.name
        return outcome if isinstance(outcome, Ref) else Ref(outcome)

    def death(self) -> ActorDiedError:
        error = ActorDiedError()
        error.actor_id = self.id
        return error

    def out_of_reach(self) -> ActorUnavailableError:
        error = ActorUnavailableError("the connection was lost", None)
        error.actor_id = self.id
        return error

    def collective_error(self) -> RayTaskError:
        """What a rank raises whose peer is gone."""
        error = ConnectionError("connection closed by peer")
        role, _, rank = self.name.rpartition("-")
        cause = WorkloadCallError(
            f"role '{role}' rank {rank} raised it", role=role, rank=int(rank), method="m", cause=RemoteCause.of(error)
        )
        return RayTaskError("invoke", "a traceback", cause, proctitle="p", pid=1, ip="1.1.1.1").as_instanceof_cause()


class MasterStandIn:
    """Replaces who is dead when it is asked; `scopes` says of which roles training goes back for it."""

    def __init__(self, job: JobStandIn, going_back: frozenset[str]) -> None:
        self._job = job
        self._going_back = going_back
        self.epoch = 0
        self.counts_epochs = True
        self.escalated: list[tuple[str, str]] = []
        for method in ("restored", "settled", "escalate"):
            setattr(self, method, SimpleNamespace(remote=getattr(self, f"_{method}")))

    def _restored(self, name: str, actor_id: str) -> Ref:
        return self._settled()

    def _settled(self) -> Ref:
        for name, process in self._job.processes.items():
            if not process.is_alive:
                self._job.processes[name] = ProcessStandIn(name)
                self.epoch += self.counts_epochs and name.partition("-")[0] in self._going_back
        actors = {name: (process.id, process, "node") for name, process in self._job.processes.items()}
        return Ref(DirectorySnapshot(epoch=self.epoch, actors=actors))

    def _escalate(self, name: str, method: str, term: int | None) -> Ref:
        self.escalated.append((name, method))
        return Ref()


class JobStandIn:
    """Two ranks of each role, each with the method `work`, and what the trainer knows of them."""

    def __init__(self, *roles: str, going_back: tuple[str, ...] = (), **options: Any) -> None:
        names = [f"{role}-{rank}" for role in roles for rank in range(2)]
        self.processes = {name: ProcessStandIn(name) for name in names}
        self.master = MasterStandIn(self, frozenset(going_back))
        self.handles = [
            WorkloadHandle(name=name, role=name[:-2], rank=int(name[-1]), ray_actor=process)
            for name, process in self.processes.items()
        ]
        self.directory = WorkloadDirectory(master=self.master, workloads=self.handles)
        methods = {"work": MethodInfo(options=InvocationOptions(**options))}
        self.groups = {
            role: RoleGroup(RoleType(role), self.handles_of(role), methods, CallLog(), self.directory) for role in roles
        }

    def handles_of(self, role: str) -> list[WorkloadHandle]:
        return [handle for handle in self.handles if handle.role == role]

    def kill(self, name: str) -> ActorDiedError:
        self.processes[name].is_alive = False
        return self.processes[name].death()
