"""What a commit makes of deaths, errors and lost state, and which commits are copied. Without Ray; see the stand-ins."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from ray_stand_in import JobStandIn, Ref, use_stand_in

from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.errors import CommitLostError, DlrlError, WorkloadCallError, WorkloadDiedError
from dlrl_core.master.trainer_process import _commit_news
from dlrl_core.trainer.base_trainer import BaseTrainer
from dlrl_core.trainer.commit_budget import CommitPace, DurableTurns
from dlrl_core.trainer.commits import Commits
from dlrl_core.trainer.neighbours import Neighbours
from dlrl_core.trainer.progress import CallLog, Progress
from dlrl_core.trainer.workload_directory import RestartFit
from dlrl_core.workload.state_keeper import Commit, CommitOutcome, DurableStatus, HeldCommits, KeeperRequest
from dlrl_state.keeper import NodeMemoryKeeper


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    use_stand_in(monkeypatch)


class Told:
    """What the commits have told: the last that counts, and their report."""

    commit: Commit | None = None
    report: CommitsReport | None = None

    def __call__(self, commit: Commit | None, report: CommitsReport) -> None:
        self.commit, self.report = commit, report


def commits_of(
    job: JobStandIn, *, known: Commit | None = None, told: Told | None = None, every: int | None = 1
) -> Commits:
    return Commits(
        job.directory,
        job.handles_of("actor"),
        own=NodeMemoryKeeper(KeeperRequest(run_id=uuid.uuid4().hex, workload="trainer")),
        neighbours=Neighbours(job.directory, job.handles_of("actor"), is_on=True, domain_label=None),
        known=known.to_json() if known else None,
        durable_every=5,
        pace=CommitPace(every=every),
        on_news=told or Told(),
    )


def outcome(error: str | None = None, durable: DurableStatus | None = None) -> CommitOutcome:
    return CommitOutcome(error=error, size=100, waited_s=0.0, cpu_s=0.0, durable=durable or DurableStatus())


def commit(commits: Commits, job: JobStandIn, step: int = 0, *outcomes: CommitOutcome | Ref) -> None:
    """Begin one; its outcomes are there at once unless the test says otherwise."""
    for index, handle in enumerate(job.handles_of("actor")):
        handle.ray_actor.will += [None, outcomes[index] if outcomes else outcome()]
    commits.commit(step, {}, is_durable=False)


# ---- counting


def test_a_commit_counts_when_all_ranks_hold_it_and_not_before():
    job, told = JobStandIn("actor"), Told()
    commits = commits_of(job, told=told)
    late = Ref(outcome(), is_pending=True)
    commit(commits, job, 0, outcome(), late)
    commits.poll()
    assert told.commit is None
    assert not job.directory.has_commit
    late.is_pending = False
    commits.poll()
    assert told.commit is not None and told.commit.step == 0
    assert job.directory.has_commit
    assert [process.done["counted"] for process in job.processes.values()] == [1, 1]


def test_the_next_commit_begins_when_the_last_one_counts():
    job, told = JobStandIn("actor"), Told()
    commits = commits_of(job, told=told)
    commit(commits, job, 0)
    for process in job.processes.values():
        process.will.append(None)  # of `counted`
    commit(commits, job, 1)
    assert told.commit.step == 0
    assert [process.done["begin_commit"] for process in job.processes.values()] == [2, 2]


def test_a_commit_that_one_rank_could_not_keep_does_not_count_and_the_next_is_tried():
    job, told = JobStandIn("actor"), Told()
    commits = commits_of(job, told=told)
    commit(commits, job, 0)
    commits.poll()
    commit(commits, job, 1, outcome(), outcome("commit 2 could not be kept in memory: no space"))
    commits.poll()
    assert told.commit.step == 0
    assert told.report.trouble == "commit 2 could not be kept in memory: no space (workload 'actor-1')"
    commit(commits, job, 2)
    commits.poll()
    assert told.commit.step == 2
    assert told.report.trouble is None


def test_steps_are_left_out_as_the_pace_says():
    job = JobStandIn("actor")
    commits = commits_of(job, every=3)
    for step in range(2):
        commits.commit(step, {}, is_durable=False)
    assert job.processes["actor-0"].done["begin_commit"] == 0
    commit(commits, job, 2)
    assert job.processes["actor-0"].done["begin_commit"] == 1


def test_a_durable_commit_is_never_left_out():
    job = JobStandIn("actor")
    commits = commits_of(job, every=100)
    for handle in job.handles_of("actor"):
        handle.ray_actor.will += [None, outcome(), None, None, DurableStatus()]
    commits.commit(0, {}, is_durable=True)
    assert [process.done["make_durable"] for process in job.processes.values()] == [1, 1]


# ---- steps


@pytest.mark.parametrize("step", ["a", 1.5, None, -4, True, [1]])
def test_what_is_no_index_of_a_step_is_refused(step):
    job = JobStandIn("actor")
    with pytest.raises(DlrlError, match="it must be the index of a step, a whole number from 0"):
        commits_of(job).commit(step, {}, is_durable=False)
    assert job.processes["actor-0"].done["begin_commit"] == 0


@pytest.mark.parametrize("every", [1, 100])
def test_steps_do_not_go_back_also_where_commits_are_left_out(every):
    job = JobStandIn("actor")
    commits = commits_of(job, every=every)
    commit(commits, job, 5)
    with pytest.raises(DlrlError, match="commit got the step 3 after 5; go on with 6"):
        commits.commit(3, {}, is_durable=False)


def test_a_step_of_numpy_and_the_same_step_again_are_committed():
    job = JobStandIn("actor")
    commits = commits_of(job)
    for step in (np.int64(5), 5):
        commit(commits, job, step)
        commits.poll()
    assert job.processes["actor-0"].done["begin_commit"] == 2
    assert type(commits.last.step) is int


def trainer_of(commits: Commits) -> BaseTrainer:
    trainer = type("Trainer", (BaseTrainer,), {"init": None, "fit": None})({}, {}, {})
    trainer._bind({}, {}, Progress(CallLog()), commits, commits._directory)
    return trainer


def test_a_second_epoch_of_as_many_steps_is_an_error_that_says_how_to_count():
    job = JobStandIn("actor")
    trainer = trainer_of(commits_of(job, every=100))
    for step in trainer.steps(3):
        trainer.commit(step)
    with pytest.raises(DlrlError, match=r"steps\(3\) has ended before .* self.steps\(epochs \* 3\)"):
        next(trainer.steps(3))
    assert list(trainer.steps(5))[-1] == 4


def test_without_commits_every_epoch_has_its_steps():
    trainer = trainer_of(commits_of(JobStandIn("actor")))
    assert [list(trainer.steps(3)) for _ in range(2)] == [[0, 1, 2]] * 2


def test_a_fit_that_is_entered_again_after_its_last_step_has_no_more_steps():
    _, commits, _ = restoring(held(3), held(3))
    commits.restore_last()
    assert list(trainer_of(commits).steps(3)) == []


# ---- calls that nobody awaited


def fail_unseen(job: JobStandIn, name: str = "actor-1", role: str = "actor") -> None:
    job.processes[name].will.append(job.processes[name].collective_error())
    job.groups[role].work.options(blocking=False)()


@pytest.mark.parametrize("role", ["actor", "rollout"])
def test_a_commit_fails_with_what_an_earlier_call_failed_with_that_nobody_awaited(role):
    job, told = JobStandIn("actor", "rollout"), Told()
    commits = commits_of(job, told=told)
    fail_unseen(job, f"{role}-1", role)
    with pytest.raises(WorkloadCallError, match=f"role '{role}' rank 1 raised it"):
        commits.commit(0, {}, is_durable=False)
    assert job.processes["actor-0"].done["begin_commit"] == 0


def test_so_does_a_commit_that_is_left_out_and_the_end_of_fit():
    job = JobStandIn("actor")
    commits = commits_of(job, every=100)
    for end in (lambda: commits.commit(0, {}, is_durable=False), commits.finish):
        fail_unseen(job)
        with pytest.raises(WorkloadCallError, match="role 'actor' rank 1 raised it"):
            end()


def test_a_call_that_still_runs_on_a_workload_with_state_is_part_of_the_commit(monkeypatch):
    """It is waited for, as the commit is behind it in the workload's turn anyway."""
    job = JobStandIn("actor")
    commits = commits_of(job)
    late = Ref(job.processes["actor-1"].collective_error(), is_pending=True)
    job.processes["actor-1"].will.append(late)
    call = job.groups["actor"].work.options(blocking=False)()
    monkeypatch.setattr(type(call), "check", lambda self: setattr(late, "is_pending", False))  # time goes on
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 1 raised it"):
        commits.commit(0, {}, is_durable=False)
    assert job.processes["actor-0"].done["begin_commit"] == 0


