"""`make soak`: the exactness job under the faults of many seeds, one after the other, on clusters of its own.

    make soak SEEDS=50 FIRST=1000

Each run is a row of soak.csv beside this file; a seed that runs again replaces its row. The totals go to
docs/explanation/soak.md. Exits with 1 if a seed was not exact, a fault did not strike, or a run did not come to its end.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soak.fault_plan import Setting, Struck
    from soak.grounds import Ground

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("soak.csv")
PAGE = ROOT / "docs" / "explanation" / "soak.md"
EXACT = "exact"
BROKEN = "broken off"


@dataclass(frozen=True, kw_only=True)
class Row:
    """How one seed went, as the file has it."""

    seed: int
    setting: str
    faults: str = ""
    """Those that struck, as texts of Struck, separated by semicolons."""
    workload_restarts: int = 0
    trainer_restarts: int = 0
    master_restarts: int = 0
    seconds: int = 0
    ending: str
    """EXACT, or what was wrong or not possible; BROKEN and the error of a run that did not come to its end, or missed a fault."""

    @property
    def is_exact(self) -> bool:
        return self.ending == EXACT

    @property
    def is_broken(self) -> bool:
        return self.ending.startswith(BROKEN)

    @property
    def struck(self) -> list[Struck]:
        from soak.fault_plan import Struck

        return [Struck.of_text(text) for text in self.faults.split("; ") if text]

    def __str__(self) -> str:
        faults = ", ".join(f"{one.kind} {one.name} ({one.target}, {one.moment})" for one in self.struck)
        restarts = f"{self.workload_restarts} workload, {self.trainer_restarts} trainer, {self.master_restarts} master"
        return f"seed {self.seed} on {self.setting}: {faults}; restarts: {restarts}; {self.seconds} s; {self.ending}"


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
        "faults that struck": sum(len(row.struck) for row in rows),
        "restarted workloads": sum(row.workload_restarts for row in rows),
        "restarted trainers": sum(row.trainer_restarts for row in rows),
        "restarted Masters": sum(row.master_restarts for row in rows),
    }
    lines = "\n".join(f"| {what} | {count} |" for what, count in totals.items())
    strikes = "\n".join(f"| {' | '.join(map(str, line))} |" for line in _strikes(rows))
    return _PAGE.format(totals=lines, strikes=strikes)


def _strikes(rows: Sequence[Row]) -> Iterator[tuple[object, ...]]:
    """How often each kind of fault struck each kind of target, by moment; a line for each that a seed can choose."""
    from soak.fault_plan import FIRST, SECOND, Moment

    counts = Counter((one.kind, one.target, one.moment) for row in rows for one in row.struck)
    possible = dict.fromkeys(name for ways in (FIRST, SECOND) for setting in ways.values() for name in setting)
    for kind, target in sorted(possible):
        of_moments = [counts[kind, target, moment] for moment in Moment]
        yield kind, target, *of_moments, sum(of_moments) or "never"


_PAGE = """\
# The exactness runs

The job of `tests/soak/exactness.py` has roles with state in which every number depends on every one before it. It runs under
random faults that a seed chooses: which kinds, what they hit, when, and whether two come at once or the second during the
recovery from the first. All are real: `kill` is SIGKILL, and a killed GCS is started again; `freeze` is SIGSTOP, and SIGCONT before
or, *until dead*, after it was declared dead; `fill` leaves no byte of a mounted file system free; `stall` locks the store's file,
or stops its server. The wall clock alone is a stand-in, set by a day in one process.

A run is exact if its end is the same to the last bit as that of a computation of the same steps without Ray, every step
was applied once and committed, every incident was completed, no commit was lost, and nothing was left on the cluster. A
fault that did not strike makes the run fail.

| all seeds that were run | |
| --- | --- |
{totals}

| what was done | to what | at the start | in training | at once with another | in a recovery | together |
| --- | --- | --- | --- | --- | --- | --- |
{strikes}

Three of five seeds run on two nodes with one memory, on small disks; one on three nodes with a memory of their own, without
durable storage, where a raylet stands still until Ray gives its node up, or dies with its node; one on a cluster
whose GCS keeps its tables on a Redis server. The Master is on the node of the raylet at times.

`make soak SEEDS=50 FIRST=1000` runs the seeds from 1000 to 1049, fails if one is not exact, and writes a row for
each into [`tests/soak/soak.csv`](../../tests/soak/soak.csv) and the totals of all rows into this page. Four
seeds run with every `make test-core`, six with `make test-long`.
"""


def run(seeds: Sequence[int]) -> list[Row]:
    """One row for each seed that was begun, setting after setting; a run that was broken off ends its setting."""
    from soak.fault_plan import Setting, setting_of

    rows: list[Row] = []
    for setting in Setting:
        of_setting = [seed for seed in seeds if setting_of(seed) is setting]
        for row in _rows(setting, of_setting) if of_setting else ():
            rows.append(row)
            write_rows({**read_rows(), row.seed: row}.values())
            PAGE.write_text(page(list(read_rows().values())))
            print(f"{len(rows)}/{len(seeds)} {row}", flush=True)
    return rows


def _rows(setting: Setting, seeds: Sequence[int]) -> Iterator[Row]:
    from soak.grounds import ground_of

    with tempfile.TemporaryDirectory() as folder, ground_of(setting, Path(folder)) as ground:
        for seed in seeds:
            row = _row(seed, setting, ground)
            yield row
            if row.is_broken:
                return  # its job may still be there, in the way of the next one


def _row(seed: int, setting: Setting, ground: Ground) -> Row:
    """What was wrong with the run is in the row, an exception included."""
    from checks import assert_nothing_left

    from soak.grounds import NotPossibleError
    from soak.one_run import check, run_seed

    try:
        done = run_seed(seed, ground)
        assert_nothing_left()
    except NotPossibleError as error:
        return Row(seed=seed, setting=setting, ending=f"not possible here: {error}")
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        return Row(seed=seed, setting=setting, ending=f"{BROKEN}: {type(error).__name__}: {text}")
    return Row(
        seed=seed,
        setting=setting,
        faults="; ".join(one.to_text() for one in done.struck),
        workload_restarts=done.workload_restarts,
        trainer_restarts=done.trainer_restarts,
        master_restarts=done.master_restarts,
        seconds=round(done.seconds),
        ending="; ".join(check(done)) or EXACT,
    )


def main() -> None:
    from checks import MARK

    parser = argparse.ArgumentParser(description="Run the exactness job under the faults of many seeds.")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing is left in memory
    with tempfile.TemporaryDirectory() as home:
        os.environ.update({"DLRL_HOME": home, "DLRL_MEMORY": f"{home}/memory", MARK: home})
        rows = run(range(asked.first, asked.first + asked.seeds))
    exact = sum(row.is_exact for row in rows)
    print(f"{exact} of {asked.seeds} runs exact, {sum(len(row.struck) for row in rows)} faults; rows: {ROWS}")
    sys.exit(exact != asked.seeds)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    main()
