"""What a running job shows: the words, the numbers, and how often."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dlrl_core.api import JobStatus
from dlrl_core.cli import wording
from dlrl_core.cli.output import plain
from dlrl_core.context import JobContext, JobRecord, open_store
from dlrl_core.context.store import sqlite_url
from dlrl_jobs.live_progress import LiveProgress
from dlrl_jobs.progress import PlainProgress, StepSpeed, plain_line, speed
from dlrl_jobs.run_job import summary_table


@pytest.fixture
def looks(tmp_path):
    """A function that gives the status of a real record at a step."""
    store = open_store(sqlite_url(tmp_path / "c.db"))
    record = JobRecord(name="demo", spec_json="{}", store_url="sqlite:///x")
    context = JobContext.create(store, record)

    def look(step: int | None = None, phase: str | None = None) -> JobStatus:
        with context.change() as change:
            change.trainer(phase=phase)
            seconds = {"rollout.generate": 2.5, "actor.update": 0.5, "trainer": 0.01, "critic.update": 0.004}
            change.progress(
                step=step, total_steps=None if step is None else 60, metrics={"reward": 0.91234, "kl": float("nan")},
                phase_seconds=seconds if step else {},
            )  # fmt: skip
        return JobStatus(view=context.snapshot())

    yield look
    store.close()


def shown(renderable) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_a_plain_line_has_state_phase_step_speed_metrics_and_the_slowest_phases(looks):
    assert plain_line(looks(34, "fit"), 18.234) == (
        "job 'demo' is submitted (fit), step 34/60, 18.2 steps/s, reward=0.9123, kl=NaN; "
        "slowest: rollout.generate 2.5 s, actor.update 500 ms, trainer 10 ms"
    )


def test_a_live_line_has_the_same(looks):
    line = LiveProgress("demo")
    before = shown(line._drawn())
    line.saw(looks(34, "fit"))
    text = shown(line._drawn())

    assert "demo" in before and "connecting" in before
    for part in ("demo", "submitted · fit", "step 34/60", "reward 0.9123", "rollout.generate 2.5 s"):
        assert part in text
    assert "critic.update" not in text


def test_plain_progress_says_new_phases_at_once_and_steps_seldom(looks, capsys):
    progress = PlainProgress()
    progress.saw(looks())
    for step in range(50):
        progress.saw(looks(step, "fit"))
    lines = capsys.readouterr().err.splitlines()

    assert [line.partition(",")[0] for line in lines] == [
        "dlrl: job 'demo' is submitted",
        "dlrl: job 'demo' is submitted (fit)",
    ]


def test_the_summary_shows_every_phase_and_the_result_without_secrets(looks):
    text = shown(summary_table(looks(60, "done"), {"best": 1.5, "hf_token": "hush", "all": list(range(50))}))

    for part in ("60/60", "reward 0.9123", "critic.update", "best 1.5", "hf_token '***'", "... +46"):
        assert part in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0042, "4.2 ms"), (1, "1 s"), (6.84, "6.84 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"),
     (125, "2 min 05 s"), (12_000, "3 h 20 min"), (187_300, "2 d 4 h"), (-1, "0 ms")],
)  # fmt: skip
def test_durations_read_well(seconds, text):
    assert wording.duration(seconds) == text


def test_speed_turns_into_seconds_per_step_below_one_step_a_second():
    assert (speed(2.5), speed(0.25)) == ("2.5 steps/s", "4 s/step")


def test_speed_counts_the_last_seconds_and_begins_again_after_a_restart():
    speed = StepSpeed()
    for second in range(100):
        speed.saw(second * 2 if second < 50 else 100 + (second - 50) * 4, float(second))
    assert speed.steps_per_s == 4.0

    speed.saw(7, 101.0)
    assert speed.steps_per_s is None


def test_slow_steps_have_a_speed_too():
    speed = StepSpeed()
    for second in range(0, 301, 10):
        speed.saw(second // 100, float(second))

    assert speed.steps_per_s == pytest.approx(0.01)


def test_any_result_becomes_valid_json():
    class Odd:
        def __str__(self) -> str:
            return "odd"

    import numpy as np

    value = {1: (float("inf"), None, True), "a": np.arange(2), "b": Odd(), "c": np.float64("nan")}
    assert plain(value) == {"1": ["inf", None, True], "a": [0, 1], "b": "odd", "c": "nan"}
