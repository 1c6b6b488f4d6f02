"""What is known of a job: reports of its workloads, and the one persisted record a new Master goes on from.

Names are loaded when first used: a workload imports its report from here, and must not wait for pydantic to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dlrl_core.context.change import JournalEvent as JournalEvent
    from dlrl_core.context.job_context import Change as Change
    from dlrl_core.context.job_context import JobContext as JobContext
    from dlrl_core.context.job_context import JobView as JobView
    from dlrl_core.context.job_state import JobState as JobState
    from dlrl_core.context.job_state import check_transition as check_transition
    from dlrl_core.context.process_report import ProcessReport as ProcessReport
    from dlrl_core.context.process_report import WorkloadState as WorkloadState
    from dlrl_core.context.records import FindingKind as FindingKind
    from dlrl_core.context.records import Incident as Incident
    from dlrl_core.context.records import JobEnding as JobEnding
    from dlrl_core.context.records import JobRecord as JobRecord
    from dlrl_core.context.records import Loss as Loss
    from dlrl_core.context.records import ProgressRecord as ProgressRecord
    from dlrl_core.context.records import Reason as Reason
    from dlrl_core.context.records import TrainerRecord as TrainerRecord
    from dlrl_core.context.records import TrainerState as TrainerState
    from dlrl_core.context.records import WorkloadRecord as WorkloadRecord
    from dlrl_core.context.redaction import looks_secret as looks_secret
    from dlrl_core.context.redaction import redact as redact
    from dlrl_core.context.store import Store as Store
    from dlrl_core.context.store import StoredJob as StoredJob
    from dlrl_core.context.store import default_store_url as default_store_url
    from dlrl_core.context.store import open_store as open_store
    from dlrl_core.context.write_queue import OutageLimits as OutageLimits

_HOMES = {
    "Change": "job_context",
    "FindingKind": "records",
    "Incident": "records",
    "JobEnding": "records",
    "Loss": "records",
    "Reason": "records",
    "JobContext": "job_context",
    "JobRecord": "records",
    "JobState": "job_state",
    "JobView": "job_context",
    "JournalEvent": "change",
    "OutageLimits": "write_queue",
    "ProgressRecord": "records",
    "Store": "store",
    "StoredJob": "store",
    "TrainerRecord": "records",
    "TrainerState": "records",
    "WorkloadRecord": "records",
    "ProcessReport": "process_report",
    "WorkloadState": "process_report",
    "check_transition": "job_state",
    "default_store_url": "store",
    "looks_secret": "redaction",
    "open_store": "store",
    "redact": "redaction",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - strings, which ruff can't see

__getattr__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
