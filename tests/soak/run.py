"""`make soak`: the exactness job under the faults of many seeds, one after the other, on a cluster of its own.

    make soak SEEDS=50 FIRST=1000

Each run is a row of soak.csv beside this file; a seed that runs again replaces its row. The totals go to
docs/explanation/soak.md. Exits with 1 if a seed was not exact or could not be run to its end.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("soak.csv")
PAGE = ROOT / "docs" / "explanation" / "soak.md"
EXACT = "exact"
BROKEN = "broken off"


@dataclass(frozen=True, kw_only=True)
class Row:
    """How one seed went, as the file has it."""

    seed: int
    faults: str
    """Kind and target of each, separated by semicolons."""
    workload_restarts: int = 0
    trainer_restarts: int = 0
    master_restarts: int = 0
    seconds: int = 0
    ending: str
    """EXACT, or what was wrong; BROKEN and the error of a run that did not come to its end."""

    @property
    def is_exact(self) -> bool:
        return self.ending == EXACT

    @property
    def is_broken(self) -> bool:
        return self.ending.startswith(BROKEN)

    @property
    def fault_count(self) -> int:
        return len(self.faults.split(";")) if self.faults else 0

    def __str__(self) -> str:
        restarts = f"{self.workload_restarts} workload, {self.trainer_restarts} trainer, {self.master_restarts} master"
        return f"seed {self.seed}: {self.faults or 'no fault in time'}; restarts: {restarts}; {self.seconds} s; {self.ending}"


def read_rows(path: Path = ROWS) -> dict[int, Row]:
    """The rows of the file by seed."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        found = [
            Row(**{one.name: _value(line[one.name], str(one.type)) for one in fields(Row)})
            for line in csv.DictReader(file)
        ]
    return {row.seed: row for row in found}


def _value(text: str, kind: str) -> int | str:
    return int(text) if kind == "int" else text


def write_rows(rows: Iterable[Row], path: Path = ROWS) -> None:
    """All rows, in the order of their seeds."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted(rows, key=lambda row: row.seed))


def page(rows: Sequence[Row]) -> str:
    """docs/explanation/soak.md."""
    totals = {
        "runs": len(rows),
        "exact": sum(row.is_exact for row in rows),
        "faults that hit a process": sum(row.fault_count for row in rows),
        "runs whose faults all came too late": sum(not row.fault_count for row in rows),
        "restarted workloads": sum(row.workload_restarts for row in rows),
        "restarted trainers": sum(row.trainer_restarts for row in rows),
        "restarted Masters": sum(row.master_restarts for row in rows),
    }
    lines = "\n".join(f"| {what} | {count} |" for what, count in totals.items())
    return (
        "# The exactness runs\n\n"
        "The job of `tests/soak/exactness.py` has five roles, two of them with state in which every number depends on every\n"
        "one before it. It runs once without faults, then under random faults that a seed chooses: how many, when, and\n"
        "which processes are killed. A run is exact if its end is the same to the last bit as that of the run without\n"
        "faults, every step was applied once, and nothing was left on the cluster.\n\n"
        "| all seeds that were run | |\n| --- | --- |\n"
        f"{lines}\n\n"
        "`make soak SEEDS=50 FIRST=1000` runs the seeds from 1000 to 1049, fails if one is not exact, and writes a row for\n"
        "each into [`tests/soak/soak.csv`](../../tests/soak/soak.csv) and the totals of all rows into this page. Three seeds\n"
        "run with every `make test-core`.\n"
    )


def run(seeds: Sequence[int]) -> list[Row]:
    """One row for each seed that was begun; a run that did not come to its end is the last one."""
    import ray

    from dlrl_core.plan import ClusterView
    from dlrl_local_ray.local_cluster import LocalCluster
    from soak import exactness

    rows: list[Row] = []
    cluster = LocalCluster()
    try:
        address = cluster.add_nodes(ClusterView.described(node_num=2, resources={"CPU": 16, "GPU": 4}))
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        expected = exactness.run_without_faults()
        for seed in seeds:
            row = _row(seed, expected)
            rows.append(row)
            _keep(row)
            print(f"{len(rows)}/{len(seeds)} {row}", flush=True)
            if row.is_broken:
                break  # its job may still be there, in the way of the next one
    finally:
        ray.shutdown()
        cluster.stop()
    return rows


def _row(seed: int, expected: object) -> Row:
    """What was wrong with the run is in the row, an exception included."""
    from soak import exactness

    try:
        done = exactness.run_with_faults(seed)
    except Exception as error:
        return Row(
            seed=seed, faults="", ending=f"{BROKEN}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        )
    return Row(
        seed=seed,
        faults="; ".join(f"{one.kind} {one.target}" for one in done.faults),
        workload_restarts=sum(done.restarts.values()),
        trainer_restarts=done.trainer_restarts,
        master_restarts=done.master_restarts,
        seconds=round(done.seconds),
        ending="; ".join(exactness.check(done, expected)) or EXACT,
    )


def _keep(row: Row) -> None:
    rows = {**read_rows(), row.seed: row}
    write_rows(rows.values())
    PAGE.write_text(page(list(rows.values())))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the exactness job under the faults of many seeds.")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLRL_HOME"] = home
        rows = run(range(asked.first, asked.first + asked.seeds))
    exact = sum(row.is_exact for row in rows)
    print(f"{exact} of {asked.seeds} runs exact, {sum(row.fault_count for row in rows)} faults; rows: {ROWS}")
    sys.exit(exact != asked.seeds)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    main()
