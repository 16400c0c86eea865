"""Rows of exports under random values, options and spellings: what was written comes back, and in bulk as one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.bucket import export_names as writing
from storage_consumer.bucket.export_names import ExportFile, Kind, read_name
from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode import export_files as exported_rows
from storage_consumer.decode.decoder import Batch, RowLayout, Tally
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableName
from tests.harness.corpora import THOROUGH
from tests.unit.decode.exporting import (
    ALL_KINDS,
    CSV,
    EVERYTHING,
    SQL,
    CsvStyle,
    SqlStyle,
    expected,
    layout,
    read,
    wire,
)

TRAPS = st.sampled_from(
    [
        "",
        "\\",
        "\\N",
        "NULL",
        "'",
        "''",
        '"',
        '\\"',
        ",",
        "(",
        "),\n(",
        ");\n",
        "\r\n",
        "\n",
        "\0",
        "\x1a",
        "\t",
        "日",
        "😀",
        "é",
        "\\%",
        "--",
        "x'",
    ]
)
TEXTS = st.lists(TRAPS | st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4).map("".join)
BYTES = st.binary(max_size=12) | TEXTS.map(str.encode)
_BY_KIND: dict[str, st.SearchStrategy[object]] = {
    "TINYINT": st.integers(-128, 127),
    "MEDIUMINT": st.integers(0, (1 << 24) - 1),
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1),
    "DECIMAL": st.decimals(-(10**9), 10**9, places=3).map(lambda number: f"{number:f}"),
    "FLOAT": st.floats(-(2.0**120), 2.0**120, width=32),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "YEAR": st.sampled_from([0, 1901, 2024, 2155]),
    "DATE": st.dates().map(str),
    "DATETIME": st.datetimes().map(lambda moment: moment.isoformat(" ")),
    "TIMESTAMP": st.sampled_from(["0000-00-00 00:00:00", "2024-03-31 01:30:00", "2038-01-19 03:14:07.999999"]),
    "TIME": st.sampled_from(["-838:59:59.000", "00:00:00", "12:34:56.789"]),
    "BIT": st.binary(min_size=1, max_size=8),
    "ENUM": st.sampled_from(["", "a", "it's", "x,y"]),
    "SET": st.sampled_from(["", "r", "r,w"]),
    "VECTOR": st.sampled_from(["[]", "[1,2.5,-3]"]),
    **dict.fromkeys(("CHAR", "TEXT", "JSON"), TEXTS),
}


def value_of(kind: str) -> st.SearchStrategy[object]:
    """Any value of a type, NULL included."""
    return st.none() | _BY_KIND.get(kind, BYTES)


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Types of columns, and rows."""
    kinds = tuple(draw(st.lists(st.sampled_from(ALL_KINDS), min_size=1, max_size=6)))
    rows = st.tuples(*(value_of(kind) for kind in kinds))
    return kinds, draw(st.lists(rows, min_size=1, max_size=30))


CSV_OPTIONS = st.builds(
    DumpOptions,
    file_format=st.just("csv"),
    escape_backslash=st.booleans(),
    separator=st.sampled_from([",", "\t", "|+|", ";"]),
    delimiter=st.sampled_from(['"', "'", "<q>", "^"]),
    null=st.sampled_from(["\\N", "NULL", "", "nil"]),
    header=st.booleans(),
    terminator=st.sampled_from(["\r\n", "\n"]),
    binary=st.sampled_from(["raw", "hex", "base64"]),
)
SQL_OPTIONS = st.builds(DumpOptions, escape_backslash=st.booleans())


@dataclass
class Outcome:
    """What came of a file."""

    rows: list[object]
    error: str
    tally: Tally
    in_bulk: int = 0


def one_by_one(content: bytes, table: RowLayout, options: DumpOptions, wanted: CommitRange = EVERYTHING) -> Outcome:
    """Read a file row by row."""
    found = Outcome([], "", Tally())
    try:
        for change in ExportDecoder(options).rows(
            read(content, table, options, commit_range=wanted, tally=found.tally)
        ):
            found.rows.append(change)
    except UndecodableRow as fault:
        found.error = str(fault)
    return found


