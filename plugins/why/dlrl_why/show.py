"""`dlrl why`: what happened to a job, in a sentence, and how it came to that."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dlrl_core.cli import wording
from dlrl_core.cli.output import console, print_json
from dlrl_core.context import Loss
from dlrl_why.job_lookup import KnownJob, one_job
from dlrl_why.masters import masters_of
from dlrl_why.wording import clock, processes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dlrl_why.explain import Answer, Link

_LINKS_SHOWN = 20
_WHO = {"stop": "asked to stop", "ended": "job ended"}
_LOSSES = {
    Loss.NOTHING: "nothing",
    Loss.UNCOMMITTED: "the steps after the last commit, done again",
    Loss.NOT_DURABLE: "the steps after the last durable commit, done again, as a node was lost",
    Loss.EVERYTHING: "all steps, done again, as nothing was committed",
}


def show_why(name: str, address: str | None, *, as_json: bool) -> None:
    """Look the job up, with its whole journal, and tell."""
    from dlrl_core.context import default_store_url, open_store
    from dlrl_why.explain import Evidence, explain

    with open_store(default_store_url()) as store, masters_of(address) as masters:
        job = one_job(name, store, masters, events=None)
    assert job.status is not None
    answer = explain(
        Evidence(
            view=job.status.view,
            now=time.time(),
            events=job.events,
            is_by_record=job.source == "store",
        )
    )
    if as_json:
        origin = {"source": job.source, "note": job.note, "store_problem": job.store_problem}
        print_json({**answer.to_dict(), **origin})
    else:
        _print(job, answer)


def _print(job: KnownJob, answer: Answer) -> None:
    from rich.text import Text

    from dlrl_core.cli.output import state_style

    stdout = console()
    stdout.print(Text(answer.sentence, style=state_style(answer.outcome)), soft_wrap=True)
    for warning in (job.note, job.store_problem):
        if warning:
            stdout.print(Text(f"? {warning}", style="yellow"), soft_wrap=True)
    stdout.print()
    stdout.print(_facts(answer))
    stdout.print()
    for line in _chain(answer):
        stdout.print(line, soft_wrap=True)


def _facts(answer: Answer) -> Table:
    from rich.text import Text

    from dlrl_core.cli.output import fact_table

    table = fact_table()
    table.add_row("lost steps", Text(answer.lost_steps))
    table.add_row("last commit", Text("none" if answer.committed_step is None else f"step {answer.committed_step}"))
    table.add_row("restarts", Text(_restarts(answer.restarts)))
    table.add_row("budget left", Text(_budgets(answer)))
    table.add_row("next", Text("\n".join(answer.next) or "nothing to do", style="cyan"))
    return table


def _restarts(counts: dict[str, int]) -> str:
    """Processes that were restarted equally often stand together."""
    names: dict[int, list[str]] = {}
    for name, count in counts.items():
        names.setdefault(count, []).append(name)
    return "; ".join(f"{processes(some)}: {count}" for count, some in sorted(names.items())) or "none"


def _budgets(answer: Answer) -> str:
    said = ", ".join(f"{one.of} {one.left} of {one.allowed}" for one in answer.budgets)
    return f"{said} (within {wording.duration(answer.budget_window_s)})"


def _chain(answer: Answer) -> Iterator[Text]:
    from rich.text import Text

    for number, link in _shown(answer.chain):
        if number:
            yield Text(f"... {number} more; all are in: dlrl why {answer.name} --json", style="dim")
        when, who = (f"{clock(link.at)} ", "dim"), (f"{_WHO.get(link.kind, link.subject)}: ", "dim")
        yield Text.assemble(when, who, link.message.partition("\n")[0])
        for line in _response(link):
            yield Text(f"         → {line}", style="cyan")


def _shown(chain: Sequence[Link]) -> Iterator[tuple[int, Link]]:
    """The first link and the last ones, each with how many were left out before it."""
    left_out = max(0, len(chain) - _LINKS_SHOWN)
    for index, link in enumerate(chain):
        if index == 0 or index > left_out:
            yield left_out if index == left_out + 1 else 0, link


def _response(link: Link) -> Iterator[str]:
    incident = link.incident
    if incident is None:
        return
    yield f"scope '{incident.scope}': {incident.explanation}"
    if incident.restarts:
        took = "" if incident.seconds is None else f", ready after {wording.duration(incident.seconds)}"
        yield f"restarted {processes(incident.restarts)}{took}; lost: {_LOSSES[incident.loss]}"
