"""Structures of both sides: what is the same under a named equivalence, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.rows.compared_layout import ColumnShape, IndexShape, TableShape
from storage_consumer.rows.comparing import StructureFound, compared
from tests.unit.rows.alike import EQUIVALENCES

INT = ColumnShape(name="a", data_type="int", column_type="int")
TEXT = ColumnShape(name="a", data_type="varchar", column_type="varchar(9)", collation="utf8mb4_bin")
JSON = ColumnShape(name="a", data_type="json", column_type="json")
LONG = ColumnShape(name="a", data_type="longtext", column_type="longtext", collation="utf8mb4_bin")
STAMP = ColumnShape(name="a", data_type="timestamp", column_type="timestamp(3)")


MOMENT = replace(STAMP, default="2024-01-01 00:00:00", constant=b"2024-01-01 00:00:00.000")
NEXTVAL = replace(INT, default="nextval(`d`.`s`)", extra="DEFAULT_GENERATED")


def shape(
    kind: str,
    column: ColumnShape,
    *indexes: IndexShape,
    collation: str = "utf8mb4_bin",
    foreign_keys: tuple[tuple[str, ...], ...] = (),
) -> TableShape:
    """A table of one column, and one that says nothing."""
    columns = (column, replace(INT, name="z"))
    return TableShape(kind=kind, columns=columns, indexes=indexes, collation=collation, foreign_keys=foreign_keys)


def generated(text: str, kind: str = "varchar") -> ColumnShape:
    """A column with a default that MySQL or TiDB computes."""
    return ColumnShape(name="a", data_type=kind, column_type=kind, default=text, extra="DEFAULT_GENERATED")


def index(
    *columns: str,
    name: str = "i",
    unique: bool = False,
    method: str = "BTREE",
    is_global: bool = False,
    is_partial: bool = False,
) -> IndexShape:
    """An index over whole columns."""
    return IndexShape(
        name=name,
        unique=unique,
        columns=columns,
        prefixes=(None,) * len(columns),
        method=method,
        is_global=is_global,
        condition="`z` > 1" if is_partial else "",
    )


@pytest.mark.parametrize(
    ("kind", "source", "target", "equivalence"),
    [
        ("mariadb", INT, replace(INT, column_type="int(11)"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned"), replace(INT, column_type="int(6) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int unsigned"), replace(INT, column_type="int(6) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned"), replace(INT, column_type="int(6) zerofill"), "display width"),
        ("mysql", replace(INT, column_type="int(6) unsigned zerofill"), INT, ""),
        ("mysql", INT, replace(INT, column_type="int(6) unsigned zerofill"), ""),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned"), replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned zerofill"), "display width"),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(8,2) unsigned zerofill"), replace(INT, data_type="decimal", column_type="decimal(8,2)"), ""),
        ("mysql", replace(INT, data_type="tinyint", column_type="tinyint(1)"), replace(INT, data_type="tinyint", column_type="tinyint"), "display width"),
        ("mysql", replace(INT, data_type="tinyint", column_type="tinyint(4)"), replace(INT, data_type="tinyint", column_type="tinyint(1)"), ""),
        ("mysql", replace(INT, data_type="tinyint", column_type="tinyint(1) unsigned"), replace(INT, data_type="tinyint", column_type="tinyint unsigned"), "display width"),
        ("mysql", INT, replace(INT, column_type="int unsigned"), ""),
        ("mysql", INT, replace(INT, data_type="bigint", column_type="bigint"), ""),
        ("mariadb", JSON, LONG, "json"),
        ("mysql", JSON, LONG, ""),
        ("tidb", JSON, LONG, ""),
        ("tidb", replace(JSON, data_type="vector", column_type="vector(3)"), LONG, ""),
        ("mysql", replace(JSON, data_type="vector", column_type="vector(3)"), LONG, "vector type"),
        ("mysql", TEXT, LONG, ""),
        ("mariadb", replace(INT, nullable=False, is_generated=True), replace(INT, is_generated=True), "generated NOT NULL"),
        ("mariadb", replace(INT, is_generated=True), replace(INT, nullable=False, is_generated=True), ""),
        ("mysql", replace(INT, nullable=False, is_generated=True), replace(INT, is_generated=True), ""),
        ("mysql", replace(INT, nullable=False), INT, ""),
        ("mysql", replace(INT, is_generated=True), INT, ""),
        ("mysql", replace(INT, is_generated=True, extra="STORED GENERATED"), replace(INT, is_generated=True, extra="VIRTUAL GENERATED"), ""),
        ("mariadb", replace(TEXT, default="it's"), replace(TEXT, default="'it''s'"), "default expression"),
        ("mariadb", replace(TEXT, default="x"), replace(TEXT, default="'y'"), ""),
        ("mysql", replace(TEXT, default=""), TEXT, ""),
        ("mysql", replace(TEXT, default="😀"), replace(TEXT, default="?", constant="😀".encode()), "default expression"),
        ("mysql", replace(TEXT, default="?"), replace(TEXT, default="?", constant="😀".encode()), ""),
        ("mariadb", replace(TEXT, default="f(X)"), replace(TEXT, default="'f(x)'", constant=b"f(x)"), ""),
        ("mysql", replace(TEXT, default="0xff"), replace(TEXT, default="0xFF", constant=b"\xff"), ""),
        ("mysql", replace(LONG, default="x"), replace(LONG, default="'y'", constant=b"y"), ""),
        ("mysql", LONG, replace(LONG, default="_utf8mb4\\'x\\'", extra="DEFAULT_GENERATED"), ""),
        ("mariadb", replace(TEXT, data_type="date", default="CURRENT_DATE"), replace(TEXT, data_type="date", default="curdate()"), "default expression"),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('😀','?')"), replace(TEXT, data_type="enum", column_type="enum('?','?')"), "member characters"),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('表')"), replace(TEXT, data_type="enum", column_type="enum('?')"), ""),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('a\\b')"), replace(TEXT, data_type="enum", column_type="enum('a\\\\b')"), "default expression"),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('a\\\\b')"), replace(TEXT, data_type="enum", column_type="enum('a\\\\b')"), None),
        ("mysql", replace(TEXT, data_type="enum", column_type="enum('a\\\\\\\\b')"), replace(TEXT, data_type="enum", column_type="enum('a\\\\b')"), ""),
        ("tidb", replace(TEXT, data_type="enum", column_type="enum('😀')"), replace(TEXT, data_type="enum", column_type="enum('?')"), ""),
        ("mysql", replace(INT, data_type="decimal", column_type="decimal(9,2)", default="0"), replace(INT, data_type="decimal", column_type="decimal(9,2)", default="0.00"), "default expression"),
        ("mysql", replace(STAMP, default="CURRENT_TIMESTAMP"), replace(STAMP, default="CURRENT_TIMESTAMP"), None),
        ("mariadb", replace(STAMP, default="CURRENT_TIMESTAMP"), replace(STAMP, default="current_timestamp()"), "default expression"),
        ("mysql", MOMENT, replace(MOMENT, default="2024-01-01 08:00:00.000"), "timestamp default"),
        ("mysql", MOMENT, replace(MOMENT, constant=b"2024-01-01 01:00:00.000"), ""),
        ("mysql", MOMENT, replace(MOMENT, default="2024-01-01 01:00:00.000", constant=b"2024-01-01 01:00:00.000"), ""),
        ("mysql", replace(STAMP, default="2024-01-01 00:00:00"), replace(STAMP, default="2024-01-01 08:00:00.000"), ""),
        ("mysql", replace(STAMP, default="2024-01-01 00:00:00"), STAMP, ""),
        ("mysql", NEXTVAL, INT, "sequence default"),
        ("mysql", NEXTVAL, replace(INT, default="7"), ""),
        ("tidb", NEXTVAL, INT, ""),
        ("mysql", replace(TEXT, default="nextval(s)"), TEXT, ""),
        ("mysql", replace(LONG, default=""), LONG, "text default"),
        ("mysql", replace(LONG, default="x"), LONG, ""),
        ("mariadb", replace(LONG, default=""), LONG, ""),
        ("mysql", generated("_utf8mb4'x'", "text"), generated("_utf8mb4\\'x\\'", "text"), "default expression"),
        ("mysql", replace(LONG, default="x"), replace(LONG, default="_utf8mb4\\'y\\'", extra="DEFAULT_GENERATED"), ""),
        ("mysql", generated("date_format(now(), _utf8mb4'%Y-%m-%d')"), generated("date_format(now(),_utf8mb4\\'%Y-%m-%d\\')"), "default expression"),
        ("mysql", generated("date_format(now(), _utf8mb4'%Y-%m-%d')"), generated("date_format(now(),_utf8mb4\\'%y-%m-%d\\')"), ""),
        ("mysql", generated("uuid()"), generated("rand()"), ""),
        ("mysql", generated("uuid()"), replace(TEXT, data_type="varchar", column_type="varchar", collation="", default="uuid()"), ""),
        ("mariadb", generated("replace(upper(uuid()), _utf8mb4'-', _utf8mb4'')"), replace(generated("replace(ucase(uuid()),'-','')"), extra=""), "default expression"),
        ("mariadb", generated("replace(upper(uuid()), _utf8mb4'-', _utf8mb4'')"), replace(generated("replace(lcase(uuid()),'-','')"), extra=""), ""),
        ("mariadb", generated("uuid_to_bin(uuid())"), replace(generated("unhex(replace(uuid(),'-',''))"), extra=""), "default expression"),
        ("tidb", replace(TEXT, default="f(X)"), replace(TEXT, default="f(x)"), ""),
        ("mysql", replace(TEXT, default="current_X"), replace(TEXT, default="current_x"), ""),
        ("mysql", replace(STAMP, default="CURRENT_TIMESTAMP"), replace(STAMP, default="CURRENT_TIMESTAMP(3)"), ""),
        ("mysql", replace(LONG, default="x"), replace(LONG, default="_utf8mb4\\'x\\'", extra="DEFAULT_GENERATED"), "default expression"),
        ("mysql", replace(INT, extra="auto_increment"), INT, "counter without index"),
        ("mysql", INT, replace(INT, extra="auto_increment"), ""),
        ("tidb", replace(INT, extra="auto_increment"), INT, ""),
        ("mysql", replace(STAMP, extra="on update CURRENT_TIMESTAMP"), STAMP, ""),
        ("mariadb", replace(TEXT, collation="utf8mb4_0900_ai_ci"), replace(TEXT, collation="utf8mb4_uca1400_nopad_ai_ci"), "newer collation"),
        ("mysql", replace(TEXT, collation="utf8mb3_bin"), replace(TEXT, collation="utf8_bin"), "name of the character set"),
        ("mysql", TEXT, replace(TEXT, collation="utf8mb4_general_ci"), ""),
    ],
)  # fmt: skip
def test_one_column(kind: str, source: ColumnShape, target: ColumnShape, equivalence: str | None) -> None:
    """A property differs, or is the same by the one equivalence that covers it; None: it is shown alike."""
    found = compared(shape("tidb", source), shape(kind, target))
    assert found.used == ({equivalence} if equivalence else set())
    assert bool(found.differences) == (equivalence == "")
    assert found.used <= EQUIVALENCES


@pytest.mark.parametrize(
    ("kind", "source", "target", "equivalence"),
    [
        ("mysql", (index("a", name="x"),), (index("a", name="y"),), None),
        ("mysql", (index("a"),), (), ""),
        ("mysql", (), (index("a"),), ""),
        ("mysql", (index("a", unique=True, is_partial=True),), (index("a"),), "partial index"),
        ("mysql", (index("a", is_partial=True),), (index("a"),), "partial index"),
        ("mysql", (index("a", unique=True, is_partial=True),), (index("a", unique=True),), ""),
        ("mysql", (index("a", unique=True, is_partial=True),), (), ""),
        ("mysql", (index("a", unique=True, is_partial=True), index("a", name="j", unique=True)), (index("a"), index("a", name="j", unique=True)), "partial index"),
        ("mysql", (index("a", unique=True),), (index("a"),), ""),
        ("mysql", (index("a", unique=True),), (index("a", unique=True), index("a", name="j")), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a"),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a", unique=True),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (replace(index("a", unique=True), condition="`z` > 2"),), ""),
        ("tidb", (index("a", unique=True, is_partial=True),), (index("a", unique=True, is_partial=True),), None),
        ("mysql", (index("a"),), (index("a", unique=True),), ""),
        ("mysql", (index("a", unique=True),), (), ""),
        ("mysql", (index("a", unique=True, is_global=True),), (), "global index"),
        ("mysql", (index("a", method="FULLTEXT"),), (), "search index"),
        ("mariadb", (index(""),), (), "expression index"),
        ("tidb", (index("a", method="FULLTEXT"),), (), ""),
        ("mariadb", (index("a", name="PRIMARY", unique=True),), (index("a", name="primary_key", unique=True),), ""),
        ("mariadb", (index("a", unique=True, method="FULLTEXT"),), (), ""),
        ("mysql", (index("a", name="c_a"),), (index("a", "z"),), ""),
        ("mysql", (index("a", "z"),), (index("a", "z"), index("a", name="c_a")), ""),
        ("mysql", (index("a", name="PRIMARY", unique=True),), (index("a", unique=True),), ""),
        ("mysql", (index("a", "z"),), (index("z", "a"),), ""),
    ],
)  # fmt: skip
def test_indexes(
    kind: str, source: tuple[IndexShape, ...], target: tuple[IndexShape, ...], equivalence: str | None
) -> None:
    """Indexes are told apart by what they are over, and by whether they keep rows unique."""
    found = compared(shape("tidb", INT, *source), shape(kind, INT, *target))
    assert found.used == ({equivalence} if equivalence else set())
    assert bool(found.differences) == (equivalence == "")


PRIMARY, STAND_IN = index("a", name="PRIMARY", unique=True), index("a", name="primary_key", unique=True)


def test_a_primary_key_over_a_generated_column() -> None:
    """On MariaDB a unique key stands in for it, and on no other server."""
    column = replace(INT, is_generated=True)
    for kind, alike in (("mariadb", {"generated primary key"}), ("mysql", set())):
        found = compared(shape("tidb", column, PRIMARY), shape(kind, column, STAND_IN))
        assert (found.used, bool(found.differences)) == (alike, not alike)


def test_a_counter() -> None:
    """It is lost where no index of the target begins with its column; where one does, somebody has taken it away."""
    counting = replace(INT, extra="auto_increment")
    for other, differs in (
        (PRIMARY, True),
        (index("a", "z", name="PRIMARY", unique=True), True),
        (index("z", "a"), False),
    ):
        found = compared(shape("tidb", counting, other), shape("mysql", INT, other))
        assert (found.used, bool(found.differences)) == (set() if differs else {"counter without index"}, differs)


@pytest.mark.parametrize(
    ("name", "keys", "alike"),
    [
        ("c_a", (("c_a", "a"),), True),
        ("a", (("t_ibfk_1", "a"),), True),
        ("mine", (("c_a", "a"),), False),
        ("c_a", (("c_a", "a", "z"),), False),
        ("c_a", (("c_a", "z"),), False),
    ],
)
def test_the_index_of_a_foreign_key(name: str, keys: tuple[tuple[str, ...], ...], *, alike: bool) -> None:
    """A server makes it, or takes it away when another one serves as well; any other index is somebody's own."""
    own, longer = index("a", name=name), index("a", "z")
    for here, there in (((longer, own), (longer,)), ((longer,), (longer, own)), ((own,), ())):
        found = compared(
            shape("tidb", INT, *here, foreign_keys=keys if own in here else ()),
            shape("mysql", INT, *there, foreign_keys=keys if own in there else ()),
        )
        assert (found.used, bool(found.differences)) == ({"foreign key index"} if alike else set(), not alike)


