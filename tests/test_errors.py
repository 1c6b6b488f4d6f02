"""Every public error survives the way between processes with all it carries."""

from __future__ import annotations

import inspect
import pickle

import pytest

from dlrl_core import errors
from dlrl_core.errors import RemoteCause


def cause_of(error: Exception) -> RemoteCause:
    try:
        raise error
    except Exception as raised:
        return RemoteCause.of(raised)


CAUSE = cause_of(ValueError("bad"))
WORKLOAD = {"role": "actor", "rank": 3, "method": "update", "cause": CAUSE}

SAMPLES = [
    errors.DlrlError("x"),
    errors.SpecError(["one", "two"]),
    errors.PluginError("x"),
    errors.UnknownFrameworkError("x"),
    errors.FrameworkUnavailableError("x"),
    errors.FrameworkUnavailableError("x", run="pip install y"),
    errors.ChaosNotAllowedError("x"),
    errors.PlanError("x"),
    errors.ClusterError("x"),
    errors.ReservationError("x"),
    errors.JobError("job", "x"),
    errors.JobExistsError("job", "x"),
    errors.JobNotFoundError("job", "x"),
    errors.JobFailedError("job", "x", CAUSE),
    errors.JobStoppedError("job", "x"),
    errors.JobTimeoutError("job", "x"),
    errors.WorkloadError("x", **WORKLOAD),
    errors.WorkloadStartError("x", **WORKLOAD),
    errors.WorkloadCallError("x", **WORKLOAD),
    errors.WorkloadDiedError("x", **WORKLOAD),
    errors.StaleTermError("x"),
    errors.CallTimeoutError(role="actor", method="m", timeout_s=1, missing=[1], results={0: "r"}),
    errors.TrainerError("x", CAUSE),
    errors.CommitLostError("x"),
    errors.ContextError("x"),
    errors.SchemaError("x"),
    errors.StoreError("x"),
    errors.StoreConflictError("x"),
    errors.StoreUnavailableError("x"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error):
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.__dict__) == (str(error), error.__dict__)


def test_every_error_is_sampled_and_drawn_in_the_docstring():
    classes = {
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.DlrlError) and cls.__module__ == errors.__name__
    }
    assert classes == {type(error) for error in SAMPLES}
    assert all(cls.__name__ in (errors.__doc__ or "") for cls in classes)


def test_a_remote_cause_gives_the_original_back_where_it_can_be_loaded():
    original = CAUSE.load()
    assert isinstance(original, ValueError)
    assert str(original) == "bad"
    assert "raise error" in CAUSE.traceback
    assert str(CAUSE) == "ValueError: bad"


def test_the_first_cause_is_kept_when_an_error_is_wrapped_again():
    wrapped = errors.WorkloadCallError("x", **WORKLOAD)
    assert RemoteCause.of(wrapped) is CAUSE


def test_an_exception_that_can_not_come_back_is_kept_as_text():
    class LocalError(Exception):
        pass

    cause = cause_of(LocalError("here only"))
    assert cause.load() is None
    assert "here only" in cause.traceback
