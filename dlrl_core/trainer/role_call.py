"""RoleCall: a call on its way to the workloads of a role, and its results by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayTaskError

from dlrl_core.errors import CallTimeoutError, DlrlError, RemoteCause, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.roster import GRACE_S
from dlrl_core.workload.death_reason import LOST, death_reason

if TYPE_CHECKING:
    from dlrl_core.trainer.replay import Replay


class RoleCall:
    """What `blocking=False` returns: one reference for each target, in rank order.

    Pass it on as an argument to another role group and its shards go straight from workload to workload.
    `.get()` waits and returns what a blocking call would have returned. If a workload dies on the way and may be
    restarted alone, its shard is done again on the restarted one.
    """

    redone = 0
    """How many shards were started again."""

    def __init__(
        self,
        *,
        role: str,
        method: str,
        ranks: tuple[int, ...],
        refs: list[Any],
        post_func: Callable[[list[Any]], Any] | None = None,
        replay: Replay | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.role = role
        self.method = method
        self.ranks = ranks
        self.refs = refs
        self.post_func = post_func
        self._replay = replay
        self._check = check

    def get(self, timeout: float | None = None) -> Any:
        """The results in rank order, or what `post_func` makes of them."""
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
        """Raise what ends this run of `fit`, if something does: then nobody needs the results any more."""
        if self._check is not None:
            self._check()

    def recover(self) -> bool:
        """Start the shards again that were lost with a process, or failed because another one was lost.

        False if there are none, or they can't be: what failed is an error of user code, or would fail again.
        """
        if self._replay is None:
            return False
        redone = self.redone
        for index, error in self._failed(self._replay).items():
            ref = self._replay.start(index, error)
            if ref is not None:
                self.refs[index] = ref
                self.redone += 1
        return self.redone != redone

    def _failed(self, replay: Replay) -> dict[int, Exception]:
        """The shards that were lost; if none was, those with an error that a death may be behind."""
        failed = self._failures()
        lost = _losses(failed)
        if lost or not failed or any(map(replay.has_changed, failed)):
            return lost or failed
        ray.wait(self.refs, num_returns=len(self.refs), timeout=GRACE_S)
        failed = self._failures()
        lost = _losses(failed)
        if not lost:
            replay.roster.heal()
        return lost or failed

    def _failures(self) -> dict[int, Exception]:
        return {index: error for index, ref in enumerate(self.refs) if (error := _failure(ref)) is not None}

    def _await_all(self, timeout_s: float) -> None:
        """Wait until every target has answered, or raise with the ranks that have not and the results that came.

        If one of those that came is an error, that is what is raised.
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
        rank = self._failed_rank()
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

    def _failed_rank(self) -> int:
        return self.ranks[next(iter(self._failures()), 0)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __repr__(self) -> str:
        return f"RoleCall('{self.role}.{self.method}', {len(self.refs)} targets)"


def _failure(ref: Any) -> Exception | None:
    """What a call failed with, the loss itself where it was lost; None if it did not fail, or not yet."""
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
    """The user's own exception, where it can be loaded here: shown as the direct cause."""
    cause = getattr(getattr(error, "cause", None), "cause", None)
    return cause.load() if isinstance(cause, RemoteCause) else None
