"""CSV files: row grammar, commit ranges, refusals."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode import decoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Tally
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.model import CommitRange
from tests.unit.decode.encoders import OPTIONS, SOURCE, TS, Row, csv_row, file_read, from_csv, layout

KINDS = ("BIGINT", "VARCHAR", "DECIMAL")
GOOD = f'"I","orders","shop",{TS},7,"seven","1.50"\r\n'
UPDATED = f'"U","orders","shop",{TS + 1},7,\\N,"1.75"\r\n'


def refused(data: bytes | str, size: int = 1 << 20, options: CsvOptions = OPTIONS) -> UndecodableRow:
    """The error of a file that does not decode."""
    with pytest.raises(UndecodableRow) as caught:
        from_csv(data, *KINDS, size=size, options=options)
    return caught.value


def test_operations() -> None:
    """I, U and D become INSERT, UPDATE and DELETE, with row numbers from 1 and commit ts; no row has old values."""
    deleted = f'"D","orders","shop",{TS + 2},7,"",\\N\r\n'
    assert from_csv(GOOD + UPDATED + deleted, *KINDS) == [
        (1, TS, INSERT, ("7", "seven", "1.50"), None),
        (2, TS + 1, UPDATE, ("7", None, "1.75"), None),
        (3, TS + 2, DELETE, ("7", "", None), None),
    ]


def test_empty_file() -> None:
    """A file without a byte has no changes."""
    tally = Tally()
    assert from_csv(b"", *KINDS, tally=tally) == []
    assert tally == Tally()


@pytest.mark.parametrize(
    "text", ["a\r\nb", "\n", ",", '"', '""', "\\", '\\"', "\x00", "\\N", '",\r\n"', "\r", 'x"\r\n']
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_everything_inside_quotes_is_data(text: str, size: int) -> None:
    """Line ends, delimiters, backslashes, NUL, quotes and the NULL marker are data inside quotes, wherever blocks are cut (T11, T12)."""
    rows = [Row(operation="I", values=(index, text, "1")) for index in range(3)]
    data = "".join(csv_row(KINDS, row) for row in rows)
    assert [values[1] for _, _, _, values, _ in from_csv(data, *KINDS, size=size)] == [text] * 3


def test_rows_within_a_row_to_pass_over() -> None:
    """Where quotes are lost, a row outside the commit range does not take those with it that follow up to the next lost quote."""
    before, torn = f'"I","orders","shop",{TS - 9},7,"old","1.50"\r\n', f'"I","orders","shop",{TS - 8},7,"old,"1.50"\r\n'
    commit_range = CommitRange(low=TS - 1, high=TS + 9)
    for data in (torn + GOOD + torn, before + torn + GOOD + UPDATED + torn + GOOD):
        rows = CsvDecoder(OPTIONS).rows(file_read([data.encode()], layout(*KINDS), commit_range))
        with pytest.raises(UndecodableRow, match="another row begins"):
            list(rows)


def test_other_dialect() -> None:
    """Delimiter, quote, null marker, terminator and binary encoding are those of the options."""
    options = CsvOptions(
        delimiter="|;|", quote="'", null="", terminator="\n", include_commit_ts=True, binary_encoding_method="hex"
    )
    kinds = ("INT", "VARCHAR", "BLOB")
    row = Row(operation="I", values=(None, 'it\'s "|;|"\n', b"\xff\x00"))
    data = csv_row(kinds, row, options)
    assert data == f"'I'|;|'orders'|;|'shop'|;|{TS}|;||;|'it''s \"|;|\"\n'|;|'ff00'\n"
    assert from_csv(data * 2, *kinds, options=options)[1][3] == (None, 'it\'s "|;|"\n', "FF00")


@pytest.mark.parametrize("delimiter", ["|", "||", "|;|"])
def test_large_file_without_a_quote(delimiter: str) -> None:
    """A file that is large enough for the loops, but has no quote for them to go by, is read row by row."""
    options = replace(OPTIONS, quote="", delimiter=delimiter)
    data = "".join(csv_row(KINDS, Row(operation="I", values=(index, "x", "1")), options) for index in range(2_000))
    read = CsvDecoder(options).changes(file_read([data.encode()], layout(*KINDS)))
    assert [change[3] for change in read] == [(str(index), "x", "1") for index in range(2_000)]  # type: ignore[index] # no batch among them


@pytest.mark.parametrize("quote", [":", " ", "=", "/", "a"])
@pytest.mark.parametrize("count", [1, 2_000])
def test_quote_inside_a_formatted_text(quote: str, count: int) -> None:
    """TiCDC doubles a quote in any text, also in a date, a time, a decimal or base64."""
    options, kinds = replace(OPTIONS, quote=quote), ("DATETIME", "TIME", "DECIMAL", "BLOB")
    row = Row(operation="I", values=("2024-01-31 10:00:00", "-10:00:00", "1.50", b"i\xa6\x9a\xff\xff"))
    changes = CsvDecoder(options).changes(file_read([(csv_row(kinds, row, options) * count).encode()], layout(*kinds)))
    values = ("2024-01-31 10:00:00", "-10:00:00", "1.50", "69A69AFFFF")
    assert [change[3] for change in changes] == [values] * count  # type: ignore[index] # no batch among them


def test_bad_hex() -> None:
    """With hexadecimal binaries, anything else stops the table (T9)."""
    with pytest.raises(UndecodableRow, match="column c0: 'f ' is not hexadecimal"):
        from_csv(
            f'"I","orders","shop",{TS},"f "\r\n',
            "BLOB",
            options=replace(OPTIONS, binary_encoding_method="hex"),
        )


def test_names_in_another_case() -> None:
    """Table and schema are compared as TiDB compares names: without case."""
    assert len(from_csv(GOOD.replace('"orders","shop"', '"Orders","SHOP"') + GOOD, *KINDS)) == 2


def test_window() -> None:
    """Low is exclusive and high inclusive; what lies outside is counted, not decoded."""
    tally = Tally()
    data = "".join(csv_row(KINDS, Row(operation="I", values=(1, "x", "1"), ts=TS + index)) for index in (5, 0, 2, 3, 1))
    found = from_csv(data, *KINDS, commit_range=CommitRange(low=TS, high=TS + 2), tally=tally)
    assert [(number, ts - TS) for number, ts, *_ in found] == [(3, 2), (5, 1)]
    assert tally == Tally(rows=5, duplicates=1, repeated_ts=TS, later=2, max_ts=TS + 5, next_ts=TS + 3)


def test_row_of_another_version_outside_the_window() -> None:
    """A row outside the commit range may have other columns, names and values that this layout could not read."""
    other = f'"D","before","elsewhere",{TS - 1},"two ""\r\n","values"\r\n'
    tally = Tally()
    assert len(from_csv(other + GOOD, *KINDS, commit_range=CommitRange(low=TS - 1, high=TS), tally=tally)) == 1
    assert (tally.rows, tally.duplicates) == (2, 1)


def test_first_column_taken_for_a_commit_ts() -> None:
    """A row that was written without commit ts is not passed over as an old one."""
    with pytest.raises(UndecodableRow, match=r"row 1 .* 7 is not a commit ts.*include-commit-ts"):
        from_csv('"I","orders","shop",7,"seven","1.50"\r\n', *KINDS, commit_range=CommitRange(low=TS, high=TS + 9))


def test_error_says_where() -> None:
    """The error names file, row, byte offset, commit ts and the row's beginning."""
    error = refused(GOOD.replace("seven", "日本") + f'"I","orders","shop",{TS + 1},7,"seven"\r\n' + GOOD)
    offset = len(GOOD.replace("seven", "日本").encode())
    assert str(error).startswith(f"{SOURCE}: row 2 at byte {offset}, commit ts {TS + 1}: ")
    assert str(error).endswith(f'the row begins \'"I","orders","shop",{TS + 1},7,"seven"\\r\\n\'')
    assert not error.at_end