def test_a_call_that_still_runs_on_a_workload_without_state_is_not_waited_for():
    job = JobStandIn("actor", "rollout")
    commits = commits_of(job)
    job.processes["rollout-1"].will.append(Ref(is_pending=True))
    job.groups["rollout"].work.options(blocking=False)()
    commit(commits, job)
    assert job.processes["actor-0"].done["begin_commit"] == 1


def test_a_fit_that_returns_after_a_thread_has_met_a_death_is_not_over():
    job = JobStandIn("actor")
    commits = commits_of(job)
    job.directory.is_behind = True
    with pytest.raises(RestartFit):
        commits.finish()


# ---- neighbours


def on_two_nodes(job: JobStandIn) -> JobStandIn:
    for handle in job.handles_of("actor"):
        handle.node_id = f"node-{handle.rank}"
    return job


def counted(commits: Commits, job: JobStandIn, step: int, *outcomes: CommitOutcome) -> None:
    commit(commits, job, step, *outcomes)
    commits.poll()
    for process in job.processes.values():
        process.will.clear()


def test_a_commit_whose_neighbour_has_no_copy_counts_and_that_is_told():
    job, told = on_two_nodes(JobStandIn("actor")), Told()
    commits = commits_of(job, told=told)
    counted(commits, job, 0)
    assert (told.report.nodes, told.report.neighbour_trouble) == (2, None)
    no_copy = CommitOutcome(
        error=None, size=1, waited_s=0, cpu_s=0, durable=DurableStatus(), neighbour_error="'actor-1' has no room"
    )
    counted(commits, job, 1, no_copy, outcome())
    assert told.commit.step == 1
    assert told.report.nodes == 1
    assert told.report.neighbour_trouble == "the commit of 'actor-0' has no copy: 'actor-1' has no room"


