"""The Ray actor around the trainer: a process of its own, so that a crash of user code does not end the Master."""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray import cloudpickle

from dlrl_core.context.job_state import TrainerOutcome, TrainerResult
from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.errors import (
    CallTimeoutError,
    CommitLostError,
    ErrorIdentity,
    RemoteCause,
    TrainerError,
    WorkloadDiedError,
    WorkloadError,
)
from dlrl_core.roles import TRAINER, RoleType
from dlrl_core.spec import ClassRef, ConfigValue
from dlrl_core.trainer.base_trainer import BaseTrainer
from dlrl_core.trainer.commit_budget import CommitPace
from dlrl_core.trainer.commits import Commits
from dlrl_core.trainer.neighbours import Neighbours
from dlrl_core.trainer.progress import CallLog, Progress, ProgressReport
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.trainer.user_code import prepare_trainer_process
from dlrl_core.trainer.workload_directory import Lease, RestartFit, WorkloadDirectory, WorkloadHandle, died_with
from dlrl_core.workload.actors import LOST
from dlrl_core.workload.fault import Fault, FaultInjector
from dlrl_core.workload.invocation import has_state, load_class
from dlrl_core.workload.process import ProcessSetup, end_children, end_with_node, report_of_process, thread_stacks
from dlrl_core.workload.state_keeper import KeeperRequest, StateKeeper, keeper_class, late_keeper

CONCURRENCY_GROUPS = (("control", 2), ("watch", 2))
_PUSH_PERIOD_S = 0.2
_PUSH_LEAST_S = 0.02
_PUSH_AGAIN_S = 3.0
_LEAVE_S = 300.0
"""When a thread has met a death for which the trainer goes back, and all is replaced, `fit` has to end in this time."""


