"""How records are laid out as documents of a store.

A job's record is cut where it changes at different times, so that a step's progress does not write the plan
of ten thousand workloads again: 'job', 'spec', 'plan', 'trainer', 'progress', 'incident/<number>' and
'workload/<name>'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dlrl_core.context.records import SCHEMA, Incident, JobRecord, ProgressRecord, TrainerRecord, WorkloadRecord
from dlrl_core.context.store import check_schema
from dlrl_core.errors import ContextError, SchemaError
from dlrl_core.spec.job_spec import validation_problems

M = TypeVar("M", bound=BaseModel)

_TEXTS = {"spec": "spec_json", "plan": "plan_json"}
_MODELS: dict[str, type[BaseModel]] = {"trainer": TrainerRecord, "progress": ProgressRecord}
_OWN_DOCUMENTS = {*_TEXTS.values(), *_MODELS, "incidents"}
_HEADER = [field for field in JobRecord.model_fields if field not in _OWN_DOCUMENTS]
_WORKLOAD = "workload/"
_INCIDENT = "incident/"
_GONE_SINCE_4 = {"job": ("epoch", "restarts", "last_error", "ending"), "workload": ("restarts",)}
"""Fields of older records: counted from the incidents now, or of another shape."""


def workload_key(name: str) -> str:
    return f"{_WORKLOAD}{name}"


def record_text(record: BaseModel) -> str:
    return record.model_dump_json()


def job_documents(new: JobRecord, *, old: JobRecord | None = None) -> dict[str, str | None]:
    """The documents of a job's record that differ from the old one's; None for one that is no more."""
    documents: dict[str, str | None] = {}
    if _differs(new, old, _HEADER):
        documents["job"] = new.model_dump_json(exclude=_OWN_DOCUMENTS)
    for key in _MODELS:
        if _differs(new, old, [key]):
            documents[key] = record_text(getattr(new, key))
    for key, field in _TEXTS.items():
        if _differs(new, old, [field]):
            text = getattr(new, field)
            documents[key] = text if text is None or _is_json(text) else _refuse(new.name, field)
    return {**documents, **_incident_documents(new.incidents, old.incidents if old else ())}


def _incident_documents(new: Sequence[Incident], old: Sequence[Incident]) -> dict[str, str | None]:
    """Those that are new or were completed; None for one that is no longer kept."""
    if new is old:
        return {}
    before, now = ({one.number: one for one in incidents} for incidents in (old, new))
    found: dict[str, str | None] = {f"{_INCIDENT}{number}": None for number in before.keys() - now.keys()}
    found |= {f"{_INCIDENT}{number}": record_text(one) for number, one in now.items() if before.get(number) != one}
    return found


def read_job(job: str, documents: Mapping[str, str]) -> JobRecord:
    """The job's record. Raises SchemaError, which names the document at fault."""
    header = _plain(job, "job", documents)
    parts: dict[str, Any] = {
        key: _validated(model, job, key, _plain(job, key, documents)) for key, model in _MODELS.items()
    }
    texts = {field: documents.get(key) for key, field in _TEXTS.items()}
    for key, field in _TEXTS.items():
        if (text := texts[field]) is not None and not _is_json(text):
            raise _unreadable(job, key, ["not JSON"])
    keys = sorted((key for key in documents if key.startswith(_INCIDENT)), key=lambda key: int(key.rpartition("/")[2]))
    incidents = [_validated(Incident, job, key, _plain(job, key, documents)) for key in keys]
    return _validated(JobRecord, job, "job", {**header, **parts, **texts, "incidents": incidents})


def read_workloads(job: str, documents: Mapping[str, str]) -> dict[str, WorkloadRecord]:
    """All workloads by name, by role and rank. Raises SchemaError, which names the document at fault."""
    keys = (key for key in documents if key.startswith(_WORKLOAD))
    records = [_validated(WorkloadRecord, job, key, _plain(job, key, documents)) for key in keys]
    return in_order(records)


def in_order(records: Iterable[WorkloadRecord]) -> dict[str, WorkloadRecord]:
    return {record.name: record for record in sorted(records, key=lambda one: (one.role, one.rank, one.name))}


def _differs(new: JobRecord, old: JobRecord | None, fields: list[str]) -> bool:
    return old is None or any(getattr(new, field) != getattr(old, field) for field in fields)


def _plain(job: str, key: str, documents: Mapping[str, str]) -> dict[str, Any]:
    """A document as a mapping, its schema known to be ours."""
    if key not in documents:
        raise SchemaError(f"job '{job}' has no document '{key}' in the store; its record can't be read")
    try:
        plain = json.loads(documents[key])
    except ValueError:
        raise _unreadable(job, key, ["not JSON"]) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("record_schema"), int):
        raise _unreadable(job, key, ["no record_schema"])
    check_schema(plain["record_schema"], SCHEMA, f"document '{key}' of job '{job}'")
    gone = _GONE_SINCE_4.get(key.partition("/")[0], ()) if plain["record_schema"] < 4 else ()
    return {name: value for name, value in plain.items() if name not in gone}


def _validated(model: type[M], job: str, key: str, plain: dict[str, Any]) -> M:
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _unreadable(job, key, validation_problems(error)) from error


def _unreadable(job: str, key: str, problems: list[str]) -> SchemaError:
    return SchemaError(f"document '{key}' of job '{job}' can't be read as a record: {'; '.join(problems)}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _refuse(job: str, field: str) -> str:
    raise ContextError(f"{field} of job '{job}' is not JSON; give what to_json() returns")
