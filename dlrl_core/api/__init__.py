"""What users hold: the builder, the job, its status and its result."""

from dlrl_core.api.builder import RLJobBuilder
from dlrl_core.api.job import RLJob
from dlrl_core.api.job_handle import JobHandle, JobResult, JobStatus

__all__ = ["JobHandle", "JobResult", "JobStatus", "RLJob", "RLJobBuilder"]