def test_excerpt_is_short() -> None:
    """The excerpt of a long row is its first 80 characters, printable."""
    error = refused(f'"I","orders","shop",{TS},7,"{"x" * 5000}\n"\r\n')
    assert len(str(error).partition("the row begins ")[2]) == 82


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (f'"I","orders","shop",{TS},7,"x"\r\n', r"has 2 values, but shop\.orders should have 3 \(c0, c1, c2\)"),
        (f'"I","orders","shop",{TS},7,"x","1",2\r\n', "has 4 values, .*virtual generated column .*column selector"),
        (f'"I","orders","shop",{TS}\r\n', "has 0 values, .* should have 3"),
        (f'"X","orders","shop",{TS},7,"x","1"\r\n', "the op field is '\"X\"', not I, U or D"),
        (f'I,"orders","shop",{TS},7,"x","1"\r\n', "the op field is 'I'"),
        (f'"I",orders,"shop",{TS},7,"x","1"\r\n', "the table field is 'orders'"),
        (f'"I","orders",shop,{TS},7,"x","1"\r\n', "the schema field is 'shop'"),
        ('"I","orders","shop",-5,7,"x","1"\r\n', "the commit-ts field is '-5', not a number"),
        ('"I","orders","shop","7","x","1"\r\n', "the commit-ts field is '\"7\"'"),
        ('"I","orders"\r\n', "it has 2 fields"),
        ("\r\n", "the op field is ''"),
        (f'"I","orders","shop",{TS},7,"x"y,"1"\r\n', "field 6 .* is followed by neither delimiter nor terminator"),
        (f'"I","orders","shop",{TS},7,x"y","1"\r\n', "field 6 "),
        (f'"I","orders","shop",{TS},"7","x","1"\r\n', r"column c0 \(BIGINT\): '\"7\"' does not have the form"),
        (f'"I","orders","shop",{TS},7,x,"1"\r\n', r"column c1 \(VARCHAR\): 'x' does not have the form"),
        (f'"I","orders","shop",{TS},7,"x",1\r\n', r"column c2 \(DECIMAL\): '1' does not have the form"),
        (f'"I","items","shop",{TS},7,"x","1"\r\n', r"belongs to shop\.items, .* files of shop\.orders"),
        (f'"I","orders","other",{TS},7,"x","1"\r\n', r"belongs to other\.orders, .* files of shop\.orders"),
    ],
)
def test_bad_row(bad: str, reason: str, size: int) -> None:
    """A row that is no row of this table stops it, with the reason, after the rows before it; at_end only when it is last."""
    for data, at_end in ((GOOD + bad + GOOD, False), (GOOD + bad, True)):
        decoder = CsvDecoder(OPTIONS)
        pieces = (data[start : start + size].encode() for start in range(0, len(data), size))
        found = decoder.rows(file_read(pieces, layout(*KINDS)))
        assert next(found)[0] == 1
        with pytest.raises(UndecodableRow, match=f"row 2 at byte {len(GOOD)}.*: .*{reason}") as caught:
            next(found)
        assert caught.value.at_end is at_end


