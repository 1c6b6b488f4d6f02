"""RoleGroup: all workloads of a role, called as one."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from dlrl_core.errors import SpecError
from dlrl_core.graph import EdgeKind
from dlrl_core.hints import did_you_mean
from dlrl_core.roles import RoleType
from dlrl_core.trainer.progress import CallLog
from dlrl_core.trainer.role_call import LARGEST_KEPT, KeptPieces, Replay, RoleCall, check_unawaited, kept
from dlrl_core.trainer.workload_directory import Lease, WorkloadDirectory, WorkloadHandle
from dlrl_core.workload.invocation import (
    InvocationOptions,
    MethodInfo,
    ShardPart,
    Target,
    Whole,
    join_pieces,
    parts_for,
    slot_name,
    split_value,
)

_MOST_UNAWAITED = 64
"""With so many calls that were not awaited, those that have succeeded are forgotten, and a failed one is raised."""


class RoleGroup:
    """`group.method(...)` calls the method on the role's workloads as its `@trainer_invocation` says."""

    def __init__(
        self,
        role: RoleType,
        workloads: Sequence[WorkloadHandle],
        methods: Mapping[str, MethodInfo],
        call_log: CallLog,
        directory: WorkloadDirectory,
    ) -> None:
        self._role = role
        self._workloads = list(workloads)
        self._methods = methods
        self._call_log = call_log
        self._directory = directory
        self._members: dict[str | int, RoleGroup] = {}

    def __getattr__(self, name: str) -> RoleMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._methods:
            hint = did_you_mean(name, self._methods)
            raise AttributeError(
                f"role '{self._role}' has no method '{name}'{hint} it has: {', '.join(sorted(self._methods))}"
            )
        method = self.__dict__[name] = RoleMethod(self, name, self._methods[name])
        return method

    def __getitem__(self, which: str | int) -> RoleGroup:
        """Some of the workloads, called as one: those of a named part, `self.RG_ROLLOUT["prefill"].generate(batch)`,
        or the one at a position, `self.RG_ROLLOUT[0].generate(batch)`."""
        found = self._members.get(which)
        if found is None:
            members = [self._workloads[which]] if isinstance(which, int) else self._part(which)
            found = RoleGroup(self._role, members, self._methods, self._call_log, self._directory)
            self._members[which] = found
        return found

    def _part(self, part: str) -> list[WorkloadHandle]:
        named = dict.fromkeys(workload.part for workload in self._workloads if workload.part)
        if part not in named:
            has = f"its parts are: {', '.join(named)}" if named else "it has no parts"
            raise KeyError(f"role '{self._role}' has no part '{part}'; {has}")
        return [workload for workload in self._workloads if workload.part == part]

    def __len__(self) -> int:
        return len(self._workloads)

    def __iter__(self) -> Iterator[WorkloadHandle]:
        return iter(self._workloads)

    def __repr__(self) -> str:
        return f"{self._role.group_name}({len(self)} workloads)"


