"""CSV under each of TiCDC's options: what is read, and what is refused because it may mean two things."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.decode import csv_files as scan
from storage_consumer.decode.csv_dialect import caveat
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import RowLayout, Tally, Values
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.unit.decode.encoders import EVERYTHING, OPTIONS, SOURCE, TS, decoded, file_read, from_csv, layout
from tests.unit.decode.encoders import written_row as row

BARE = replace(OPTIONS, quote="", terminator="\n")
SIZES = pytest.mark.parametrize("size", [1, 5, 1 << 20])
HEAD = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts"


def values(data: bytes | str, *kinds: str, options: CsvOptions, size: int = 1 << 20) -> list[Values]:
    """The values of each row."""
    return [change[3] for change in from_csv(data, *kinds, options=options, size=size)]


def refused(
    data: bytes | str, *kinds: str, options: CsvOptions = OPTIONS, commit_range: CommitRange = EVERYTHING
) -> UndecodableRow:
    """The error of a file that does not decode."""
    with pytest.raises(UndecodableRow) as caught:
        from_csv(data, *kinds, options=options, commit_range=commit_range)
    return caught.value


@pytest.mark.parametrize("delimiter", ["|", "\t", "|+|", "§", "→", "-|", "e|", " ", "x"])
@SIZES
def test_delimiter(delimiter: str, size: int) -> None:
    """One to three bytes of any kind part the fields, and are data inside quotes (T10)."""
    data = row("1", '"a~b"', "-2").replace(",", delimiter).replace("~", delimiter)
    found = values(data * 2, "INT", "TEXT", "INT", options=replace(OPTIONS, delimiter=delimiter), size=size)
    assert found == [("1", f"a{delimiter}b", "-2")] * 2


@pytest.mark.parametrize("terminator", ["\n", "\r\n", "\r", "||", "EOL", "§", "\n\n", ",,"])
@SIZES
def test_terminator(terminator: str, size: int) -> None:
    """Any text ends the rows, and is data inside quotes."""
    data = row("1", f'"a{terminator}b"', "2", end=terminator)
    options = replace(OPTIONS, terminator=terminator)
    assert values(data * 2, "INT", "TEXT", "INT", options=options, size=size) == [("1", f"a{terminator}b", "2")] * 2


@pytest.mark.parametrize("last", ["1", '"a"', '""', '"a""I"', '"""I"",""orders"""', "\\N"])
@SIZES
def test_no_terminator(last: str, size: int) -> None:
    """Without terminator a row ends where the next begins, though the two quotes there look like a doubled one."""
    kind = "INT" if last == "1" else "TEXT"
    wanted = None if last == "\\N" else last if last == "1" else last[1:-1].replace('""', '"')
    data = row(last, end="") + row(last, end="", op="D") + row(last, end="")
    found = values(data, kind, options=replace(OPTIONS, terminator=""), size=size)
    assert found == [(wanted,)] * 3


def test_no_terminator_refuses_what_it_cannot_pass_over() -> None:
    """Without terminator a row of another version has no end that could be told, so it stops the table."""
    old = row("1", "2", ts=TS - 1, end="")
    options = replace(OPTIONS, terminator="")
    assert "row 1 at byte 0" in str(
        refused(old + row("1", end=""), "INT", options=options, commit_range=CommitRange(low=TS - 1, high=TS))
    )


@pytest.mark.parametrize("null", ["", "NULL", "\\N", "-", "nil"])
def test_null_marker(null: str) -> None:
    """Bare it is NULL, in every type; in quotes it is data."""
    data = row(null, null, f'"{null}"', null)
    assert values(data, "INT", "TEXT", "TEXT", "DOUBLE", options=replace(OPTIONS, null=null)) == [
        (None, None, null, None)
    ]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("", ""),
        ("a\\rb\\nc", "a\rb\nc"),
        ("\\\\n", "\\n"),
        ("\\\\\\n", "\\\n"),
        ("\\,", ","),
        ("\\\\N", "\\N"),
        ('"', '"'),
        ("\x00", "\x00"),
    ],
)
@SIZES
def test_no_quote(written: str, text: str, size: int) -> None:
    """Without quote CR, LF, backslash and the delimiter are escaped, and nothing else."""
    data = f"I,orders,shop,{TS},{written},\\N\n" * 2
    assert values(data, "TEXT", "TEXT", options=BARE, size=size) == [(text, None)] * 2


def test_no_quote_and_long_delimiter() -> None:
    """Without quote each character of a delimiter is escaped, and a part of one stands as it is."""
    data = f"I,orders,shop,{TS},a\\|\\+\\|b|+,2024-01-01\n".replace(",", "|+|").replace("b|+|+|", "b|-|+|")
    assert values(data, "TEXT", "DATE", options=replace(BARE, delimiter="|+|")) == [("a|+|b|-", "2024-01-01")]


def test_no_quote_and_a_marker_that_text_can_equal() -> None:
    """Without quote the marker is NULL where the column can be NULL, and text where it cannot; the options have a caveat."""
    options = replace(BARE, null="NULL")
    columns = tuple(
        TableColumn(name=name, type=kind, nullable=name < "c")
        for name, kind in zip("abcd", ["TEXT", "INT", "TEXT", "BLOB"], strict=True)
    )
    expected = RowLayout(table=TableName(schema="shop", table="orders"), columns=columns)
    data = f"I,orders,shop,{TS},NULL,NULL,NULL,NULL\n"
    assert decoded(CsvDecoder(options), data, expected)[0][3] == (None, None, "NULL", "3542CB")
    upstream = Upstream(scheme="file", root="/b", protocol="csv", csv=options)
    assert "'NULL' alike" in caveat(upstream)
    assert caveat(replace(upstream, csv=BARE)) == caveat(replace(upstream, protocol="canal-json")) == ""


def test_text_that_ends_like_a_delimiter() -> None:
    """Without quote a text that ends in a part of the delimiter is refused, and an empty one is read."""
    options = replace(BARE, delimiter="||")
    two = f"I,orders,shop,{TS},a|,b\n".replace(",", "||")
    assert "more than one way" in str(refused(two, "TEXT", "TEXT", options=options))
    three = f"I,orders,shop,{TS},a,,b\n".replace(",", "||")
    assert values(three, "TEXT", "TEXT", "TEXT", options=options) == [("a", "", "b")]


def test_terminator_inside_a_text() -> None:
    """Without quote a text that holds the terminator is refused, in the middle of a row and at its end."""
    options = replace(BARE, terminator="<>")
    for fields in ("a<>b,c", "a,b<>c", "a,b<>"):
        refused(f"I,orders,shop,{TS},{fields}<>" * 2, "TEXT", "TEXT", options=options)


@SIZES
def test_without_commit_ts(size: int) -> None:
    """Rows without commit ts have 0, and the commit range leaves none of them out."""
    data = row("7", '"x"').replace(f"{TS},", "")
    tally = Tally()
    options = replace(OPTIONS, include_commit_ts=False)
    found = from_csv(
        data * 2, "INT", "TEXT", options=options, commit_range=CommitRange(low=TS, high=TS + 1), size=size, tally=tally
    )
    assert found == [(1, 0, INSERT, ("7", "x"), None), (2, 0, INSERT, ("7", "x"), None)]
    assert tally == Tally(rows=2)


def test_commit_ts_that_the_options_do_not_know() -> None:
    """A commit ts where none is expected is a value too many, and the error names the option (U4)."""
    error = str(refused(row("7", '"x"'), "INT", "TEXT", options=replace(OPTIONS, include_commit_ts=False)))
    assert "it has 3 values" in error
    assert "include-commit-ts" in error


OLD = replace(OPTIONS, output_old_value=True)


@SIZES
@pytest.mark.parametrize("timed", [True, False])
def test_old_values(size: int, timed: bool) -> None:  # noqa: FBT001 - a parameter of the case
    """A D and an I row of one update are one change with the D row's number; other rows are what they are (C13, U4)."""
    data = row("true", "1", op="D") + row("true", "2") + row("false", "3") + row("false", "4", op="D")
    options = replace(OLD, include_commit_ts=timed)
    ts = TS if timed else 0
    assert from_csv(data if timed else data.replace(f"{TS},", ""), "INT", options=options, size=size) == [
        (1, ts, UPDATE, ("2",), ("1",)),
        (3, ts, INSERT, ("3",), None),
        (4, ts, DELETE, ("4",), None),
    ]


