"""BaseWorkload: the class behind every role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrl_core.roles import RoleType
from dlrl_core.workload.identity import WorkloadIdentity, current_identity

if TYPE_CHECKING:
    from omegaconf import DictConfig


class BaseWorkload:
    """One process of a role. Extend it, with or without `@ray.remote`, and define the methods the trainer calls.

    dlrl constructs it in a process of its own with `(master_handle, config)`. All properties below are
    there from the start of the constructor on.
    """

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
        return RoleType(self._identity.role)

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
        """The ids of the node's devices that this workload was given, such as ('3',); empty if it has none."""
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
        """The roles on this workload's device, such as 'ACTOR,ROLLOUT'; None if it has its device for itself."""
        return self._identity.device_collocation
