"""Outcome: where a job has come to, in a word and in half a sentence."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from dlrl_core.cli import wording
from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link
from dlrl_core.scheduler.names import MASTER, TRAINER

_COMING_UP = ("pending", "starting", "dead")


class Outcome(enum.StrEnum):
    """What happened to a job."""

    WAITING = "waiting"
    """For resources, or for a node."""
    STARTING = "starting"
    RUNNING = "running"
    """Nothing was restarted so far."""
    RECOVERING = "recovering"
    """Something is being restarted."""
    RECOVERED = "recovered"
    """It runs, and something was restarted before."""
    DEGRADED = "degraded"
    """It runs, and its changes can't be written to the store."""
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


def outcome_of(evidence: Evidence) -> Outcome:
    """What keeps the job from its work counts before what it has got over."""
    view = evidence.view
    if evidence.is_final or view["state"] == "stopping":
        return Outcome(view["state"])
    if view["waiting_for"]:
        return Outcome.WAITING
    was_restarted = bool(evidence.new_processes)
    if not is_up(evidence):
        return Outcome.RECOVERING if was_restarted and view["state"] != "reserving" else Outcome.STARTING
    if view["degraded"]:
        return Outcome.DEGRADED
    return Outcome.RECOVERED if was_restarted else Outcome.RUNNING


def is_up(evidence: Evidence) -> bool:
    """Whether the trainer runs and every workload is ready."""
    view = evidence.view
    missing = any(one["state"] in _COMING_UP for one in view["workloads"])
    return view["state"] == "running" and view["trainer"]["state"] == "running" and not missing


def headline(outcome: Outcome, evidence: Evidence, causes: Sequence[Link]) -> str:
    """What happened, in one sentence, with the first cause of what led to it."""
    text = f"job '{evidence.name}' {_said(outcome, evidence)}"
    if evidence.is_by_record and not evidence.is_final:
        text = f"by its record, {text}"
    if causes:
        text += _caused(causes, told=text)
    if evidence.view["degraded"] and outcome is not Outcome.DEGRADED:
        text += f"; besides, {evidence.view['degraded']}"
    return text


def _caused(causes: Sequence[Link], told: str) -> str:
    """The first cause, as far as it is not told, and how often it came."""
    first = causes[0]
    more = f"; first cause: {first.cause}" if _line(first.message) not in told else _in_brackets(first.trigger)
    often = f"{len(causes)} times since {wording.clock(first.at)}" if len(causes) > 1 else None
    return f"{more}{_in_brackets(often)}"


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _line(text: str | None) -> str:
    """The first line; a user's error may have many."""
    return (text or "nobody said why").partition("\n")[0]


def _said(outcome: Outcome, evidence: Evidence) -> str:
    view, at = evidence.view, _at(evidence)
    since = wording.duration(evidence.now - view["state_since"])
    match outcome:
        case Outcome.WAITING:
            return f"waits for resources{at}: {_line(view['waiting_for'])}"
        case Outcome.STARTING:
            return f"is being started, {view['state']} for {since}"
        case Outcome.RUNNING:
            return f"is running{at}, and nothing was restarted"
        case Outcome.RECOVERING:
            return f"is being restarted{at}: {_list(_missing(evidence))} not ready yet"
        case Outcome.RECOVERED:
            return f"is running again{at}, after {_restarts(evidence)}"
        case Outcome.DEGRADED:
            return f"is running{at}, but degraded: {view['degraded']}"
        case Outcome.STOPPING:
            return f"is being stopped{at}: {_line(view['why'])}"
        case Outcome.FINISHED:
            return f"finished{at} in {_took(evidence)}, {_after_restarts(evidence)}"
        case Outcome.FAILED:
            return f"failed{at} after {_took(evidence)}: {_line(view['why'])}"
        case Outcome.STOPPED:
            return f"was stopped{at} after {_took(evidence)}: {_line(view['why'])}"


def _at(evidence: Evidence) -> str:
    if evidence.step is not None:
        return f" at step {wording.steps(evidence.step, evidence.view['progress'].get('total_steps'))}"
    phase = evidence.view["trainer"].get("phase")
    return f" in '{phase}'" if phase else ""


def _took(evidence: Evidence) -> str:
    return wording.duration(evidence.at - evidence.view["submitted_at"])


def _missing(evidence: Evidence) -> list[str]:
    view = evidence.view
    names = [one["name"] for one in view["workloads"] if one["state"] in _COMING_UP]
    return names if view["trainer"]["state"] == "running" else [*names, TRAINER]


def _list(names: Sequence[str]) -> str:
    return f"{wording.processes(names)} {'is' if len(names) == 1 else 'are'}"


def _restarts(evidence: Evidence) -> str:
    """How many there were; those of the Master are told apart, as the training does not notice them."""
    counts = dict(evidence.new_processes)
    masters = counts.pop(MASTER, 0)
    said = {"process": sum(counts.values()), "master": masters}
    return " and ".join(f"{count} {what} restart{'s' * (count != 1)}" for what, count in said.items() if count)


def _after_restarts(evidence: Evidence) -> str:
    return f"after {_restarts(evidence)}" if evidence.new_processes else "and nothing was restarted"