def test_quote_that_is_never_closed() -> None:
    """An open quote swallows the rest of the file, which then ends inside the row."""
    error = refused(GOOD + f'"I","orders","shop",{TS},7,"x\r\n')
    assert "row 2" in str(error)
    assert "a quote is not closed" in str(error)
    assert error.at_end


def test_quote_that_the_next_row_closes() -> None:
    """An open quote that the next row's first quote closes is found out by what follows it."""
    error = refused(GOOD + f'"I","orders","shop",{TS},7,"x\r\n' + GOOD + GOOD)
    assert "followed by neither delimiter nor terminator" in str(error)
    assert not error.at_end


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("cut", [1, 2, 3, 10, len(UPDATED) - 1])
def test_torn_file(cut: int, size: int) -> None:
    """A file that ends inside a row, or before its terminator is complete, is torn there; the rows before it are whole."""
    error = refused((GOOD + UPDATED)[:-cut], size)
    assert f"row 2 at byte {len(GOOD)}" in str(error)
    assert error.at_end


def test_wrong_terminator() -> None:
    """A file of LF rows read as CRLF is one row without an end, and the error names the option."""
    assert "terminator of [sink]" in str(refused(GOOD.replace("\r\n", "\n") * 3))


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(("after", "at_end"), [(b"", True), (GOOD.encode(), False)])
def test_invalid_utf8(after: bytes, at_end: bool, size: int) -> None:  # noqa: FBT001 - a parameter of the case
    """Bytes that are not UTF-8 stop the table at their row, quoted line ends before them included."""
    bad = f'"I","orders","shop",{TS},7,"a\r\nb#","1"\r\n'.encode().replace(b"#", b"\xff")
    error = refused(GOOD.encode() + bad + after, size)
    assert f"row 2 at byte {len(GOOD)}, commit ts {TS}: it is not UTF-8" in str(error)
    assert error.at_end is at_end