def test_a_neighbour_that_failed_is_not_waited_for_again_until_it_has_a_copy(monkeypatch):
    monkeypatch.setattr("dlrl_core.trainer.commits._TRY_AGAIN_S", 0.0)
    job, told = on_two_nodes(JobStandIn("actor")), Told()
    commits = commits_of(job, told=told)
    no_copy = CommitOutcome(
        error=None, size=1, waited_s=0, cpu_s=0, durable=DurableStatus(), neighbour_error="'actor-1' has no room"
    )
    counted(commits, job, 0, no_copy, outcome())
    assert commits._neighbours.waited_for("actor-0") is None
    job.processes["actor-0"].will.append(None)  # of `give`: it has one now
    commits.poll()
    commits.poll()
    assert job.processes["actor-0"].done["give"] == 1
    assert (told.report.nodes, told.report.neighbour_trouble) == (2, None)
    assert commits._neighbours.waited_for("actor-0") is not None


def test_a_copy_that_had_to_make_room_on_its_node_is_told_and_made_again(monkeypatch):
    monkeypatch.setattr("dlrl_core.trainer.commits._TRY_AGAIN_S", 0.0)
    job, told = on_two_nodes(JobStandIn("actor")), Told()
    commits = commits_of(job, told=told)
    counted(commits, job, 0, outcome(), replace(outcome(), pushed_out=frozenset({"actor-0"})))
    assert told.commit.step == 0, "the commit counts"
    assert told.report.nodes == 1
    assert told.report.neighbour_trouble.startswith("the commit of 'actor-0' has no copy: ")
    job.processes["actor-0"].will.append(None)  # of `give`
    commits.poll()
    commits.poll()
    assert job.processes["actor-0"].done["give"] == 1
    assert (told.report.nodes, told.report.neighbour_trouble) == (2, None)


def test_within_a_budget_a_commit_that_a_neighbour_still_copies_is_not_waited_for():
    job = on_two_nodes(JobStandIn("actor"))
    commits = commits_of(job, every=None)
    late = Ref(outcome(), is_pending=True)
    commit(commits, job, 0, outcome(), late)
    commits.commit(1, {}, is_durable=False)
    assert job.processes["actor-0"].done["begin_commit"] == 1


# ---- deaths and errors


def test_an_error_of_a_hook_that_a_peers_death_is_behind_leads_back_to_the_commit():
    job = JobStandIn("actor", going_back=("actor",))
    commits = commits_of(job)
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-1")
    with pytest.raises(RestartFit):
        commits.commit(0, {}, is_durable=False)


def test_a_rank_that_dies_while_it_copies_leads_back_to_the_commit():
    job, told = JobStandIn("actor", going_back=("actor",)), Told()
    commits = commits_of(job, told=told)
    commit(commits, job, 0)
    commits.poll()
    commit(commits, job, 1, outcome(), Ref(job.processes["actor-1"].death()))
    job.kill("actor-1")
    commits.poll()
    assert told.commit.step == 0
    with pytest.raises(RestartFit):
        commits.commit(2, {}, is_durable=False)
    assert told.commit.step == 0


