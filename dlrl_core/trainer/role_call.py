"""RoleCall: a call on its way to the workloads of a role; Replay: how parts of it are repeated after a death."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayTaskError

from dlrl_core.errors import CallTimeoutError, DlrlError, RemoteCause, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.workload_directory import GRACE_S, WorkloadDirectory, WorkloadHandle, died_with, is_gone
from dlrl_core.workload.actors import LOST, death_reason

if TYPE_CHECKING:
    from dlrl_core.trainer.role_group import RoleMethod


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
    redone: int = 0
    """How many shards were started again."""

    def get(self, timeout: float | None = None) -> Any:
        """The results in rank order, or what `post_func` returns for them."""
        while True:
            try:
                if timeout is not None:
                    self._await_all(timeout)
                results = ray.get(self.refs)
                break
            except (RayTaskError, *LOST) as error:
                if not self.recover():
                    raise self._named(error) from _cause_of(error)
        return results if self.post_func is None else self.post_func(results)

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
        if isinstance(error, RayTaskError) and not isinstance(error, LOST):
            # Not raised by the method: its arguments did not arrive, or its result could not be sent.
            cause = RemoteCause.of(error.cause if isinstance(error.cause, BaseException) else error)
            return WorkloadCallError(
                f"role '{self.role}' rank {rank} could not run '{self.method}': {cause}",
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


def _failure(ref: Any) -> Exception | None:
    """The error of a call, the loss itself if its process was lost; None if it did not fail, or not yet."""
    try:
        ray.get(ref, timeout=0)
    except GetTimeoutError:
        return None
    except LOST as error:
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
