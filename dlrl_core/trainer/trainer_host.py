"""The Ray actor around the trainer: a crash of user code here can't take the Master with it."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray import cloudpickle

from dlrl_core.errors import RemoteCause, TrainerError, WorkloadDiedError, WorkloadError
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, ConfigValue
from dlrl_core.trainer.base_trainer import BaseTrainer
from dlrl_core.trainer.call_log import CallLog
from dlrl_core.trainer.commits import Commits
from dlrl_core.trainer.progress import Progress, ProgressReport
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.trainer.roster import RestartFit, Roster, died_with
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.class_loader import load_class
from dlrl_core.workload.death_reason import LOST
from dlrl_core.workload.fault import Fault, Suffering
from dlrl_core.workload.orphan import end_with_node
from dlrl_core.workload.process import HostFacts, ProcessSetup, end_children, host_facts, thread_stacks
from dlrl_core.workload.state_folder import forget_run

CONCURRENCY_GROUPS = (("control", 2), ("watch", 2))
_PUSH_PERIOD_S = 0.2
_PUSH_LEAST_S = 0.02
_PUSH_AGAIN_S = 3.0


@dataclass(frozen=True, kw_only=True)
class TrainerLaunch:
    """Everything the trainer's process needs, known before it starts."""

    job: str
    run_id: str
    cls: ClassRef
    config: ConfigValue
    setup: ProcessSetup
    role_classes: Mapping[RoleType, ClassRef]
    resources: Mapping[RoleType, dict[str, float]]
    durable_every: int = 10
    allow_chaos: bool = False
    incarnation: int = 0
    scopes: Mapping[RoleType, str] = field(default_factory=dict)
    """What a death restarts in each role."""


@dataclass(frozen=True, kw_only=True)
class TrainerOutcome:
    """How the trainer ended. The result travels pickled: only the driver, which asked, opens it."""

    is_success: bool
    result: bytes | None = None
    why: str | None = None
    cause: RemoteCause | None = None
    failed_workload: str | None = None
    is_death: bool = False
    """The failed workload's process is gone: no error of user code."""
    progress: ProgressReport | None = None
    """Where the trainer was at its end; reports on their way may come too late to tell."""


