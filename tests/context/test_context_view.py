"""What `dlrl status --json` shows."""

from __future__ import annotations

import dataclasses
import json
import math
import time

from context_samples import job_record, workload_record

from dlrl_core.context import JobContext, JobView, ProcessReport, Store, WorkloadState
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, ConfigValue, JobSpec, RoleSpec

SPEC = JobSpec(
    config=ConfigValue.of({"wandb": {"key": "hunter2"}, 1: {"password": "hunter2"}, "data": {"max_tokens": 512}}),
    global_env={"HF_TOKEN": "hunter2", "PROXY": "http://me:hunter2@proxy:1"},
    roles=(
        RoleSpec(
            role=RoleType.ACTOR,
            cls=ClassRef(module="m", class_name="C"),
            env={"WANDB_API_KEY": "hunter2", "ARGS": "--hf-token hunter2"},
        ),
    ),
)
REPORT = ProcessReport(
    name="actor-0",
    run_id="r",
    incarnation=1,
    address="10.0.0.1",
    actor_id="x",
    state=WorkloadState.READY,
    call="update",
    call_s=1.0,
    memory_bytes=5,
    node_id="n",
    pid=1,
    sent_at=2.0,
)


def make_context(store: Store) -> JobContext:
    record = job_record(
        spec_json=SPEC.to_json(),
        plan_json='{"env": {"HF_TOKEN": "hunter2"}, "nodes": 2}',
        store_url="redis://:hunter2@h",
        address="ray://me:hunter2@h:1",
    )
    context = JobContext.create(store, record, [workload_record(rank=rank, incarnation=1) for rank in range(2)])
    with context.change() as change:
        change.job(why="HF_TOKEN=hunter2 was refused")
        change.workload("actor-1", detail="password=hunter2")
        change.progress(step=4, metrics={"actor/loss": math.nan, "token": 3.0})
    return context


def test_snapshot_shows_no_secret_and_all_the_rest(store: Store) -> None:
    view = make_context(store).snapshot()

    text = json.dumps(view, allow_nan=False)

    assert "hunter2" not in text
    assert "max_tokens" in text
    assert view["plan"] == {"env": {"HF_TOKEN": "***"}, "nodes": 2}
    assert view["spec"]["global_env"] == {"HF_TOKEN": "***", "PROXY": "http://me:***@proxy:1"}
    assert view["progress"]["metrics"] == {"actor/loss": "NaN", "token": 3.0}
    assert [workload["name"] for workload in view["workloads"]] == ["actor-0", "actor-1"]


def test_snapshot_has_the_fields_it_promises(store: Store) -> None:
    assert set(make_context(store).snapshot()) == set(JobView.__annotations__)


def test_snapshot_carries_the_latest_reports_of_living_processes(store: Store) -> None:
    stale = dataclasses.replace(REPORT, name="actor-1", incarnation=0)

    view = make_context(store).snapshot({"actor-0": REPORT, "actor-1": stale})

    first, second = view["workloads"]
    assert first["report"]["call"] == "update"
    assert second["report"] is None
    json.dumps(view, allow_nan=False)


def test_snapshot_of_ten_thousand_workloads_is_quick_enough_to_ask_often(store: Store) -> None:
    plan = json.dumps([{"name": f"actor-{rank}", "node": "n" * 50, "rank": rank} for rank in range(10_000)])
    workloads = [workload_record(rank=rank) for rank in range(10_000)]
    context = JobContext.create(store, job_record(plan_json=plan), workloads)
    context.snapshot()

    start = time.process_time()
    context.snapshot()

    assert time.process_time() - start < 1.0