def test_row_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row beyond the size limit is refused instead of being held in memory."""
    monkeypatch.setattr("storage_consumer.decode.csv_files.MAX_ROW_BYTES", 1000)
    assert decoder.MAX_ROW_BYTES > 160 << 20
    pieces = iter([GOOD.encode(), f'"I","orders","shop",{TS},7,"'.encode(), *[b"x" * 500] * 100])
    found = CsvDecoder(OPTIONS).rows(file_read(pieces, layout(*KINDS)))
    assert next(found)[0] == 1
    with pytest.raises(UndecodableRow, match=f"row 2 at byte {len(GOOD)}.* longer than 1000 bytes"):
        next(found)
    assert len(list(pieces)) > 90


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"quote": "''"}, "quote"),
        ({"quote": "é"}, "quote"),
        ({"quote": "1"}, "quote"),
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": "abcd"}, "delimiter"),
        ({"delimiter": "\n"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"delimiter": "-"}, "delimiter"),
        ({"delimiter": "8"}, "delimiter"),
        ({"delimiter": "e"}, "delimiter"),
        ({"delimiter": "."}, "delimiter"),
        ({"terminator": "e+"}, "terminator"),
        ({"delimiter": "§§"}, "1 to 3 bytes"),
        ({"delimiter": "§", "quote": ""}, "TiCDC corrupts"),
        ({"delimiter": "\\", "quote": ""}, "escapes"),
        ({"delimiter": "an", "quote": ""}, "escapes"),
        ({"delimiter": "I", "quote": "", "terminator": ""}, "where a row begins"),
        ({"delimiter": "||", "quote": "", "terminator": ""}, "where a row begins"),
        ({"quote": "", "terminator": "\\"}, "terminator"),
        ({"quote": "", "terminator": "", "output_handle_key": True}, "output-handle-key"),
        ({"terminator": ","}, "terminator"),
        ({"terminator": '"\n'}, "terminator"),
        ({"terminator": "0"}, "terminator"),
        ({"null": "0"}, "null"),
        ({"null": "-1.5e3"}, "null"),
        ({"null": 'a"'}, "null"),
        ({"null": "a,b"}, "null"),
        ({"null": "a\r\n"}, "null"),
        ({"null": "|", "delimiter": "||"}, "two ways"),
        ({"null": "", "delimiter": "|", "terminator": "||"}, "may occur in a row"),
        ({"null": "NULL", "delimiter": "|", "terminator": "|NULL|"}, "may occur in a row"),
    ],
)
def test_refused_options(changed: dict[str, object], option: str) -> None:
    """Options under which rows cannot be read for certain are refused at once, by TiCDC's name for them."""
    with pytest.raises(ConfigError, match=option):
        CsvDecoder(replace(OPTIONS, **changed))  # type: ignore[arg-type]  # the cases have the fields' types


def test_travels_to_tasks() -> None:
    """A decoder can be pickled."""
    decoder = pickle.loads(pickle.dumps(CsvDecoder(OPTIONS)))  # noqa: S301 - our own bytes
    assert len(list(decoder.rows(file_read([GOOD.encode()], layout(*KINDS))))) == 1
