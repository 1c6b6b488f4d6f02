"""What the user asked: frozen values, and every check that is possible before a cluster exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dlrl_core.spec.config_value import ConfigValue as ConfigValue
    from dlrl_core.spec.job_spec import JobSpec as JobSpec
    from dlrl_core.spec.job_spec import PartSpec as PartSpec
    from dlrl_core.spec.job_spec import PlacementRequest as PlacementRequest
    from dlrl_core.spec.job_spec import RoleSpec as RoleSpec
    from dlrl_core.spec.role_values import ClassRef as ClassRef
    from dlrl_core.spec.role_values import FailoverScope as FailoverScope
    from dlrl_core.spec.role_values import VisibleDevices as VisibleDevices
    from dlrl_core.spec.rules import check_name as check_name
    from dlrl_core.spec.rules import problems_of as problems_of

_HOMES = {
    "ClassRef": "dlrl_core.spec.role_values",
    "ConfigValue": "dlrl_core.spec.config_value",
    "FailoverScope": "dlrl_core.spec.role_values",
    "JobSpec": "dlrl_core.spec.job_spec",
    "PartSpec": "dlrl_core.spec.job_spec",
    "PlacementRequest": "dlrl_core.spec.job_spec",
    "RoleSpec": "dlrl_core.spec.job_spec",
    "VisibleDevices": "dlrl_core.spec.role_values",
    "check_name": "dlrl_core.spec.rules",
    "problems_of": "dlrl_core.spec.rules",
}

__all__ = list(_HOMES)

# A workload's process needs ClassRef and ConfigValue alone, and no pydantic.
__getattr__ = lazy_names(__name__, _HOMES)
