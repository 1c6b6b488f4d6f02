"""The page of the exactness runs shows the totals of the rows beside them."""

from __future__ import annotations

from soak import run


def test_the_totals_of_the_page_are_those_of_the_rows():
    rows = list(run.read_rows().values())
    assert run.PAGE.read_text() == run.page(rows)
    assert all(row.is_exact for row in rows)


def test_rows_come_back_from_their_file(tmp_path):
    rows = [run.Row(seed=seed, faults=faults, ending=run.EXACT) for seed, faults in ((2, ""), (1, "kill a; kill b"))]
    run.write_rows(rows, tmp_path / "rows.csv")
    assert run.read_rows(tmp_path / "rows.csv") == {row.seed: row for row in rows}
    assert [row.fault_count for row in rows] == [0, 2]
