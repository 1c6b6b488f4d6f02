"""The distribution policies that come with dlrl, registered through the hook `dlrl_policies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrl_core.spec import JobSpec


def separate_sync(spec: JobSpec) -> JobSpec:
    """The spec as it is: roles have devices of their own, except those the user collocated."""
    return spec


def colocate_sync(spec: JobSpec) -> JobSpec:
    """The spec with all roles on shared devices, unless the user said which roles share."""
    names = tuple(spec.placement_requests)
    if spec.with_collocation or len(names) < 2:
        return spec
    return spec.model_copy(update={"with_collocation": (names,)})