def test_a_search_index() -> None:
    """One of TiDB is left out; one that MySQL has is no less than any other index."""
    search = index("a", method="FULLTEXT")
    assert compared(shape("tidb", INT, search), shape("mariadb", INT)).used == {"search index"}
    assert compared(shape("mysql", INT, search), shape("mariadb", INT)).differences


def test_views() -> None:
    """Only the names of their columns are compared: all else is what each server makes of the query."""
    here, there = (
        replace(shape(kind, column), is_view=True, collation="")
        for kind, column in (
            ("tidb", replace(TEXT, charset="utf8mb4")),
            ("mysql", replace(LONG, nullable=False, default="0")),
        )
    )
    assert compared(here, there) == StructureFound()
    assert compared(here, replace(there, columns=there.columns[1:])).differences == ["column a: the target lacks it"]
    assert compared(here, replace(there, is_view=False)).differences


def test_columns_that_one_side_lacks() -> None:
    """They are named, and so is another order."""
    a, b, c = (replace(INT, name=name) for name in "abc")
    source, target = (TableShape(kind="tidb", columns=columns) for columns in ((a, b), (b, c)))
    assert compared(source, target).differences == [
        "column a: the target lacks it",
        "column c: the source does not have it",
    ]
    turned = compared(TableShape(kind="tidb", columns=(a, b)), TableShape(kind="tidb", columns=(b, a)))
    assert turned.differences == ["order of the columns: b, a in the target, a, b at the source"]


def test_collation_of_the_table() -> None:
    """New columns would take it."""
    found = compared(shape("tidb", INT), shape("mysql", INT, collation="latin1_bin"))
    assert found.differences == ["collation of the table: latin1_bin in the target, utf8mb4_bin at the source"]