class TrainerHost:
    """The trainer's process as Ray sees it. `run` once, then `outcome` as often as somebody wants to know."""

    def __init__(self, launch: TrainerLaunch) -> None:
        end_with_node()
        self._launch = launch
        self._call_log = CallLog()
        self._progress = Progress(self._call_log)
        self._config: Any = None
        self._outcome: TrainerOutcome | None = None
        self._is_running = False
        self._faults = Suffering(is_allowed=launch.allow_chaos, owner="the trainer", has_calls=False)
        self._ended = threading.Event()

    @ray.method(concurrency_group="control")
    def facts(self) -> HostFacts:
        return host_facts("trainer", self._launch.run_id)

    def load(self) -> None:
        """Import the trainer's class, while the workloads are still starting. The second time, nothing is to do."""
        if self._config is not None:
            return
        try:
            self._launch.setup.set_environment()
            self._launch.setup.prepare_framework(None)
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
        """Train to the end. Called once; nobody waits for it but through `outcome`, which a new Master can ask too.

        `epoch` and `commit` are what the Master knows of earlier trainers of this run.
        """
        if self._is_running:
            return  # a Master that came after the one who let it run
        self._is_running = True
        threading.Thread(target=self._push_progress, args=(master,), name="dlrl-progress", daemon=True).start()
        try:
            scopes = {role.value: str(scope) for role, scope in self._launch.scopes.items()}
            roster = Roster(master=master, workloads=workloads, epoch=epoch, scopes=scopes)
            trainer, commits = self._construct(roster, method_tables, commit)
            self._progress.enter("init")
            roster.is_init = True
            trainer.init()
            roster.is_init = False
            roster.on_restart = trainer.on_restart
            result = self._fit(trainer, roster, commits)
            self._progress.enter("done")
            self._outcome = TrainerOutcome(is_success=True, result=cloudpickle.dumps(result))
        except BaseException as error:  # noqa: BLE001 - whatever ended user code, the Master must hear of it
            self._outcome = _failure(error, self._progress.report().phase)
        finally:
            self._ended.set()

    def _fit(self, trainer: BaseTrainer, roster: Roster, commits: Commits) -> Any:
        """Run `fit`, from the last commit on, as often as part of the job is restarted under it."""
        while True:
            try:
                commits.settle()
                self._progress.committed(commits.last.to_json() if commits.last else None)
                self._progress.enter("fit")
                return trainer.fit()
            except RestartFit:
                roster.catch_up()
            except Exception as error:  # noqa: BLE001 - raised again, unless a death is behind it
                self._check_is_death(error, roster)
                roster.catch_up()

    def _check_is_death(self, error: Exception, roster: Roster) -> None:
        """Raise it, unless a death is behind it and there is a commit to go back to.

        A `ray.get` of the user's own met the death, or a call that was connected with a process that is gone.
        """
        is_death = isinstance(error, (WorkloadDiedError, *LOST))
        gone = [] if is_death else roster.gone()
        if roster.has_commit and (is_death or gone):
            return
        if gone:
            raise died_with(gone[0][0], self._progress.report().phase) from error
        raise error

    @ray.method(concurrency_group="watch")
    def outcome(self) -> TrainerOutcome:
        """Wait for the end. A death is noticed because this call then fails."""
        self._ended.wait()
        assert self._outcome is not None
        return replace(self._outcome, progress=self._progress.report())

    @ray.method(concurrency_group="control")
    def inject(self, fault: Fault, step: int | None = None, target: Any = None) -> None:
        """Chaos: suffer this fault, or, at the beginning of a step, let another process suffer it."""
        if step is None:
            self._faults.add(fault)
            return
        Suffering(is_allowed=self._launch.allow_chaos, owner="the trainer").add(replace(fault, method="check"))
        hit = (lambda: self._faults.add(fault)) if target is None else (lambda: target.inject.remote(fault))
        self._progress.at_step(step, hit)

    @ray.method(concurrency_group="control")
    def is_running(self) -> bool:
        """Whether somebody let it run: then it runs on, or has ended."""
        return self._is_running

    @ray.method(concurrency_group="control")
    def look(self) -> tuple[str | None, ProgressReport]:
        """The call that the trainer waits for now, as 'role.method'; one that failed counts until the next. And how
        far it is."""
        return self._call_log.current, self._progress.report()

    @ray.method(concurrency_group="control")
    def stacks(self) -> str:
        return thread_stacks()

    @ray.method(concurrency_group="control")
    def end(self) -> None:
        """Last call before the process is killed, at the end of the job."""
        end_children()
        forget_run(self._launch.run_id)

    def _trainer_class(self) -> type[BaseTrainer]:
        cls = load_class(self._launch.cls)
        if not issubclass(cls, BaseTrainer):
            raise TypeError(f"'{self._launch.cls}' does not extend dlrl_core.BaseTrainer")
        return cls

    def _construct(
        self, roster: Roster, method_tables: Mapping[RoleType, bytes], commit: str | None
    ) -> tuple[BaseTrainer, Commits]:
        roles = list(self._launch.role_classes)
        handles = {role: [workload for workload in roster.workloads if workload.role == role] for role in roles}
        methods = {role: pickle.loads(method_tables[role]) for role in roles}
        groups = {role: RoleGroup(role, handles[role], methods[role], self._call_log, roster) for role in roles}
        stateful = [
            one for role in roles if {"save_state", "load_state"} <= methods[role].keys() for one in handles[role]
        ]
        commits = Commits(
            roster,
            stateful,
            run_id=self._launch.run_id,
            known=commit,
            durable_every=self._launch.durable_every,
        )
        classes = _LazyClasses(self._launch.role_classes)
        trainer = self._trainer_class()(handles, classes, self._config)
        trainer._bind(groups, self._launch.resources, self._progress, commits, roster)
        return trainer, commits

    def _push_progress(self, master: Any) -> None:
        """Tell the Master of every change, at most five times a second; the end comes with the outcome."""
        seen, sent_at = -1, 0.0
        while not self._ended.wait(_PUSH_LEAST_S):
            self._progress.news.wait(_PUSH_PERIOD_S)  # a commit is told at once
            self._progress.news.clear()
            # Now and then also without a change: a Master that was away has not heard the last one.
            if self._progress.changes != seen or time.monotonic() - sent_at > _PUSH_AGAIN_S:
                seen, sent_at = self._progress.changes, time.monotonic()
                try:
                    master.trainer_progress.remote(self._progress.report())
                except Exception:  # noqa: BLE001 - the Master may be restarting: the next report counts
                    continue


class _LazyClasses(Mapping[RoleType, type]):
    """`actor_classes`: the trainer's process imports a workload's class only if the trainer looks at it."""

    def __init__(self, refs: Mapping[RoleType, ClassRef]) -> None:
        self._refs = refs

    def __getitem__(self, role: RoleType) -> type:
        return load_class(self._refs[role])

    def __iter__(self) -> Iterator[RoleType]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def _failure(error: BaseException, phase: str) -> TrainerOutcome:
    """How the trainer failed, in one sentence; a workload's own error is the first cause, not the call that met it."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, WorkloadError):  # Ray's wrapper around ours, from a ray.get of the user's own
        error = inner
    if isinstance(error, WorkloadError):
        is_death = isinstance(error, WorkloadDiedError)
        return TrainerOutcome(
            is_success=False,
            why=error.summary,
            cause=RemoteCause.of(error),
            # After a death it is the trainer that has to start again; the workload's end the Master sees by itself.
            failed_workload=None if is_death else f"{error.role}-{error.rank}",
            is_death=is_death,
        )
    if isinstance(error, (RestartFit, *LOST)):
        why = f"a workload died while the trainer was in '{phase}'"
        return TrainerOutcome(is_success=False, why=why, cause=RemoteCause.of(error), is_death=True)
    text = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return TrainerOutcome(is_success=False, why=f"the trainer raised {what} in '{phase}'", cause=RemoteCause.of(error))