def at_once(
    content: bytes,
    table: RowLayout,
    options: DumpOptions,
    wanted: CommitRange = EVERYTHING,
    size: int = 1 << 20,
    clock: int = 0,
) -> Outcome:
    """Read a file with as many rows in bulk as possible."""
    found = Outcome([], "", Tally())
    places = list(range(len(table.columns)))
    try:
        for some in ExportDecoder(options).changes(
            read(content, table, options, commit_range=wanted, tally=found.tally, size=size, clock=clock)
        ):
            if isinstance(some, tuple):
                found.rows.append(some)
                continue
            rows = _in_batch(some, places)
            found.rows += rows
            found.in_bulk += len(rows)
    except UndecodableRow as fault:
        found.error = str(fault)
    return found


def _in_batch(batch: Batch, places: Sequence[int]) -> list[object]:
    """The rows of a batch, which its lines, texts and integers say alike."""
    chosen = np.arange(len(batch.numbers))
    lines = [tuple(decode_line(line)) for line in batch.lines(places, chosen)]
    texts = [batch.texts(place, chosen) for place in places]
    assert lines == list(zip(*texts, strict=True))
    for place in places:
        if (numbers := batch.integers(place)) is not None:
            assert [str(number) for number in numbers.tolist()] == texts[place]
    heads = zip(batch.numbers.tolist(), batch.ts.tolist(), batch.operations.tolist(), lines, strict=True)
    return [(*head, None) for head in heads]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in bulk whatever the number of bytes."""
    monkeypatch.setattr(exported_rows, "AT_ONCE_BYTES", 1)


def check(
    content: bytes,
    kinds: Sequence[str],
    rows: Sequence[Sequence[object]],
    options: DumpOptions,
    size: int,
    *,
    nullable: bool = True,
) -> None:
    """Compare what was written with what is read in both ways."""
    table = layout(*kinds)
    table = replace(table, columns=tuple(replace(column, nullable=nullable) for column in table.columns))
    plain, bulk = one_by_one(content, table, options), at_once(content, table, options, size=size)
    assert (plain.error, bulk.error) == ("", "")
    assert [row[3] for row in plain.rows] == expected(kinds, rows)  # type: ignore[index] # a row change
    assert (bulk.rows, bulk.tally) == (plain.rows, plain.tally)


_SIZES = st.sampled_from([1 << 20, 211, 17])


@settings(max_examples=300)
@given(tables(), SQL_OPTIONS, st.integers(1, 12), _SIZES, st.none() | st.randoms(use_true_random=False), st.booleans())
def test_sql(
    table: tuple[tuple[str, ...], list[tuple[object, ...]]],
    options: DumpOptions,
    per_statement: int,
    size: int,
    chance: random.Random | None,
    named: bool,  # noqa: FBT001 - drawn
) -> None:
    """SQL in Dumpling's spelling, or in any, gives the rows that were written."""
    kinds, rows = table
    order = sorted(range(len(kinds)), key=lambda place: -place) if named else None
    style = SqlStyle(options=options, per_statement=per_statement, chance=chance, order=order)
    check(style.file(kinds, rows), kinds, rows, options, size)


def sent(kind: str, value: object) -> bytes | None:
    """A value as a server sends it."""
    return value if value is None or isinstance(value, bytes) else (wire(kind, value) or "").encode()


@settings(max_examples=300)
@given(tables(), _SIZES)
def test_own_exports(table: tuple[tuple[str, ...], list[tuple[object, ...]]], size: int) -> None:
    """What `load --source` writes gives the rows that the server sent, in one statement or in several."""
    kinds, rows = table
    columns = layout(*kinds).columns
    with pytest.MonkeyPatch.context() as patch:
        for statement_bytes in (1 << 20, 40):
            patch.setattr(writing, "_STATEMENT_BYTES", statement_bytes)
            values = [[sent(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in rows]
            file = writing.data_file(TableName(schema="shop", table="orders"), 7, columns, values)
            check(file.content, kinds, rows, SQL, size)


@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, 10**8))
def test_names_of_own_exports(schema: str, table: str, number: int) -> None:
    """Each name of a file tells whose rows it has, whatever the names are."""
    name = TableName(schema=schema, table=table)
    assert read_name(writing.database_file(schema, "").path) == ExportFile(
        kind=Kind.DATABASE, name=TableName(schema=schema, table="")
    )
    assert read_name(writing.table_file(name, "").path) == ExportFile(kind=Kind.TABLE, name=name)
    path = writing.data_file(name, number, (), ()).path
    assert read_name(path) == ExportFile(kind=Kind.DATA, name=name, number=number, width=9)


