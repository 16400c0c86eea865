"""JSON that is deeper than MariaDB finds valid goes where all other JSON goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.values import WireKind
from storage_consumer.errors import RowRefused
from storage_consumer.model import TableName
from storage_consumer.rows.spec import Fold, KeyPart, Mode, WireColumn
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.connection import connect
from storage_consumer.target.keyless import FEW, KeylessTable
from storage_consumer.target.transaction import FencedConnection
from tests.contract.test_writer import Rig, real_rig
from tests.harness.servers import DatabaseServer
from tests.unit.halves import as_events, table

pytestmark = pytest.mark.server
COLUMNS = tuple(WireColumn(name=name, kind=WireKind.TEXT, type=kind) for name, kind in (("i", "INT"), ("j", "JSON")))
LISTS = "[" * 40 + "]" * 40
OBJECTS = '{"a": [' * 18 + '"]"' + '], "b": "\\"[{"}' * 18
"""Of 36 levels, with brackets and quotes in texts."""
NO_JSON = "[" * 40
NAME = TableName(schema="shop", table="deep")
KEYLESS = replace(table(Mode.KEYLESS), name=NAME, table_key="`shop`.`deep`", written=COLUMNS)


def line(number: int, text: str) -> bytes:
    """A row as it travels."""
    return b"%d\t%b" % (number, text.replace("\\", "\\\\").encode())


@dataclass(frozen=True, slots=True)
class Deep:
    """``shop.deep`` on a MariaDB."""

    server: DatabaseServer
    rig: Rig

    def rows(self) -> list[tuple[int, str]]:
        """What it holds."""
        return sorted((int(number), str(text)) for number, text in self.server.query("SELECT i, j FROM shop.deep"))

    def target(self, *, load_data: bool = True) -> RowStatements:
        """A task's connection in a new window."""
        window = self.rig.state.lease.open_window(1, 0)
        return RowStatements(FencedConnection(replace(self.rig.spec, load_data=load_data, window_id=window), "", 0))


@pytest.fixture
def deep(mariadb: DatabaseServer) -> Iterator[Deep]:
    """It has no key yet."""
    with closing(real_rig(mariadb)) as rig:
        mariadb.query("CREATE TABLE shop.deep (i INT, j JSON, CONSTRAINT fits CHECK (i < 1000))")
        yield Deep(mariadb, rig)


@pytest.mark.parametrize("load_data", [True, False])
@pytest.mark.parametrize("many", [1, 200])
def test_keyed(deep: Deep, many: int, *, load_data: bool) -> None:
    """It is inserted and replaced, alone and among many, and the rows beside it are still checked."""
    deep.server.query("ALTER TABLE shop.deep ADD PRIMARY KEY (i)")
    key = (KeyPart(column=COLUMNS[0], fold=Fold.EXACT),)
    work = replace(table(), name=NAME, written=COLUMNS, key=key)
    target = deep.target(load_data=load_data)
    plain = [(number, '{"a": 1}') for number in range(10, 10 + many)]
    with closing(target.fenced):
        for texts in ((LISTS, OBJECTS), (OBJECTS, LISTS), ("{}", LISTS)):
            some = [(1, texts[0]), *plain, (900, texts[1])]
            rows = [line(*one) for one in some]
            target.fenced.transaction(work, partial(target.put, work, (), rows, is_settled=True))
            assert deep.rows() == some
        for bad in (line(5000, "{}"), line(7, NO_JSON)):
            rows = [line(1, LISTS), bad]
            with pytest.raises(RowRefused, match=r"the target refused the row with i = (5000|7): .*(fits|deep\.j)"):
                target.fenced.transaction(work, partial(target.put, work, (), rows, is_settled=True))
    assert deep.rows() == some


@pytest.mark.parametrize("many", [1, 2 * FEW])
def test_keyless(deep: Deep, many: int) -> None:
    """It is found again by a delete, alone and where many go together, and no row beside it goes."""
    rows = [line(number, text) for number in range(many) for text in (LISTS, OBJECTS, LISTS.replace("[]", "[1]"))]

    def write(commit_ts: int, *, upsert: bool, lines: list[bytes]) -> None:
        target = deep.target()
        with closing(target.fenced):
            KeylessTable(target, KEYLESS).write(as_events((commit_ts, [(upsert, one) for one in lines])))

    write(100, upsert=True, lines=rows)
    write(200, upsert=False, lines=[one for place, one in enumerate(rows) if place % 3 != 1])
    assert deep.rows() == [(number, OBJECTS) for number in range(many)]


def test_statements(deep: Deep) -> None:
    """A statement that writes the table anew does not ask about what is in it."""
    target = deep.target()
    with closing(target.fenced):
        target.fenced.transaction(KEYLESS, lambda: target.insert(KEYLESS, [line(1, LISTS)]))
    with closing(connect(Downstream(port=deep.server.port), "", ddl=True)) as connection:
        connection.query("ALTER TABLE shop.deep MODIFY i BIGINT, ALGORITHM = COPY")
    assert deep.rows() == [(1, LISTS)]
