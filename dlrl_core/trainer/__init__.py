"""The trainer's side of a job: the class users extend, and how its calls reach the workloads."""

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dlrl_core.trainer.base_trainer import BaseTrainer as BaseTrainer
    from dlrl_core.trainer.workload_directory import WorkloadHandle as WorkloadHandle

# A workload's class is often in one module with its trainer: its process needs no more than the class to extend.
__getattr__ = lazy_names(
    __name__,
    {"BaseTrainer": "dlrl_core.trainer.base_trainer", "WorkloadHandle": "dlrl_core.trainer.workload_directory"},
)
