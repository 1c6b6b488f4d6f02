"""JobStatus: the state of a job at one moment, for people and programs."""

from __future__ import annotations

import html
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlrl_core.context import JobView


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The redacted view of a job's record, with properties for what is asked most."""

    view: JobView

    @classmethod
    def from_snapshot(cls, view: JobView) -> JobStatus:
        return cls(view=view)

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def state(self) -> str:
        """submitted, reserving, starting, running, stopping, finished, failed or stopped."""
        return self.view["state"]

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def why(self) -> str | None:
        """How it ended, in one sentence, where that was not a plain finish."""
        return self.view["why"]

    @property
    def waiting_for(self) -> str | None:
        """Which resources it waits for; None if it waits for none."""
        return self.view["waiting_for"]

    @property
    def degraded(self) -> str | None:
        """What keeps the job from being safe, such as a store that does not answer; None if nothing does."""
        return self.view["degraded"]

    @property
    def phase(self) -> str | None:
        """Where the trainer is: construct, init, fit or done."""
        phase: str | None = self.view["trainer"].get("phase")
        return phase

    @property
    def step(self) -> int | None:
        step: int | None = self.view["progress"].get("step")
        return step

    @property
    def total_steps(self) -> int | None:
        total: int | None = self.view["progress"].get("total_steps")
        return total

    @property
    def metrics(self) -> dict[str, float]:
        return dict(self.view["progress"].get("metrics") or {})

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of the last whole step, by 'role.method'."""
        return dict(self.view["progress"].get("phase_seconds") or {})

    @property
    def workloads(self) -> list[dict[str, Any]]:
        return list(self.view["workloads"])

    @property
    def seconds(self) -> float:
        """From submission to the end, or to now."""
        return (self.view["ended_at"] or time.time()) - self.view["submitted_at"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, secrets redacted."""
        return dict(self.view)

    @property
    def summary(self) -> str:
        """State and step in a few words, such as 'running, step 3 of 60'."""
        if self.step is None:
            return self.state
        return f"{self.state}, step {self.step}{f' of {self.total_steps}' if self.total_steps else ''}"

    def __repr__(self) -> str:
        return f"<JobStatus '{self.name}': {self.summary}>"

    def _repr_html_(self) -> str:
        """A small table for a notebook."""
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        rows = {
            "job": self.name,
            "state": self.summary,
            "time": f"{self.seconds:.1f} s",
            "metrics": metrics,
            "waits for": self.waiting_for,
            "degraded": self.degraded,
            "why": self.why,
        }
        shown = (f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items() if text)
        return f"<table>{''.join(shown)}</table>"
