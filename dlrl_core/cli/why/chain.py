"""The chain: what the journal tells of a job's troubles, each finding with what was done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link, Loss, Response
from dlrl_core.context import JournalEvent
from dlrl_core.diagnosis import FindingKind
from dlrl_core.failover import FailoverScope, role_of

_EVERYDAY = frozenset({"submitted", "state", "decision"})
"""Kinds that are no link of their own. A decision is told with its finding."""
_CHAOS_LAG_S = 2.0
"""Chaos is noted when it has been done, so that the journal may have the death before it."""


def chain_of(evidence: Evidence) -> list[Link]:
    """All links in the order of the journal."""
    triggers = _triggers(evidence.events)
    return [
        _link(index, event, evidence, triggers.get(index))
        for index, event in enumerate(evidence.events)
        if event.kind not in _EVERYDAY
    ]


def findings_in(chain: Sequence[Link]) -> list[Link]:
    return [link for link in chain if link.finding is not None]


def _link(index: int, event: JournalEvent, evidence: Evidence, trigger: str | None) -> Link:
    subject, stacks = event.subject or "job", event.data.get("stacks")
    if event.kind != "finding":
        return Link(
            at=event.at,
            kind=event.kind,
            subject=subject,
            message=event.message,
            stacks=stacks if isinstance(stacks, str) else None,
        )
    return Link(
        at=event.at,
        kind=event.kind,
        subject=subject,
        message=event.message,
        finding=str(event.data.get("finding")),
        trigger=trigger,
        response=_response(index, evidence),
    )


def _triggers(events: Sequence[JournalEvent]) -> dict[int, str]:
    """For findings by their place, the chaos or the hang behind each; none stands behind two."""
    triggers: dict[int, str] = {}
    used: set[int] = set()
    for index, found in enumerate(events):
        if found.kind != "finding":
            continue
        for other in (*_before(index, events), *_soon_after(index, events)):
            if other not in used and events[other].subject == found.subject and _is_trigger(events[other]):
                used.add(other)
                triggers[index] = events[other].message
                break
    return triggers


def _before(index: int, events: Sequence[JournalEvent]) -> Iterator[int]:
    """The places before it, backwards to the last finding on the same subject."""
    for other in range(index - 1, -1, -1):
        if events[other].kind == "finding" and events[other].subject == events[index].subject:
            return
        yield other


def _soon_after(index: int, events: Sequence[JournalEvent]) -> Iterator[int]:
    for other in range(index + 1, len(events)):
        if events[other].kind == "finding" or events[other].at > events[index].at + _CHAOS_LAG_S:
            return
        if events[other].kind == "chaos":
            yield other


def _is_trigger(event: JournalEvent) -> bool:
    return event.kind == "hung" or (event.kind == "chaos" and not event.message.startswith("chaos: slow"))


def _response(index: int, evidence: Evidence) -> Response | None:
    """The decision stands right behind its finding: both are written in one commit."""
    events = evidence.events
    if index + 1 >= len(events) or events[index + 1].kind != "decision":
        return None
    decision, later = events[index + 1], events[index + 2 :]
    scope = str(decision.data.get("scope"))
    names = tuple(_names(decision))
    return Response(
        at=decision.at,
        scope=scope,
        reason=decision.message.removeprefix(f"scope '{scope}': "),
        restarts=names,
        seconds=_seconds(decision.at, scope, names, later, evidence),
        loss=_loss(scope, names, later, evidence),
    )


def _names(decision: JournalEvent) -> Iterator[str]:
    names = decision.data.get("restarts")
    yield from map(str, names if isinstance(names, list) else ())


def _seconds(
    at: float, scope: str, names: Sequence[str], later: Sequence[JournalEvent], evidence: Evidence
) -> float | None:
    """By the journal where the whole job restarted; else by the records of those who are still in that process."""
    if scope == FailoverScope.JOB:
        for event in _before_next_finding(later):
            if event.kind == "state" and event.data.get("state") == "running":
                return event.at - at
        return None
    restarted_later = {name for event in later if event.kind == "decision" for name in _names(event)}
    records = [one for name in names if (one := evidence.workload(name)) is not None]
    if not records or restarted_later.intersection(names) or any(one["state"] != "ready" for one in records):
        return None
    seconds: float = max(one["since"] for one in records) - at
    return seconds if seconds >= 0 else None


def _loss(scope: str, names: Sequence[str], later: Sequence[JournalEvent], evidence: Evidence) -> Loss:
    if scope == FailoverScope.STOP:
        return Loss.NOTHING
    records = [one for name in names if (one := evidence.workload(name)) is not None]
    if scope == FailoverScope.WORKLOAD and not any(one["is_stateful"] for one in records):
        return Loss.NOTHING
    if evidence.committed_step is None:
        return Loss.EVERYTHING
    is_node_lost = any(event.kind == "moved" for event in _before_next_finding(later))
    return Loss.NOT_DURABLE if is_node_lost and evidence.has_state else Loss.UNCOMMITTED


def _before_next_finding(events: Sequence[JournalEvent]) -> Iterator[JournalEvent]:
    for event in events:
        if event.kind == "finding":
            return
        yield event


def last_trouble(chain: Sequence[Link], window_s: float) -> list[Link]:
    """The last finding, behind those that are of the same trouble: of its kind, and never longer apart than this."""
    trouble: list[Link] = []
    for link in reversed(findings_in(chain)):
        if trouble and trouble[0].at - link.at > window_s:
            break
        if not trouble or _is_same_trouble(link, trouble[0]):
            trouble.insert(0, link)
    return trouble


def _is_same_trouble(one: Link, other: Link) -> bool:
    """Deaths in one role, or the same error of user code; in which rank of the role, is chance."""
    if one.finding != other.finding or role_of(one.subject) != role_of(other.subject):
        return False
    return one.finding != FindingKind.USER_ERROR or _without_rank(one.message) == _without_rank(other.message)


def _without_rank(message: str) -> str:
    return re.sub(r" rank \d+ ", " rank ", message)