def test_an_error_of_a_hook_is_the_users_while_every_process_lives():
    job = JobStandIn("actor")
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 0 raised it"):
        commits_of(job).commit(0, {}, is_durable=False)


def test_a_hook_that_another_roles_death_broke_leads_back_to_the_commit():
    job = JobStandIn("actor", "rollout")
    commits = commits_of(job)
    survivor = job.processes["actor-0"]
    survivor.will.append(survivor.collective_error())
    job.kill("rollout-0")
    with pytest.raises(WorkloadDiedError, match="workload 'rollout-0' died, and 'begin_commit' failed with it"):
        commits.commit(0, {}, is_durable=False)
    job.processes["actor-1"].will.clear()
    commit(commits, job)
    commits.poll()
    survivor.will.clear()
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
    assert job.processes["actor-0"].done["begin_commit"] == 0


# ---- going back


def a_commit(version: int) -> Commit:
    return Commit(version=version, id=f"id{version}", step=version - 1, progress={}, count=version)


def held(*versions: int, counted: tuple[int, ...] = ()) -> HeldCommits:
    return HeldCommits(
        commits={f"id{one}": a_commit(one).to_json() for one in versions},
        counted=frozenset(f"id{one}" for one in counted),
        place="/memory",
    )


def restoring(*answers: HeldCommits, known: Commit | None = None) -> tuple[JobStandIn, Commits, Told]:
    job, told = JobStandIn("actor"), Told()
    for handle, answer in zip(job.handles_of("actor"), answers, strict=True):
        handle.ray_actor.will += [answer, None, True]
    return job, commits_of(job, known=known, told=told), told


def test_the_newest_commit_that_all_ranks_hold_is_restored_and_nothing_is_removed():
    job, commits, told = restoring(held(4, 5), held(3, 4))
    commits.restore_last()
    assert commits.last == told.commit == a_commit(4)
    assert [set(process.done) for process in job.processes.values()] == [{"held", "damage", "restore"}] * 2


def test_numbers_are_never_used_twice():
    job, commits, _ = restoring(held(4, 9), held(4))
    commits.restore_last()
    commit(commits, job, 4)
    assert commits.last.version == 10
    assert commits.last.count == 5, "attempts that failed are not counted"


def test_a_commit_that_never_counted_on_all_ranks_is_a_fresh_start():
    _, commits, told = restoring(held(1), held())
    commits.restore_last()
    assert commits.last is None
    assert told.commit is None


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ((held(5, counted=(5,)), held()), None),
        ((held(5), held()), a_commit(5)),
        ((held(), held()), a_commit(5)),
        ((held(5, counted=(5,)), held(6)), None),
    ],
    ids=["one rank lost it", "the record knows it", "all lost it", "they hold different ones"],
)
def test_a_commit_that_counted_and_is_lost_is_never_step_0(answers, known):
    job, commits, _ = restoring(*answers, known=known)
    with pytest.raises(CommitLostError, match="is lost: . of 2 ranks hold one"):
        commits.restore_last()
    assert all(process.done["restore"] == 0 for process in job.processes.values())


def test_the_error_of_a_lost_commit_names_rank_and_place():
    _, commits, _ = restoring(held(5, counted=(5,)), held(), known=a_commit(5))
    with pytest.raises(CommitLostError) as caught:
        commits.restore_last()
    assert str(caught.value) == (
        "the commit of step 5 is lost: 1 of 2 ranks hold one, and none that all hold; missing at 'actor-1' in '/memory'"
    )


def test_a_damaged_commit_is_skipped_by_name_for_the_one_before():
    job, commits, told = restoring(held(4, 5, counted=(4, 5)), held(4, 5, counted=(4, 5)), known=a_commit(5))
    first, second = (handle.ray_actor for handle in job.handles_of("actor"))
    first.will.clear()
    second.will.clear()
    first.will += [held(4, 5), None, held(4, 5), None, True]
    second.will += [held(4, 5), "'/memory/5' is damaged", held(4), None, True]
    commits.restore_last()
    assert commits.last == a_commit(4)
    assert told.report.trouble == (
        "the commit of step 5 is lost, training goes on after step 4: '/memory/5' is damaged; 'actor-1' has it not in '/memory'"
    )
    assert [process.done["restore"] for process in job.processes.values()] == [1, 1]


def fetching(*answers: str | None) -> tuple[JobStandIn, Commits, Told]:
    """Rank 1 holds the fourth commit alone; the fifth, which counted, is on the node of rank 0, too."""
    job, told = on_two_nodes(JobStandIn("actor")), Told()
    first, second = (handle.ray_actor for handle in job.handles_of("actor"))
    for answer in answers:
        first.will += [held(4, 5), {"actor-1": held(5)}]
        second.will += [held(4), {}, answer]
    return job, commits_of(job, known=a_commit(5), told=told), told


