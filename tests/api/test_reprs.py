"""Job, plan, status and handle in one line, and as a notebook shows them."""

from __future__ import annotations

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.api.connection import Connection
from dlrl_core.api.job_handle import JobHandle, JobStatus


def job(total=2):
    return (
        RLJobBuilder()
        .device_per_node(2)
        .trainer("sample_jobs.loud", "Loud")
        .actor("sample_jobs.loud", "LoudActor")
        .total(total)
        .build()
    )


def status(**changed) -> JobStatus:
    view = {
        "name": "test", "run_id": "r", "state": "running", "submitted_at": 0.0, "ended_at": 2.5, "why": None,
        "waiting_for": None, "degraded": None, "trainer": {}, "workloads": [],
        "progress": {"step": 3, "total_steps": 60, "metrics": {"reward": 0.51234}},
    }  # fmt: skip
    return JobStatus(view={**view, **changed})


class MasterStandIn:
    """Takes calls, and answers none."""

    def __getattr__(self, name):
        return self

    def remote(self, *args):
        return None


def handle() -> JobHandle:
    return JobHandle("test", MasterStandIn(), Connection(is_embedded=False, is_ours=False))


def test_a_job_names_its_trainer_and_roles():
    assert repr(job()) == "<RLJob of trainer 'sample_jobs.loud.Loud' with 2 actor: not submitted>"


def test_a_submitted_job_and_its_handle_name_state_and_step_as_last_seen():
    submitted = job()
    submitted._handle = handle()
    assert repr(submitted) == "<RLJob 'test': submitted>"
    submitted._handle._last = status()
    assert repr(submitted) == "<RLJob 'test': running, step 3 of 60>"
    assert repr(submitted._handle) == "<JobHandle 'test': running, step 3 of 60>"
    assert "step 3 of 60" in submitted._handle._repr_html_()


def test_a_job_in_a_notebook_is_its_plan():
    shown = job()._repr_html_()
    assert "not submitted" in shown
    assert "<svg" in shown
    assert "actor-1" in shown


def test_a_job_that_fits_nowhere_tells_why_in_a_notebook():
    assert "it would fit with" in job(total=3)._repr_html_()


def test_a_plan_is_one_line():
    assert repr(job().plan()) == "<ExecutionPlan: 2 workloads on 1 node, 2 GPU devices>"
    assert repr(job(total=1).plan()) == "<ExecutionPlan: 1 workload on 1 node, 1 GPU device>"


def test_a_plan_in_a_notebook_is_drawn():
    assert job().plan()._repr_html_().startswith("<svg")


def test_a_status_is_one_line():
    assert repr(status()) == "<JobStatus 'test': running, step 3 of 60>"
    assert repr(status(progress={})) == "<JobStatus 'test': running>"


@pytest.mark.parametrize("text", ["running, step 3 of 60", "2.5 s", "reward=0.5123"])
def test_a_status_in_a_notebook_is_a_table(text):
    assert f"<td>{text}</td>" in status()._repr_html_()


def test_a_metric_that_is_no_number_is_shown_as_it_is():
    shown = status(progress={"metrics": {"loss": "NaN", "kl": "-Infinity", "reward": 1.0}})._repr_html_()
    assert "loss=NaN, kl=-Infinity, reward=1" in shown


def test_a_table_escapes_what_a_job_says():
    assert "&lt;b&gt;" in status(why="<b>")._repr_html_()
