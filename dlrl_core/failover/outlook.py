"""What the death of a process would restart, told before anything starts."""

from __future__ import annotations

from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec


def deaths_of(spec: JobSpec) -> dict[RoleType, str]:
    """For each role of the job, what follows when one of its processes dies; as StopPolicy decides it."""
    return {role.role: "nothing restarts: the job fails with the first cause" for role in spec.roles}
