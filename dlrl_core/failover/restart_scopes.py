"""What the death of a process would restart, told before anything starts."""

from __future__ import annotations

from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec
from dlrl_core.spec.role_values import FailoverScope

_RESTARTS = {
    FailoverScope.WORKLOAD: "the process alone; its part of the running call is done again",
    FailoverScope.ROLE: "all of {role}, from the last commit; the other roles stay",
    FailoverScope.SUBGRAPH: "{role} and the roles its results reached, from the last commit",
    FailoverScope.JOB: "the whole job, from the last commit",
    FailoverScope.STOP: "nothing: the job fails with the first cause",
}


def declared_scopes(spec: JobSpec) -> dict[RoleType, FailoverScope]:
    """What each role survives; a role that declares nothing takes the whole job with it."""
    return {role.role: role.failover or FailoverScope.JOB for role in spec.roles}


def deaths_of(spec: JobSpec) -> dict[RoleType, str]:
    """For each role of the job, what restarts when one of its processes dies."""
    return {role: _RESTARTS[scope].format(role=role.value) for role, scope in declared_scopes(spec).items()}
