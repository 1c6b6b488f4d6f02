"""A job of a framework that is not installed fails before anything starts, where the driver can know."""

from __future__ import annotations

import pytest
import ray

from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.errors import ClusterError, FrameworkUnavailableError
from dlrl_local_ray.local_cluster import the_shared_cluster
from dlrl_openrlhf.plugin import OpenRLHFAdapter

FLAGS = ["--actor.model_name_or_path", "policy", "--data.prompt_dataset", "prompts"]
MORE = ["--reward.remote_url", "score.py", "--vllm.num_engines", "1"]


@pytest.fixture
def job(monkeypatch) -> RLJob:
    """An OpenRLHF job, planned where OpenRLHF is not installed."""
    monkeypatch.setattr(OpenRLHFAdapter, "installed_version", lambda _: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return RLJobBuilder().framework("openrlhf").config([*FLAGS, *MORE]).build()


def test_on_an_embedded_ray_the_submit_fails_and_no_ray_is_started(job, capfd):
    with pytest.raises(FrameworkUnavailableError) as caught:
        job.submit("missing")

    assert str(caught.value) == (
        "framework 'openrlhf' is registered but openrlhf is not installed; run: pip install 'dlrl[openrlhf]'"
    )
    assert not ray.is_initialized() and not the_shared_cluster().is_up
    assert "a local Ray is started" not in capfd.readouterr().err


def test_for_a_named_cluster_the_driver_needs_no_framework(job):
    with pytest.raises(ClusterError, match="nobody listens there"):
        job.submit("missing", address="127.0.0.1:1")
