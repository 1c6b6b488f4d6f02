"""Who this process is within its job."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from dlrl_core.errors import DlrlError


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentity:
    """Name, ranks and rendezvous of one workload. The host sets it before the user's class is imported."""

    job: str
    run_id: str
    name: str
    role: str
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    torch_master_addr: str = ""
    torch_master_port: int = 0
    device_collocation: str | None = None
    part: str | None = None
    part_rank: int = 0
    part_size: int = 0
    device_ids: tuple[str, ...] = ()
    incarnation: int = 0

    def met_at(self, address: str, port: int) -> WorkloadIdentity:
        """The same workload once its role has agreed where to meet."""
        return dataclasses.replace(self, torch_master_addr=address, torch_master_port=port)

    def environment(self) -> dict[str, str]:
        """The variables that torch and the frameworks read, and our own."""
        meeting = {"MASTER_ADDR": self.torch_master_addr, "MASTER_PORT": str(self.torch_master_port)}
        return {
            **(meeting if self.torch_master_addr else {}),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "DLRL_JOB": self.job,
            "DLRL_WORKLOAD": self.name,
            "DLRL_ROLE": self.role,
            **({"DLRL_PART": self.part} if self.part else {}),
        }


_current: WorkloadIdentity | None = None


def become(identity: WorkloadIdentity) -> None:
    """Make this process that workload, for BaseWorkload and for libraries that read the environment."""
    global _current  # noqa: PLW0603 - a process is one workload; that is what this module holds
    os.environ.update(identity.environment())
    _current = identity


def current_identity() -> WorkloadIdentity:
    if _current is None:
        raise DlrlError(
            "this process is no workload of a job, so it has no name, role or rank; "
            "workloads are constructed by dlrl after RLJob.submit"
        )
    return _current
