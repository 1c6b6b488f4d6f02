"""What a call makes of an error: the user's own, or the trace of a death. Without Ray; see the stand-ins."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ray.exceptions import ObjectLostError, RaySystemError
from ray_stand_in import JobStandIn, RayStandIn, Ref, use_stand_in

from dlrl_core.errors import CallTimeoutError, WorkloadCallError, WorkloadDiedError
from dlrl_core.trainer import role_call, user_code
from dlrl_core.trainer.role_call import check_unawaited
from dlrl_core.trainer.trainer_host import TrainerHost
from dlrl_core.trainer.workload_directory import RestartFit, WorkloadDirectory
from dlrl_core.workload.invocation import whole

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


# ---- what a replay sends


@dataclass
class Batch:
    """A batch of user code, which cuts itself."""

    items: list[int]

    def __len__(self) -> int:
        return len(self.items)

    def chunk(self, parts: int) -> list[Any]:
        size = len(self.items) // parts
        return [self.items[part * size : (part + 1) * size] for part in range(parts)]


@dataclass
class Settings:
    temperature: list[float]


def change(batch: Any) -> None:
    """What a trainer may do to a batch in place."""
    found = getattr(batch, "items", batch) if isinstance(batch, Batch) else getattr(batch, "temperature", batch)
    for index in range(len(found)) if not isinstance(found, dict) else found:
        found[index] = found[index] * 0


def as_sent(arg: Any) -> Any:
    value = arg.outcome if isinstance(arg, Ref) else arg
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    ("make", "second"),
    [
        (lambda: [1, 2, 3, 4], [3, 4]),
        (lambda: [[1], [2], [3], [4]], [[3], [4]]),
        (lambda: np.arange(1, 5), [3, 4]),
        (lambda: np.arange(1, 60_001), list(range(30_001, 60_001))),
        (lambda: list(range(1, 100_001)), list(range(50_001, 100_001))),
        (lambda: Batch([1, 2, 3, 4]), [3, 4]),
        (lambda: {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (lambda: Settings([0.5, 1.0]), Settings([0.5, 1.0])),
    ],
    ids=["list", "list of lists", "array", "large array", "large list", "own batch", "mapping", "own class"],
)
def test_a_replay_sends_what_was_sent_whatever_was_changed_in_place_since(make, second):
    job, batch = JobStandIn("actor"), make()
    call = job.groups["actor"].work.options(blocking=False)(batch)
    change(batch)
    call.refs[1].outcome = job.kill("actor-1")
    old, new = job.processes["actor-1"], None
    assert call.get() == OLD
    new = job.processes["actor-1"]
    assert new is not old
    assert [as_sent(arg) for arg in (*old.sent[0], *new.sent[0])] == [second, second]


def test_a_batch_whose_items_are_changed_is_resent_as_it_was():
    job, batch = JobStandIn("actor"), [[1], [2]]
    call = job.groups["actor"].work.options(blocking=False)(batch)
    batch[1].append(9)
    call.refs[1].outcome = job.kill("actor-1")
    call.get()
    assert job.processes["actor-1"].sent == [([[2]],)]


def test_a_call_of_init_is_repeated_with_what_it_was_made_with():
    job, settings = JobStandIn("actor"), {"lr": [0.1]}
    job.directory.is_init = True
    job.groups["actor"].work(whole(settings))
    job.directory.is_init = False
    settings["lr"].append(9.9)
    assert [calls[0][1] for calls in job.directory._init_calls.values()] == [({"lr": [0.1]},)] * 2


def test_post_func_runs_once_however_often_its_result_is_used():
    ran = []
    job = JobStandIn("rollout", "actor", post_func=lambda results: ran.append(results) or list(results))
    call = job.groups["rollout"].work.options(blocking=False)()
    first = call.get()
    assert call.get() is first
    downstream = job.groups["actor"].work.options(blocking=False, post_func=None)(call)
    downstream.refs[0].outcome = job.kill("actor-0")
    downstream.get()
    assert ran == [["rollout-0", "rollout-1"]]
    assert [job.processes[name].sent for name in OLD] == [[(["rollout-0"],)], [(["rollout-1"],)]]


def test_what_post_func_has_returned_stays_when_a_part_is_made_again():
    job = JobStandIn("rollout", "actor", post_func=lambda results: [f"{one}!" for one in results])
    call = job.groups["rollout"].work.options(blocking=False)()
    before = call.get()
    call.refs[0].outcome = job.kill("rollout-0")
    assert call.recover()
    assert call.get() is before


def test_a_result_that_can_not_be_unpickled_names_role_rank_and_method():
    job = JobStandIn("actor")
    job.processes["actor-1"].will.append(RaySystemError(ModuleNotFoundError("no module named 'theirs'"), "a traceback"))
    with pytest.raises(WorkloadCallError) as caught:
        job.groups["actor"].work()
    assert caught.value.summary == (
        "role 'actor' rank 1 returned what the trainer can't unpickle from 'work': "
        "ModuleNotFoundError: no module named 'theirs'"
    )
    assert (caught.value.role, caught.value.rank, caught.value.method) == ("actor", 1, "work")


# ---- calls that nobody awaits


def fire(job: JobStandIn, role: str = "actor", error_of: str | None = "actor-1") -> Any:
    if error_of:
        job.processes[error_of].will.append(job.processes[error_of].collective_error())
    return job.groups[role].work.options(blocking=False)()


def test_a_failed_call_that_nobody_awaited_is_raised_with_role_and_rank():
    job = JobStandIn("actor")
    fire(job)
    with pytest.raises(WorkloadCallError, match="role 'actor' rank 1 raised it"):
        check_unawaited(job.directory)
    check_unawaited(job.directory)  # once


@pytest.mark.parametrize("how", ["its own get", "a call that got it as argument"])
def test_an_error_that_the_trainer_has_seen_is_not_raised_again(how):
    job = JobStandIn("actor", "critic")
    call = fire(job)
    with pytest.raises(WorkloadCallError):
        if how == "its own get":
            call.get()
        else:
            job.processes["critic-0"].will.append(call.refs[1].outcome)
            job.groups["critic"].work(call)
    check_unawaited(job.directory)


def test_calls_that_succeeded_are_forgotten_also_without_commits():
    job = JobStandIn("actor")
    for _ in range(200):
        fire(job, error_of=None)
    assert len(job.directory.unawaited) < 64


def test_a_lost_part_that_nobody_awaited_is_done_again():
    job = JobStandIn("actor")
    call = fire(job, error_of=None)
    call.refs[0].outcome = job.kill("actor-0")
    check_unawaited(job.directory)
    assert job.processes["actor-0"].done["work"] == 1
    assert not job.directory.unawaited


# ---- threads


class RayOfManyStandIn(RayStandIn):
    """As Ray, it returns no more results at once than it was asked for."""

    def __init__(self) -> None:
        self.looks = 0

    def wait(self, refs, num_returns=1, timeout=None, fetch_local=True):
        self.looks += 1
        return refs[:num_returns], refs[num_returns:]


def test_the_parts_of_a_long_call_are_not_looked_at_one_by_one(monkeypatch):
    job = JobStandIn("actor")
    call = job.groups["actor"].work.options(blocking=False)()
    call.refs = [Ref(rank) for rank in range(1000)]
    monkeypatch.setattr(role_call, "ray", many := RayOfManyStandIn())
    call._await_outcome()
    assert many.looks == 1


def test_a_main_loop_that_waits_for_the_replay_of_another_thread_is_not_late():
    job = JobStandIn("actor")
    directory, reached, may_go_on = job.directory, threading.Event(), threading.Event()
    directory.on_restart = lambda _: (reached.set(), may_go_on.wait(20))
    process = job.processes["actor-0"]
    job.kill("actor-0")
    thread = threading.Thread(target=directory.replace, args=("actor-0", process))
    thread.start()
    assert reached.wait(20)
    directory.is_behind = True
    assert not directory.must_leave
    directory.is_behind = False
    may_go_on.set()
    thread.join(20)
    assert not directory.must_leave
    directory.is_behind = True
    assert directory.must_leave


def test_a_call_reaches_all_ranks_before_another_thread_calls_the_role():
    job, order = JobStandIn("actor"), {"actor-0": [], "actor-1": []}
    first_sent, is_sent = threading.Event(), threading.Event()

    def taking(name):
        def remote(_, number):
            order[name].append(number)
            if (name, number) == ("actor-0", 1):
                first_sent.set()
                is_sent.wait(0.2)  # the other thread would go first now
            return Ref(number)

        return SimpleNamespace(remote=remote)

    for name, process in job.processes.items():
        process.invoke = taking(name)
    work = job.groups["actor"].work
    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    threads[0].start()
    first_sent.wait(5)
    threads[1].start()
    [thread.join() for thread in threads]
    assert order == {"actor-0": [1, 2], "actor-1": [1, 2]}


class FitStandIn:
    """One run of `fit` after the other, each with its own context as in the trainer's process."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(threading.Thread, "start", user_code.start)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", user_code.submit)
        self.job = JobStandIn("actor")
        self.directory: WorkloadDirectory = self.job.directory
        self._context = contextvars.copy_context()

    def run(self, function: Any, *args: Any) -> Any:
        return self._context.run(function, *args)

    def outcome_of(self) -> str:
        try:
            return "called" if self.job.groups["actor"].work() == OLD else ""
        except RestartFit:
            return "refused"


