"""Shows the plan of the quickstart, then runs it: python -m dlrl_quickstart [--kill actor-1]"""

from __future__ import annotations

import argparse
import os
import signal

from dlrl_core import JobStatus
from dlrl_quickstart.job import build

KILLED_AT = 20


class Killer:
    """Sends SIGKILL to the process of one workload, once, when the job is far enough."""

    def __init__(self, workload: str | None) -> None:
        self.workload = workload

    def __call__(self, status: JobStatus) -> None:
        if self.workload is None or (status.step or 0) < KILLED_AT:
            return
        for one in status.workloads:
            if one["name"] == self.workload:
                os.kill(one["pid"], signal.SIGKILL)
                print(f"sent SIGKILL to '{self.workload}' at step {status.step}")
        self.workload = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlrl_quickstart", description="Run the quickstart of dlrl.")
    parser.add_argument("--kill", metavar="WORKLOAD", help=f"kill this process at step {KILLED_AT}, such as 'actor-1'")
    asked = parser.parse_args()
    job = build()
    print(job.plan())
    result = job.submit("quickstart", on_status=Killer(asked.kill))
    print(f"reward {result.value['first_reward']:.2f} -> {result.value['last_reward']:.2f} in {result.seconds:.1f} s")


if __name__ == "__main__":
    main()