def test_a_commit_that_could_not_be_fetched_is_fetched_again():
    job, commits, told = fetching("the connection was lost", "the connection was lost", None)
    for handle in job.handles_of("actor"):
        handle.ray_actor.will += [None, True]  # of `damage` and `restore`
    commits.restore_last()
    assert commits.last == a_commit(5)
    assert job.processes["actor-1"].done["fetch"] == 3
    assert (told.report.trouble, told.report.lost_step) == (None, None)


def test_a_commit_that_could_not_be_fetched_three_times_is_left_for_the_one_before_and_the_loss_is_told():
    job, commits, told = fetching(*["the connection was lost"] * 3)
    first, second = (handle.ray_actor for handle in job.handles_of("actor"))
    first.will += [held(4, 5), {"actor-1": held(5)}, None, True]
    second.will += [held(4), {}, None, True]
    commits.restore_last()
    assert commits.last == a_commit(4)
    assert job.processes["actor-1"].done["fetch"] == 3
    assert told.report.lost_step == 5


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({}, {"trouble": "the commit of step 5 is lost", "lost_step": 5}, ["commit_lost"]),
        ({}, {"trouble": "the disk is full"}, ["commits"]),
        ({"trouble": "lost", "lost_step": 5}, {"trouble": "the disk is full", "lost_step": 5}, []),
        ({"trouble": "the disk is full"}, {"trouble": "step 6 is lost", "lost_step": 6}, ["commit_lost"]),
        ({"trouble": "lost", "lost_step": 5}, {"lost_step": 5}, ["commits"]),
        ({}, {"neighbour_trouble": "no room", "durable_trouble": "full"}, ["commits", "commits"]),
    ],
)
def test_the_journal_tells_a_lost_commit_by_its_kind(before, after, kinds):
    old, new = (CommitsReport(pace="every step", steps_at_risk=1, **one) for one in (before, after))
    assert [kind for kind, _ in _commit_news(old, new)] == kinds


# ---- which commits are copied


def test_if_the_commit_that_was_to_be_copied_does_not_count_the_next_one_is_copied():
    job = JobStandIn("actor")
    commits = commits_of(job)
    copied: list[bool] = []
    for process in job.processes.values():
        process.counted = SimpleNamespace(remote=lambda id_, is_copied, *_: copied.append(is_copied))
    commit(commits, job, 0, outcome("the disk is full"), outcome())
    commit(commits, job, 1)
    commits.poll()
    assert copied == [True, True]
    commit(commits, job, 2)
    commits.poll()
    assert copied == [True, True, False, False]


def answer(*versions: int, copying: int | None = None, error: str | None = None) -> DurableStatus:
    return DurableStatus(
        commits=frozenset((one, f"id{one}") for one in versions), copying=copying and f"id{copying}", error=error
    )


def taken(turns: DurableTurns, version: int, *answers: DurableStatus) -> bool:
    is_taken = turns.takes(a_commit(version))
    turns.heard(answers)
    return is_taken


def test_the_first_commit_and_every_so_many_are_copied():
    turns = DurableTurns(3)
    assert [version for version in range(1, 10) if taken(turns, version, answer(1, 3, 6, 9))] == [1, 3, 6, 9]


def test_a_turn_waits_while_a_rank_still_copies_the_last_one():
    turns = DurableTurns(2)
    slow = answer(1, copying=2)
    taken(turns, 1, answer(1))
    assert taken(turns, 2, answer(1), slow)
    assert not taken(turns, 3, answer(1, 2), slow)
    assert not taken(turns, 4, answer(1, 2), slow)
    assert not taken(turns, 5, answer(1, 2), answer(1, 2))
    assert taken(turns, 6, answer(1, 2), answer(1, 2))


def test_after_a_copy_that_failed_the_next_commit_is_tried():
    turns = DurableTurns(10)
    taken(turns, 1, answer(1), answer(1))
    assert taken(turns, 10, answer(1, copying=10), answer(1))
    assert not taken(turns, 11, answer(1, 10), answer(1, error="full"))
    assert turns.error == "full"
    assert taken(turns, 12, answer(1, 10), answer(1, 12))


def test_the_newest_version_that_all_ranks_have_is_known():
    turns = DurableTurns(10)
    assert turns.on_all is None
    turns.heard([answer(1, 10, 20), answer(1, 10)])
    assert turns.on_all == "id10"
    turns.heard([answer(1), DurableStatus(commits=frozenset({(1, "another attempt")}))])
    assert turns.on_all is None
