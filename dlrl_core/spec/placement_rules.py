"""The rules of placement: counts, shares, and who may sit with whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dlrl_core.spec.affinity import host_groups, separated_pairs
from dlrl_core.spec.job_spec import Groups, JobSpec, PlacementRequest, RoleSpec

SMALLEST_SHARE = 1e-4
"""Of a device; Ray counts in these steps."""
_PART_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")


def _parts(spec: JobSpec) -> Iterator[str]:
    for role in spec.roles:
        if role.parts:
            yield from _parts_of(role)


def _parts_of(role: RoleSpec) -> Iterator[str]:
    for name, times in Counter(part.name for part in role.parts).items():
        if not _PART_NAME.fullmatch(name):
            yield (
                f"part '{name}' of role '{role.role}' has a name that is not allowed; "
                "use 1 to 31 small letters, digits, '_', '-', a letter first"
            )
        if times > 1:
            yield f"role '{role.role}' has {times} parts named '{name}'; give each a name of its own"
    total = sum(part.total for part in role.parts)
    if role.total != total:
        yield f"role '{role.role}' has total={role.total} and parts of {total} in all; leave total to the parts"
    if role.min_total is not None:
        yield f"role '{role.role}' has min_total and parts; say min_total on the parts"


def _counts(spec: JobSpec) -> Iterator[str]:
    for name, request in spec.placement_requests.items():
        yield from _counts_of(_owner(name), request, spec.node_num)
        yield from _resources(_owner(name), request)


def _counts_of(owner: str, request: PlacementRequest, node_num: int) -> Iterator[str]:
    total, fewest, per_node = request.total, request.min_total, request.per_node
    if total < 1:
        yield f"{owner} has total={total}; it must be at least 1"
    if fewest is not None and not 1 <= fewest <= max(total, 1):
        yield f"{owner} has total={total} and min_total={fewest}; min_total is from 1 to total"
    if per_node is None:
        return
    if per_node < 1:
        yield f"{owner} has per_node={per_node}; it must be at least 1"
    elif total >= 1 and total % per_node:
        yield f"{owner} has total={total} and per_node={per_node}; total must be a multiple of per_node"
    elif fewest is not None and fewest % per_node:
        yield f"{owner} has min_total={fewest} and per_node={per_node}; min_total must be a multiple of per_node"
    elif (fewest or total) // per_node > node_num >= 1:
        count = f"total={total}" if fewest is None else f"min_total={fewest}"
        yield (
            f"{owner} has {count} and per_node={per_node}, which takes "
            f"{(fewest or total) // per_node} nodes; the job has node_num={node_num}"
        )


def _resources(owner: str, request: PlacementRequest) -> Iterator[str]:
    for name, amount in request.resource.items():
        if not name:
            yield f"{owner} has a resource with an empty name"
        if not 0 <= amount < float("inf"):
            yield f"{owner} has resource '{name}'={amount:g}; it must be a number from 0 on"


def _shares(spec: JobSpec) -> Iterator[str]:
    """Several devices are taken whole; a share of one is for one device."""
    device = spec.device_type
    for name, request in spec.placement_requests.items():
        share = request.resource.get(device, 0)
        if device != "CPU" and 1 < share < float("inf") and share != int(share):
            yield f"{_owner(name)} asks for {share:g} {device}; several devices are asked for in whole ones"
        if 0 < share < SMALLEST_SHARE:
            yield f"{_owner(name)} asks for {share:g} {device}; the smallest share of a device is {SMALLEST_SHARE:g}"
    for group in spec.with_collocation:
        shares = {
            name: spec.placement_requests[name].resource.get(device)
            for name in group
            if name in spec.placement_requests
        }
        named = {name: share for name, share in shares.items() if share is not None}
        asked = sum(named.values())
        if device != "CPU" and asked > 1 + SMALLEST_SHARE * len(named):
            yield (
                f"the roles {_names(group)} share one device and ask for {asked:g} {device} of it; "
                "their shares must add up to at most 1"
            )
        elif len(named) < len(shares) and asked > 1 - SMALLEST_SHARE:
            others = [name for name in shares if name not in named]
            yield (
                f"the roles {_names(group)} share one device; {asked:g} {device} for {_names(named)} "
                f"leaves nothing to {_names(others)}"
            )


def _nodes(spec: JobSpec) -> Iterator[str]:
    for name, request in spec.placement_requests.items():
        for label, values in request.node_labels.items():
            if not label or not values:
                yield f"{_owner(name)} has the node label '{label}' with no value; name a label and its values"
        if request.spread_over is not None and request.spread_over == request.pack_into:
            yield f"{_owner(name)} is to be spread over and packed into '{request.spread_over}'; choose one"
    for group in host_groups(spec):
        members = [name for devices in group for name in devices]
        placement_requests = [spec.placement_requests[name] for name in members]
        wishes = [
            (label, set(values)) for one in placement_requests for label, values in one.node_labels.items() if values
        ]
        for label in dict.fromkeys(label for label, _ in wishes):
            if not set.intersection(*(values for one, values in wishes if one == label)):
                yield f"the roles {_names(members)} share nodes, and no value of the node label '{label}' suits all"
        packed = {one.pack_into for one in placement_requests if one.pack_into and one.pack_into != one.spread_over}
        for label in sorted(packed.intersection(one.spread_over for one in placement_requests)):
            yield f"the roles {_names(members)} share nodes; they can't be spread over and packed into '{label}'"


def _collocations(spec: JobSpec) -> Iterator[str]:
    yield from _named_once(spec, spec.with_collocation, "collocation", "shares devices")
    for group in spec.with_collocation:
        present = {name: spec.placement_requests[name] for name in group if name in spec.placement_requests}
        counts = {(one.total, one.per_node, one.min_total) for one in present.values()}
        if len(counts) > 1:
            shown = "; ".join(f"'{name}' {_shown_counts(one)}" for name, one in present.items())
            yield f"collocated roles need equal total and per_node, so that rank i of each is on one device: {shown}"


def _host_collocations(spec: JobSpec) -> Iterator[str]:
    yield from _named_once(spec, spec.with_host_collocation, "host collocation", "shares nodes")
    yield from _devices_of_their_own(spec)
    for group in host_groups(spec):
        totals = {devices[0]: spec.placement_requests[devices[0]] for devices in group}
        first = min(totals, key=lambda name: totals[name].total)
        smallest = totals[first].total
        if smallest < 1:
            continue
        for name, request in totals.items():
            yield from _blocks_of(name, request, first, smallest)
        blocks = {_block(one, smallest) for one in totals.values() if one.total % smallest == 0}
        if len({units for units, _ in blocks if units is not None}) > 1 or len({fewest for _, fewest in blocks}) > 1:
            shown = "; ".join(f"'{name}' {_shown_counts(one)}" for name, one in totals.items())
            yield f"roles that share nodes need per_node and min_total in proportion to their total: {shown}"


def _devices_of_their_own(spec: JobSpec) -> Iterator[str]:
    for group in spec.with_host_collocation:
        for devices in spec.with_collocation:
            both = [name for name in dict.fromkeys(group) if name in devices]
            if len(both) > 1:
                yield f"the roles {_names(both)} are to share devices and to have devices of their own; choose one"


def _blocks_of(name: str, request: PlacementRequest, first: str, smallest: int) -> Iterator[str]:
    """Each rank of the smallest role has its block of each other role beside it."""
    if request.total % smallest:
        yield (
            f"{_owner(name)} has total={request.total} and shares nodes with '{first}', which has total={smallest}; "
            f"it must be a multiple of {smallest}, so that each rank of '{first}' gets as many"
        )
    elif request.per_node and request.per_node % (request.total // smallest):
        yield (
            f"{_owner(name)} has per_node={request.per_node} and shares nodes with '{first}', of which each rank gets "
            f"{request.total // smallest} of it; per_node must be a multiple of {request.total // smallest}"
        )


def _block(request: PlacementRequest, units: int) -> tuple[float | None, float | None]:
    """per_node and min_total, counted in ranks of the smallest role of the host group."""
    size = request.total / units
    return (
        None if request.per_node is None else request.per_node / size,
        None if request.min_total is None else request.min_total / size,
    )


def _separations(spec: JobSpec) -> Iterator[str]:
    yield from _known(spec, spec.without_collocation, "separation", may_be_whole=True)
    for separation in spec.without_collocation:
        for name in dict.fromkeys(separation):
            if (role := name.partition(".")[0]) != name and role in separation:
                yield f"separation of '{role}' from '{name}', which is a part of it; name the parts to separate"
    pairs = separated_pairs(spec)
    for group in host_groups(spec):
        members = [name for devices in group for name in devices]
        for index, one in enumerate(members):
            for other in members[index + 1 :]:
                if (one, other) in pairs:
                    yield f"the roles '{one}' and '{other}' are collocated and separated; choose one"


def _named_once(spec: JobSpec, groups: Groups, what: str, does: str) -> Iterator[str]:
    yield from _known(spec, groups, what, may_be_whole=False)
    seen: set[str] = set()
    for group in groups:
        for name in sorted(seen.intersection(group)):
            yield f"role '{name}' is in more than one {what}; a role {does} in one group only"
        seen.update(group)


def _known(spec: JobSpec, groups: Groups, what: str, *, may_be_whole: bool) -> Iterator[str]:
    for group in groups:
        if len(set(group)) < 2:
            yield f"{what} of {_names(group) or 'no role'} needs at least two different roles"
        for name in group:
            role = next((one for one in spec.roles if one.role == name.partition(".")[0]), None)
            if role is None:
                yield f"role '{name}' is {'separated' if may_be_whole else 'collocated'} but the job has no such role"
            elif name == role.role and role.parts and not may_be_whole:
                yield f"role '{name}' has parts; say which is in the {what}: {_names(role.placement_requests)}"
            elif name != role.role and name not in role.placement_requests:
                known = f"its parts are {_names(role.placement_requests)}" if role.parts else "it has no parts"
                yield f"role '{role.role}' has no part '{name.partition('.')[2]}'; {known}"


def _owner(name: str) -> str:
    return f"{'part' if '.' in name else 'role'} '{name}'"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shown_counts(request: PlacementRequest) -> str:
    fewest = f" min_total={request.min_total}" if request.min_total is not None else ""
    return f"total={request.total} per_node={request.per_node}{fewest}"


PLACEMENT_RULES: tuple[Callable[[JobSpec], Iterator[str]], ...] = (
    _parts,
    _counts,
    _shares,
    _nodes,
    _collocations,
    _host_collocations,
    _separations,
)
