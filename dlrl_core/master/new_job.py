"""The first records of a job."""

from __future__ import annotations

import time

from dlrl_core.context import JobRecord, JobState, WorkloadRecord, WorkloadState
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan


def first_record(launch: MasterLaunch) -> JobRecord:
    now = time.time()
    return JobRecord(
        name=launch.job,
        run_id=launch.run_id,
        state=JobState.SUBMITTED,
        state_since=now,
        spec_json=launch.spec_json,
        plan_json=launch.plan_json,
        store_url=launch.store_url,
        submitted_at=now,
    )


def workload_records(launch: MasterLaunch) -> list[WorkloadRecord]:
    now = time.time()
    return [
        WorkloadRecord(
            name=plan.name, role=str(plan.role), rank=plan.rank, state=WorkloadState.PENDING, since=now
        )
        for plan in ExecutionPlan.from_json(launch.plan_json).workloads
    ]
