"""Submitting a job with a plan made earlier, as happens when the cluster changes in between."""

from __future__ import annotations

import sys

from dlrl_core import RLJob
from dlrl_core.api.connection import connect
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import default_store_url
from dlrl_core.master.launch import MasterLaunch, MasterLimits
from dlrl_core.master.master import start_master
from dlrl_core.plan import ExecutionPlan
from dlrl_core.scheduler.reservation import ask_for


def submit_with_plan(name: str, job: RLJob, plan: ExecutionPlan, limits: MasterLimits | None = None) -> JobHandle:
    launch = MasterLaunch(
        job=name,
        run_id="run",
        spec_json=job.spec.to_json(),
        plan_json=plan.to_json(),
        store_url=default_store_url(),
        python_path=tuple(sys.path),
        state_keeper="dlrl_state.keeper:NodeMemoryKeeper",
        plugins=None,
        reservation=ask_for(name, "run", 1, plan, is_first=True),
        limits=limits or MasterLimits(),
    )
    return JobHandle(name, start_master(launch), connect())
