"""`dlrl why` of jobs that nobody but the store knows."""

from __future__ import annotations

import re

import pytest
from job_story import JobStory

from dlrl_chaos.fault import FaultKind

READY = r"→ restarted actor-0, actor-1, ready after \S+ m?s; lost: the steps after the last commit, done again"


@pytest.fixture
def story(shell):
    """A job in the store of the shell."""
    told = JobStory(shell.home, "ppo")
    told.starts()
    told.comes_to(3, committed=2)
    yield told
    told.close()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["status"], r"\s*ppo\s+running\?\s+3/\S+"),
        (["status", "ppo"], r"state\s+running"),
        (["why", "ppo"], r"last commit\s+step 2"),
    ],
)
def test_what_is_printed_is_readable_however_narrow_the_terminal_says_it_is(shell, story, words, line):
    ran = shell.run(*words, env={"COLUMNS": "1"})

    assert ran.code == 0
    assert any(re.match(line, one) for one in ran.out.splitlines()), ran.out


def test_why_of_a_dead_job_tells_the_sentence_the_chain_and_what_to_do(shell, story):
    story.notes("chaos: kill of 'actor-1' now", "actor-1", FaultKind.KILL)
    story.loses("actor-1")
    story.comes_up()
    story.loses("reward-0")
    ran = shell.run("why", "ppo")
    first, *lines = ran.out.splitlines()

    assert (ran.code, ran.err) == (0, "")
    assert first.startswith("job 'ppo' failed at step 3/10 after ")
    assert "workload 'reward-0' died during 'update' at step 3: its process ended" in first
    shown = [" ".join(line.split()) for line in lines]
    assert "lost steps those after step 2, the last one committed; it was in step 3" in shown
    assert "restarts actor-0, actor-1: 1" in shown
    assert any(line.startswith("budget left role 'actor' 2 of 3, the job 3 of 3") for line in shown)
    assert "role 'reward' declares failover 'stop'; declare another scope to survive this" in shown
    assert "→ scope 'role': that is what 'actor-1' declares to survive" in shown
    assert any(re.fullmatch(READY, line) for line in shown)
    assert "→ scope 'stop': that is what 'reward-0' declares to survive" in shown


def test_why_of_a_record_that_says_it_runs_says_that_nobody_was_asked(shell, story):
    ran = shell.run("why", "ppo")
    told = shell.run("why", "ppo", "--json").json

    assert ran.out.startswith("by its record, job 'ppo' is running at step 3/10")
    assert "? the record of job 'ppo' says 'running', but no cluster is named" in ran.out
    assert (told["source"], told["outcome"], told["store_problem"]) == ("store", "running", None)
    assert told["note"] is not None


def test_a_long_chain_is_cut_for_people_and_whole_as_json(shell, story):
    for number in range(30):
        story.tells("moved", f"move {number}")
    ran, told = shell.run("why", "ppo"), shell.run("why", "ppo", "--json").json

    moves = [line.rpartition(": ")[2] for line in ran.out.splitlines() if "move " in line]
    assert moves == ["move 0", *(f"move {number}" for number in range(11, 30))]
    assert "... 10 more; all are in: dlrl why ppo --json" in ran.out
    assert len(told["chain"]) == 30


def test_why_shows_no_secret(shell, story):
    story.tells("moved", "the api_token=hush-hush was seen", hf_token="hush-hush")
    ran = shell.run("why", "ppo", "--json")

    assert ran.code == 0
    assert "hush" not in ran.out
