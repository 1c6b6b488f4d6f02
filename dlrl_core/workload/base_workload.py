"""BaseWorkload, the class behind every role, and WorkloadIdentity, the name and ranks of this process in its job."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from dlrl_core.errors import DlrlError
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from dlrl_core.plan import WorkloadPlan


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentity:
    """Name, ranks, devices and rendezvous of one workload in its process.

    Not the plan itself: a workload's process loads neither the planner nor pydantic.
    """

    job: str
    run_id: str
    incarnation: int
    """How often the workload was restarted before this process."""
    name: str
    role: RoleType
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    part: str | None
    part_rank: int
    part_size: int
    device_collocation: str | None
    device_ids: tuple[str, ...] = ()
    torch_master_addr: str = ""
    torch_master_port: int = 0

    @classmethod
    def of(cls, plan: WorkloadPlan, *, job: str, run_id: str, incarnation: int) -> WorkloadIdentity:
        """The identity of a planned workload: whatever it has in common with the plan, under the same names."""
        planned = {one.name: getattr(plan, one.name) for one in fields(cls) if hasattr(plan, one.name)}
        return cls(job=job, run_id=run_id, incarnation=incarnation, **planned)

    def environment(self) -> dict[str, str]:
        """The variables that torch, the frameworks and dlrl read."""
        meeting = {"MASTER_ADDR": self.torch_master_addr, "MASTER_PORT": str(self.torch_master_port)}
        return {
            **(meeting if self.torch_master_addr else {}),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "DLRL_JOB": self.job,
            "DLRL_WORKLOAD": self.name,
            "DLRL_ROLE": str(self.role),
            **({"DLRL_PART": self.part} if self.part else {}),
        }


_current: WorkloadIdentity | None = None


def set_identity(identity: WorkloadIdentity) -> None:
    """Make this process that workload, for BaseWorkload and for libraries that read the environment."""
    global _current  # noqa: PLW0603 - a process is one workload
    os.environ.update(identity.environment())
    _current = identity


def current_identity() -> WorkloadIdentity:
    """The workload that this process is. Raises DlrlError in a process that is none."""
    if _current is None:
        raise DlrlError(
            "this process is no workload of a job, so it has no name, role or rank; "
            "workloads are constructed by dlrl after RLJob.submit"
        )
    return _current


class BaseWorkload:
    """One process of a role. Extend it, with or without `@ray.remote`, and define the methods the trainer calls.

    dlrl constructs it in a process of its own with `(master_handle, config)`. All properties below can be read in the
    constructor already.
    """

    reading_methods: ClassVar[frozenset[str]] = frozenset()
    """Methods that only read what a commit holds, inherited ones included; as `changes_state=False` says of one."""

    def __init__(self, master_handle: Any, config: DictConfig) -> None:
        self._master_handle = master_handle
        self._config = config

    @property
    def _identity(self) -> WorkloadIdentity:
        return current_identity()

    @property
    def master_handle(self) -> Any:
        """The job's Master, called like a Ray actor handle."""
        return self._master_handle

    @property
    def config(self) -> DictConfig:
        """The training config of the job."""
        return self._config

    @property
    def name(self) -> str:
        """The unique name of this workload within its job, such as 'actor-0'."""
        return self._identity.name

    @property
    def role(self) -> RoleType:
        return self._identity.role

    @property
    def rank(self) -> int:
        """Position among all workloads of this role."""
        return self._identity.rank

    @property
    def world_size(self) -> int:
        """How many workloads this role has."""
        return self._identity.world_size

    @property
    def word_size(self) -> int:
        """Same as `world_size`, under the name the integration guide spells."""
        return self.world_size

    @property
    def local_rank(self) -> int:
        """Position among the workloads of this role on this node."""
        return self._identity.local_rank

    @property
    def local_world_size(self) -> int:
        """How many workloads of this role are on this node."""
        return self._identity.local_world_size

    @property
    def part(self) -> str | None:
        """The named part of the role that this workload is in, such as 'prefill'; None if the role has no parts."""
        return self._identity.part

    @property
    def part_rank(self) -> int:
        """Position among the workloads of this part; the rank, if the role has no parts."""
        return self._identity.part_rank

    @property
    def part_size(self) -> int:
        """How many workloads this part has."""
        return self._identity.part_size

    @property
    def device_ids(self) -> tuple[str, ...]:
        """The ids of this workload's devices on its node, such as ('3',); empty if it has none."""
        return self._identity.device_ids

    @property
    def torch_master_addr(self) -> str:
        """Address of rank 0's node, where the role's torch process group meets."""
        return self._identity.torch_master_addr

    @property
    def torch_master_port(self) -> int:
        """A port that was free on rank 0's node when the role started."""
        return self._identity.torch_master_port

    def is_actor_role(self) -> bool:
        return self.role is RoleType.ACTOR

    def is_reference_role(self) -> bool:
        return self.role is RoleType.REFERENCE

    def is_rollout_role(self) -> bool:
        return self.role is RoleType.ROLLOUT

    def is_reward_role(self) -> bool:
        return self.role is RoleType.REWARD

    def is_critic_role(self) -> bool:
        return self.role is RoleType.CRITIC

    def get_device_collocation(self) -> str | None:
        """The roles on this workload's device, such as 'ACTOR,ROLLOUT'; None if its device is not shared."""
        return self._identity.device_collocation