@settings(max_examples=300)
@given(tables(), CSV_OPTIONS, _SIZES, st.booleans())
def test_csv(
    table: tuple[tuple[str, ...], list[tuple[object, ...]]],
    options: DumpOptions,
    size: int,
    turned: bool,  # noqa: FBT001 - drawn
) -> None:
    """CSV under any options gives the rows that were written."""
    kinds, rows = table
    order = sorted(range(len(kinds)), key=lambda place: -place) if turned and options.header else None
    check(CsvStyle(options=options, order=order).file(kinds, rows), kinds, rows, options, size)


@pytest.mark.slow
@settings(max_examples=200)
@given(tables(), st.sampled_from(["\t", ",", "<s>"]), st.booleans(), st.sampled_from(["\r\n", "\n"]), st.booleans())
def test_csv_without_delimiters(
    table: tuple[tuple[str, ...], list[tuple[object, ...]]],
    separator: str,
    header: bool,  # noqa: FBT001 - drawn
    terminator: str,
    nullable: bool,  # noqa: FBT001 - drawn
) -> None:
    """Without delimiters the escapes alone tell texts from separators, and from a NULL marker that begins with a backslash."""
    kinds, rows = table
    options = DumpOptions(file_format="csv", delimiter="", separator=separator, header=header, terminator=terminator)
    whole = rows if nullable else [row for row in rows if None not in row]
    if whole:
        content = CsvStyle(options=options).file(kinds, whole)
        check(content, kinds, whole, options, 1 << 20, nullable=nullable)


@settings(max_examples=100)
@given(tables(), st.integers(0, 31), st.integers(0, 31), st.sampled_from([SQL, CSV]))
def test_commit_range(
    table: tuple[tuple[str, ...], list[tuple[object, ...]]], low: int, high: int, options: DumpOptions
) -> None:
    """Of a part of the rows the others are counted, in bulk as one by one."""
    kinds, rows = table
    wanted = CommitRange(low=min(low, high), high=max(low, high))
    style = SqlStyle(per_statement=7) if options is SQL else CsvStyle()
    content = style.file(kinds, rows)
    plain = one_by_one(content, layout(*kinds), options, wanted)
    bulk = at_once(content, layout(*kinds), options, wanted)
    assert (bulk.rows, bulk.tally, bulk.error) == (plain.rows, plain.tally, "")
    assert [row[0] for row in plain.rows] == [  # type: ignore[index] # a row change
        number for number in range(1, len(rows) + 1) if wanted.low < number <= wanted.high
    ]


SPOILT = (
    SQL,
    replace(SQL, escape_backslash=False),
    CSV,
    replace(CSV, header=False),
    replace(CSV, escape_backslash=False, terminator="\n"),
    replace(CSV, delimiter="<q>", separator="|+|", null="NULL", header=False),
    replace(CSV, binary="hex", header=False),
    replace(CSV, binary="base64", header=False),
)


@pytest.mark.slow
@settings(max_examples=5_000 if THOROUGH else 300)
@given(tables(), st.randoms(use_true_random=False), st.sampled_from(SPOILT), st.sampled_from([1 << 20, 97]))
def test_spoilt_files(
    table: tuple[tuple[str, ...], list[tuple[object, ...]]], chance: random.Random, options: DumpOptions, size: int
) -> None:
    """A file with other, missing or additional bytes ends with an error or gives rows; both ways of reading agree."""
    kinds, rows = table
    style = SqlStyle(options=options, per_statement=7) if options.file_format == "sql" else CsvStyle(options=options)
    content = bytearray(style.file(kinds, rows))
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(content))
        match chance.randrange(4):
            case 0:
                content[place] ^= 1 << chance.randrange(8)
            case 1:
                del content[place : place + chance.randint(1, 20)]
            case 2:
                content[place:place] = chance.choice([b"'", b'"', b"\\", b",", b"\n", b"(", b");\n", b"\xff", b"x'"])
            case _:
                other = chance.randrange(len(content))
                content[place:place] = content[other : other + 30]
        if not content:
            return
    plain = one_by_one(bytes(content), layout(*kinds), options)
    bulk = at_once(bytes(content), layout(*kinds), options, size=size)
    assert bulk.rows == plain.rows
    assert bool(bulk.error) == bool(plain.error)