@dataclass(frozen=True, kw_only=True)
class TrainerLaunch:
    """What the trainer's process is started with."""

    job: str
    run_id: str
    cls: ClassRef
    config: ConfigValue
    setup: ProcessSetup
    role_classes: Mapping[RoleType, ClassRef]
    resources: Mapping[RoleType, dict[str, float]]
    state_keeper: str
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of nodes, the expected bytes of one commit of their workloads."""
    durable_every: int = 10
    neighbours: bool = True
    failure_domain: str | None = None
    pace: CommitPace = field(default_factory=CommitPace)
    allow_chaos: bool = False
    incarnation: int = 0
    scopes: Mapping[RoleType, str] = field(default_factory=dict)
    """What a death restarts in each role."""


class TrainerHost:
    """The actor class of the trainer. Its `run` is called once, `outcome` by every Master of the job."""

    def __init__(self, launch: TrainerLaunch) -> None:
        end_with_node()
        self._launch = launch
        self._call_log = CallLog()
        self._progress = Progress(self._call_log)
        self._commits: Commits | None = None
        self._config: Any = None
        self._outcome: TrainerOutcome | None = None
        self._is_running = False
        self._faults = FaultInjector(is_allowed=launch.allow_chaos, owner="the trainer", has_calls=False)
        self._ended = threading.Event()
        self._lease = Lease(term=launch.incarnation, until=0.0, report=self._report)

    def __repr__(self) -> str:
        """How Ray names this process where the driver shows its output."""
        return "trainer"

    @ray.method(concurrency_group="control")
    def facts(self) -> ProcessReport:
        return report_of_process(
            name="trainer",
            run_id=self._launch.run_id,
            incarnation=self._launch.incarnation,
            state=WorkloadState.STARTING if self._config is None else WorkloadState.READY,
        )

    def load(self) -> None:
        """Import the trainer's class, while the workloads are still starting. Does nothing the second time."""
        if self._config is not None:
            return
        try:
            self._launch.setup.set_environment()
            self._launch.setup.prepare_framework(None)
            prepare_trainer_process()
            self._trainer_class()
            self._config = self._launch.config.open()
        except Exception as error:  # noqa: BLE001 - user code; the Master gets the first cause
            raise TrainerError(
                f"the trainer '{self._launch.cls}' could not be imported: {type(error).__name__}: {error}",
                RemoteCause.of(error),
            ) from None

    def run(
        self,
        master: Any,
        workloads: list[WorkloadHandle],
        method_tables: Mapping[RoleType, bytes],
        epoch: int,
        commit: str | None,
    ) -> None:
        """Train to the end. The Master waits through `outcome` instead, which a restarted Master can call, too.

        `epoch` and `commit` are those of the job's record, left by earlier trainers of this run.
        """
        if self._is_running:
            return  # an earlier Master has called it
        self._is_running = True
        self._lease.master = master
        scopes = {role.value: str(scope) for role, scope in self._launch.scopes.items()}
        directory = WorkloadDirectory(master=master, workloads=workloads, epoch=epoch, scopes=scopes)
        directory.lease = self._lease
        push = threading.Thread(target=self._push_progress, args=(master, directory), name="dlrl-progress", daemon=True)
        push.start()
        try:
            directory.fence()
            trainer, commits = self._construct(directory, method_tables, commit)
            self._progress.enter("init")
            directory.is_init = True
            trainer.init()
            directory.is_init = False
            directory.enter_fit()
            directory.on_restart = trainer.on_restart
            result = self._fit(trainer, directory, commits)
            self._progress.enter("done")
            self._outcome = TrainerOutcome(is_success=True, result=TrainerResult.of(result, cloudpickle.dumps(result)))
        except BaseException as error:  # noqa: BLE001 - whatever ended user code, the Master must be told
            self._outcome = _failure(error, self._progress.report().phase)
        finally:
            self._ended.set()

    def _fit(self, trainer: BaseTrainer, directory: WorkloadDirectory, commits: Commits) -> Any:
        """Run `fit` from the last commit on; again, whenever part of the job was restarted meanwhile."""
        while True:
            try:
                commits.restore_last()
                commits.check_room(self._launch.state_bytes)
                self._progress.enter("fit")
                result = trainer.fit()
                commits.finish()
                return result
            except RestartFit:
                if self._ended.is_set():
                    raise
                directory.catch_up()
            except Exception as error:  # noqa: BLE001 - raised again, unless a death caused it
                self._check_is_death(error, directory)
                directory.catch_up()

    def _check_is_death(self, error: Exception, directory: WorkloadDirectory) -> None:
        """Raise the error, unless a death caused it and there is a commit to go back to.

        Such an error comes from a `ray.get` in the user's code, or from a call that depended on a dead process. If
        another thread has had that process replaced, none is gone any more, but `fit` has to be entered again anyway.
        """
        is_death = directory.is_behind or isinstance(error, (WorkloadDiedError, *LOST))
        gone = [] if is_death else directory.gone()
        if directory.has_commit and (is_death or gone):
            return
        if gone:
            raise died_with(gone[0][0], self._progress.report().phase) from error
        raise error

    @ray.method(concurrency_group="watch")
    def outcome(self) -> TrainerOutcome:
        """Wait for the trainer's end. The Master notices a death because this pending call fails."""
        self._ended.wait()
        assert self._outcome is not None
        return replace(self._outcome, progress=self._report(), incarnation=self._launch.incarnation)

    @ray.method(concurrency_group="control")
    def inject(self, fault: Fault, step: int | None = None, target: Any = None) -> None:
        """Schedule a fault (chaos): for this process now, or when a step begins, for this or another process.

        Steps are counted from 1.
        """
        if step is None:
            self._faults.add(fault)
            return
        FaultInjector(is_allowed=self._launch.allow_chaos, owner="the trainer").check(fault)
        hit = (lambda: self._faults.add(fault)) if target is None else (lambda: target.inject.remote(fault))
        self._progress.at_step(step, hit)

    @ray.method(concurrency_group="control")
    def is_running(self) -> bool:
        """Whether `run` was called; it may have ended since."""
        return self._is_running

    @ray.method(concurrency_group="control")
    def look(self) -> tuple[str | None, ProgressReport]:
        """The call that the trainer waits for, as 'role.method' (a failed one until the next), and its progress."""
        return self._call_log.current, self._report()

    @ray.method(concurrency_group="control")
    def stacks(self) -> str:
        return thread_stacks()

    @ray.method(concurrency_group="control")
    def end(self, is_job_over: bool = True) -> None:
        """Call no workload any more, and kill the processes that this one has started; called before it is killed."""
        self._lease.until = -1.0
        end_children()
        if is_job_over:
            keeper_class(self._launch.state_keeper).forget_run(self._launch.run_id)

    def _trainer_class(self) -> type[BaseTrainer]:
        cls = load_class(self._launch.cls)
        if not issubclass(cls, BaseTrainer):
            raise TypeError(f"'{self._launch.cls}' does not extend dlrl_core.BaseTrainer")
        return cls

    def _construct(
        self, directory: WorkloadDirectory, method_tables: Mapping[RoleType, bytes], commit: str | None
    ) -> tuple[BaseTrainer, Commits]:
        roles = list(self._launch.role_classes)
        handles = {role: [workload for workload in directory.workloads if workload.role == role] for role in roles}
        methods = {role: pickle.loads(method_tables[role]) for role in roles}
        groups = {role: RoleGroup(role, handles[role], methods[role], self._call_log, directory) for role in roles}
        stateful = [one for role in roles if has_state(methods[role]) for one in handles[role]]
        commits = self._commits = Commits(
            directory,
            stateful,
            own=self._own_keeper(),
            known=commit,
            neighbours=Neighbours(
                directory, stateful, is_on=self._launch.neighbours, domain_label=self._launch.failure_domain
            ),
            durable_every=self._launch.durable_every,
            pace=self._launch.pace,
            on_news=self._progress.committed,
        )
        classes = _LazyClasses(self._launch.role_classes)
        trainer = self._trainer_class()(handles, classes, self._config)
        trainer._bind(groups, self._launch.resources, self._progress, commits, directory)
        return trainer, commits

    def _own_keeper(self) -> StateKeeper:
        cluster = ray.get_runtime_context().gcs_address
        request = KeeperRequest(run_id=self._launch.run_id, workload=TRAINER, cluster=cluster)
        return late_keeper(self._launch.state_keeper, request)

    def _report(self) -> ProgressReport:
        holds = time.monotonic() < self._lease.until
        return replace(self._progress.report(), incarnation=self._launch.incarnation, has_lease=holds)

    def _push_progress(self, master: Any, directory: WorkloadDirectory) -> None:
        """Report every change to the Master, at most five times a second. Its answers renew the lease."""
        seen, sent_at, answer, behind_since = -1, 0.0, None, 0.0
        while True:
            behind_since = (behind_since or time.monotonic()) if directory.must_leave else 0.0
            if behind_since and time.monotonic() - behind_since > _LEAVE_S and not self._ended.is_set():
                # `fit` waits for something that can't be interrupted; the Master starts a trainer in a new process.
                self._outcome = _failure(RestartFit(), self._progress.report().phase)
                self._ended.set()
            self._progress.news.wait(_PUSH_PERIOD_S)  # set by a commit
            self._progress.news.clear()
            if self._commits is not None:
                self._commits.poll()
            with contextlib.suppress(Exception):  # the Master may be restarting; the next report reaches it
                if answer is not None and ray.wait([answer], timeout=0)[0]:
                    heard, answer = answer, None
                    self._lease.heard(ray.get(heard), sent_at)
                # At times also without a change, and when the last one was not answered.
                if time.monotonic() - sent_at > _PUSH_AGAIN_S or (answer is None and self._progress.changes != seen):
                    seen, sent_at = self._progress.changes, time.monotonic()
                    answer = master.trainer_progress.remote(self._report())
            time.sleep(_PUSH_LEAST_S)


