"""Who must sit with whom: the groups of a job that the planner places as one.

A *device group* is the roles that share devices. A *host group* is the device groups that share nodes. Each role
or part of a role, by its full name, is in exactly one of both, alone if nobody named it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlrl_core.spec.job_spec import JobSpec

DeviceGroup = tuple[str, ...]
HostGroup = tuple[DeviceGroup, ...]


def device_groups(spec: JobSpec) -> list[DeviceGroup]:
    """All of them, in the order of the roles."""
    return _joined([(name,) for name in spec.placement_requests], spec.with_collocation)


def host_groups(spec: JobSpec) -> list[HostGroup]:
    """All of them, in the order of the roles; each a tuple of device groups."""
    groups = device_groups(spec)
    joined = _joined([tuple(group) for group in groups], spec.with_host_collocation)
    return [tuple(group for group in groups if group[0] in names) for names in joined]


def separated_pairs(spec: JobSpec) -> set[tuple[str, str]]:
    """Full names that must not meet on a node, each pair both ways round. A role stands for all its parts."""
    pairs: set[tuple[str, str]] = set()
    for separation in spec.without_collocation:
        sides = [_full_names(spec, name) for name in dict.fromkeys(separation)]
        for index, side in enumerate(sides):
            for other in sides[:index] + sides[index + 1 :]:
                pairs.update((one, two) for one in side for two in other)
    return pairs


def _full_names(spec: JobSpec, name: str) -> list[str]:
    return [full for full in spec.placement_requests if full == name or full.startswith(f"{name}.")]


def _joined(groups: Sequence[tuple[str, ...]], links: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The groups, those that a link names together merged into one. Unknown names are left to the rules."""
    merged = [list(group) for group in groups]
    for link in links:
        named = set(link)
        touched = [group for group in merged if named.intersection(group)]
        for group in touched[1:]:
            touched[0].extend(group)
            merged.remove(group)
    order = [name for group in groups for name in group]
    return [tuple(sorted(group, key=order.index)) for group in merged]
