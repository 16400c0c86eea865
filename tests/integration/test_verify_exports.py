"""An export by Dumpling that was loaded is equal to itself, by ``verify --against``; whatever is changed in the target is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.config.settings import Downstream, Secrets
from storage_consumer.model import TableName
from storage_consumer.operating.exported_source import exported_source
from storage_consumer.operating.opened_export import NO_BUCKET, opened_export
from storage_consumer.operating.verification import Server, verified
from storage_consumer.operating.verified_table import Wishes
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.verifying.comparing import Comparison
from storage_consumer.verifying.result import Outcome, TableResult
from storage_consumer.verifying.side import KeyRange
from tests.harness.corpora import available, chosen
from tests.harness.dumps import Dump
from tests.harness.dumps import available as available_dumps
from tests.harness.handovers import begun, is_whole
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
EXPORTS = (
    *("types/sql", "types/csv-bigquery", "types/csv-r20-F1KiB-gzip", "text_traps/csv", "text_traps/sql-nobs"),
    *("generated/sql", "shop/sql-gzip"),
)
"""Of the end of a recording."""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dump]:
    """The exports, by workload and variant."""
    return {str(dump): dump for dump in available_dumps(tmp_path_factory.mktemp("dumps")) if is_whole(dump)}


def loaded(dump: Dump, server: DatabaseServer, folder: Path) -> str:
    """Load an export into a server that goes on to exactly its TSO; its URI. What the server cannot hold stays halted."""
    workload = dump.folder.parent.name
    source, *_ = chosen(available(), workloads=(workload,), archs=("new",), variants=("csv", "json"))
    corpus = source.open(folder / "corpora")
    case = begun(dump, corpus, server, folder)
    corpus.materialise(corpus.cuts[case.cut - 1], case.replay.bucket)
    with case.consumer() as consumer:
        consumer.run_once()
    return case.uri


def compared(uri: str, server: DatabaseServer) -> dict[TableName, TableResult]:
    """What a comparison finds, but for views and for tables that were never loaded."""
    source = exported_source(*opened_export(uri, NO_BUCKET, Secrets()))
    report = verified(Server(settings=Downstream(port=server.port)), source, Wishes(chunk_rows=7))
    no_rows = ("it is a view", "it is being loaded")
    return {each.table: each for each in report.tables if not each.reason.startswith(no_rows)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("export", EXPORTS)
def test_equal(export: str, kind: str, dumps: dict[str, Dump], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Both forms, every type, with keys and without, on each server."""
    server: DatabaseServer = request.getfixturevalue(kind)
    uri = loaded(dumps[export], server, tmp_path)
    found = compared(uri, server).values()
    wrong = [each for each in found if each.outcome is not Outcome.EQUAL]
    told = [(str(each.table), each.reason, each.structure, each.differences[:3]) for each in wrong]
    assert told == []
    assert sum(each.rows for each in found) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("export", ["shop/sql-gzip", "text_traps/csv", "types/sql"])
def test_checksums_are_the_servers(
    export: str,
    kind: str,
    dumps: dict[str, Dump],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Where a table has neither floats nor JSON, no row is fetched: the sums over the export are those that the server computes."""
    server: DatabaseServer = request.getfixturevalue(kind)
    fetched: list[bool] = []
    compare = Comparison._row_by_row

    def noted(comparison: Comparison, keys: KeyRange) -> int:
        fetched.append(comparison._layout.sums_agree)
        return compare(comparison, keys)

    monkeypatch.setattr(Comparison, "_row_by_row", noted)
    uri = loaded(dumps[export], server, tmp_path)
    assert all(each.outcome is Outcome.EQUAL for each in compared(uri, server).values())
    assert True not in fetched


@pytest.mark.parametrize("kind", KINDS)
def test_differences(kind: str, dumps: dict[str, Dump], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In each table one value of its last column becomes NULL, where it may: each such row is found, and no other."""
    server: DatabaseServer = request.getfixturevalue(kind)
    uri = loaded(dumps["types/sql"], server, tmp_path)
    before = compared(uri, server)
    changed = {name: _with_a_null_more(name, server) for name, result in before.items() if result.rows}
    after = compared(uri, server)
    assert sum(changed.values()) > 5
    assert {name: each.differing + each.missing for name, each in after.items() if each.rows} == changed


def _with_a_null_more(name: TableName, server: DatabaseServer) -> int:
    """Have each column of a table be NULL in a row in which it is not, if there is one; how many rows that makes."""
    table, where = qualified(name), f"table_schema = '{name.schema}' AND table_name = '{name.table}'"
    columns = server.query(
        f"SELECT column_name FROM information_schema.columns WHERE {where} AND is_nullable = 'YES' AND extra NOT LIKE '%GENERATED%'"
    )
    ((before,),) = server.query(f"SELECT COUNT(*) FROM {table}")
    assert before
    rows = 0
    for (column,) in columns[-1:]:
        column_name = quote(str(column))
        ((filled,),) = server.query(f"SELECT COUNT({column_name}) FROM {table}")
        if filled:
            server.query(f"UPDATE {table} SET {column_name} = NULL WHERE {column_name} IS NOT NULL LIMIT 1")
            rows += 1
    return rows