class _LazyClasses(Mapping[RoleType, type]):
    """`actor_classes`: a workload's class is imported when the trainer looks it up."""

    def __init__(self, refs: Mapping[RoleType, ClassRef]) -> None:
        self._refs = refs

    def __getitem__(self, role: RoleType) -> type:
        return load_class(self._refs[role])

    def __iter__(self) -> Iterator[RoleType]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def _failure(error: BaseException, phase: str) -> TrainerOutcome:
    """How the trainer failed; for an error of a workload's method, that error is the cause, not the failed call."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, WorkloadError):  # Ray's wrapper, from a `ray.get` in the user's code
        error = inner
    cause = RemoteCause.of(error)
    failed = functools.partial(TrainerOutcome, is_success=False, cause=cause)
    if isinstance(error, CommitLostError):
        return failed(why=str(error), is_commit_lost=True)
    if isinstance(error, WorkloadDiedError):
        # No failed workload: the trainer has to start again, and the Master notices the death by itself.
        return failed(why=error.summary, is_death=True)
    if isinstance(error, WorkloadError):
        identity = ErrorIdentity(type_name=cause.type_name, role=error.role, method=error.method or phase)
        return failed(why=error.summary, failed_workload=f"{error.role}-{error.rank}", error_identity=identity)
    if isinstance(error, (RestartFit, *LOST)):
        return failed(why=f"a workload died while the trainer was in '{phase}'", is_death=True)
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    role, method = (error.role, error.method) if isinstance(error, CallTimeoutError) else ("trainer", phase)
    identity = ErrorIdentity(type_name=cause.type_name, role=role, method=method)
    return failed(why=f"the trainer raised {what} in '{phase}'", error_identity=identity)
