"""A Master that starts is waited for while something moves; when nothing does, the error tells its state."""

from __future__ import annotations

import pytest
import ray

from dlrl_core.api import job
from dlrl_core.errors import ClusterError
from dlrl_core.scheduler import cluster_probe


class MasterStandIn:
    """Takes the call, and never answers."""

    def __getattr__(self, name):
        return self

    def remote(self):
        return None


@pytest.fixture
def looks(tmp_path, monkeypatch):
    """Waits of the driver, in which Ray has the Master as pending."""
    log, found = tmp_path / "worker-1.out", []

    def wait(refs, timeout):
        found.append(timeout)
        if len(found) < 30:
            log.write_text("x" * len(found))
        return [], refs

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(cluster_probe, "state_of", lambda actor: "PENDING_CREATION")
    monkeypatch.setattr(cluster_probe, "session_logs", lambda: tmp_path)
    monkeypatch.setattr(job, "_MASTER_STILL_S", 0.05)
    return found


def test_a_pending_master_is_waited_for_while_logs_grow_and_then_its_state_is_told(looks, tmp_path):
    with pytest.raises(ClusterError) as raised:
        job._await_opened("test", MasterStandIn())
    assert len(looks) > 30
    message = str(raised.value)
    assert message.startswith("the master of job 'test' did not come up: Ray has its actor as PENDING_CREATION;")
    assert "nothing moved for the last" in message
    assert str(tmp_path) in message
