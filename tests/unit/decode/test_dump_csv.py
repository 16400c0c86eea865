"""CSV data files of exports: options, fields, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode import export_files as exported_rows
from storage_consumer.decode.decoder import RowLayout, Tally
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.decode.kernels.arrays import INSERT
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange
from tests.unit.decode.exporting import CSV, layout, read, values_of

KINDS = ("BIGINT", "VARCHAR", "VARBINARY")
HEADER = b'"c0","c1","c2"\r\n'
BARE = replace(CSV, header=False)
RAW = replace(BARE, escape_backslash=False)
LF = replace(BARE, terminator="\n")


def one(content: bytes, kind: str = "VARCHAR", options: DumpOptions = BARE) -> object:
    """The wire text of the only field of the only row."""
    (values,) = values_of(content, layout(kind), options)
    assert isinstance(values, tuple)
    return values[0]


def refused(content: bytes, table: RowLayout | None = None, options: DumpOptions = CSV) -> str:
    """Why a file is refused."""
    with pytest.raises(UndecodableRow) as fault:
        values_of(content, table or layout(*KINDS), options)
    assert not fault.value.at_end
    return str(fault.value)


def test_rows() -> None:
    """Rows are numbered from the first one behind the header, and each is an INSERT at the file's clock plus its number."""
    tally = Tally()
    file = read(HEADER + b'1,"a","\\0\xff"\r\n-2,\\N,\\N\r\n', layout(*KINDS), CSV, clock=7 << 32, tally=tally)
    assert list(ExportDecoder(CSV).rows(file)) == [
        (1, (7 << 32) + 1, INSERT, ("1", "a", "00FF"), None),
        (2, (7 << 32) + 2, INSERT, ("-2", None, None), None),
    ]
    assert tally == Tally(rows=2, max_ts=(7 << 32) + 2)


def test_commit_range() -> None:
    """Rows outside the commit range are counted, and their values are not looked at."""
    tally = Tally()
    file = read(b'"x"\r\n2\r\n3\r\n"y"\r\n', layout("INT"), BARE, commit_range=CommitRange(low=1, high=3), tally=tally)
    assert [change[0] for change in ExportDecoder(BARE).rows(file)] == [2, 3]
    assert tally == Tally(rows=4, duplicates=1, repeated_ts=1, later=1, max_ts=4, next_ts=4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (rb'"a\"b\\c\n\r\0"', 'a"b\\c\n\r\0'),
        (b'"\\\\N"', "\\N"),
        (b'"raw \t , \x01 \xe6\x97\xa5"', "raw \t , \x01 日"),
        (b'""', ""),
        (b"\\N", None),
    ],
)
def test_texts(field: bytes, value: object) -> None:
    """Escapes inside the delimiters mean what they do; only a bare marker is NULL."""
    assert one(field + b"\r\n") == value


@pytest.mark.parametrize(
    ("field", "value"), [(b'"a""b\\"', 'a"b\\'), (b'"two\r\nlines, and\n"', "two\r\nlines, and\n"), (b'""""', '"')]
)
def test_texts_without_escapes(field: bytes, value: str) -> None:
    """Without escapes the delimiter is doubled, and ends of lines inside it are content."""
    assert one(field + b"\r\n", options=RAW) == value


@pytest.mark.parametrize(
    ("options", "row", "values"),
    [
        (replace(BARE, separator="\t"), b'1\t"a\tb"\t"c"\r\n', ("1", "a\tb", "63")),
        (replace(BARE, separator="|+|"), b'1|+|"a|+|b"|+|\\N\r\n', ("1", "a|+|b", None)),
        (replace(BARE, delimiter="'"), b"1,'a\\'b\"','c'\r\n", ("1", "a'b\"", "63")),
        (replace(BARE, delimiter="<q>"), b"1,<q>a\\<q>q><q>,<q>c<q>\r\n", ("1", "a<q>q>", "63")),
        (replace(RAW, delimiter="<q>"), b"1,<q>a<q><q>b<q>,<q>c<q>\r\n", ("1", "a<q>b", "63")),
        (replace(BARE, null="NULL"), b'NULL,"NULL",NULL\r\n', (None, "NULL", None)),
        (replace(BARE, null=""), b',"",\r\n', (None, "", None)),
        (LF, b'1,"a","c"\n', ("1", "a", "63")),
        (replace(BARE, delimiter=""), b"1,a\\,b\\\\N\\n,\\N\r\n", ("1", "a,b\\N\n", None)),
        (replace(RAW, delimiter="", separator="\t"), b"1\ta,b\\\t\\N\r\n", ("1", "a,b\\", None)),
        (replace(BARE, binary="hex"), b'1,"a","00ff"\r\n', ("1", "a", "00FF")),
        (replace(BARE, binary="base64"), b'1,"a","AP8="\r\n', ("1", "a", "00FF")),
    ],
)
def test_options(options: DumpOptions, row: bytes, values: tuple[str | None, ...]) -> None:
    """Separators, delimiters, markers, ends of lines and spellings of bytes are those of the options."""
    assert values_of(row, layout(*KINDS), options) == [values]


