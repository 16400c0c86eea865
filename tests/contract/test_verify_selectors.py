"""Columns that the changefeed's column selectors leave out: no row carries them, so none of their values is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage_consumer.cli.endings import ExitCode, answered
from storage_consumer.config.settings import ColumnSelector
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from tests.contract.verify_rigs import SOURCE, VerifyRig
from tests.harness.servers import KINDS

pytestmark = pytest.mark.server
CARRIED = CarriedColumns(selectors=(ColumnSelector(matcher=(f"{SOURCE}.t",), columns=("*", "!secret", "!Also")),))
NOTE = "left out by the changefeed's column-selectors: secret, also"


@pytest.fixture(params=[(KINDS[-1], target) for target in KINDS], ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """A table whose selected columns are equal, and two others that the target has, without the source's values."""
    source, target = request.param
    found = VerifyRig(request.getfixturevalue(source), request.getfixturevalue(target))
    found.both("CREATE TABLE t (id INT PRIMARY KEY, v INT, secret VARCHAR(9), also INT DEFAULT 1, KEY k (secret))")
    found.at_source("INSERT INTO t VALUES (1, 1, 'x', 5), (2, 2, 'y', 6)")
    found.at_target("INSERT INTO t (id, v) VALUES (1, 1), (2, 2)")
    found.at_rest("t")
    return found


def compared(rig: VerifyRig, carried: CarriedColumns = CARRIED) -> TableResult:
    """What a comparison finds that knows the selectors."""
    (found,) = rig.report(carried=carried).tables
    return found


def test_values_of_columns_that_are_left_out(rig: VerifyRig) -> None:
    """They are no difference, and a note names the columns; other tables, and other columns, are compared as ever."""
    found = compared(rig)
    assert (found.outcome, found.structure, found.rows) == (VerifyOutcome.EQUAL, (), 2)
    assert NOTE in found.notes
    others = CarriedColumns(selectors=(ColumnSelector(matcher=("other.*",), columns=("id",)),))
    assert compared(rig, others).differing == 2
    rig.at_target("UPDATE t SET v = 3 WHERE id = 2")
    (row,) = compared(rig).differences
    assert (dict(row.key), row.source, row.target) == ({"id": "2"}, {"v": "2"}, {"v": "3"})


def test_columns_that_the_target_lacks(rig: VerifyRig) -> None:
    """Where they are left out that is no difference, nor is an index over them; a column that rows carry is missed."""
    rig.at_target("ALTER TABLE t DROP KEY k", "ALTER TABLE t DROP COLUMN secret")
    found = compared(rig)
    assert (found.outcome, found.structure, NOTE in found.notes) == (VerifyOutcome.EQUAL, (), True)
    rig.at_target("ALTER TABLE t DROP COLUMN v")
    found = compared(rig)
    assert (found.outcome, found.structure) == (VerifyOutcome.DIFFERENT, ("column v: the target lacks it",))


def test_their_structure(rig: VerifyRig) -> None:
    """Statements reach the target whole, so what it has of such a column is compared."""
    rig.at_target("ALTER TABLE t MODIFY also BIGINT DEFAULT 1")
    (found,) = compared(rig).structure
    assert found.startswith("column also: type: bigint")


def test_the_command(rig: VerifyRig, tmp_path: Path) -> None:
    """The selectors come from the changefeed's file."""
    file = tmp_path / "changefeed.toml"
    selectors = f'[[sink.column-selectors]]\nmatcher = ["{SOURCE}.*"]\ncolumns = ["id", "v"]\n'
    file.write_text(f"[sink.csv]\ninclude-commit-ts = true\n{selectors}", encoding="utf-8")
    options: dict[str, object] = {
        **({} if rig.is_live else {"frozen": True}),
        "source": rig.source.uri.replace("mysql:", "tidb:") if rig.is_live else rig.source.uri,
        "downstream_uri": rig.target.uri,
        "json": True,
    }
    with_file = answered("verify", {**options, "config": [str(file)]}, {})
    assert (with_file.code, NOTE in json.loads(with_file.text)["tables"][0]["notes"]) == (ExitCode.DONE, True)
    assert answered("verify", options, {}).code == ExitCode.TABLES_STOPPED
