"""Jobs and clusters of all shapes: nearly all keep the rules of a spec, and about half have a place on the cluster.

They are made with a Random, so that hypothesis can make them (and make them smaller), and a loop without it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from dlrl_core.plan import ClusterView, NodeView
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, PartSpec, RoleSpec

CLASS = ClassRef(module="m", class_name="C")
LABELS = {"rack": ("r0", "r1", "r2"), "kind": ("new", "old")}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large they may become."""

    roles: int = 5
    units: int = 8
    block: int = 3
    nodes: int = 6
    devices: int = 8
    elastic: float = 0.25
    """How many of the groups have a min_total."""
    spread: float = 0.2
    """How many of the groups are spread over a label."""
    labelled: float = 0.15
    """How many of the groups name labels of their nodes, and how many are packed into one."""


MEDIUM = Size()
SMALL = Size(roles=3, units=4, block=2, nodes=4, devices=4)


def jobs(size: Size = MEDIUM) -> st.SearchStrategy[JobSpec]:
    return st.randoms(use_true_random=False).map(lambda random: random_job(random, size))


def clusters(size: Size = MEDIUM) -> st.SearchStrategy[ClusterView]:
    return st.randoms(use_true_random=False).map(lambda random: random_cluster(random, size))


def random_job(random: Random, size: Size = MEDIUM) -> JobSpec:
    """Roles in host groups of device groups; their counts are made to fit each other."""
    device_type = random.choice(("GPU", "GPU", "GPU", "NPU", "CPU"))
    node_num = _large(random, size.nodes)
    names = _names(random, size)
    collocations, host_collocations, placement_requests, owner = [], [], {}, {}
    for index, members in enumerate(_grouped(random, names)):
        devices = _grouped(random, members)
        counts = _counts(random, size, node_num)
        blocks = [1, *(random.randint(1, size.block) for _ in devices[1:])]
        random.shuffle(blocks)
        for group, block in zip(devices, blocks, strict=True):
            scaled = {key: None if value is None else value * block for key, value in counts.items()}
            resources = _resources(random, len(group), device_type)
            for name, resource in zip(group, resources, strict=True):
                placement_requests[name] = {**scaled, "resource": resource}
                owner[name] = index
            if len(group) > 1:
                collocations.append(tuple(group))
        if len(devices) > 1:
            host_collocations.append(tuple(random.choice(group) for group in devices))
        placement_requests[random.choice(members)].update(_wishes(random, size))
    return JobSpec(
        trainer=CLASS,
        node_num=node_num,
        device_per_node=_large(random, size.devices),
        device_type=device_type,
        roles=_roles(placement_requests, names),
        with_collocation=tuple(collocations),
        with_host_collocation=tuple(host_collocations),
        without_collocation=_separations(random, owner),
        spare_nodes=random.choice((0, 0, 0, 0, 1, 2)),
    )


def random_cluster(random: Random, size: Size = MEDIUM) -> ClusterView:
    """Nodes that differ in what is free and in their labels; half of the time all have the same free."""
    is_equal = random.random() < 0.5
    nodes: list[NodeView] = []
    for index in range(_large(random, size.nodes)):
        free = nodes[0].free if is_equal and nodes else _free(random, size)
        labels = {label: random.choice(values) for label, values in LABELS.items() if random.random() < 0.9}
        nodes.append(NodeView(node_id=f"node-{index}", free=free, labels=labels))
    return ClusterView(nodes=tuple(nodes))


def _large(random: Random, most: int) -> int:
    """From 1 on, mostly near the most."""
    return max(random.randint(1, most), random.randint(1, most))


def _free(random: Random, size: Size) -> dict[str, float]:
    devices = random.choice((0, *[_large(random, size.devices)] * 9)) + random.choice((0, 0, 0, 0.5))
    return {
        "GPU": devices,
        "NPU": devices,
        "CPU": random.choice((64, 64, 64, 4 * size.devices, size.devices, 2.5)),
        "disk": random.choice((8, 8, 1, 0)),
    }


