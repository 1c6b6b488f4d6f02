"""The policies that come with dlrl, registered through the same hooks as anybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.plugin.hookspecs import Policy, hookimpl

if TYPE_CHECKING:
    from dlrl_core.spec import JobSpec


@hookimpl
def dlrl_policies() -> dict[str, Policy]:
    return {"separate_sync": separate_sync, "colocate_sync": colocate_sync}


def separate_sync(spec: JobSpec) -> JobSpec:
    """The spec as it is: roles have devices of their own, except those the user collocated."""
    return spec


def colocate_sync(spec: JobSpec) -> JobSpec:
    """All roles share devices, unless the user said which do."""
    names = tuple(spec.placement_requests)
    if spec.with_collocation or len(names) < 2:
        return spec
    return spec.model_copy(update={"with_collocation": (names,)})
