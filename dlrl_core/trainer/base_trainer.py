"""BaseTrainer: the class with the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import DlrlError
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from dlrl_core.trainer.commits import Commits
    from dlrl_core.trainer.progress import Progress
    from dlrl_core.trainer.role_group import RoleGroup
    from dlrl_core.trainer.workload_directory import WorkloadDirectory, WorkloadHandle


class BaseTrainer(ABC):
    """The training loop of a job, in a process of its own.

    dlrl constructs it with `(actor_handles, actor_classes, config)`, binds a role group for each role of the
    job (`self.RG_ACTOR`, `self.RG_ROLLOUT`, ...), then calls `init()` and `fit()`. Define attributes in `__init__`,
    prepare in `init`, train in `fit`; what `fit` returns is the job's result.
    """

    if TYPE_CHECKING:
        RG_ACTOR: RoleGroup
        RG_ROLLOUT: RoleGroup
        RG_REWARD: RoleGroup
        RG_REFERENCE: RoleGroup
        RG_CRITIC: RoleGroup

    def __init__(
        self,
        actor_handles: Mapping[RoleType, list[WorkloadHandle]],
        actor_classes: Mapping[RoleType, type],
        config: DictConfig,
    ) -> None:
        self._actor_handles = dict(actor_handles)
        self._actor_classes = actor_classes
        self._config = config

    def _bind(
        self,
        groups: Mapping[RoleType, RoleGroup],
        resources: Mapping[RoleType, dict[str, float]],
        progress: Progress,
        commits: Commits,
        directory: WorkloadDirectory,
    ) -> None:
        """Called once by the host, after construction."""
        self._commits = commits
        self._directory = directory
        self._groups = dict(groups)
        self._resources = dict(resources)
        self._progress = progress
        self._ended_steps = (0, 0)  # the run of `fit`, and the total
        for role, group in groups.items():
            setattr(self, role.group_name, group)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("RG_"):
            present = ", ".join(self.get_role_groups()) if "_groups" in self.__dict__ else ""
            reason = (
                f"this job has: {present}"
                if present
                else "role groups are bound after __init__; use them in init or fit"
            )
            raise AttributeError(f"there is no role group '{name}'; {reason}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @abstractmethod
    def init(self) -> None:
        """Prepare: tokenizer, data loader, models of the workloads."""

    @abstractmethod
    def fit(self) -> Any:
        """Train."""

    @property
    def config(self) -> DictConfig:
        """The training config of the job."""
        return self._config

    @property
    def actor_handles(self) -> dict[RoleType, list[WorkloadHandle]]:
        """All workloads by role, in rank order."""
        return self._actor_handles

    @property
    def actor_classes(self) -> Mapping[RoleType, type]:
        """The class of each role, imported when it is looked up."""
        return self._actor_classes

    @property
    def actors(self) -> list[WorkloadHandle]:
        return self._handles(RoleType.ACTOR)

    @property
    def references(self) -> list[WorkloadHandle]:
        return self._handles(RoleType.REFERENCE)

    @property
    def rollouts(self) -> list[WorkloadHandle]:
        return self._handles(RoleType.ROLLOUT)

    @property
    def rewards(self) -> list[WorkloadHandle]:
        return self._handles(RoleType.REWARD)

    @property
    def critics(self) -> list[WorkloadHandle]:
        return self._handles(RoleType.CRITIC)

    def _handles(self, role: RoleType) -> list[WorkloadHandle]:
        return list(self._actor_handles.get(role, []))

    def get_role_groups(self) -> list[str]:
        """The names of the role groups of this job, such as ['RG_ACTOR', 'RG_ROLLOUT']."""
        return [role.group_name for role in self._groups]

    def get_workload_resource(self, role: RoleType | str) -> dict[str, float]:
        """The Ray resources of each workload of the role, such as {'CPU': 1.0, 'GPU': 0.5}."""
        try:
            return dict(self._resources[RoleType(str(role).lower())])
        except (KeyError, ValueError):
            present = ", ".join(f"'{role}'" for role in self._resources)
            raise DlrlError(f"the job has no role '{role}'; it has: {present}") from None

    def steps(self, total: int) -> Iterator[int]:
        """Iterate over the indices of the training steps, from 0 or the first that is not committed, below `total`.

        The job's progress shows them, counted from 1. They count through all epochs: a second `steps` with no higher
        total is an error in a trainer that commits.
        """
        fit, ended = self._ended_steps
        if self._commits.newest_step is not None and fit == self._directory.fits and total <= ended:
            raise DlrlError(
                f"steps({total}) has ended before in this run of fit; steps count through all epochs: "
                f"for step in self.steps(epochs * {total}): epoch, index = divmod(step, {total})"
            )
        for step in range(0 if self.committed_step is None else self.committed_step + 1, total):
            self._progress.begin_step(step, total)
            yield step
        self._ended_steps = (self._directory.fits, total)
        self._progress.end_steps(total)

    def begin_step(self, step: int, total: int) -> None:
        """Show this step as the job's progress, for a trainer with a loop of its own; `step` is its index, from 0."""
        self._progress.begin_step(step, total)

    def end_steps(self, total: int) -> None:
        """Show that all steps are done, for a trainer with a loop of its own."""
        self._progress.end_steps(total)

    def commit(self, step: int, *, durable: bool = False, **progress: Any) -> None:
        """Commit everything up to this step, given by its index from 0: after any death, training goes on after it.

        The state of every workload that has any is taken, and `progress` with it: what the trainer needs to go on, as
        plain JSON values, which `self.progress` then returns. The copy is made while training goes on; the commit
        counts when every workload has its copy. Steps are left out where committing them would cost more than the
        job's `commits` allow. With `durable` it is never left out, and the call returns when all is on durable storage.
        `step` must not go back; the last one can be committed again. Raises what a call with `blocking=False` failed
        with, unless the trainer has awaited it.
        """
        self._commits.commit(step, progress, is_durable=durable)

    @property
    def committed_step(self) -> int | None:
        """The index of the last committed step, from 0; None if there is none."""
        return self._commits.last.step if self._commits.last else None

    @property
    def progress(self) -> Mapping[str, Any]:
        """The progress given to the last commit; empty if there is none."""
        return self._commits.last.progress if self._commits.last else {}

    def on_restart(self, workloads: list[WorkloadHandle]) -> None:  # noqa: B027 - most trainers need nothing
        """Called when these workloads have new processes, before any other call reaches them.

        They have seen the calls of `init` and nothing else. Send them again what they had from other roles, such as
        weights.
        """

    def heal(self) -> None:
        """Have all processes replaced that are gone: for use while you wait for something that is no role call.

        As with any call, `on_restart` is called, or `fit` is left and entered again.
        """
        self._directory.check()
        self._directory.replace_gone()

    def log(self, **metrics: float) -> None:
        """Show these numbers with the job's progress."""
        self._progress.log(metrics)
