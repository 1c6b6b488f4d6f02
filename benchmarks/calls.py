"""What a role group call costs over the same calls made by hand with Ray handles.

    python -m benchmarks.calls

No-op calls on 2 and on 8 workloads, with and without sharding, in turns from one process.
"""

from __future__ import annotations

import tempfile

from benchmarks.report import Comparison, report
from dlrl_core import RLJobBuilder

MODULE = "benchmarks.bench_roles"
BAR = 1.10


def measure(size: int) -> dict[str, tuple[list[float], list[float]]]:
    job = (
        RLJobBuilder()
        .device_per_node(size)
        .trainer(MODULE, "CallsTrainer")
        .actor(MODULE, "Idle").total(size).resource({"CPU": 0})
        .build()
    )  # fmt: skip
    measured: dict[str, tuple[list[float], list[float]]] = job.submit(f"calls-{size}").value
    return measured


def main() -> None:
    comparisons = [
        Comparison(name=name, ours_s=ours, theirs_s=theirs, bar=BAR)
        for size in (2, 8)
        for name, (ours, theirs) in measure(size).items()
    ]
    report(comparisons, ours="role group", theirs="Ray handles")


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as home:
        os.environ["DLRL_HOME"] = home
        main()
