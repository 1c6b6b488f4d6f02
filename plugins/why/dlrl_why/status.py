"""`dlrl status`: all jobs as a list, or one in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlrl_core.cli import wording
from dlrl_core.cli.output import console, print_json
from dlrl_why.job_lookup import KnownJob, all_jobs, one_job
from dlrl_why.masters import masters_of
from dlrl_why.wording import clock, since

if TYPE_CHECKING:
    from rich.table import Table

    from dlrl_core.api import JobStatus


def show_jobs(address: str | None, *, as_json: bool) -> None:
    """All jobs of the store, and of the cluster if one is named."""
    from dlrl_core.context import default_store_url, open_store, redact

    url = default_store_url()
    with open_store(url) as store, masters_of(address) as masters:
        known = all_jobs(store, masters)
    if as_json:
        rows = [job.row() for job in known.jobs]
        print_json({"store": url, "store_problem": known.store_problem, "jobs": rows})
        return
    if known.jobs:
        _print_jobs(known.jobs)
    elif known.store_problem is None:
        print(f"no jobs in {redact(url)}")
    if known.store_problem is not None:
        _warn(f"the store can't be asked, so only jobs with a master on this cluster are shown: {known.store_problem}")


def show_job(name: str, address: str | None, *, as_json: bool) -> None:
    """One job with its workloads and the last sentences of its journal."""
    from dlrl_core.context import default_store_url, open_store

    with open_store(default_store_url()) as store, masters_of(address) as masters:
        job = one_job(name, store, masters)
    assert job.status is not None
    if as_json:
        events = [event.model_dump(mode="json") for event in job.events]
        origin = {"source": job.source, "note": job.note, "store_problem": job.store_problem}
        print_json({**job.status.to_dict(), **origin, "journal": events})
    else:
        _print_job(job, job.status)


def _print_jobs(jobs: Sequence[KnownJob]) -> None:
    from rich.text import Text

    from dlrl_core.cli.output import list_table, state_style

    table = list_table("job", "state", "step", "submitted", "took", "why")
    for job in jobs:
        row = job.row()
        state = Text(f"{row['state']}{'?' if job.note else ''}", style=state_style(row["state"]))
        submitted = f"{since(row['submitted_at'])} ago" if row["submitted_at"] else wording.NONE
        took = wording.duration(job.status.seconds) if job.status and job.status.is_final else wording.NONE
        table.add_row(
            Text(job.name),
            state,
            wording.steps(row["step"], row["total_steps"]),
            submitted,
            took,
            _one_line(row["why"] or (row["waiting_for"] and f"waiting for resources: {row['waiting_for']}")),
        )
    console().print(table)
    for job in jobs:
        if job.note:
            _warn(f"? {job.note}")


def _warn(sentence: str) -> None:
    from rich.text import Text

    console().print(Text(sentence, style="yellow"), soft_wrap=True)


def _one_line(text: str | None) -> Any:
    from rich.text import Text

    return Text((text or "").partition("\n")[0])


def _print_job(job: KnownJob, status: JobStatus) -> None:
    from rich.text import Text

    stdout = console()
    for sentence in (job.note, job.store_problem):
        if sentence:
            _warn(sentence)
    stdout.print(_facts(status))
    stdout.print(_workloads(status))
    for event in job.events:
        stdout.print(
            Text.assemble((f"{clock(event.at)} ", "dim"), (f"{event.subject or 'job'}: ", "dim"), event.message),
            soft_wrap=True,
        )


def _facts(status: JobStatus) -> Table:
    from rich.text import Text

    from dlrl_core.cli.output import fact_table, state_style

    view = status.view
    trainer = view["trainer"]
    table = fact_table()
    table.add_row("job", Text(status.name, style="bold"))
    table.add_row("run", view["run_id"])
    table.add_row("state", Text(status.state, style=state_style(status.state)))
    table.add_row("since", since(view["state_since"]))
    if status.why:
        table.add_row("why", Text(status.why))
    if status.degraded:
        table.add_row("degraded", Text(status.degraded, style="yellow"))
    if status.waiting_for:
        table.add_row("waiting for", Text(status.waiting_for))
    table.add_row("step", wording.steps(status.step, status.total_steps))
    table.add_row("time", wording.duration(status.seconds))
    table.add_row("trainer", Text(f"{trainer['state']}, in {status.phase or 'nothing yet'}, pid {trainer['pid']}"))
    if status.metrics:
        table.add_row("metrics", Text(", ".join(f"{key} {wording.number(one)}" for key, one in status.metrics.items())))
    for name, text, style in _commits(view["progress"]):
        table.add_row(name, Text(text, style=style))
    if phases := wording.slowest(status.phase_seconds, 3):
        table.add_row("slowest", ", ".join(f"{name} {wording.duration(seconds)}" for name, seconds in phases))
    return table


def _commits(progress: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows about commits: which step is safe, how often, what is on durable storage, and what is wrong."""
    report = progress["commits"]
    if report is None:
        return
    step, size = progress["committed_step"], report["size"]
    last = "no step yet" if step is None else f"step {step}"
    of = f", {size / 1e9:.2f} GB a rank" if size else ""
    of += f", in the memory of {report['nodes']} nodes" if report["nodes"] > 1 else ""
    yield "committed", f"{last}{of}; {report['pace']}; a death costs {report['steps_at_risk']} at most", ""
    if report["durable_step"] is not None:
        copying = ", another is being copied" if report["is_copying"] else ""
        yield "durable", f"step {report['durable_step']}, {since(report['durable_at'])} ago{copying}", ""
    for trouble in filter(None, (report["trouble"], report["neighbour_trouble"], report["durable_trouble"])):
        yield "trouble", trouble, "yellow"


def _workloads(status: JobStatus) -> Table:
    from rich.text import Text

    from dlrl_core.cli.output import list_table, state_style

    addresses = {node["node_id"]: node["address"] for node in (status.view["plan"] or {}).get("nodes", [])}
    table = list_table("workload", "state", "node", "device", "pid", "restarts", "call", "detail")
    for workload in status.workloads:
        node = workload["node_id"] or wording.NONE
        table.add_row(
            workload["name"],
            Text(workload["state"], style=state_style(workload["state"])),
            addresses.get(node) or node[:12],
            ",".join(workload["device_ids"]) or wording.NONE,
            str(workload["pid"] or wording.NONE),
            str(workload["restarts"]),
            _call(workload["report"]),
            _one_line(workload["detail"]),
        )
    return table


def _call(report: dict[str, Any] | None) -> str:
    """The method that runs now, and for how long; only a Master knows."""
    if not report or not report["call"]:
        return wording.NONE
    seconds = report["call_s"]
    return report["call"] if seconds is None else f"{report['call']} ({wording.duration(seconds)})"
