"""An ending is written before anything is ended for it, and whoever comes after can only tell the same."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace

import pytest
from master_parts import context_of, launch_of, nodes, plan_on, small_job

from dlrl_core.context import JobContext, JobEnding, JobState
from dlrl_core.context.job_state import TrainerResult
from dlrl_core.errors import JobError, RemoteCause
from dlrl_core.failover import WorkloadGone
from dlrl_core.master import beginning_and_end as ending_module
from dlrl_core.master.beginning_and_end import tear_down, written_ending
from dlrl_core.master.control_loop import ControlLoop
from dlrl_state.keeper import NodeMemoryKeeper

VALUE = {"reward": 0.5}
RESULT = TrainerResult.of(VALUE, pickle.dumps(VALUE))
KEPT = replace(RESULT, pickled=None)


@pytest.fixture
def launch(tmp_path):
    spec = small_job()
    folder = tmp_path / "state"
    (folder / "actor-0").mkdir(parents=True)
    return launch_of(spec, plan_on(spec, nodes("a")), durable_folder=str(folder))


@pytest.fixture
def context(tmp_path, launch) -> JobContext:
    return context_of(tmp_path, launch)


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({}, None),
        ({"state": JobState.STOPPING, "why": "enough"}, JobEnding(state="stopped", why="enough")),
        ({"state": JobState.FAILED, "why": "it broke"}, JobEnding(state="failed", why="it broke")),
        (
            {"ending": JobEnding(state="finished", result=RESULT).kept()},
            JobEnding(state="finished", why=None, result=KEPT),
        ),
        (
            {"state": JobState.STOPPING, "why": "enough", "ending": JobEnding(state=JobState.FINISHED)},
            JobEnding(state="finished", why=None),
        ),
    ],
)
def test_a_successor_tells_the_ending_that_is_written(tmp_path, launch, fields, ending):
    assert written_ending(context_of(tmp_path, launch, **fields).record) == ending


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ({"rewards": [0.5, 1, None, True, "x", float("inf")], "of": {}}, True),
        ("0" * (1024 * 1024 - 2), True),
        ("0" * (1024 * 1024 - 1), False),
        ((1, 2), False),
        ({1: 2}, False),
        ([b"x"], False),
        (LOOP, False),
        (object(), False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_of_a_result_the_record_keeps_json_that_gives_the_same_value_and_no_pickle(value, is_kept):
    kept = JobEnding(state="finished", result=TrainerResult.of(value, b"pickled")).kept().result
    assert (kept.type_name, kept.pickled) == (type(value).__name__, None)
    assert (kept.json_text is not None) == is_kept
    assert not is_kept or json.loads(kept.json_text) == value


def test_of_a_cause_the_redacted_text_is_kept_and_no_pickle():
    cause = RemoteCause.of(ValueError("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123"))
    kept = JobEnding(state="failed", why="it broke", cause=cause).kept().cause
    assert (kept.type_name, kept.pickled) == ("ValueError", None)
    assert "hf_abcdef" not in kept.message + kept.traceback


def test_a_cause_with_bytes_of_another_encoding_can_be_stored(context):
    ending = JobEnding(state="failed", why="it broke", cause=RemoteCause.of(OSError("no such file: '\udcff'")))
    with context.change() as change:
        change.job(ending=ending.kept())
    assert context.record.ending.cause.message == "no such file: '?'"


def test_a_decision_to_stop_is_written_with_the_ending_in_one_commit(tmp_path):
    spec = small_job(role={"failover": "stop"})
    launch = launch_of(spec, plan_on(spec, nodes("a")))
    context = context_of(tmp_path, launch)
    version = context.version

    async def run() -> JobEnding | None:
        return await ControlLoop(launch, context)._handle(WorkloadGone(name="actor-0", reason="SIGKILL"))

    ending = asyncio.run(run())
    assert context.version == version + 1
    why = "workload 'actor-0' died during 'construct': SIGKILL"
    assert written_ending(context.record) == ending == JobEnding(state="failed", why=why)


async def ended_in_order(launch, context, monkeypatch, *, ending: JobEnding) -> list[str]:
    """What is done in which order, and what the record says at that moment."""
    done: list[str] = []

    def end_all(_launch) -> None:
        written = context.record.ending
        done.append(f"end all, ending {written and written.state}, state {context.record.state}")

    def forget_durable(_durable) -> None:
        done.append(f"remove, state {context.record.state}")

    monkeypatch.setattr(ending_module.workload_launcher, "processes_of", lambda _job: {})
    monkeypatch.setattr(ending_module, "end_all", end_all)
    monkeypatch.setattr(NodeMemoryKeeper, "forget_durable", forget_durable)
    monkeypatch.setattr(NodeMemoryKeeper, "forget_run", lambda _run_id: None)
    await tear_down(launch, context, ending)
    return done


def test_the_ending_is_written_first_and_durable_state_goes_last(launch, context, monkeypatch):
    ending = JobEnding(state="finished", why=None, result=RESULT)
    assert asyncio.run(ended_in_order(launch, context, monkeypatch, ending=ending)) == [
        "end all, ending finished, state running",
        "remove, state finished",
    ]
    assert written_ending(context.record) == ending.model_copy(update={"result": KEPT})


def test_the_durable_state_of_a_job_that_finished_under_an_earlier_master_goes_too(tmp_path, launch, monkeypatch):
    context = context_of(tmp_path, launch, state=JobState.FINISHED, ending=JobEnding(state=JobState.FINISHED))
    done = asyncio.run(
        ended_in_order(launch, context, monkeypatch, ending=JobEnding(state="finished", why=None, result=None))
    )
    assert done[-1] == "remove, state finished"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "what its trainer returned is lost"),
        (TrainerResult(type_name="Tensor"), "what its trainer returned, of type 'Tensor', is lost"),
        (
            TrainerResult(type_name="Tensor", pickled=b"cno_such\nname\n."),
            "of type 'Tensor', can't be opened .* ModuleNot",
        ),
    ],
)
def test_a_driver_is_told_that_a_result_is_lost(context, result, said):
    from dlrl_core.api.job_handle import JobHandle, JobStatus

    handle = JobHandle.__new__(JobHandle)
    handle.name, handle._ending = "small", JobEnding(state="finished", why=None, result=result)
    handle._last = JobStatus(view=context.snapshot())
    with pytest.raises(JobError, match=f"job 'small' finished, but .*{said}"):
        handle.wait()
