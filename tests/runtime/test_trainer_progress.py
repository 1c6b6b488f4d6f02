"""What the trainer's process says: its step, counted from 1, and which error ended it."""

from __future__ import annotations

import pytest

from dlrl_core.errors import CallTimeoutError, ErrorIdentity, RemoteCause, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.progress import CallLog, Progress
from dlrl_core.trainer.trainer_host import _failure
from dlrl_core.trainer.workload_directory import RestartFit


def test_steps_are_reported_from_1_and_end_at_the_total():
    progress = Progress(CallLog())
    seen = [progress.report().step]
    for index in range(3):
        progress.begin_step(index, 3)
        seen.append(progress.report().step)
    progress.end_steps(3)
    assert [*seen, progress.report().step] == [None, 1, 2, 3, 3]


def test_what_is_due_at_a_step_is_done_when_it_begins_or_at_once_if_it_has_begun():
    progress, done = Progress(CallLog()), []
    progress.at_step(2, lambda: done.append("second"))
    progress.begin_step(0, 3)
    assert done == []
    progress.begin_step(1, 3)
    progress.at_step(1, lambda: done.append("first"))
    assert done == ["second", "first"]


def call_error(rank: int) -> WorkloadCallError:
    return WorkloadCallError("m", role="actor", rank=rank, method="update", cause=RemoteCause.of(ValueError(str(rank))))


@pytest.mark.parametrize(
    ("error", "identity"),
    [
        (call_error(0), ("ValueError", "actor", "update")),
        (call_error(1), ("ValueError", "actor", "update")),
        (KeyError("x"), ("KeyError", "trainer", "fit")),
        (
            CallTimeoutError(role="rollout", method="generate", timeout_s=1.0, missing=[0], results={}),
            ("CallTimeoutError", "rollout", "generate"),
        ),
        (WorkloadDiedError("m", role="actor", rank=0, method="update"), None),
        (RestartFit(), None),
    ],
)
def test_an_error_of_user_code_has_an_identity_without_rank_and_a_death_has_none(error, identity):
    outcome = _failure(error, "fit")
    found = outcome.error_identity
    expected = None if identity is None else ErrorIdentity(type_name=identity[0], role=identity[1], method=identity[2])
    assert (found, outcome.is_death) == (expected, identity is None)
