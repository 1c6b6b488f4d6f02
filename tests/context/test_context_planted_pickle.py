"""What is read from a store never executes: somebody who can write to it can't run code in a driver or a Master."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from context_samples import job_record, stored_text

from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import JobContext, JobEnding, JobState, Store
from dlrl_core.context.job_state import TrainerResult
from dlrl_core.errors import JobError, JobFailedError, RemoteCause
from dlrl_core.master.beginning_and_end import written_ending


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def waited(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a driver gets that asks after the Master is gone."""
    handle = JobHandle.__new__(JobHandle)
    handle.name, handle._last, handle._ending, handle._logs = "my-ppo", None, None, None
    handle._connection = type("NoConnection", (), {"close": lambda self: None})()
    monkeypatch.setattr(JobHandle, "_final_record", lambda self: JobContext.load(store, "my-ppo"))
    assert handle._has_ended_by_record()
    return handle.wait().value


def plant(store: Store, state: JobState, **ending: Any) -> None:
    """A record of an ended job, with these fields of its ending changed by somebody else."""
    cause = RemoteCause(type_name="ValueError", message="no", traceback="ValueError: no", pickled=None)
    result = TrainerResult(type_name="dict", json_text='{"reward": 0.5}')
    kept = JobEnding(state=state, why="it ended", cause=cause, result=result)
    JobContext.create(store, job_record(state=state, ending=kept, ended_at=1.0)).close()
    job = json.loads(stored_text(store)["job"])
    schema = ending.pop("record_schema", job["record_schema"])
    job = {**job, "record_schema": schema, "ending": {**job["ending"], **ending}}
    stored = store.load("my-ppo")
    assert stored is not None
    store.commit("my-ppo", expected_version=stored.version, puts={"job": json.dumps(job)})


@pytest.fixture
def evil(tmp_path: Path) -> str:
    """The pickle as the record's JSON held it; the file is there as soon as somebody loads it."""
    data = pickle.dumps(Evil(tmp_path / "executed"))
    pickle.loads(data)
    assert (tmp_path / "executed").exists()
    (tmp_path / "executed").unlink()
    return base64.b64encode(data).decode()


def test_planted_result_is_not_unpickled(store, evil, tmp_path, monkeypatch) -> None:
    plant(store, JobState.FINISHED, result={"type_name": "dict", "json_text": '{"reward": 0.5}', "pickled": evil})

    assert waited(store, monkeypatch) == {"reward": 0.5}
    assert not (tmp_path / "executed").exists()


def test_pickled_result_of_an_older_dlrl_is_not_unpickled(store, evil, tmp_path, monkeypatch) -> None:
    plant(store, JobState.FINISHED, record_schema=5, result=evil)

    with pytest.raises(JobError, match="what its trainer returned is lost"):
        waited(store, monkeypatch)
    assert not (tmp_path / "executed").exists()


def test_planted_cause_is_not_unpickled(store, evil, tmp_path, monkeypatch) -> None:
    cause = {"type_name": "ValueError", "message": "no", "traceback": "ValueError: no", "pickled": evil}
    plant(store, JobState.FAILED, cause=cause)

    with pytest.raises(JobFailedError, match="ValueError: no"):
        waited(store, monkeypatch)
    assert not (tmp_path / "executed").exists()


def test_master_that_takes_up_a_planted_ending_hands_on_no_pickle(store, evil) -> None:
    plant(store, JobState.FINISHED, result={"type_name": "x", "pickled": evil}, cause=None)

    ending = written_ending(JobContext.load(store, "my-ppo").record)
    assert ending is not None and ending.result is not None and ending.result.pickled is None
