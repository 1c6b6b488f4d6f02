"""verl's worker groups over roles: its own rules of how a batch is split, padded, sent and gathered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verl.protocol import DataProto, _padding_size_key
from verl.single_controller.ray import RayWorkerGroup

from dlrl_adapter_kit.framework_seam import Member, PatchedRay
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.workload.invocation import undecorated

_ray = PatchedRay()


class RoleWorkerGroup(RayWorkerGroup):  # type: ignore[misc]
    """A worker group of verl whose workers are the workloads of a role."""

    def __init__(self, group: RoleGroup, worker_class: type) -> None:
        super().__init__(worker_handles=[Member(group, position) for position in range(len(group))])
        self._bind_worker_method(worker_class, _bound)

    def _execute_remote_single_worker(self, worker: Member, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """A workload has no private methods; those that verl calls by such a name are there without the mark."""
        return getattr(worker, method_name.lstrip("_")).remote(*args, **kwargs)


class Pending(list[Any]):
    """Calls on their way, one for each worker; `get` is what the worker group returns for them."""

    def __init__(self, calls: list[Any], collect: Callable[[list[Any]], Any]) -> None:
        super().__init__(calls)
        self._collect = collect

    def get(self) -> Any:
        return self._collect(_ray.get(list(self)))


def _bound(
    workers: RoleWorkerGroup,
    method_name: str,
    dispatch_fn: Callable[..., Any],
    collect_fn: Callable[..., Any],
    execute_fn: Callable[..., Any],
    blocking: bool,
) -> Callable[..., Any]:
    """One method of the group, by verl's own functions for it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = dispatch_fn(workers, *args, **kwargs)
        padding = kwargs.pop(_padding_size_key, 0)
        calls = execute_fn(method_name, *args, **kwargs)

        def collect(results: list[Any]) -> Any:
            return _without_padding(collect_fn(workers, results), padding)

        if not isinstance(calls, list):  # rank 0 alone
            return collect(_ray.get(calls)) if blocking else calls
        pending = Pending(calls, collect)
        return pending.get() if blocking else pending

    call.__name__ = method_name
    return call


def _without_padding(output: Any, padding: int) -> Any:
    if padding == 0 or not isinstance(output, list | DataProto):
        return output
    return (
        output.select_idxs(list(range(len(output) - padding))) if isinstance(output, DataProto) else output[:-padding]
    )


class WorkerGroups:
    """Stands for the class by which verl's trainer starts workers: they are there, and get what it has for them."""

    def __init__(self, groups: Mapping[str, RoleGroup]) -> None:
        self._groups = groups
        """By verl's names of the roles."""
        self.building: list[Any] = []

    def __call__(self, *, ray_cls_with_init: Mapping[str, Any], **_: Any) -> _Spawning:
        return _Spawning({name: self._start(name, made) for name, made in ray_cls_with_init.items()})

    def _start(self, name: str, made: Any) -> RoleWorkerGroup:
        group = self._groups[name]
        build = group.build.options(blocking=False, auto_shard=False)
        self.building.append(build(*made.args, **made.kwargs))
        worker_class: Any = undecorated(made.cls)
        return RoleWorkerGroup(group, worker_class)


class _Spawning:
    """A collocated worker group, which in verl has all roles of a pool."""

    def __init__(self, groups: dict[str, RoleWorkerGroup]) -> None:
        self._groups = groups

    def spawn(self, prefix_set: Any) -> dict[str, RoleWorkerGroup]:
        return {name: self._groups[name] for name in prefix_set}
