"""What users hold: the builder, the job, its status and its result."""

from dlrl_core.api.builder import RLJobBuilder
from dlrl_core.api.job import RLJob
from dlrl_core.api.job_handle import JobHandle, JobResult
from dlrl_core.api.job_status import JobStatus

__all__ = ["JobHandle", "JobResult", "JobStatus", "RLJob", "RLJobBuilder"]