def test_old_values_that_were_not_known() -> None:
    """A U row, which TiCDC writes where it does not know the old values, is an update without them."""
    assert from_csv(row("true", "1", op="U"), "INT", options=OLD) == [(1, TS, UPDATE, ("1",), None)]


@pytest.mark.parametrize(
    ("data", "number", "reason", "at_end"),
    [
        (row("true", "1", op="D"), 1, "row 1 is the D row of an update", True),
        (row("true", "1", op="D") + row("false", "2"), 2, "row 1 is the D row of an update", True),
        (row("true", "1", op="D") + row("true", "2", ts=TS + 1), 2, "row 1 is the D row of an update", True),
        (row("true", "1", op="D") * 2 + row("true", "2"), 2, "row 1 is the D row of an update", False),
        (row("true", "1"), 1, "row I with is-update true, .* without a D row before it", True),
        (row("false", "1", op="U"), 1, "row U with is-update false", True),
        (row("1"), 1, "the is-update field is '1', not true or false", True),
    ],
)
def test_half_an_update(data: str, number: int, reason: str, at_end: bool) -> None:  # noqa: FBT001 - a parameter of the case
    """A D row without its I row, or the other way round, is an error; at the end of the file it may be torn."""
    with pytest.raises(UndecodableRow, match=f"row {number} at byte .*{reason}") as caught:
        from_csv(data, "INT", options=OLD)
    assert caught.value.at_end is at_end


