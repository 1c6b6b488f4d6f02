"""The rules of placement: counts, shares, and who may sit with whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dlrl_core.spec.affinity import host_groups, separated_pairs
from dlrl_core.spec.job_spec import Groups, JobSpec, RoleSpec, Seating

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
    for name, seating in spec.seatings.items():
        yield from _counts_of(_owner(name), seating, spec.node_num)
        yield from _resources(_owner(name), seating)


def _counts_of(owner: str, seating: Seating, node_num: int) -> Iterator[str]:
    total, fewest, per_node = seating.total, seating.min_total, seating.per_node
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
    elif total // per_node > node_num >= 1 and fewest is None:
        yield (
            f"{owner} has total={total} and per_node={per_node}, which takes "
            f"{total // per_node} nodes; the job has node_num={node_num}"
        )


def _resources(owner: str, seating: Seating) -> Iterator[str]:
    for name, amount in seating.resource.items():
        if not name:
            yield f"{owner} has a resource with an empty name"
        if not 0 <= amount < float("inf"):
            yield f"{owner} has resource '{name}'={amount:g}; it must be a number from 0 on"


def _shares(spec: JobSpec) -> Iterator[str]:
    """Several devices are taken whole; a share of one is for one device."""
    for name, seating in spec.seatings.items():
        share = seating.resource.get(spec.device_type, 0)
        if spec.device_type != "CPU" and 1 < share < float("inf") and share != int(share):
            yield f"{_owner(name)} asks for {share:g} {spec.device_type}; several devices are asked for in whole ones"
    for group in spec.collocations:
        shares = [seating.resource.get(spec.device_type) for name, seating in spec.seatings.items() if name in group]
        named = [share for share in shares if share is not None]
        if len(named) < len(shares) and sum(named) >= 1:
            yield f"the roles {_names(group)} share one device; the shares that are named leave nothing to the others"
        if spec.device_type != "CPU" and sum(named) > 1 + 1e-4 * len(named):
            yield (
                f"the roles {_names(group)} share one device and ask for {sum(named):g} {spec.device_type} of it; "
                "their shares must add up to at most 1"
            )


def _nodes(spec: JobSpec) -> Iterator[str]:
    for name, seating in spec.seatings.items():
        for label, values in seating.node_labels.items():
            if not label or not values:
                yield f"{_owner(name)} has the node label '{label}' with no value; name a label and its values"
        if seating.spread_over is not None and seating.spread_over == seating.pack_into:
            yield f"{_owner(name)} is to be spread over and packed into '{seating.spread_over}'; choose one"
    for group in host_groups(spec):
        members = [name for devices in group for name in devices]
        wishes = [(label, set(values)) for one in members for label, values in spec.seatings[one].node_labels.items()]
        for label in dict.fromkeys(label for label, _ in wishes):
            if not set.intersection(*(values for one, values in wishes if one == label)):
                yield f"the roles {_names(members)} share nodes, and no value of the node label '{label}' suits all"


def _collocations(spec: JobSpec) -> Iterator[str]:
    yield from _named_once(spec, spec.collocations, "collocation", "shares devices")
    for group in spec.collocations:
        present = {name: spec.seatings[name] for name in group if name in spec.seatings}
        counts = {(one.total, one.per_node, one.min_total) for one in present.values()}
        if len(counts) > 1:
            shown = "; ".join(f"'{name}' {_shown_counts(one)}" for name, one in present.items())
            yield f"collocated roles need equal total and per_node, so that rank i of each is on one device: {shown}"


def _host_collocations(spec: JobSpec) -> Iterator[str]:
    yield from _named_once(spec, spec.host_collocations, "host collocation", "shares nodes")
    for group in host_groups(spec):
        totals = {devices[0]: spec.seatings[devices[0]] for devices in group}
        smallest = min(one.total for one in totals.values())
        if smallest < 1:
            continue
        for name, seating in totals.items():
            if seating.total % smallest:
                yield (
                    f"{_owner(name)} has total={seating.total} and shares nodes with {_names(totals)}, of which the "
                    f"smallest has {smallest}; it must be a multiple of it, so that each rank there gets as many here"
                )
        blocks = {_block(one, smallest) for one in totals.values() if one.total % smallest == 0}
        if len({units for units, _ in blocks if units is not None}) > 1 or len({fewest for _, fewest in blocks}) > 1:
            shown = "; ".join(f"'{name}' {_shown_counts(one)}" for name, one in totals.items())
            yield f"roles that share nodes need per_node and min_total in proportion to their total: {shown}"


def _block(seating: Seating, units: int) -> tuple[float | None, float | None]:
    """per_node and min_total, counted in ranks of the smallest role of the host group."""
    size = seating.total / units
    return (
        None if seating.per_node is None else seating.per_node / size,
        None if seating.min_total is None else seating.min_total / size,
    )


def _separations(spec: JobSpec) -> Iterator[str]:
    yield from _known(spec, spec.separations, "no collocation", may_be_whole=True)
    pairs = separated_pairs(spec)
    for group in host_groups(spec):
        members = [name for devices in group for name in devices]
        for index, one in enumerate(members):
            for other in members[index + 1 :]:
                if (one, other) in pairs:
                    yield f"the roles '{one}' and '{other}' are collocated and not collocated; choose one"


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
                yield f"role '{name}' is collocated but the job has no such role"
            elif name == role.role and role.parts and not may_be_whole:
                yield f"role '{name}' has parts; say which is in the {what}: {_names(role.seatings)}"
            elif name != role.role and name not in role.seatings:
                known = f"its parts are {_names(role.seatings)}" if role.parts else "it has no parts"
                yield f"role '{role.role}' has no part '{name.partition('.')[2]}'; {known}"


def _owner(name: str) -> str:
    return f"{'part' if '.' in name else 'role'} '{name}'"


def _names(names: Sequence[str] | dict[str, Seating]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shown_counts(seating: Seating) -> str:
    fewest = f" min_total={seating.min_total}" if seating.min_total is not None else ""
    return f"total={seating.total} per_node={seating.per_node}{fewest}"


PLACEMENT_RULES: tuple[Callable[[JobSpec], Iterator[str]], ...] = (
    _parts,
    _counts,
    _shares,
    _nodes,
    _collocations,
    _host_collocations,
    _separations,
)
