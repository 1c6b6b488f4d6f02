"""A job of a framework under dlrl that takes turns with another program, and what it tells of its commits."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dlrl_core import RLJobBuilder
from dlrl_core.api.job_handle import JobStatus

_BUDGET = 0.03 / 2
"""What commits may take of the time of the job: the default, of its own turns, which are half of the time."""
_TOLD = "BENCHMARK_COMMITS"


@dataclass(frozen=True, kw_only=True)
class CommitsSeen:
    """The commits of a job, from its status, asked for as often as `dlrl run` does."""

    steps: list[int]
    """Those that were committed, counted from 1."""
    pace: str
    """How often, and why, at the end."""


def run_committing(framework: str, argv: Sequence[str]) -> None:
    """Run it to its end, with commits as by default."""
    steps, pace = set[int](), ""

    def look(status: JobStatus) -> None:
        nonlocal pace
        progress = status.view["progress"]
        step = progress["committed_step"]
        if step is not None and step not in steps:
            steps.add(step)
            pace = progress["commits"]["pace"]
            print(f"step {step} is committed; {pace}", flush=True)

    job = RLJobBuilder().framework(framework).config(list(argv)).commits(budget=_BUDGET).build()
    look(job.submit("benchmark", on_status=look).status)
    if path := os.environ.get(_TOLD):
        Path(path).write_text(json.dumps(asdict(CommitsSeen(steps=sorted(steps), pace=pace))))


def env_of(out: Path) -> dict[str, str]:
    """What has the job tell of its commits in this folder."""
    return {_TOLD: str(_file(out))}


def commits_seen(out: Path) -> CommitsSeen | None:
    """What a job told there; None of one that was not under dlrl."""
    return CommitsSeen(**json.loads(_file(out).read_text())) if _file(out).exists() else None


def _file(out: Path) -> Path:
    return out / "commits.json"