@pytest.mark.parametrize(
    ("data", "number", "reason"),
    [
        (row("true", "1", op="D") + row("true", "2", ts=TS + 1), 2, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("false", "2"), 2, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("true", "2", op="D"), 2, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("true", "2", op="U"), 2, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("true", "2", ts=9) + row("true", "3"), 3, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("true", "2", ts=9) + row("false", "3"), 3, "row {} is the D row of an update"),
        (row("true", "1", op="D") + row("true", "2") * 2, 3, "row I with is-update true"),
        (row("true", "1"), 1, "row I with is-update true"),
        (row("false", "1", op="U"), 1, "row U with is-update false"),
    ],
)
def test_half_an_update_among_rows_read_at_once(
    data: str, number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of the very row, also in the midst of many that are read at once, and nothing behind it is read."""
    monkeypatch.setattr(scan, "AT_ONCE_BYTES", 1)
    good = row("true", "1", op="D") + row("true", "2") + row("false", "3") + row("true", "4", op="U")
    for before, behind in (("", ""), (good, ""), ("", good), (good * 2, good * 2)):
        first = before.count("\n")
        content = (before + data + behind).encode()
        for blocks in ([content], content.splitlines(keepends=True)):
            read = CsvDecoder(OLD).changes(file_read(blocks, layout("INT"), CommitRange(low=9, high=TS + 1)))
            with pytest.raises(UndecodableRow, match=f"row {first + number} at byte .*{reason.format(first + 1)}"):
                list(read)


@SIZES
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("terminator", ["\r\n", ""])
def test_header(size: int, given: bool, terminator: str) -> None:  # noqa: FBT001 - a parameter of the case
    """The header line is passed over, whether the option says so or not; it does not count as a row."""
    options = replace(OPTIONS, output_field_header=given, terminator=terminator)
    data = f"{HEAD},c0,c1{terminator}" + row("1", '"a"', end=terminator) * 2
    assert from_csv(data, "INT", "TEXT", options=options, size=size) == [
        (1, TS, INSERT, ("1", "a"), None),
        (2, TS, INSERT, ("1", "a"), None),
    ]


@SIZES
@pytest.mark.parametrize("terminator", ["\r\n", ""])
@pytest.mark.parametrize("names", ["v,1,c0,c1,_V$_x", "c0,c1,_V$_x", "c0,c1"])
def test_header_that_names_columns_without_values(names: str, terminator: str, size: int) -> None:
    """A header line may name hidden and virtual columns, which no row carries, whatever is in their names."""
    options = replace(OPTIONS, terminator=terminator)
    listed = replace(
        layout("INT", "TEXT"), listed=tuple(["v,1", "c0", "c1", "_V$_x"] if "v" in names else names.split(","))
    )
    data = f"{HEAD},{names}{terminator}" + row("1", '"a"', end=terminator)
    assert decoded(CsvDecoder(options), data, listed, size=size) == [(1, TS, INSERT, ("1", "a"), None)]


def test_header_in_another_order() -> None:
    """The columns are taken by the names in the header line, and errors name them rightly."""
    data = f"{HEAD},c1,C0\r\n" + row('"a"', "1")
    assert values(data, "INT", "TEXT", options=OPTIONS) == [("1", "a")]
    assert "column c0 (INT): 'x' does not have the form" in str(refused(data + row('"a"', "x"), "INT", "TEXT"))


def test_header_in_another_order_above_rows_of_before_the_window() -> None:
    """Such a header may hold for the older rows only, so the first row inside the commit range is refused."""
    data = f"{HEAD},c1,c0\r\n" + row('"a"', "1") + row('"a"', "1", ts=TS + 1)
    assert "in another order" in str(refused(data, "INT", "TEXT", commit_range=CommitRange(low=TS, high=TS + 1)))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (f"{HEAD},c0,c2", "the header line names the unknown column c2"),
        (f"{HEAD},c0", "the header line lacks the column c1"),
        (f"{HEAD},c0,c1,c1", "the header line names twice c1"),
        (HEAD.rpartition(",")[0] + ",c0,c1", "lacks ticdc-meta.commit-ts: is include-commit-ts of"),
        (f"{HEAD},ticdc-meta$is-update,c0,c1", "has ticdc-meta.is-update: is output-old-value of"),
    ],
)
def test_bad_header(header: str, reason: str) -> None:
    """A header line that names other columns stops the table at its first row inside the commit range, and no sooner."""
    data = f"{header}\r\n" + row("1", '"a"')
    with pytest.raises(UndecodableRow, match=f"row 1 at byte {len(header) + 2}, .*{reason}"):
        from_csv(data, "INT", "TEXT")
    assert from_csv(data, "INT", "TEXT", commit_range=CommitRange(low=TS, high=TS + 1)) == []


def test_header_alone() -> None:
    """A file with nothing but a header line has no changes."""
    assert from_csv(f"{HEAD},c0\r\n", "INT") == []


def test_torn_header() -> None:
    """A header line without its end is the torn end of the file."""
    assert refused(f"{HEAD},c0", "INT").at_end


def test_names_change_within_a_file() -> None:
    """Rows may spell table and schema in several ways that differ by case, and every one is read."""
    data = row("1") + row("2", names='"Orders","shop"') + row("3", names='"ORDERS","SHOP"') + row("4")
    assert values(data, "INT", options=OPTIONS) == [("1",), ("2",), ("3",), ("4",)]


def test_bytes_that_are_no_text_are_shown_as_they_are() -> None:
    """A flipped bit in a number shows as its byte."""
    assert r"column c0 (INT): '\xb243' does not have the form" in str(
        refused(row("\udcb243").encode("utf-8", "surrogateescape"), "INT", options=OPTIONS)
    )


def test_hostile_names() -> None:
    """Names of table and schema are written as texts are."""
    table = TableName(schema='s"h,op', table="or\\ders\n")
    expected = RowLayout(table=table, columns=layout("INT").columns)
    quoted = row("1", names='"or\\ders\n","s""h,op"')
    assert len(decoded(CsvDecoder(OPTIONS), quoted, expected)) == 1
    bare = f'I,or\\\\ders\\n,s"h\\,op,{TS},1\n'
    assert len(decoded(CsvDecoder(BARE), bare, expected)) == 1


def test_source_is_named() -> None:
    """Errors name the file under every option."""
    for options in (BARE, OLD, replace(OPTIONS, output_handle_key=True), replace(OPTIONS, terminator="")):
        assert str(refused("nonsense", "INT", options=options)).startswith(f"{SOURCE}: row 1 at byte 0")
