"""What a call makes of an error: the user's own, or the trace of a death. Without Ray; see the stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ray.exceptions import ObjectLostError
from ray_stand_in import JobStandIn, Ref, use_stand_in

from dlrl_core.errors import CallTimeoutError, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer.trainer_host import TrainerHost
from dlrl_core.trainer.workload_directory import RestartFit

OLD = ["actor-0", "actor-1"]


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    use_stand_in(monkeypatch)


def test_the_error_of_a_rank_whose_peer_died_leads_back_to_the_commit():
    """Of the peer itself nothing is known yet."""
    job = JobStandIn("actor", going_back=("actor",))
    victim, survivor = job.processes["actor-0"], job.processes["actor-1"]
    victim.will.append(Ref(is_pending=True))
    survivor.will.append(survivor.collective_error())
    call = job.groups["actor"].work.options(blocking=False)()
    job.kill("actor-0")
    with pytest.raises(RestartFit):
        call.get()


def test_in_a_role_that_restarts_alone_the_part_of_that_rank_is_done_again_too():
    job = JobStandIn("actor")
    survivor = job.processes["actor-1"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-0")
    assert job.groups["actor"].work() == OLD
    assert survivor.done["work"] == 2


def test_the_error_of_a_single_member_is_traced_to_its_peers():
    job = JobStandIn("actor", going_back=("actor",))
    survivor = job.processes["actor-1"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-0")
    with pytest.raises(RestartFit):
        job.groups["actor"][1].work()


def test_the_error_of_a_member_is_done_again_when_another_call_has_had_its_peer_replaced():
    job = JobStandIn("actor")
    survivor = job.processes["actor-1"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-0")
    calls = [job.groups["actor"][rank].work.options(blocking=False)() for rank in range(2)]
    assert [call.get() for call in calls] == [["actor-0"], ["actor-1"]]
    assert survivor.done["work"] == 2


def test_an_error_that_another_roles_death_is_behind_leads_back_to_the_commit():
    job = JobStandIn("actor", "rollout")
    job.directory.has_commit = True
    sender = job.processes["actor-0"]
    sender.will.append(sender.collective_error())
    job.kill("rollout-1")
    with pytest.raises(RestartFit):
        job.groups["actor"].work()
    assert job.directory.is_behind


def test_without_a_commit_it_is_a_death_and_no_error_of_the_users():
    job = JobStandIn("actor", "rollout")
    sender = job.processes["actor-0"]
    sender.will.append(sender.collective_error())
    job.kill("rollout-1")
    with pytest.raises(WorkloadDiedError, match="workload 'rollout-1' died, and 'actor.work' failed with it"):
        job.groups["actor"].work()


def test_an_error_while_everybody_lives_is_the_users():
    job = JobStandIn("actor", "rollout")
    job.processes["actor-1"].will.append(job.processes["actor-1"].collective_error())
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 1 raised it"):
        job.groups["actor"].work()
    assert job.processes["actor-1"].done["work"] == 1


def test_an_error_that_comes_again_after_the_peer_was_replaced_is_the_users():
    job = JobStandIn("actor")
    survivor = job.processes["actor-1"]
    survivor.will += [survivor.collective_error(), survivor.collective_error()]
    job.kill("actor-0")
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 1 raised it"):
        job.groups["actor"].work()


def test_what_must_not_be_repeated_is_not_done_again_for_a_peer_either():
    job = JobStandIn("actor", replay=False)
    survivor = job.processes["actor-1"]
    survivor.will.append(survivor.collective_error())
    job.kill("actor-0")
    with pytest.raises(RestartFit):
        job.groups["actor"][1].work()
    assert job.master.escalated == [("actor-1", "work")]


def test_results_that_were_lost_upstream_are_made_again_for_all_who_need_them():
    job = JobStandIn("rollout", "actor")
    upstream = job.groups["rollout"].work.options(blocking=False)()
    upstream.refs[1].outcome = death = job.kill("rollout-1")
    late = Ref(is_pending=True)
    job.processes["actor-0"].will.append(death)
    job.processes["actor-1"].will.append(late)
    downstream = job.groups["actor"].work.options(blocking=False)(upstream)
    assert downstream.recover()
    late.is_pending, late.outcome = False, death  # the same loss, heard of when upstream is well again
    assert downstream.get() == OLD
    assert job.processes["rollout-1"].done["work"] == 1


def test_a_lost_object_is_a_loss_and_no_error_of_the_users():
    job = JobStandIn("rollout", "actor")
    upstream = job.groups["rollout"].work.options(blocking=False)()
    job.kill("rollout-0")
    lost = ObjectLostError("0" * 56, "1.1.1.1", "here")
    upstream.refs[0].outcome = lost
    job.processes["actor-0"].will.append(lost)
    assert job.groups["actor"].work(upstream) == OLD


def test_a_lost_argument_that_nobody_can_make_again_is_not_tried_for_ever():
    job = JobStandIn("actor")
    job.processes["actor-0"].will += [ObjectLostError("0" * 56, "1.1.1.1", "here")] * 50
    with pytest.raises(WorkloadDiedError, match="workload 'actor-0' lost what it needs for 'work'"):
        job.groups["actor"].work(Ref("of the user's own"))
    assert job.processes["actor-0"].done["work"] == 1


def test_a_death_before_a_timeout_is_recovered_from():
    job = JobStandIn("actor", is_async=True, timeout=0.01)
    survivor = job.processes["actor-1"]
    survivor.will.append(Ref(is_pending=True))
    job.kill("actor-0")
    with pytest.raises(CallTimeoutError) as caught:
        job.groups["actor"].work()
    assert caught.value.missing == (1,)
    assert caught.value.results == {0: "actor-0"}


@pytest.mark.parametrize("why", ["state", "scope"])
def test_a_call_that_may_have_been_done_leads_back_to_the_commit(why):
    job = JobStandIn("actor")
    job.directory.has_commit = True
    if why == "state":
        job.directory.stateful = frozenset({"actor-0", "actor-1"})
    else:
        job.directory.scopes = {"actor": "role"}
    job.processes["actor-0"].will.append(job.processes["actor-0"].out_of_reach())
    with pytest.raises(RestartFit):
        job.groups["actor"].work()
    assert job.processes["actor-0"].done["work"] == 1


def test_a_call_that_may_have_been_done_is_made_again_where_that_does_no_harm():
    job = JobStandIn("actor")
    job.processes["actor-0"].will.append(job.processes["actor-0"].out_of_reach())
    assert job.groups["actor"].work() == OLD


def test_a_new_process_with_state_leads_back_to_the_commit_whatever_the_epoch_says():
    job = JobStandIn("actor", going_back=("actor",))
    job.directory.stateful = frozenset({"actor-0", "actor-1"})
    job.master.counts_epochs = False
    job.kill("actor-0")
    with pytest.raises(RestartFit):
        job.groups["actor"].work()


def test_an_epoch_that_went_back_leads_back_to_the_commit():
    job = JobStandIn("actor", "rollout")
    job.directory.epoch = 3
    job.kill("rollout-0")
    with pytest.raises(RestartFit):
        job.groups["rollout"].work()


def test_calls_of_init_that_a_death_broke_are_no_error_of_the_users():
    job = JobStandIn("actor")
    job.directory.is_init = True
    job.groups["actor"].work()
    job.directory.is_init = False
    job.kill("actor-0")
    replaced = job.master._restored

    def replaced_and_broken(name, actor_id):
        roll = replaced(name, actor_id)
        new = job.processes["actor-0"]
        new.will.append(new.collective_error())
        job.kill("actor-1")
        return roll

    job.master.restored.remote = replaced_and_broken
    with pytest.raises(WorkloadDiedError, match="workload 'actor-1' died, and 'init' failed with it"):
        job.groups["actor"][0].work()


@pytest.mark.parametrize(("is_behind", "has_commit"), [(True, True), (True, False), (False, True)])
def test_an_error_of_fit_counts_as_the_death_that_another_thread_has_met(is_behind, has_commit):
    """A thread of the trainer has had the process replaced, so that none is gone when the error comes out of `fit`."""
    host = TrainerHost.__new__(TrainerHost)
    directory = SimpleNamespace(is_behind=is_behind, has_commit=has_commit, gone=list)
    if is_behind and has_commit:
        assert host._check_is_death(RuntimeError("connection closed by peer"), directory) is None
    else:
        with pytest.raises(RuntimeError, match="connection closed by peer"):
            host._check_is_death(RuntimeError("connection closed by peer"), directory)
