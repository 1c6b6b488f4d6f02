"""What the user asked: frozen values, and every check that is possible before a cluster exists."""

from dlrl_core.spec.config_value import ConfigValue
from dlrl_core.spec.job_spec import SCHEMA, ClassRef, JobSpec, RoleSpec
from dlrl_core.spec.rules import check_name, problems_of

__all__ = ["SCHEMA", "ClassRef", "ConfigValue", "JobSpec", "RoleSpec", "check_name", "problems_of"]
