"""The page of the exactness runs shows the totals of the rows beside them, and 300 seeds strike with everything."""

from __future__ import annotations

import pytest
from soak import run
from soak.fault_plan import FIRST, SECOND, Kind, Moment, Setting, Struck, Target, plan_of, setting_of

KILLED = Struck(kind=Kind.KILL, target=Target.WORKLOAD, moment=Moment.AT_ONCE, name="actor-0")
FROZEN = Struck(kind=Kind.FREEZE, target=Target.MASTER, moment=Moment.TRAINING, name="master")


def test_the_totals_of_the_page_are_those_of_the_rows():
    rows = list(run.read_rows().values())
    assert run.PAGE.read_text() == run.page(rows)
    assert all(row.is_exact for row in rows)


def test_each_row_is_of_the_faults_that_its_seed_chooses_today():
    for row in run.read_rows().values():
        planned = [(*one.name, one.moment) for group in plan_of(row.seed) for one in group]
        assert [(one.kind, one.target, one.moment) for one in row.struck] == planned
        assert row.setting == setting_of(row.seed)


def test_rows_come_back_from_their_file(tmp_path):
    rows = [
        run.Row(seed=2, setting=Setting.REDIS, ending=run.EXACT),
        run.Row(seed=1, setting=Setting.TWO_NODES, faults=f"{KILLED.to_text()}; {FROZEN.to_text()}", ending=run.EXACT),
    ]
    run.write_rows(rows, tmp_path / "rows.csv")
    assert run.read_rows(tmp_path / "rows.csv") == {row.seed: row for row in rows}
    assert [row.struck for row in rows] == [[], [KILLED, FROZEN]]


def test_a_fault_that_never_struck_is_told_as_such():
    page = run.page([run.Row(seed=1, setting=Setting.TWO_NODES, faults=KILLED.to_text(), ending=run.EXACT)])
    assert "| kill | workload | 0 | 0 | 1 | 0 | 1 |" in page
    assert "| kill | trainer | 0 | 0 | 0 | 0 | never |" in page


@pytest.mark.parametrize("setting", Setting)
def test_300_seeds_strike_with_every_fault_of_their_setting(setting):
    groups = [group for seed in range(300) if setting_of(seed) is setting for group in plan_of(seed)]
    assert {one.name for group in groups for one in group} == FIRST[setting].keys() | SECOND[setting].keys()
    moments = {moment for moment in Moment if moment is not Moment.START or setting is Setting.TWO_NODES}
    assert {one.moment for group in groups for one in group} == moments
    assert any(len(group) == 2 for group in groups)
