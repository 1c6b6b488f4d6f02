"""The rules that a whole job obeys, and the groups of roles that are placed as one.

Each rule is a generator of problems; `problems_of` runs them all, so that a user sees everything at once. What a single
value can break is declared with its field in job_spec.py.

A *device group* is the roles that share devices. A *host group* is the device groups that share nodes. Each role
or part of a role, by its full name, is in exactly one of both: in a group of its own if no rule names it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from dlrl_core.roles import RoleType
from dlrl_core.spec.job_spec import Groups, JobSpec, PlacementRequest, RoleSpec
from dlrl_core.spec.validation import Place, Problem, ProblemKind

SMALLEST_SHARE = 1e-4
"""Of a device; Ray counts in these steps."""
_PART_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

DeviceGroup = tuple[str, ...]
HostGroup = tuple[DeviceGroup, ...]


def problems_of(spec: JobSpec) -> list[Problem]:
    """Every problem of the job, in the order a reader of it would meet them; empty if there is none."""
    rules = (_mandatory, _roles, _parts, _counts, _shares, _nodes, _collocation, _host_collocation, _separation)
    return [problem for rule in rules for problem in rule(spec)]


def check_name(name: object) -> list[str]:
    """Problems of a job's name. Names end up in actor names, paths and keys."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    return [f"job name {name!r} is not allowed; use 1 to 63 letters, digits, '.', '_', '-', a letter or digit first"]


# ---- groups


def device_groups(spec: JobSpec) -> list[DeviceGroup]:
    """The roles that share devices, in the order of the roles."""
    return _joined([(name,) for name in spec.placement_requests], spec.with_collocation)


def host_groups(spec: JobSpec) -> list[HostGroup]:
    """The device groups that share nodes, in the order of the roles."""
    groups = device_groups(spec)
    joined = _joined([tuple(group) for group in groups], spec.with_host_collocation)
    return [tuple(group for group in groups if group[0] in names) for names in joined]


def separated_pairs(spec: JobSpec) -> set[tuple[str, str]]:
    """Full names of which no two may be on one node, each pair both ways round. A role stands for all its parts."""
    pairs: set[tuple[str, str]] = set()
    for group in spec.without_collocation:
        sides = [_full_names(spec, name) for name in dict.fromkeys(group)]
        for index, side in enumerate(sides):
            for other in sides[:index] + sides[index + 1 :]:
                pairs.update((one, two) for one in side for two in other)
    return pairs


def _full_names(spec: JobSpec, name: str) -> list[str]:
    return [full for full in spec.placement_requests if full == name or full.startswith(f"{name}.")]


