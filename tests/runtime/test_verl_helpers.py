"""The processes that verl starts by itself know what the job's own know, and come back."""

from __future__ import annotations

import os
import signal

import pytest
from checks import wait_until

from dlrl_verl import helpers
from dlrl_verl.helpers import NamelessRay, RestartingRay

pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def loop_class() -> type:
    """Made here, so that Ray sends it: a test's module can't be imported elsewhere."""

    class Loop:
        def __init__(self, word: str) -> None:
            self._word = word

        def seen(self, *names: str) -> list[str | None]:
            return [self._word, *(os.environ.get(name) for name in names)]

        def shown(self) -> dict[str, str]:
            """What Ray was told, and shows to anybody."""
            import ray

            return ray.get_runtime_context().runtime_env["env_vars"]

        def pid(self) -> int:
            return os.getpid()

    return Loop


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(helpers, "given_env", {"SCORES_AT": "host:80", "SCORES_API_KEY": "hidden"})


@pytest.mark.usefixtures("given")
def test_they_have_the_environment_of_the_job_and_ray_does_not_show_its_secrets():
    import ray

    loop = RestartingRay().remote(loop_class()).remote("mine")
    try:
        assert ray.get(loop.seen.remote("SCORES_AT", "SCORES_API_KEY")) == ["mine", "host:80", "hidden"]
        shown = ray.get(loop.shown.remote())
        assert shown["SCORES_AT"] == "host:80"
        assert "hidden" not in shown.values()
    finally:
        ray.kill(loop)


@pytest.mark.usefixtures("given")
def test_one_that_is_killed_is_there_again_with_what_it_knew():
    import ray

    loop = RestartingRay().remote(loop_class()).remote("mine")
    try:
        before = ray.get(loop.pid.remote())
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: ray.get(loop.pid.remote()) != before, "it is a new process")
        assert ray.get(loop.seen.remote("SCORES_API_KEY")) == ["mine", "hidden"]
    finally:
        ray.kill(loop)


def test_two_jobs_have_helpers_that_verl_gives_the_same_name():
    import ray

    loops = [
        NamelessRay().remote(loop_class()).options(name="reward_loop_worker_0").remote(word) for word in ("a", "b")
    ]
    try:
        assert ray.get([loop.seen.remote() for loop in loops]) == [["a"], ["b"]]
    finally:
        for loop in loops:
            ray.kill(loop)
