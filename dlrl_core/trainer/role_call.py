"""RoleCall: a call on its way to the workloads of a role, and its results by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from dlrl_core.errors import CallTimeoutError, DlrlError, RemoteCause, WorkloadCallError, WorkloadDiedError
from dlrl_core.workload.death_reason import GONE, death_reason


class RoleCall:
    """What `blocking=False` returns: one reference for each target, in rank order.

    Pass it on as an argument to another role group and its shards go straight from workload to workload.
    `.get()` waits and returns what a blocking call would have returned. If a workload dies on the way and may be
    restarted alone, its shard is done again on the restarted one.
    """

    def __init__(
        self,
        *,
        role: str,
        method: str,
        ranks: tuple[int, ...],
        refs: list[Any],
        post_func: Callable[[list[Any]], Any] | None = None,
        again: Callable[[int, Exception], Any] | None = None,
    ) -> None:
        self.role = role
        self.method = method
        self.ranks = ranks
        self.refs = refs
        self.post_func = post_func
        self._again = again

    def get(self, timeout: float | None = None) -> Any:
        """The results in rank order, or what `post_func` makes of them."""
        if timeout is not None:
            self._await_all(timeout)
        while True:
            try:
                results = ray.get(self.refs)
                break
            except (RayTaskError, *GONE) as error:
                if not self.recover():
                    raise self._named(error) from _cause_of(error)
        return results if self.post_func is None else self.post_func(results)

    def recover(self) -> bool:
        """Start the shards again that were lost with a process; False if none was lost, or they can't be."""
        if self._again is None:
            return False
        lost = [(index, error) for index, ref in enumerate(self.refs) if (error := _loss(ref)) is not None]
        for index, error in lost:
            self.refs[index] = self._again(index, error)
        return bool(lost)

    def _await_all(self, timeout_s: float) -> None:
        """Wait until every target has answered, or raise with the ranks that have not and the results that came."""
        done, missing = ray.wait(self.refs, num_returns=len(self.refs), timeout=timeout_s)
        if not missing:
            return
        rank_of = dict(zip(self.refs, self.ranks, strict=True))
        raise CallTimeoutError(
            role=self.role,
            method=self.method,
            timeout_s=timeout_s,
            missing=[rank_of[ref] for ref in missing],
            results=self._results_of(done, rank_of),
        )

    def _results_of(self, done: list[Any], rank_of: dict[Any, int]) -> dict[int, Any]:
        try:
            return {rank_of[ref]: ray.get(ref) for ref in done}
        except (RayTaskError, *GONE) as error:
            raise self._named(error) from _cause_of(error)

    def _named(self, error: Exception) -> DlrlError:
        """The error with role, rank and method: what the workload raised, or that it died."""
        if isinstance(error, RayTaskError) and isinstance(error.cause, DlrlError):
            return error.cause
        rank = self._failed_rank()
        if isinstance(error, RayTaskError) and not isinstance(error, GONE):
            # Not raised by the method: its arguments did not arrive, or its result could not be sent.
            cause = RemoteCause.of(error.cause if isinstance(error.cause, BaseException) else error)
            return WorkloadCallError(
                f"role '{self.role}' rank {rank} could not run '{self.method}': {cause}",
                role=self.role,
                rank=rank,
                method=self.method,
                cause=cause,
            )
        return WorkloadDiedError(
            f"workload '{self.role}-{rank}' died during '{self.method}': {death_reason(error)}",
            role=self.role,
            rank=rank,
            method=self.method,
        )

    def _failed_rank(self) -> int:
        for rank, ref in zip(self.ranks, self.refs, strict=True):
            try:
                ray.get(ref, timeout=0)
            except GetTimeoutError:
                continue
            except (RayTaskError, *GONE):
                return rank
        return self.ranks[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __repr__(self) -> str:
        return f"RoleCall('{self.role}.{self.method}', {len(self.refs)} targets)"


def _loss(ref: Any) -> Exception | None:
    """The error that says a process is gone, of a reference whose call failed by that; None if it did not fail so."""
    try:
        ray.get(ref, timeout=0)
    except GetTimeoutError:
        return None
    except GONE as error:
        return error
    except RayTaskError as error:
        return error.cause if isinstance(error.cause, GONE) else None
    return None


def _cause_of(error: Exception) -> BaseException | None:
    """The user's own exception, where it can be loaded here: shown as the direct cause."""
    cause = getattr(getattr(error, "cause", None), "cause", None)
    return cause.load() if isinstance(cause, RemoteCause) else None
