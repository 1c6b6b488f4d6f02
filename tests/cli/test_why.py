"""What `dlrl why` makes of a job's record and journal."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_story import SIGKILLED, JobStory

from dlrl_chaos.fault import FaultKind
from dlrl_core.cli.output import plain
from dlrl_core.context import JobRecord, Loss, Reason
from dlrl_core.failover import WorkloadGone
from dlrl_why.explain import Evidence
from dlrl_why.outcome import Outcome
from dlrl_why.wording import processes

DIED = f"workload 'actor-1' died during 'update' at step 3: {SIGKILLED}"


@pytest.fixture
def story(tmp_path):
    told = JobStory(tmp_path)
    yield told
    told.close()


@pytest.fixture
def running(story):
    """At step 3, with step 2 committed."""
    story.starts()
    story.comes_to(3, committed=2)
    return story


def incident(answer, number=0):
    return [link.incident for link in answer.chain if link.kind == "incident"][number]


# ---- the sentence


def test_a_job_that_goes_well_has_nothing_to_explain(running):
    answer = running.why()

    assert answer.outcome is Outcome.RUNNING
    assert answer.sentence == "job 'my-ppo' is running at step 3/10, and nothing was restarted"
    assert (answer.first_cause, answer.chain, answer.next, answer.restarts) == (None, [], [], {})
    assert (answer.lost_steps, answer.committed_step) == ("none", 2)


@pytest.mark.parametrize("name", ["restart_budget", "budget"])
def test_the_budget_of_an_older_record_counts_too(running, name):
    view = running.context.snapshot()
    spec = {key: value for key, value in view["spec"].items() if key != "restart_budget"}
    assert Evidence(view={**view, "spec": {**spec, name: {"job": 7}}}, now=0.0).budget.job == 7


def test_a_job_that_has_no_place_yet_is_being_started(story):
    answer = story.why(now=story.context.record.state_since + 12)

    assert answer.outcome is Outcome.STARTING
    assert answer.sentence == "job 'my-ppo' is being started, submitted for 12.0 s"


def test_a_job_that_waits_says_for_what(story):
    story.waits_for("the roles need 8 GPU in all, the cluster has 6; other jobs hold resources: 'big'")
    answer = story.why()

    assert answer.outcome is Outcome.WAITING
    assert answer.sentence == (
        "job 'my-ppo' waits for resources: the roles need 8 GPU in all, the cluster has 6; "
        "other jobs hold resources: 'big'"
    )
    assert "dlrl stop my-ppo" in answer.next[-1]


def test_a_job_that_waits_for_a_node_has_the_death_as_its_first_cause(running):
    running.loses("actor-1", "its node died")
    running.waits_for("node 10.0.0.7 is lost, and no other node has 2 GPU free for role 'actor'")
    answer = running.why()

    assert answer.outcome is Outcome.WAITING
    assert answer.first_cause.message == "workload 'actor-1' died during 'update' at step 3: its node died"
    assert answer.sentence.endswith(f"; first cause: {answer.first_cause.message}")


def test_while_something_restarts_the_job_is_recovering(running):
    running.loses("actor-1")
    answer = running.why()

    assert answer.outcome is Outcome.RECOVERING
    assert answer.sentence == (
        f"job 'my-ppo' is being restarted at step 3/10: actor-0, actor-1 are not ready yet; first cause: {DIED}"
    )
    assert incident(answer).seconds is None


def test_a_job_that_got_over_a_death_is_recovered(running):
    running.loses("actor-1")
    running.comes_up()
    answer = running.why()

    assert answer.outcome is Outcome.RECOVERED
    assert answer.sentence == (
        f"job 'my-ppo' is running again at step 3/10, after 2 process restarts; first cause: {DIED}"
    )
    assert answer.restarts == {"actor-0": 1, "actor-1": 1}


def test_a_new_master_is_a_recovery_that_cost_nothing(running):
    running.gets_a_new_master()
    answer = running.why()

    assert answer.outcome is Outcome.RECOVERED
    assert answer.sentence == "job 'my-ppo' is running again at step 3/10, after 1 master restart"
    assert answer.lost_steps == "none"
    assert [(link.subject, link.message) for link in answer.chain] == [("master", "6 workloads go on as they are")]


def test_a_store_that_is_away_makes_the_job_degraded(running):
    view = {**running.context.snapshot(), "degraded": "the store x has not answered for 12 s; 31 changes wait"}
    answer = running.why(view=view)

    assert answer.outcome is Outcome.DEGRADED
    assert answer.sentence.endswith("but degraded: the store x has not answered for 12 s; 31 changes wait")
    assert "bring the store back" in answer.next[0]


def test_a_store_that_is_away_is_told_beside_what_is_worse(running):
    running.loses("actor-1")
    answer = running.why(view={**running.context.snapshot(), "degraded": "the store x has not answered for 12 s"})

    assert answer.outcome is Outcome.RECOVERING
    assert answer.sentence.endswith("; besides, the store x has not answered for 12 s")


def test_a_job_that_finished_tells_what_it_got_over(running):
    running.loses("actor-1")
    running.comes_up()
    running.comes_to(10, committed=10)
    running.ends("finished")
    answer = running.why()

    assert answer.outcome is Outcome.FINISHED
    assert "finished at step 10/10 in" in answer.sentence and "after 2 process restarts" in answer.sentence
    assert answer.lost_steps == "none in the end; those after the last commit were done again"
    assert answer.next == []


def test_a_job_that_was_stopped_has_the_stop_as_its_cause_not_an_old_death(running):
    running.loses("rollout-0")
    running.comes_up()
    running.is_asked_to_stop()
    stopping = running.why()
    running.ends("stopped", "stopped by: dlrl stop")
    answer = running.why()

    assert (stopping.outcome, answer.outcome) == (Outcome.STOPPING, Outcome.STOPPED)
    assert answer.sentence.endswith(": stopped by: dlrl stop")
    assert (answer.first_cause.kind, answer.first_cause.subject) == ("stop", "job")


def test_a_job_that_failed_at_once_has_the_error_as_its_first_cause(story):
    story.starts()
    story.comes_to(3)
    story.raises("role 'actor' rank 1 raised ValueError: bad\nlong story in 'update'", workload="actor-1")
    answer = story.why()

    assert answer.outcome is Outcome.FAILED
    assert answer.sentence.endswith("role 'actor' rank 1 raised ValueError: bad")
    assert answer.first_cause.subject == "actor-1"
    assert incident(answer).scope == "stop"
    assert answer.next[0] == "fix the error in your code"


def test_a_job_that_failed_before_anything_was_found_has_its_end_as_the_cause(story):
    story.waits_for("8 GPU")
    story.ends("failed", "job 'my-ppo' was not granted its reservation within 60 s: 8 GPU")
    answer = story.why()

    assert answer.first_cause.kind == "ended"
    assert "--wait" in answer.next[0]
    assert answer.lost_steps == "none; no step had begun"


def test_a_failure_long_after_a_recovery_does_not_blame_it(running):
    running.loses("rollout-0")
    running.comes_up()
    running.ends("failed", "the master failed: KeyError: 'x'")
    answer = running.why()

    assert answer.first_cause.message == "the master failed: KeyError: 'x'"
    assert "rollout" not in answer.sentence


def test_a_failure_during_a_recovery_has_what_was_found_as_its_first_cause(running):
    running.loses("rollout-0", "its node died")
    running.ends("failed", "2 of 2 processes did not answer 'start' within 60 s")
    answer = running.why()

    assert "did not answer 'start' within 60 s; first cause: workload 'rollout-0' died" in answer.sentence


def test_a_trouble_that_came_again_and_again_is_counted_from_its_first_time(running):
    running.loses("actor-0")
    running.comes_up()
    while running.context.record.state == "running":
        running.loses("critic-0")
        if not running.context.record.state.is_final:
            running.comes_up()
    answer = running.why()
    deaths = [link for link in answer.chain if link.subject == "critic-0"]

    assert answer.first_cause == deaths[0]
    assert f"({len(deaths)} times since " in answer.sentence
    assert "restart_budget(job=...)" in answer.next[1]


def test_the_same_error_on_another_rank_is_the_same_trouble(running):
    for rank in (1, 0):
        running.raises(f"role 'actor' rank {rank} raised ValueError: bad in 'update'", workload=f"actor-{rank}")
        if not running.context.record.state.is_final:
            running.comes_up()
    answer = running.why()

    assert answer.outcome is Outcome.FAILED
    assert answer.first_cause.subject == "actor-1"
    assert "rank 0 raised ValueError" in answer.sentence and "(2 times since " in answer.sentence


def test_what_only_the_record_says_is_told_as_such(running):
    assert running.why(is_by_record=True).sentence.startswith("by its record, job 'my-ppo' is running")
    running.ends("finished")
    assert running.why(is_by_record=True).sentence.startswith("job 'my-ppo' finished")


def test_without_a_journal_the_incidents_of_the_record_are_still_told(running):
    running.loses("actor-1")
    running.comes_up()
    answer = running.why(events=())

    assert answer.sentence == (
        f"job 'my-ppo' is running again at step 3/10, after 2 process restarts; first cause: {DIED}"
    )
    assert answer.restarts == {"actor-0": 1, "actor-1": 1}


# ---- the chain


def test_each_finding_has_its_decision_and_who_was_restarted(running):
    running.loses("rollout-0")
    running.comes_up()
    running.loses("trainer")
    running.comes_up()
    answer = running.why()

    assert [(link.subject, link.incident.kind) for link in answer.chain] == [
        ("rollout-0", "process_died"),
        ("trainer", "process_died"),
    ]
    first, second = incident(answer, 0), incident(answer, 1)
    assert (first.scope, first.restarts) == ("workload", ("rollout-0",))
    assert (first.reason, first.explanation) == (Reason.DECLARED, "that is what 'rollout-0' declares to survive")
    assert (second.scope, second.restarts) == ("role", ("trainer",))


@pytest.mark.parametrize(
    ("victim", "committed", "loss"),
    [
        ("rollout-0", 2, Loss.NOTHING),
        ("rollout-0", None, Loss.NOTHING),
        ("actor-1", 2, Loss.UNCOMMITTED),
        ("actor-1", None, Loss.EVERYTHING),
        ("critic-0", None, Loss.EVERYTHING),
        ("trainer", 2, Loss.UNCOMMITTED),
    ],
)
def test_what_a_restart_loses_depends_on_its_scope_and_on_commits(story, victim, committed, loss):
    story.starts()
    story.comes_to(3, committed=committed)
    story.loses(victim)
    story.comes_up()

    assert incident(story.why()).loss is loss


def test_with_a_node_the_commits_are_lost_that_were_not_durable(running):
    running.loses("actor-1", "its node died")
    running.moves_off_a_lost_node()
    running.comes_up()
    answer = running.why()

    assert incident(answer).loss is Loss.NOT_DURABLE
    assert answer.lost_steps == "none so far; those after the last durable commit were done again"


@pytest.mark.parametrize(
    ("committed", "lost"),
    [
        (None, "all; nothing was committed, and it was in step 3"),
        (1, "those after step 1, the last one committed; it was in step 3"),
        (3, "none; step 3 was committed"),
    ],
)
def test_a_job_that_ends_early_loses_what_it_had_not_committed(story, committed, lost):
    story.starts()
    story.comes_to(3, committed=committed)
    story.is_asked_to_stop()
    story.ends("stopped", "stopped by: dlrl stop")

    assert story.why().lost_steps == lost


def test_how_long_a_restart_took_is_kept_for_ever(running):
    running.loses("critic-0")
    running.comes_up()
    running.loses("actor-1")
    running.comes_up()
    running.comes_to(10, committed=10)
    running.ends("finished")
    of_job, of_role = (incident(running.why(), number) for number in (0, 1))

    assert 0 <= of_job.seconds < 5 and 0 <= of_role.seconds < 5
    assert of_job.ready_at == pytest.approx(of_job.at + of_job.seconds)


@pytest.mark.parametrize(
    ("name", "sentence", "advice"),
    [
        (
            "actor-0",
            "'actor-0' could not be started again at step 3: out of memory",
            "what keeps the process from starting",
        ),
        ("master", "the master failed at step 3: out of memory", "that is an error in dlrl or a plugin"),
    ],
)
def test_a_start_that_failed_and_an_error_of_the_master_are_explained(running, name, sentence, advice):
    running.comes_to(3, committed=2)
    running.fails_to_start(name, "out of memory")
    if name == "master":
        running.gets_a_new_master()
    running.comes_up()
    answer = running.why()

    assert incident(answer, 0).message == sentence
    assert (answer.outcome, incident(answer, 0).seconds is None) == ("recovered", False)
    assert advice in " ".join(answer.next)


def test_an_incident_during_a_recovery_is_ready_when_all_is(running):
    running.loses("actor-1")
    running.loses("rollout-0")
    assert [one.seconds for one in running.incidents] == [None, None]
    running.comes_up()
    first, second = running.incidents

    assert first.ready_at == pytest.approx(second.ready_at, abs=0.01)


def test_chaos_is_named_as_what_was_behind_a_death(running):
    running.notes("chaos: slow of 'rollout-0' now", "rollout-0", FaultKind.SLOW)
    running.notes("chaos: kill of 'actor-1' at step 3", "actor-1", FaultKind.KILL)
    running.loses("rollout-0")
    running.comes_up()
    running.loses("actor-1")
    running.comes_up()
    answer = running.why()

    assert [one.chaos for one in running.incidents] == [None, "chaos: kill of 'actor-1' at step 3"]
    assert answer.sentence.endswith("(chaos: kill of 'actor-1' at step 3)")
    assert answer.next == ["nothing to repair: it was broken on purpose"]


def test_chaos_that_was_noted_after_the_death_counts_and_that_of_others_does_not(running):
    running.notes("chaos: kill of 'rollout-1' now", "rollout-1", FaultKind.KILL)
    running.loses("actor-1")
    running.notes("chaos: kill of 'actor-1' now", "actor-1", FaultKind.KILL)
    running.comes_up()
    running.loses("actor-1")
    running.comes_up()

    assert [one.chaos for one in running.incidents] == ["chaos: kill of 'actor-1' now", None]


def test_a_hang_keeps_its_stacks_and_says_where_they_are(running):
    running.hangs("rollout-0", "its call 'generate' has run for 600 s (limit 600 s)", stacks="File x, line 3")
    running.comes_up()
    answer = running.why()

    assert answer.chain[0].incident.stacks == "File x, line 3"
    assert answer.first_cause.message == (
        "workload 'rollout-0' hangs at step 3: its call 'generate' has run for 600 s (limit 600 s)"
    )
    assert "dlrl why my-ppo --json" in answer.next[0]


def test_an_event_of_a_newer_dlrl_is_a_link_like_any_other(running):
    running.tells("rebalanced", "two ranks have changed places")

    assert [link.kind for link in running.why().chain] == ["rebalanced"]


# ---- budgets and advice


def test_budgets_are_those_of_which_something_is_used_and_that_of_the_job(running):
    for victim in ("rollout-0", "rollout-0", "actor-1", "trainer"):
        running.loses(victim)
        running.comes_up()

    assert {one.of: (one.left, one.allowed) for one in running.why().budgets} == {
        "workload 'rollout-0'": (1, 3),
        "role 'actor'": (2, 3),
        "role 'trainer'": (2, 3),
        "the job": (3, 3),
        "node '10.0.0.7'": (0, 3),
    }


def test_restarts_that_are_longer_ago_than_the_window_are_not_counted(running):
    running.loses("actor-1")
    running.comes_up()

    assert [one.of for one in running.why(now=time.time() + 3601).budgets] == ["the job"]


@settings(max_examples=30, deadline=None)
@given(deaths=st.lists(st.sampled_from(["rollout-0", "rollout-1", "actor-0", "critic-0", "trainer"]), max_size=8))
def test_a_budget_is_spent_exactly_when_the_policy_restarts_more(tmp_path_factory, deaths):
    """The command and the policy count by the same functions."""
    story = JobStory(tmp_path_factory.mktemp("story"), workload=2, role=2, job=2)
    story.starts()
    story.comes_to(3, committed=2)
    for victim in deaths:
        if story.context.record.state == "running":
            story.loses(victim)
        if story.context.record.state in ("running", "starting"):
            story.comes_up()
    spent = {(one.kind, one.name) for one in story.why().budgets if not one.left}
    names = {"rollout-0": ("workload", "rollout-0"), "actor-0": ("role", "actor"), "critic-0": ("job", "job")}
    if not story.context.record.state.is_final:
        for name, budget in names.items():
            decided, _, _ = story.loop.decided(WorkloadGone(name=name, reason="it died"))
            assert (decided.reason is not Reason.DECLARED) == (budget in spent)
    story.close()


def test_a_budget_that_is_spent_is_a_warning(running):
    for _ in range(3):
        running.loses("actor-1")
        running.comes_up()
    sentences = running.why().next

    assert "in the system's log of node 10.0.0.7" in sentences[0]
    assert "role 'actor' had all 3 restarts it may have within 3600 s; the next time, the job restarts" in sentences


def test_a_role_that_declares_stop_is_told_so(running):
    running.loses("reward-0")
    answer = running.why()

    assert answer.outcome is Outcome.FAILED
    assert "role 'reward' declares failover 'stop'; declare another scope to survive this" in answer.next


def test_only_the_journal_of_this_run_counts(tmp_path):
    old = JobStory(tmp_path)
    old.starts()
    old.loses("reward-0")
    old.close()
    new = JobStory(tmp_path)

    assert new.why().chain == []
    assert isinstance(new.context.record, JobRecord) and new.context.record.journal_start > 0
    new.close()


def test_the_answer_is_plain_json(running):
    running.loses("actor-1")
    running.comes_up()
    shown = json.loads(json.dumps(plain(running.why().to_dict())))

    assert shown["outcome"] == "recovered"
    assert shown["first_cause"]["message"] == DIED
    assert shown["chain"][0]["incident"]["restarts"] == ["actor-0", "actor-1"]
    assert shown["budgets"][0] == {"kind": "role", "name": "actor", "used": 1, "allowed": 3, "left": 2}


def test_many_processes_of_a_role_are_told_by_their_number():
    names = [*(f"actor-{rank}" for rank in range(128)), "rollout-0", "rollout-1", "trainer"]

    assert processes(names) == "128 of actor, rollout-0, rollout-1, trainer"
