"""What a commit makes of deaths and errors, and which commits are copied. Without Ray; see the stand-ins."""

from __future__ import annotations

import uuid

import pytest
from ray_stand_in import JobStandIn, use_stand_in

from dlrl_core.errors import WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.commits import Commits, DurableTurns
from dlrl_core.trainer.workload_directory import RestartFit
from dlrl_core.workload.state_files import Commit, DurableCommits


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    use_stand_in(monkeypatch)


def commits_of(job: JobStandIn) -> Commits:
    return Commits(job.directory, job.handles_of("actor"), run_id=uuid.uuid4().hex, known=None, durable_every=5)


def commit(commits: Commits, job: JobStandIn) -> None:
    """The first one, which is durable at once."""
    for handle in job.handles_of("actor"):
        handle.ray_actor.will += [DurableCommits(is_copying=False, commits=frozenset()), None]
    commits.commit(0, {}, is_durable=False)


def test_an_error_of_a_hook_that_a_peers_death_is_behind_leads_back_to_the_commit():
    job = JobStandIn("actor", going_back=("actor",))
    commits = commits_of(job)
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-1")
    with pytest.raises(RestartFit):
        commits.commit(0, {}, is_durable=False)


def test_an_error_of_a_hook_is_the_users_while_everybody_lives():
    job = JobStandIn("actor")
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 0 raised it"):
        commits_of(job).commit(0, {}, is_durable=False)


def test_a_hook_that_another_roles_death_broke_is_trusted_no_more():
    job = JobStandIn("actor", "rollout")
    commits = commits_of(job)
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    job.kill("rollout-0")
    with pytest.raises(WorkloadDiedError, match="workload 'rollout-0' died, and 'save' failed with it"):
        commits.commit(0, {}, is_durable=False)
    commit(commits, job)
    survivor.will.append(survivor.collective_error())
    job.kill("rollout-0")
    with pytest.raises(RestartFit):
        commits.commit(1, {}, is_durable=False)


def test_nothing_is_committed_by_a_trainer_that_has_to_go_back():
    job = JobStandIn("actor")
    commits = commits_of(job)
    job.directory.is_behind = True
    with pytest.raises(RestartFit):
        commits.commit(0, {}, is_durable=False)
    assert job.processes["actor-0"].done["save"] == 0


def test_without_a_common_commit_every_rank_forgets_its_own():
    job = JobStandIn("actor")
    stale = Commit(version=1, id="stale", step=0, progress={}).to_json()
    job.processes["actor-0"].will.append([stale])
    job.processes["actor-1"].will.append([])
    commits = commits_of(job)
    commits.restore_last()
    assert commits.last is None
    assert [process.done["forget"] for process in job.processes.values()] == [1, 1]


# ---- which commits are copied


def a_commit(version: int) -> Commit:
    return Commit(version=version, id=f"id{version}", step=version, progress={})


def answer(*versions: int, is_copying: bool = False) -> DurableCommits:
    return DurableCommits(is_copying=is_copying, commits=frozenset((one, f"id{one}") for one in versions))


def taken(turns: DurableTurns, version: int, *answers: DurableCommits) -> bool:
    is_taken = turns.takes(a_commit(version))
    turns.heard(answers)
    return is_taken


def test_every_so_many_commits_are_copied():
    turns = DurableTurns(3)
    assert [version for version in range(1, 10) if taken(turns, version, answer(1, 3, 6, 9))] == [3, 6, 9]


def test_a_turn_waits_while_a_rank_still_copies_the_last_one():
    turns = DurableTurns(2)
    slow = answer(1, is_copying=True)
    assert taken(turns, 2, answer(1), slow)
    assert not taken(turns, 3, answer(1, 2), slow)
    assert not taken(turns, 4, answer(1, 2), slow)
    assert not taken(turns, 5, answer(1, 2), answer(1, 2))
    assert taken(turns, 6, answer(1, 2), answer(1, 2))


def test_after_a_copy_that_failed_the_next_commit_is_tried():
    turns = DurableTurns(10)
    assert taken(turns, 10, answer(1, is_copying=True), answer(1))
    assert not taken(turns, 11, answer(1, 10), answer(1))
    assert taken(turns, 12, answer(1, 10), answer(1))


def test_the_newest_version_that_all_ranks_have_is_known():
    turns = DurableTurns(10)
    assert turns.on_all is None
    turns.heard([answer(1, 10, 20), answer(1, 10)])
    assert turns.on_all == 10
    turns.heard([answer(1), DurableCommits(is_copying=False, commits=frozenset({(1, "another attempt")}))])
    assert turns.on_all is None