class RoleMethod:
    """One method of a role group."""

    def __init__(self, group: RoleGroup, name: str, info: MethodInfo) -> None:
        self._group = group
        self.name = name
        self._info = info
        self._options = options = info.options
        self._role, self._call_log, self._directory = group._role, group._call_log, group._directory
        self._targets = group._workloads[:1] if options.target is Target.RANK0 else group._workloads
        self._ranks = tuple(workload.rank for workload in self._targets)
        self._role_name = self._role.value
        self.full_name = f"{self._role_name}.{name}"
        self.is_repeatable = options.replay
        self.is_coroutine = info.is_coroutine
        self._sends = group._directory.sends[self._role_name]
        self._no_shards = self._shards((), {})
        self._look_up()

    def options(self, **changes: Any) -> RoleMethod:
        """The same method with other invocation attributes for this use: `.options(auto_shard=False)(batch)`."""
        checked = InvocationOptions.checked(**changes)
        changed = replace(self._options, **{name: getattr(checked, name) for name in changes})
        return RoleMethod(self._group, self.name, replace(self._info, options=changed))

    def _look_up(self) -> None:
        """Look up the processes that are behind the targets now."""
        version = self._directory.version
        self._starts: list[Callable[..., Any]] = [
            _start_of(workload, self.name, self._info, self._directory.lease) for workload in self._targets
        ]
        self._version = version

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        options = self._options
        self._call_log.began(self._role, self.full_name)
        if options.pre_func is not None:
            args, kwargs = _prepared(options.pre_func, args, kwargs, self.full_name)
        directory = self._directory
        if not options.blocking and len(directory.unawaited) >= directory.most_unawaited:
            check_unawaited(directory)
            directory.most_unawaited = max(_MOST_UNAWAITED, 2 * len(directory.unawaited))
        shards, upstream = self._no_shards, []
        if args or kwargs:
            given = [arg.value if isinstance(arg, Whole) else arg for arg in (*args, *kwargs.values())]
            upstream = [arg for arg in given if isinstance(arg, RoleCall)]
            if directory.is_init or not options.blocking:
                args, kwargs = tuple(map(self._kept, args)), {key: self._kept(arg) for key, arg in kwargs.items()}
            shards = self._shards(args, kwargs)
        with self._sends:
            directory.check()
            if directory.version != self._version:
                self._look_up()
            replay = self._replay(args, kwargs, upstream)  # before the start: it has the numbers of calls of `init`
            starts = map(self._init_start, self._targets) if directory.is_init else self._starts
            refs = [start(*shard, **named) for start, (shard, named) in zip(starts, shards, strict=True)]
        call = RoleCall(
            role=self._role_name,
            method=self.name,
            ranks=self._ranks,
            refs=refs,
            post_func=options.post_func,
            once=threading.RLock() if options.post_func else None,
            replay=replay,
        )
        if not options.blocking:
            directory.unawaited[call] = None
            return call
        result = call.get(options.timeout if options.is_async else None)
        self._call_log.waited(self.full_name, time.perf_counter() - began)
        return result

    def _shards(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[list[Any], dict[str, Any]]]:
        """The arguments of each target."""
        spread = [self._spread(arg) for arg in args]
        spread_kwargs = {key: self._spread(arg) for key, arg in kwargs.items()}
        return [
            ([piece[rank] for piece in spread], {key: piece[rank] for key, piece in spread_kwargs.items()})
            for rank in range(len(self._targets))
        ]

    def _init_start(self, target: WorkloadHandle) -> Callable[..., Any]:
        """Starts a call of the trainer's `init`, which is repeated on processes that replace the target's."""
        return lambda *args, **kwargs: self._directory.start_init(target, self.name, args, kwargs)

    def _replay(self, args: tuple[Any, ...], kwargs: dict[str, Any], upstream: list[RoleCall]) -> Replay:
        """What is needed to repeat this call."""
        directory, targets = self._directory, self._targets
        return Replay(
            method=self,
            directory=directory,
            targets=targets,
            actors=[target.ray_actor for target in targets],
            numbers=directory.init_numbers(targets) if directory.is_init else None,
            args=args,
            kwargs=kwargs,
            upstream=upstream,
            mark=(directory.version, sum(call.redone for call in upstream)),
        )

    def start_one(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: list[int] | None) -> Any:
        """Start one target's part of a call, on the process that is behind it now."""
        shard, named = self._shards(args, kwargs)[index]
        with self._sends:
            self._directory.check()
            if self._directory.version != self._version:
                self._look_up()
            if numbers is not None:  # of `init`: a new process may have done it already
                name = self._directory.lease.signed(self.name)
                return self._targets[index].ray_actor.invoke_init.remote(numbers[index], name, *shard, **named)
            return self._starts[index](*shard, **named)

    def _kept(self, arg: Any) -> Any:
        """The argument as it is sent now; results of an earlier call that go by reference stay that, for they may be
        made again."""
        pieces = self._spread(arg)
        if isinstance(pieces[0], ShardPart) or (isinstance(arg, RoleCall) and pieces is arg.refs):
            return arg
        found = {id(piece): kept(piece) for piece in pieces}
        return KeptPieces([found[id(piece)] for piece in pieces])

    def _spread(self, arg: Any) -> Sequence[Any]:
        """The argument for each target, in rank order."""
        targets = len(self._targets)
        if isinstance(arg, KeptPieces):
            return [load() for load in arg]
        if isinstance(arg, RoleCall):
            return self._spread_call(arg, targets)
        if isinstance(arg, Whole) and isinstance(arg.value, RoleCall):
            return [self._all_results(arg.value)] * targets
        pieces = split_value(arg, targets) if self._options.auto_shard and targets > 1 else None
        if pieces is not None:
            return pieces
        value = arg.value if isinstance(arg, Whole) else arg
        if targets > 1 and getattr(value, "nbytes", 0) > LARGEST_KEPT:
            value = ray.put(value)
        return [value] * targets

    def _spread_call(self, call: RoleCall, targets: int) -> Sequence[Any]:
        """Results of an earlier call, by reference if they line up with the targets."""
        if call.post_func is not None:
            return self._spread(call.get())
        if not self._options.auto_shard:
            return [self._all_results(call)] * targets
        self._call_log.graph.saw(RoleType(call.role), self._role, EdgeKind.DATA)
        if len(call.refs) == targets:
            return call.refs
        parts = parts_for(call.refs, targets)
        return parts if parts is not None else self._spread(join_pieces(call.get()))

    def _all_results(self, call: RoleCall) -> Any:
        """Everything an earlier call returned, for one target."""
        self._call_log.graph.saw(RoleType(call.role), self._role, EdgeKind.DATA)
        return call.get() if call.post_func is not None else ShardPart(tuple(call.refs), is_list=True)


def _start_of(workload: WorkloadHandle, name: str, info: MethodInfo, lease: Lease) -> Callable[..., Any]:
    """The function that starts this method on this workload, given its arguments."""
    actor = workload.ray_actor
    if info.is_coroutine:
        return functools.partial(actor.invoke_coroutine.remote, lease.signed(name))
    if info.slot is None:
        return functools.partial(actor.invoke.remote, lease.signed(name))
    start: Callable[..., Any] = getattr(actor, slot_name(info.slot, lease.term or 0)).remote
    return start


def _prepared(
    pre_func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], call: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that `pre_func` returns: one value, or `(args, kwargs)`."""
    made = pre_func(*args, **kwargs)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict):
        if not isinstance(made[0], list | tuple):
            raise SpecError(
                [f"pre_func of '{call}' returned ({type(made[0]).__name__}, dict); return one value, or (args, kwargs)"]
            )
        return tuple(made[0]), made[1]
    return (made,), {}
