"""What commits cost a role without a framework, with 2 GB of state in one array: blocking, steps and memory.

    python -m benchmarks.commits

benchmarks/commit_jobs.py says what is measured; openrlhf_commits.py and verl_commits.py do it with real engines.
"""

from __future__ import annotations

from benchmarks.commit_jobs import Case, run

PLAIN = Case(
    name="plain_2gb",
    role="benchmarks.commit_roles:LargeHolder",
    seconds=75.0,
    read_s=5.0,
    config={"state_bytes": 2 * 10**9},
)

if __name__ == "__main__":
    run([PLAIN])