def _joined(groups: Sequence[tuple[str, ...]], links: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The groups, with those merged that a link names together. Unknown names are skipped: a rule reports them."""
    merged = [list(group) for group in groups]
    for link in links:
        named = set(link)
        touched = [group for group in merged if named.intersection(group)]
        for group in touched[1:]:
            touched[0].extend(group)
            merged.remove(group)
    order = [name for group in groups for name in group]
    return [tuple(sorted(group, key=order.index)) for group in merged]


# ---- rules


def _mandatory(spec: JobSpec) -> Iterator[Problem]:
    if spec.trainer is None:
        text = "the job has no trainer; call .trainer(module, class) or .framework(name)"
        yield Problem(text, ProblemKind.MISSING, frozenset({("trainer", "cls")}))
    if spec.role(RoleType.ACTOR) is None:
        text = "the job has no role 'actor', which is mandatory; call .actor(module, class) or .framework(name)"
        yield Problem(text, ProblemKind.MISSING, frozenset({("actor", "cls")}))


def _roles(spec: JobSpec) -> Iterator[Problem]:
    for role, times in Counter(role.role for role in spec.roles).items():
        if times > 1:
            yield Problem(f"role '{role}' is given {times} times; give it once")


def _parts(spec: JobSpec) -> Iterator[Problem]:
    for role in spec.roles:
        if role.parts:
            yield from _parts_of(role)


def _parts_of(role: RoleSpec) -> Iterator[Problem]:
    for name, times in Counter(part.name for part in role.parts).items():
        if not _PART_NAME.fullmatch(name):
            yield Problem(
                f"part '{name}' of role '{role.role}' has a name that is not allowed; "
                "use 1 to 31 small letters, digits, '_', '-', a letter first"
            )
        if times > 1:
            yield Problem(f"role '{role.role}' has {times} parts named '{name}'; give each a name of its own")
    total = sum(part.total for part in role.parts)
    if role.total != total:
        text = f"role '{role.role}' has total={role.total} and parts of {total} in all; leave total to the parts"
        yield Problem(text, about=_counts_of([role.role, *role.placement_requests]))
    if role.min_total is not None:
        yield Problem(f"role '{role.role}' has min_total and parts; say min_total on the parts")


def _counts(spec: JobSpec) -> Iterator[Problem]:
    for name, request in spec.placement_requests.items():
        about = _counts_of([name])
        for text in _unequal_counts(_owner(name), request):
            yield Problem(text, about=about)
        fewest = request.min_total or request.total
        if request.per_node and fewest % request.per_node == 0 and fewest // request.per_node > spec.node_num:
            count = f"total={fewest}" if request.min_total is None else f"min_total={fewest}"
            text = (
                f"{_owner(name)} has {count} and per_node={request.per_node}, which takes "
                f"{fewest // request.per_node} nodes; the job has node_num={spec.node_num}"
            )
            yield Problem(text, about=about | {("", "node_num")})


def _unequal_counts(owner: str, request: PlacementRequest) -> Iterator[str]:
    total, fewest, per_node = request.total, request.min_total, request.per_node
    if fewest is not None and fewest > total:
        yield f"{owner} has total={total} and min_total={fewest}; min_total is from 1 to total"
    if per_node is not None and total % per_node:
        yield f"{owner} has total={total} and per_node={per_node}; total must be a multiple of per_node"
    elif per_node is not None and fewest is not None and fewest % per_node:
        yield f"{owner} has min_total={fewest} and per_node={per_node}; min_total must be a multiple of per_node"


def _shares(spec: JobSpec) -> Iterator[Problem]:
    """Several devices are taken whole; a share of one is for one device."""
    device = spec.device_type
    for name, request in spec.placement_requests.items():
        share = request.resource.get(device, 0)
        if device != "CPU" and share > 1 and share != int(share):
            yield Problem(f"{_owner(name)} asks for {share:g} {device}; several devices are asked for in whole ones")
        if 0 < share < SMALLEST_SHARE:
            limit = f"the smallest share of a device is {SMALLEST_SHARE:g}"
            yield Problem(f"{_owner(name)} asks for {share:g} {device}; {limit}")
    requests = spec.placement_requests
    for group in spec.with_collocation:
        shares = {name: requests[name].resource.get(device) for name in group if name in requests}
        if text := _overfull(group, shares, device):
            yield Problem(text, about=frozenset((name, "resource") for name in group))


def _overfull(group: Sequence[str], shares: dict[str, float | None], device: str) -> str | None:
    """What is wrong with the shares of the roles that are on one device, if anything is."""
    named = {name: share for name, share in shares.items() if share is not None}
    asked = sum(named.values())
    if device != "CPU" and asked > 1 + SMALLEST_SHARE * len(named):
        return (
            f"the roles {_names(group)} share one device and ask for {asked:g} {device} of it; "
            "their shares must add up to at most 1"
        )
    if len(named) < len(shares) and asked > 1 - SMALLEST_SHARE:
        others = [name for name in shares if name not in named]
        return (
            f"the roles {_names(group)} share one device; {asked:g} {device} for {_names(named)} "
            f"leaves nothing to {_names(others)}"
        )
    return None


def _nodes(spec: JobSpec) -> Iterator[Problem]:
    for name, request in spec.placement_requests.items():
        if request.spread_over is not None and request.spread_over == request.pack_into:
            yield Problem(f"{_owner(name)} is to be spread over and packed into '{request.spread_over}'; choose one")
    for group in host_groups(spec):
        members = [name for devices in group for name in devices]
        requests = [spec.placement_requests[name] for name in members]
        wishes = [(label, set(values)) for one in requests for label, values in one.node_labels.items()]
        for label in dict.fromkeys(label for label, _ in wishes):
            if not set.intersection(*(values for one, values in wishes if one == label)):
                text = f"the roles {_names(members)} share nodes, and no value of the node label '{label}' suits all"
                yield Problem(text)
        packed = {one.pack_into for one in requests if one.pack_into and one.pack_into != one.spread_over}
        for label in sorted(packed.intersection(one.spread_over for one in requests)):
            text = f"the roles {_names(members)} share nodes; they can't be spread over and packed into '{label}'"
            yield Problem(text)


def _collocation(spec: JobSpec) -> Iterator[Problem]:
    yield from _named_once(spec, spec.with_collocation, "collocation", "shares devices")
    for group in spec.with_collocation:
        present = {name: spec.placement_requests[name] for name in group if name in spec.placement_requests}
        counts = {(one.total, one.per_node, one.min_total) for one in present.values()}
        if len(counts) > 1:
            text = "collocated roles need equal total and per_node, so that rank i of each is on one device"
            yield Problem(f"{text}: {_shown_counts(present)}", about=_counts_of(present))


def _host_collocation(spec: JobSpec) -> Iterator[Problem]:
    yield from _named_once(spec, spec.with_host_collocation, "host collocation", "shares nodes")
    yield from _devices_of_their_own(spec)
    for group in host_groups(spec):
        requests = {devices[0]: spec.placement_requests[devices[0]] for devices in group}
        first = min(requests, key=lambda name: requests[name].total)
        smallest = requests[first].total
        about = _counts_of(requests)
        for name, request in requests.items():
            if text := _cut_block(name, request, first, smallest):
                yield Problem(text, about=about)
        blocks = {_block(one, smallest) for one in requests.values() if one.total % smallest == 0}
        if len({units for units, _ in blocks if units is not None}) > 1 or len({fewest for _, fewest in blocks}) > 1:
            text = "roles that share nodes need per_node and min_total in proportion to their total"
            yield Problem(f"{text}: {_shown_counts(requests)}", about=about)


def _devices_of_their_own(spec: JobSpec) -> Iterator[Problem]:
    for group in spec.with_host_collocation:
        for devices in spec.with_collocation:
            both = [name for name in dict.fromkeys(group) if name in devices]
            if len(both) > 1:
                text = f"the roles {_names(both)} are to share devices and to have devices of their own; choose one"
                yield Problem(text)


def _cut_block(name: str, request: PlacementRequest, first: str, smallest: int) -> str | None:
    """Each rank of the smallest role has its block of each other role on the same node; what is wrong with that."""
    block, left_over = divmod(request.total, smallest)
    if left_over:
        return (
            f"{_owner(name)} has total={request.total} and shares nodes with '{first}', which has total={smallest}; "
            f"it must be a multiple of {smallest}, so that each rank of '{first}' gets as many"
        )
    if request.per_node and request.per_node % block:
        return (
            f"{_owner(name)} has per_node={request.per_node} and shares nodes with '{first}', of which each rank gets "
            f"{block} of it; per_node must be a multiple of {block}"
        )
    return None


def _block(request: PlacementRequest, units: int) -> tuple[Fraction | None, Fraction | None]:
    """per_node and min_total, counted in ranks of the smallest role of the host group."""
    size = Fraction(request.total, units)
    return (
        None if request.per_node is None else request.per_node / size,
        None if request.min_total is None else request.min_total / size,
    )


def _separation(spec: JobSpec) -> Iterator[Problem]:
    yield from _known(spec, spec.without_collocation, "separation", may_be_whole=True)
    for group in spec.without_collocation:
        for name in dict.fromkeys(group):
            if (role := name.partition(".")[0]) != name and role in group:
                text = f"separation of '{role}' from '{name}', which is a part of it; name the parts to separate"
                yield Problem(text)
    pairs = separated_pairs(spec)
    for host_group in host_groups(spec):
        members = [name for devices in host_group for name in devices]
        for index, one in enumerate(members):
            for other in members[index + 1 :]:
                if (one, other) in pairs:
                    yield Problem(f"the roles '{one}' and '{other}' are collocated and separated; choose one")


def _named_once(spec: JobSpec, groups: Groups, what: str, does: str) -> Iterator[Problem]:
    yield from _known(spec, groups, what, may_be_whole=False)
    seen: set[str] = set()
    for group in groups:
        for name in sorted(seen.intersection(group)):
            yield Problem(f"role '{name}' is in more than one {what}; a role {does} in one group only")
        seen.update(group)


def _known(spec: JobSpec, groups: Groups, what: str, *, may_be_whole: bool) -> Iterator[Problem]:
    for group in groups:
        if len(set(group)) < 2:
            yield Problem(f"{what} of {_names(group) or 'no role'} needs at least two different roles")
        for name in group:
            yield from _known_member(spec, name, what, may_be_whole=may_be_whole)


def _known_member(spec: JobSpec, name: str, what: str, *, may_be_whole: bool) -> Iterator[Problem]:
    role_name, _, part = name.partition(".")
    role = next((one for one in spec.roles if one.role == role_name), None)
    if role is None:
        text = f"role '{name}' is {'separated' if may_be_whole else 'collocated'} but the job has no such role"
        yield Problem(text, ProblemKind.MISSING, frozenset({(role_name, "cls")}))
    elif not part and role.parts and not may_be_whole:
        yield Problem(f"role '{name}' has parts; say which is in the {what}: {_names(role.placement_requests)}")
    elif part and name not in role.placement_requests:
        known = f"its parts are {_names(role.placement_requests)}" if role.parts else "it has no parts"
        yield Problem(f"role '{role.role}' has no part '{part}'; {known}")


def _counts_of(names: Iterable[str]) -> frozenset[Place]:
    return frozenset((name, option) for name in names for option in ("total", "min_total", "per_node"))


def _owner(name: str) -> str:
    return f"{'part' if '.' in name else 'role'} '{name}'"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shown_counts(requests: dict[str, PlacementRequest]) -> str:
    shown = []
    for name, one in requests.items():
        fewest = f" min_total={one.min_total}" if one.min_total is not None else ""
        shown.append(f"'{name}' total={one.total} per_node={one.per_node}{fewest}")
    return "; ".join(shown)
