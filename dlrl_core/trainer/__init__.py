"""The trainer's side of a job: the class users extend, and how its calls reach the workloads."""

from dlrl_core.trainer.base_trainer import BaseTrainer
from dlrl_core.trainer.role_call import RoleCall
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.trainer.workload_directory import WorkloadHandle

__all__ = ["BaseTrainer", "RoleCall", "RoleGroup", "WorkloadHandle"]