def started(how: str, work: Any) -> Any:
    """Starts it as user code may; what is returned waits for its result."""
    if how == "pool":
        return ThreadPoolExecutor(1).submit(work).result
    found: list[Any] = []
    runs = (
        (lambda: found.append(asyncio.run(asyncio.to_thread(work))))
        if how == "coroutine"
        else lambda: found.append(work())
    )
    thread = threading.Thread(target=runs)
    thread.start()
    return lambda: (thread.join(), found[0])[1]


@pytest.mark.parametrize("how", ["thread", "pool", "coroutine"])
def test_what_an_earlier_fit_has_started_can_call_no_more(monkeypatch, how):
    fit, go = FitStandIn(monkeypatch), threading.Event()

    def work():
        go.wait(5)
        return [fit.outcome_of() for _ in range(2)]

    fit.run(fit.directory.enter_fit)
    old = fit.run(started, how, work)
    fit.run(fit.directory.catch_up)
    new = fit.run(started, how, work)
    go.set()
    assert (old(), new()) == (["refused"] * 2, ["called"] * 2)


def test_a_pool_and_a_thread_that_are_older_than_fit_serve_every_run_of_it(monkeypatch):
    fit, pool = FitStandIn(monkeypatch), ThreadPoolExecutor(1)
    found = []
    for _ in range(3):
        fit.run(fit.directory.catch_up)
        found.append(fit.run(pool.submit, fit.outcome_of).result())
        thread = threading.Thread(target=lambda: found.append(fit.outcome_of()))
        thread.start()
        thread.join()
    assert found == ["called"] * 6


def test_a_death_that_a_thread_has_met_leads_the_main_loop_back_at_its_next_call_or_end():
    job = JobStandIn("actor", going_back=("actor",))
    job.directory.has_commit = True
    waiting = job.groups["actor"].work.options(blocking=False)()
    job.kill("actor-0")
    met = []

    def call():
        try:
            job.groups["actor"].work()
        except RestartFit:
            met.append("thread")

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert met == ["thread"]
    with pytest.raises(RestartFit):
        waiting.get()