@pytest.mark.slow
@settings(max_examples=200)
@given(tables(), st.floats(0, 1), st.sampled_from([SQL, CSV, replace(CSV, escape_backslash=False)]))
def test_cut_files(table: tuple[tuple[str, ...], list[tuple[object, ...]]], share: float, options: DumpOptions) -> None:
    """Of a file that was cut the rows before the cut are right, and only a cut between statements, or lines of CSV, is no error."""
    kinds, rows = table
    style = SqlStyle(per_statement=5) if options is SQL else CsvStyle(options=options)
    content = style.file(kinds, rows)
    cut = content[: int(share * len(content))]
    found = at_once(cut, layout(*kinds), options)
    wanted = expected(kinds, rows)
    assert [row[3] for row in found.rows] == wanted[: len(found.rows)]  # type: ignore[index] # a row change
    if len(found.rows) < len(rows) and not found.error:
        assert cut.rstrip(b"\n").endswith(b";") if options is SQL else cut.endswith(b"\r\n")


def test_something_is_read_at_once() -> None:
    """The usual rows of Dumpling are read in bulk: all of them, whatever their types."""
    kinds = [kind for kind in ALL_KINDS if kind != "FLOAT"]
    rows = [tuple(_example(kind, number) for kind in kinds) for number in range(200)]
    bare = replace(CSV, delimiter="", separator="\t", terminator="\n")
    for style, options in ((SqlStyle(per_statement=64), SQL), (CsvStyle(), CSV), (CsvStyle(options=bare), bare)):
        found = at_once(style.file(kinds, rows), layout(*kinds), options, clock=3 << 32)
        assert [row[3] for row in found.rows] == expected(kinds, rows)  # type: ignore[index] # a row change
        assert [row[1] - (3 << 32) for row in found.rows] == list(range(1, 201))  # type: ignore[index] # likewise
        assert (found.in_bulk, found.error) == (200, "")


def test_rows_of_mydumper_are_read_at_once() -> None:
    """So are those of mydumper: texts and bytes in the other quote, JSON that it converts."""
    content = (
        b"/*!40103 SET TIME_ZONE='+00:00' */;\nINSERT INTO `orders` (`c0`,`c1`,`c2`,`c3`) VALUES\n"
        b'(1,"it\\\'s \\"q\\"\n","\\0\xff",CONVERT("{\\"a\\": 1}" USING UTF8MB4)),\n(2,NULL,NULL,NULL);\n'
    )
    table = layout("INT", "TEXT", "BLOB", "JSON")
    found = at_once(content, table, SQL)
    assert [row[3] for row in found.rows] == [  # type: ignore[index] # a row change
        ("1", 'it\'s "q"\n', "00FF", '{"a": 1}'),
        ("2", None, None, None),
    ]
    assert (found.in_bulk, found.error) == (2, "")


def _example(kind: str, number: int) -> object:
    if number % 7 == 0:
        return None
    examples: dict[str, object] = {
        "DECIMAL": f"{number}.50",
        "DOUBLE": number / 3,
        "YEAR": 2000 + number if number % 5 else 0,
        "DATE": "2024-02-29",
        "DATETIME": "2024-02-29 12:00:00",
        "TIMESTAMP": "2024-02-29 12:00:00",
        "TIME": "12:00:00",
        "VECTOR": "[1,2]",
        "BIT": bytes([number]),
        **dict.fromkeys(("CHAR", "TEXT", "JSON", "ENUM", "SET"), f'it\'s "{number}"\n\\日'),
        **dict.fromkeys(("TINYINT", "MEDIUMINT", "BIGINT"), number % 100),
    }
    return examples.get(kind, bytes([number, 0, 39, 34, 92]))
