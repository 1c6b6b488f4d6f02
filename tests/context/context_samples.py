"""Records, errors and processes that several tests of the context use."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from dlrl_core.context import JobRecord, Store, WorkloadRecord
from dlrl_core.errors import DlrlError
from dlrl_core.roles import RoleType

REPOSITORY = Path(__file__).parents[2]


def job_record(name: str = "my-ppo", **fields: Any) -> JobRecord:
    return JobRecord(**{"name": name, "spec_json": "{}", "store_url": "sqlite:///unused.db", **fields})


def workload_record(role: RoleType = RoleType.ACTOR, rank: int = 0, **fields: Any) -> WorkloadRecord:
    return WorkloadRecord(**{"name": role.workload_name(rank), "role": role, "rank": rank, **fields})


def stored_text(store: Store, job: str = "my-ppo") -> dict[str, str]:
    stored = store.load(job)
    assert stored is not None
    return dict(stored.documents)


def survives_pickle(error: DlrlError) -> bool:
    copy = pickle.loads(pickle.dumps(error))
    return type(copy) is type(error) and str(copy) == str(error) and copy.__dict__ == error.__dict__


def start_python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A real process that runs the code with the repository, and the paths of this process, on its path."""
    paths = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(code: str, *arguments: str | Path) -> str:
    process = start_python(code, *arguments)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output
