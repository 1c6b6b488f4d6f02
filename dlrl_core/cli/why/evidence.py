"""Evidence: all that is known of one run of a job, with names for what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlrl_core.context import JobView, JournalEvent, RestartRecord
from dlrl_core.failover import FailoverScope
from dlrl_core.scheduler.names import MASTER, TRAINER
from dlrl_core.spec.job_spec import RestartBudget


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One look at a job: its view by the Master or by the store, and what the store keeps besides."""

    view: JobView
    now: float
    events: Sequence[JournalEvent] = ()
    """The journal of this run; empty if the store could not be asked."""
    restarts: Sequence[RestartRecord] = ()
    is_by_record: bool = False
    """The Master was not asked, or has nothing to say: the view is as old as the record."""

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def at(self) -> float:
        """The moment that counts: the end of the job, else now."""
        ended_at = self.view["ended_at"]
        return self.now if ended_at is None else ended_at

    @property
    def step(self) -> int | None:
        step: int | None = self.view["progress"].get("step")
        return step

    @property
    def committed_step(self) -> int | None:
        """The step of the last commit that the trainer told of."""
        text = self.view["progress"].get("commit_json")
        return None if text is None else int(json.loads(text)["step"])

    @property
    def budget(self) -> RestartBudget:
        said = self.view["spec"].get("restart_budget") or {}
        return RestartBudget.model_validate({key: said[key] for key in RestartBudget.model_fields if key in said})

    def declared(self, role: str) -> str:
        """What scope a role says it survives with, as the policy reads it."""
        if role == TRAINER:
            return FailoverScope.ROLE
        said = next((one.get("failover") for one in self.view["spec"].get("roles", ()) if one["role"] == role), None)
        return said or FailoverScope.JOB

    def workload(self, name: str) -> dict[str, Any] | None:
        return next((one for one in self.view["workloads"] if one["name"] == name), None)

    @property
    def has_state(self) -> bool:
        """Whether any workload has state that is committed."""
        return any(one["is_stateful"] for one in self.view["workloads"])

    def node_address(self, node_id: str) -> str:
        """As people know the node; the beginning of its id if the plan no longer has it."""
        nodes = (self.view["plan"] or {}).get("nodes", ())
        return next((one["address"] for one in nodes if one["node_id"] == node_id), "") or node_id[:12]

    @property
    def new_processes(self) -> dict[str, int]:
        """How often each process was started again; the Master and the trainer are among them."""
        view = self.view
        counts = {
            MASTER: max(0, view["master_incarnation"] - 1),
            TRAINER: view["trainer"]["incarnation"],
            **{one["name"]: one["restarts"] for one in view["workloads"]},
        }
        return {name: count for name, count in counts.items() if count}
