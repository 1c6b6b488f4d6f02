"""RoleCall: a call on its way to the workloads of a role; Replay: how parts of it are repeated after a death.

Arguments are kept as they were sent: what the caller does to a batch after a call does not change what a replay sends.
"""

from __future__ import annotations

import functools
import io
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.cloudpickle import CloudPickler
from ray.exceptions import GetTimeoutError, ObjectLostError, RaySystemError, RayTaskError
from ray.experimental import get_local_object_locations

from dlrl_core.errors import CallTimeoutError, DlrlError, RemoteCause, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.workload_directory import GRACE_S, WorkloadDirectory, WorkloadHandle, died_with, is_gone
from dlrl_core.workload.actors import LOST, death_reason
from dlrl_core.workload.invocation import cutting_method

if TYPE_CHECKING:
    from dlrl_core.trainer.role_group import RoleMethod

_LOOK_S = 10.0
"""A call that takes longer looks at times whether another thread has met a death, for which the trainer goes back."""
_FAILURE_SEEN_S = 0.5
"""How often a call that takes longer looks which of its parts have failed."""
_LARGEST_ERROR = 1024 * 1024
"""Results above this size are not fetched to find out whether they are errors."""


@dataclass(eq=False, repr=False, kw_only=True)
class RoleCall:
    """What `blocking=False` returns: one reference for each target, in rank order.

    Pass it on as an argument to another role group and its shards go straight from workload to workload.
    `.get()` waits and returns what a blocking call would have returned. If a workload dies on the way and may be
    restarted alone, its shard is repeated on the restarted one.
    """

    role: str
    method: str
    ranks: tuple[int, ...]
    refs: list[Any]
    replay: Replay
    post_func: Callable[[list[Any]], Any] | None = None
    once: threading.RLock | None = None
    """Held while `post_func` runs."""
    redone: int = 0
    """How many shards were started again."""
    _made: tuple[Any, ...] = ()
    """What `post_func` has returned."""

    def get(self, timeout: float | None = None) -> Any:
        """The results in rank order, or what `post_func` returns for them. It is called once, and what it has returned
        stays, whatever is repeated later."""
        if self.post_func is None:
            return self._results(timeout)
        if not self._made:
            results = self._results(timeout)
            with self.once or nullcontext():
                self._made = self._made or (self.post_func(results),)
        return self._made[0]

    def _results(self, timeout: float | None) -> list[Any]:
        look_s: float | None = _LOOK_S
        while True:
            try:
                if timeout is not None:
                    self._await_all(timeout)
                results: list[Any] = ray.get(self.refs, timeout=look_s)
                self.check()
                self.set_heard()
                return results
            except GetTimeoutError:
                self._await_outcome()
                look_s = None
            except (RayTaskError, RaySystemError, *LOST) as error:
                self._repeat_or_raise(error)

    def _await_outcome(self) -> None:
        """Wait until all parts are done or one has failed, which is seen a moment later. Nothing is fetched."""
        pending = self.refs
        while pending:  # not once for each that is ready: that takes the square of their number
            ready, pending = ray.wait(pending, num_returns=len(pending), timeout=_FAILURE_SEEN_S, fetch_local=False)
            self.check()
            if any(_failure(ref, _LARGEST_ERROR) for ref in ready):
                return

    def _repeat_or_raise(self, error: Exception) -> None:
        self.check()
        if not self.recover():
            self.set_heard()
            raise self._named(error) from _cause_of(error)

    def set_heard(self) -> None:
        """The trainer has seen how this call ended, and the earlier ones whose results are its arguments."""
        unawaited = self.replay.directory.unawaited
        for call in self.replay.upstream:
            if call in unawaited:
                call.set_heard()
        unawaited.pop(self, None)

    def look(self, *, is_waiting: bool = False) -> None:
        """Raise what a part has failed with; a part that was lost with a process is started again."""
        if is_waiting:
            self._await_outcome()
        failed = next(filter(None, (_failure(ref, _LARGEST_ERROR) for ref in self.refs)), None)
        if failed is not None:
            self._repeat_or_raise(failed)
            self.look(is_waiting=is_waiting)
        elif not ray.wait(self.refs, num_returns=len(self.refs), timeout=0, fetch_local=False)[1]:
            self.set_heard()

    def check(self) -> None:
        """Raise RestartFit if the trainer must roll back, so that the results are no longer needed."""
        self.replay.directory.check()

    def recover(self) -> bool:
        """Start the shards again that were lost with a process, or failed because another process was lost.

        False if there are none, or they can't be repeated: the error is one of user code, or would come again.
        """
        redone = self.redone
        for index, error in self._failed().items():
            ref = self.replay.start(index, error)
            if ref is not None:
                self.refs[index] = ref
                self.redone += 1
        return self.redone != redone

    def _failed(self) -> dict[int, Exception]:
        """The shards that were lost; if there are none, those with an error that a death may have caused."""
        failed = self._failures()
        lost = _losses(failed)
        if lost or not failed or any(map(self.replay.has_changed, failed)):
            return lost or failed
        ray.wait(self.refs, num_returns=len(self.refs), timeout=GRACE_S)
        failed = self._failures()
        lost = _losses(failed)
        if not lost:
            self.replay.directory.replace_gone()
        return lost or failed

    def _failures(self) -> dict[int, Exception]:
        return {index: error for index, ref in enumerate(self.refs) if (error := _failure(ref)) is not None}

    def _await_all(self, timeout_s: float) -> None:
        """Wait until every target has answered; else raise CallTimeoutError with the missing ranks and the results.

        If one of the results is an error, that is raised instead.
        """
        done, missing = ray.wait(self.refs, num_returns=len(self.refs), timeout=timeout_s)
        if not missing:
            return
        rank_of = dict(zip(self.refs, self.ranks, strict=True))
        raise CallTimeoutError(
            role=self.role,
            method=self.method,
            timeout_s=timeout_s,
            missing=[rank_of[ref] for ref in missing],
            results={rank_of[ref]: ray.get(ref) for ref in done},
        )

    def _named(self, error: Exception) -> DlrlError:
        """The error with role, rank and method: what the workload raised, or that it died."""
        if isinstance(error, RayTaskError) and isinstance(error.cause, DlrlError):
            return error.cause
        rank = self.ranks[next(iter(self._failures()), 0)]
        if isinstance(error, RayTaskError | RaySystemError) and not isinstance(error, LOST):
            # Not raised by the method: its arguments did not arrive, or its result could not be sent or read.
            is_read = isinstance(error, RaySystemError)
            first = getattr(error, "client_exc" if is_read else "cause", None)
            cause = RemoteCause.of(first if isinstance(first, BaseException) else error)
            what = "returned what the trainer can't unpickle from" if is_read else "could not run"
            return WorkloadCallError(
                f"role '{self.role}' rank {rank} {what} '{self.method}': {cause}",
                role=self.role,
                rank=rank,
                method=self.method,
                cause=cause,
            )
        what = "lost what it needs for" if isinstance(error, ObjectLostError) else "died during"
        return WorkloadDiedError(
            f"workload '{self.role}-{rank}' {what} '{self.method}': {death_reason(error)}",
            role=self.role,
            rank=rank,
            method=self.method,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __repr__(self) -> str:
        return f"RoleCall('{self.role}.{self.method}', {len(self.refs)} targets)"


@dataclass(slots=True, kw_only=True)
class Replay:
    """One call as it was made. `start` repeats a target's part of it, if something was replaced since."""

    method: RoleMethod
    directory: WorkloadDirectory
    targets: Sequence[WorkloadHandle]
    actors: list[Any]
    """The processes that the call went to."""
    numbers: list[int] | None
    """Of a call of `init`, its number on each target."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    upstream: list[RoleCall]
    """Earlier calls whose results are arguments."""
    mark: tuple[int, int]
    """The directory's version, and how many shards of upstream calls were repeated, when the call was made."""
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The same for targets whose part was repeated."""

    def has_changed(self, index: int) -> bool:
        """Whether any process was replaced since this target's part was started."""
        return self.directory.version != self.marks.get(index, self.mark)[0]

    def start(self, index: int, error: Exception) -> Any:
        """Repeat a target's part that failed with this error; None if it would only fail the same way.

        Raises RestartFit if the trainer has to go back to its last commit instead.
        """
        is_lost = isinstance(error, LOST)
        if is_own := is_lost and self._is_of_target(index, error):
            self._replace(index)
        for call in self.upstream:
            call.recover()
        version, redone = self.marks.get(index, self.mark)
        has_changed = is_own or self._redone() != redone
        if not has_changed and (is_lost or not self._was_disturbed(index, self.directory.replaced[version:])):
            return None
        self.marks[index] = (self.directory.version, self._redone())
        self.actors[index] = self.targets[index].ray_actor
        return self.method.start_one(index, self.args, self.kwargs, self.numbers)

    def _redone(self) -> int:
        return sum(call.redone for call in self.upstream)

    def _is_of_target(self, index: int, error: Exception) -> bool:
        """Whether the target's own process was lost, and not one that its arguments were to come from."""
        actor = self.actors[index]
        return getattr(error, "actor_id", None) == actor._actor_id.hex() or is_gone(actor.ping.remote())

    def _replace(self, index: int) -> None:
        target, actor = self.targets[index], self.actors[index]
        self._check_may_repeat(target)
        self.directory.replace(target.name, actor)
        if target.ray_actor is actor and not self.directory.may_repeat(target):
            # The process was only out of reach for a while, and may have done the call.
            self.directory.go_back(died_with(target, self.method.full_name))

    def _was_disturbed(self, index: int, replaced: list[WorkloadHandle]) -> bool:
        """Whether the error came because a peer died, so that the part can be repeated.

        If only workloads of other roles died, the cause is unknown, and the trainer goes back: raises RestartFit.
        """
        target = self.targets[index]
        if not replaced:
            return False
        if all(one.role != target.role for one in replaced):
            self.directory.go_back(died_with(replaced[0], self.method.full_name))
        self._check_may_repeat(target)
        return True

    def _check_may_repeat(self, target: WorkloadHandle) -> None:
        if not self.method.is_repeatable:
            self.directory.escalate(target.name, self.method.name)


def check_unawaited(directory: WorkloadDirectory, *, is_waiting: bool = False) -> None:
    """Raise what a call has failed with whose outcome the trainer has not seen.

    If `is_waiting`, that includes all calls that workloads with state run before a commit that is sent now.
    """
    for call in list(directory.unawaited):
        method, target = call.replay.method, call.replay.targets[0]
        call.look(is_waiting=is_waiting and target.name in directory.stateful and not method.is_coroutine)


def _failure(ref: Any, largest: int | None = None) -> Exception | None:
    """The error of a call, the loss itself if its process was lost; None if it did not fail, or not yet."""
    if largest and (get_local_object_locations([ref]).get(ref, {}).get("object_size") or 0) > largest:
        return None  # it is not fetched to find out
    try:
        ray.get(ref, timeout=0)
    except GetTimeoutError:
        return None
    except (RaySystemError, *LOST) as error:
        return error
    except RayTaskError as error:
        return error.cause if isinstance(error.cause, LOST) else error
    return None


def _losses(failed: dict[int, Exception]) -> dict[int, Exception]:
    return {index: error for index, error in failed.items() if isinstance(error, LOST)}


def _cause_of(error: Exception) -> BaseException | None:
    """The user's own exception, where this process can load it: shown as the direct cause."""
    cause = getattr(getattr(error, "cause", None), "cause", None)
    return cause.load() if isinstance(cause, RemoteCause) else None


LARGEST_KEPT = 100 * 1024
"""What Ray sends inside a call; anything larger goes to the object store."""
_FIXED = frozenset({type(None), str, bytes, bool, int, float})


class KeptPieces(list[Callable[[], Any]]):
    """An argument in the pieces that its targets get."""


def kept(value: Any) -> Callable[[], Any]:
    """Returns the value as it is now. Small ones are pickled for that; others are put into Ray's object store, where
    Ray would put them for the call itself."""
    if value is None or isinstance(value, str | bytes | int | float | ObjectRef):
        return lambda: value
    if type(value) in (list, tuple) and _FIXED.issuperset(map(type, value)):
        value = value[:]
        return lambda: value
    file = _SmallFile()
    try:
        _SmallPickler(file).dump(value)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - too large, or with references, which only Ray can keep; or user code can't be pickled
        value = ray.put(value)
        return lambda: value
    return functools.partial(pickle.loads, file.getvalue())


class _SmallFile(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > LARGEST_KEPT:
            raise pickle.PicklingError
        return super().write(data)


class _SmallPickler(CloudPickler):
    """Does not begin with what may be large as a whole: arrays, and batches that cut themselves."""

    def reducer_override(self, obj: Any) -> Any:
        size = getattr(obj, "nbytes", None)
        is_whole = isinstance(obj, ObjectRef | ActorHandle) or cutting_method(obj) is not None
        if size > LARGEST_KEPT if isinstance(size, int) else is_whole:
            raise pickle.PicklingError
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