@pytest.mark.parametrize(
    ("kind", "field", "options", "value"),
    [
        ("BIT", b'"\x01\\0\\n"', BARE, "65546"),
        ("BIT", b'"01ff"', replace(BARE, binary="hex"), "511"),
        ("BIT", b'"Af8="', replace(BARE, binary="base64"), "511"),
        ("YEAR", b'"0"', BARE, "0000"),
        ("YEAR", b'"2024"', BARE, "2024"),
        ("MEDIUMINT", b'"16777215"', BARE, "16777215"),
        ("FLOAT", b"1e+15", BARE, "1e+15"),
        ("DECIMAL", b"-0.10", BARE, "-0.10"),
        ("DATE", b'"0000-00-00"', BARE, "0000-00-00"),
    ],
)
def test_types(kind: str, field: bytes, options: DumpOptions, value: str) -> None:
    """Each type becomes the wire text that the target takes."""
    assert one(field + b"\r\n", kind, options) == value


@pytest.mark.parametrize("options", [BARE, replace(BARE, delimiter="")])
@pytest.mark.parametrize("following", [b"t", b"Z", b"'", b"N", b"x", b" "])
@pytest.mark.parametrize("before", [0, pytest.param(20_000, marks=pytest.mark.slow)])
def test_unknown_escape(options: DumpOptions, following: bytes, before: int) -> None:
    """What Dumpling never writes behind a backslash shows that backslashes are content: refused, also among many rows."""
    mark = options.delimiter.encode()
    content = b"%ba%b\r\n" % (mark, mark) * before + b"%bC:\\%bemp%b\r\n" % (mark, following, mark)
    with pytest.raises(UndecodableRow, match="escape-backslash=false"):
        list(ExportDecoder(options).changes(read(content, layout("VARCHAR"), options)))


def test_header_in_another_order() -> None:
    """Values go to the columns that the header names, whatever the case."""
    content = b'"C2","c0","c1"\r\n"b",1,"a"\r\n'
    assert values_of(content, layout(*KINDS), CSV) == [("1", "a", "62")]


def test_null_where_it_is_impossible() -> None:
    """Without delimiters, what looks like NULL is a text in a column that has no NULL."""
    table = layout("VARCHAR", "VARCHAR")
    table = replace(table, columns=(replace(table.columns[0], nullable=False), table.columns[1]))
    assert values_of(b"NULL,NULL\r\n", table, replace(BARE, delimiter="", null="NULL")) == [("NULL", None)]


def test_rows_without_values() -> None:
    """A table of generated columns only has empty lines, and no header."""
    assert values_of(b"\r\n\r\n", layout(), CSV) == [(), ()]
    assert "should be empty lines" in refused(b"\r\nx\r\n", layout())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file holds no row"),
        (HEADER, "the file holds no row"),
        (HEADER[:-1], "the file ends inside this row"),
        (b'"c0","c1"\r\n1,"a"\r\n', "the file names the columns c0, c1, but shop.orders has c0, c1, c2"),
        (b'1,"a","b"\r\n', "the file names the columns 1, a, b"),
        (HEADER + b'1,"a"\r\n', "row 1 at byte 16: it has 2 values, but shop.orders should have 3"),
        (HEADER + b'1,"a","b"\r\n2,"a","b",\\N\r\n', "row 2 at byte 27: it has 4 values"),
        (HEADER + b'x,"a","b"\r\n', "column c0: 'x' does not have the form"),
        (HEADER + b'1,a,"b"\r\n', "column c1: b'a' is neither NULL nor a text"),
        (HEADER + b'1,"a"b,"b"\r\n', "comes neither the separator nor the end of the row"),
        (HEADER + b'1,"a","b"', "the file ends inside this row"),
        (HEADER + b'1,"a","b"\n', "the file ends inside this row"),
        (HEADER + b'1,"a,"b"\r\n', "comes neither the separator nor the end of the row"),
        (HEADER + b'1,"a","b\r\n', "the file ends inside this row"),
        (HEADER + b'1,"\xff","b"\r\n', "column c1: it is not UTF-8"),
    ],
)
def test_refused(content: bytes, reason: str) -> None:
    """Whatever is not a row of this table in these options is refused, with the file, the row and its place."""
    said = refused(content)
    assert said.startswith("shop.orders.000000000.sql: row ")
    assert reason in said


@pytest.mark.parametrize(("binary", "field"), [("hex", b'"0g"'), ("hex", b'"0"'), ("base64", b'"A"')])
def test_bytes_in_another_spelling(binary: str, field: bytes) -> None:
    """Bytes that are not spelled as the options say are refused."""
    options = replace(BARE, binary=binary)  # type: ignore[arg-type] # one of the spellings
    assert "column c0:" in refused(field + b"\r\n", layout("BLOB"), options)


def test_long_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that does not end is refused before it fills the memory."""
    monkeypatch.setattr(exported_rows, "MAX_ROW_BYTES", 1000)
    with pytest.raises(UndecodableRow, match="longer than 1000 bytes"):
        list(ExportDecoder(BARE).rows(read(b'1,"' + b"x" * 3000, layout(*KINDS), BARE, size=100)))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize(
    "options", [CSV, replace(CSV, delimiter="<q>", separator="<s>"), replace(CSV, delimiter=""), RAW]
)
def test_blocks_may_end_anywhere(size: int, options: DumpOptions) -> None:
    """Where blocks end does not matter, be it inside an escape, a delimiter or the end of a line."""
    from tests.unit.decode.exporting import CsvStyle, expected  # noqa: PLC0415 - only here

    rows = [(-12, 'a"b\\日<q>', b"\0\xff"), (3, None, b""), (4, "", None), (5, "x\r\n", b'"')]
    content = CsvStyle(options=options).file(KINDS, rows)
    assert values_of(content, layout(*KINDS), options, size=size) == expected(KINDS, rows)
