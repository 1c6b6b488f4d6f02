"""One process of a role: the class users extend, and what surrounds it in its process."""

from dlrl_core.workload.base_workload import BaseWorkload
from dlrl_core.workload.invocation import Target, trainer_invocation, whole

__all__ = ["BaseWorkload", "Target", "trainer_invocation", "whole"]