def _names(random: Random, size: Size) -> list[str]:
    """Full names; a role has no, one or two parts."""
    roles = random.sample(list(RoleType), random.randint(1, size.roles))
    names: list[str] = []
    for role in (RoleType.ACTOR, *(role for role in roles[1:] if role is not RoleType.ACTOR)):
        parts = random.choice(((), (), (), ("a",), ("a", "b")))
        names += [f"{role.value}.{part}" for part in parts] or [role.value]
    return names


def _grouped(random: Random, names: list[str]) -> list[list[str]]:
    """The names in groups: one in three joins one before it."""
    groups: list[list[str]] = []
    for name in names:
        if groups and random.random() < 1 / 3:
            random.choice(groups).append(name)
        else:
            groups.append([name])
    return groups


def _counts(random: Random, size: Size, node_num: int) -> dict[str, int | None]:
    """Of the smallest role of a host group."""
    per_node = random.choice((None, None, 1, 2, 3))
    step = per_node or 1
    most = max(1, size.units // step)
    blocks = min(*(random.randint(1, most) for _ in range(3)), node_num if per_node else most)
    fewest = random.randint(1, blocks) * step if random.random() < size.elastic else None
    return {"total": blocks * step, "per_node": per_node, "min_total": fewest}


def _wishes(random: Random, size: Size) -> dict[str, Any]:
    """Labels a group asks for."""
    wishes: dict[str, Any] = {}
    if random.random() < size.labelled:
        label = random.choice(sorted(LABELS))
        wishes["node_labels"] = {label: tuple(random.sample(LABELS[label], random.randint(1, 2)))}
    if random.random() < size.spread:
        wishes["spread_over"] = random.choice(sorted(LABELS))
    if random.random() < size.labelled:
        label = random.choice(sorted(LABELS))
        if label != wishes.get("spread_over"):
            wishes["pack_into"] = label
    return wishes


def _resources(random: Random, members: int, device_type: str) -> list[dict[str, float]]:
    """Of each member of a device group."""
    shares: list[float | None]
    if members == 1:
        shares = [random.choice((None, None, None, 0.0, 0.0, 0.5, 1 / 3, 1.0, 2.0))]
    else:
        shares = random.choice(([None], [None], [None], [0.0], [1 / members])) * members
        if shares[0] is None and random.random() < 0.5:
            shares[0] = random.choice((0.0, 0.25, 1 / 3, 0.7))
    resources = []
    for share in shares:
        resource: dict[str, float] = {} if share is None else {device_type: share}
        if device_type != "CPU" and random.random() < 0.5:
            resource["CPU"] = random.choice((0.0, 0.1, 0.5, 1.0, 2.0))
        if random.random() < 0.1:
            resource["disk"] = random.choice((0.25, 1.0))
        resources.append(resource)
    return resources


def _roles(placement_requests: dict[str, dict[str, Any]], names: list[str]) -> tuple[RoleSpec, ...]:
    roles = []
    for role in dict.fromkeys(name.partition(".")[0] for name in names):
        if role in placement_requests:
            roles.append(RoleSpec(role=RoleType(role), cls=CLASS, **placement_requests[role]))
            continue
        parts = [PartSpec(name=n.partition(".")[2], **placement_requests[n]) for n in names if n.startswith(f"{role}.")]
        total = sum(part.total for part in parts)
        roles.append(RoleSpec(role=RoleType(role), cls=CLASS, total=total, parts=tuple(parts)))
    return tuple(roles)


def _separations(random: Random, owner: dict[str, int]) -> tuple[tuple[str, ...], ...]:
    """Names of different host groups; now and then a whole role for its parts."""
    if len(set(owner.values())) < 2 or random.random() < 2 / 3:
        return ()
    chosen: dict[int, str] = {}
    for name in random.sample(sorted(owner), len(owner)):
        chosen.setdefault(owner[name], name)
    names = list(chosen.values())[: random.randint(2, len(chosen))]
    whole = names[0].partition(".")[0]
    if random.random() < 0.5 and not any(name.startswith(f"{whole}.") for name in names[1:]):
        names[0] = whole
    return (tuple(names),)
