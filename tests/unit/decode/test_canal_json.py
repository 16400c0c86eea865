"""canal-json files: messages, commit ranges, refusals."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.decoder import RowLayout, Tally
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableName
from tests.unit.decode.encoders import (
    SOURCE,
    TS,
    Row,
    blocks,
    canal_line,
    canal_message,
    column,
    decoded,
    file_read,
    from_canal,
    layout,
)

KINDS = ("BIGINT", "VARCHAR", "BLOB")
ROW = Row(operation="I", values=(7, "seven", b"\xff"))
GOOD = canal_line(canal_message(KINDS, ROW))


def update(old: object) -> str:
    """An UPDATE of the row with this `old`."""
    return canal_line(canal_message(KINDS, ROW, type="UPDATE", old=old))


def test_operations() -> None:
    """INSERT, UPDATE and DELETE keep row number, commit ts and values; only an update has old values."""
    rows = [
        ROW,
        Row(operation="U", values=(7, None, b""), old=(7, "seven", b"\xff"), ts=TS + 1),
        Row(operation="D", values=(7, None, b""), ts=TS + 2),
    ]
    assert from_canal("".join(canal_line(canal_message(KINDS, row)) for row in rows), *KINDS) == [
        (1, TS, INSERT, ("7", "seven", "FF"), None),
        (2, TS + 1, UPDATE, ("7", None, ""), ("7", "seven", "FF")),
        (3, TS + 2, DELETE, ("7", None, ""), None),
    ]


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ([{"c1": "six"}], ("7", "six", "FF")),
        ([{"c1": None, "c2": "\x00"}], ("7", None, "00")),
        ([{}], ("7", "seven", "FF")),
        (None, None),
    ],
)
def test_partial_old(old: object, expected: object) -> None:
    """What a partial `old` leaves out is what `data` says; without `old` there are no old values."""
    assert from_canal(update(old), *KINDS)[0][4] == expected


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ([{"c0": "6", "c1": "six", "c2": "\x00"}], ("6", "six", "00")),
        ([{"c0": "6", "c1": None}], ("6", None, "FF")),
        ([{"c2": "\x00", "c1": "six", "c0": "6", "c9": "x"}], ("6", "six", "00")),
        ([{"c0": "7", "c1": "six"}], ("7", "seven", "FF")),
    ],
)
def test_old_row_of_another_key(old: object, expected: object) -> None:
    """Of an update that moves its row the whole old row is read; of one that keeps the key only the key, as the rest is not needed."""
    file = replace(file_read([update(old).encode()], layout(*KINDS)), key=(0,))
    (change,) = CanalJsonDecoder("\r\n").changes(file)
    assert isinstance(change, tuple)
    assert change[4] == expected


def test_old_row_that_cannot_be_read() -> None:
    """It is an error that names the row, where an update moves it."""
    file = replace(file_read([update([{"c0": "6", "c1": 6}]).encode()], layout(*KINDS)), key=(0,))
    with pytest.raises(UndecodableRow, match=r"row 1 .*not a readable canal-json row"):
        list(CanalJsonDecoder("\r\n").changes(file))


def test_values_go_by_name() -> None:
    """Values are taken by column name, whatever their order in the message."""
    line = canal_line(canal_message(KINDS, ROW, data=[{"c2": "\xff", "c0": "7", "c1": "seven"}]))
    assert from_canal(line, *KINDS)[0][3] == ("7", "seven", "FF")


def test_hidden_columns_are_no_matter() -> None:
    """A hidden column of an expression index in a message is passed over."""
    line = canal_line(canal_message(KINDS, ROW, data=[{"c0": "7", "_V$_ei_0": "x", "c1": "seven", "c2": "\xff"}]))
    assert from_canal(line, *KINDS)[0][3] == ("7", "seven", "FF")


@pytest.mark.parametrize("kinds", [(), ("INT",)])
def test_few_columns(kinds: tuple[str, ...]) -> None:
    """Rows of one column, or none, are tuples too."""
    line = canal_line(canal_message(kinds, Row(operation="I", values=(1,) * len(kinds))))
    assert from_canal(line, *kinds)[0][3] == ("1",) * len(kinds)


def test_names_in_another_case() -> None:
    """Table and schema are compared as TiDB compares names: without case."""
    line = canal_line(canal_message(KINDS, ROW, database="Shop", table="ORDERS"))
    assert len(from_canal(line + GOOD, *KINDS)) == 2


TERMINATORS = ["\r\n", "\n", "", "|", "}", '"', "\r", "\n\n", "\\", "ende\u00e9", '{"id":']
EXOTIC = TERMINATORS[2:]


@pytest.mark.parametrize("terminator", TERMINATORS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_blocks(size: int, terminator: str) -> None:
    """Rows are found wherever blocks are cut, whatever ends them, also where a text holds what ends rows."""
    text = f'{{"}}]{terminator}\\"'
    data = canal_line(canal_message(KINDS, Row(operation="I", values=(7, text, b"\xff"))), terminator) * 3
    found = decoded(CanalJsonDecoder(terminator), data, layout(*KINDS), size=size)
    assert found == [(number, TS, INSERT, ("7", text, "FF"), None) for number in (1, 2, 3)]


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("terminator", EXOTIC)
def test_torn_with_any_terminator(terminator: str, size: int) -> None:
    """A file that ends anywhere inside a row or its terminator is torn there; the rows before it are given first."""
    row = canal_line(canal_message(KINDS, ROW), terminator).encode()
    for cut in range(1, len(row), 3):
        found = CanalJsonDecoder(terminator).rows(file_read(blocks((row * 2)[:-cut], size), layout(*KINDS)))
        assert next(found)[0] == 1
        with pytest.raises(UndecodableRow, match=f"row 2 at byte {len(row)}: the file ends inside") as caught:
            next(found)
        assert caught.value.at_end


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("bad", ["x", "[]", '{"id":0]|', "|", '{"a":"\x00', "{}x{}", "{}}"])
def test_no_row_with_another_terminator(bad: str, size: int) -> None:
    """What is no message between two terminators stops the table, and is not taken for a row in writing."""
    row = canal_line(canal_message(KINDS, ROW), "|").encode()
    content = row + bad.encode() + b"|" + row
    found = CanalJsonDecoder("|").rows(file_read(blocks(content, size), layout(*KINDS)))
    assert next(found)[0] == 1
    with pytest.raises(UndecodableRow, match=f"row 2 at byte {len(row)}.*: ") as caught:
        next(found)
    assert not caught.value.at_end


def test_another_terminator_than_told() -> None:
    """Rows with another terminator than the setting says stop the table and name the setting."""
    with pytest.raises(UndecodableRow, match=r"row 1 at byte 0.*terminator '\|'.*\[sink\] terminator"):
        decoded(CanalJsonDecoder("|"), GOOD * 2, layout(*KINDS))
    with pytest.raises(UndecodableRow, match="row 1 at byte 0"):
        decoded(CanalJsonDecoder(), canal_line(canal_message(KINDS, ROW), "|") * 2, layout(*KINDS))


def test_delete_with_its_key_only() -> None:
    """A delete that lacks columns gives those it has, converted; what it lacks is None, and so is a key that is not there."""
    for kinds, data, expected in (
        (("BLOB", "VARCHAR"), {"c0": "\xff"}, ("FF", None)),
        (("INT", "INT"), {"c1": "5"}, (None, "5")),
        (("INT", "INT"), {}, (None, None)),
        (("INT", "INT"), {"c0": "5", "c1": None}, None),
    ):
        row = Row(operation="D", values=(None,) * 2)
        line = canal_line(canal_message(kinds, row, data=[data], sqlType=None, mysqlType=None))
        [(_, _, operation, values, old)] = from_canal(line, *kinds)
        assert (operation, values) == ((PARTIAL_DELETE, expected) if expected else (DELETE, ("5", None)))
        assert old is None


ES = TS >> 18


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 2**64, "inside"),
        (0, ES << 18, "inside"),
        (0, (ES << 18) - 1, "later"),
        (TS, TS, "inside"),
        (((ES + 1) << 18) - 2, 2**64, "inside"),
        (((ES + 1) << 18) - 1, 2**64, "repeated"),
    ],
)
def test_without_commit_ts(low: int, high: int, expected: str) -> None:
    """A row without commit ts counts by its millisecond: later if that begins later, repeated if all of it was applied."""
    tally = Tally()
    data = canal_line(canal_message(KINDS, ROW, _tidb=...))
    decoder = CanalJsonDecoder(allow_missing_commit_ts=True)
    found = decoded(decoder, data, layout(*KINDS), commit_range=CommitRange(low=low, high=high), tally=tally)
    assert [change[1] for change in found] == ([ES << 18] if expected == "inside" else [])
    assert (tally.later, tally.duplicates) == (int(expected == "later"), int(expected == "repeated"))
    assert tally.max_ts == ES << 18
    assert tally.next_ts == (ES << 18 if expected == "later" else 0)


def test_commit_ts_that_was_not_expected() -> None:
    """A row that says its commit ts is taken at its word, whatever the setting."""
    assert decoded(CanalJsonDecoder(allow_missing_commit_ts=True), GOOD, layout(*KINDS))[0][1] == TS


@pytest.mark.parametrize("es", [..., 0, -1, 2**46])
def test_without_any_time(es: object) -> None:
    """A row with neither commit ts nor a possible time stops the table."""
    data = canal_line(canal_message(KINDS, ROW, _tidb=..., es=es))
    with pytest.raises(UndecodableRow, match="nor a time in es"):
        decoded(CanalJsonDecoder(allow_missing_commit_ts=True), data, layout(*KINDS))


def test_names_of_columns() -> None:
    """Any column name is found, also one with quotes, backslashes or control characters."""
    names = ('say "x"', "a\\b", "tab\t", "\u00e9\U0001f600", "c0", "_tidb")
    for chosen in ((names[0], *names[3:]), names[3:], names):
        expected = RowLayout(table=layout().table, columns=tuple(column(name, "INT") for name in chosen))
        image = {name: str(number) for number, name in enumerate(chosen)}
        old = dict.fromkeys(chosen[:1], "9")
        line = canal_line(canal_message(KINDS, ROW, type="UPDATE", data=[image], old=[old]))
        [(_, _, _, values, before)] = decoded(CanalJsonDecoder(), line, expected)
        assert values == tuple(image.values())
        assert before == ("9", *values[1:])


def test_null_beside_bad_number() -> None:
    """A value that is no number is found beside NULLs too."""
    line = canal_line(canal_message(("INT", "INT"), Row(operation="I", values=(None, "x"))))
    with pytest.raises(UndecodableRow, match="column c1"):
        from_canal(line, "INT", "INT")


def test_window() -> None:
    """Low is exclusive and high inclusive; what lies outside is counted, and may be of another version or table."""
    tally = Tally()
    other = {"data": [{"before": "1"}], "table": "before"}
    data = "".join(
        canal_line(canal_message(KINDS, ROW, _tidb={"commitTs": TS + index}, **(other if index in (0, 3, 5) else {})))
        for index in (5, 0, 2, 3, 1)
    )
    found = from_canal(data, *KINDS, commit_range=CommitRange(low=TS, high=TS + 2), tally=tally)
    assert [(number, ts - TS) for number, ts, *_ in found] == [(3, 2), (5, 1)]
    assert tally == Tally(rows=5, duplicates=1, repeated_ts=TS, later=2, max_ts=TS + 5, next_ts=TS + 3)


def test_largest_commit_ts() -> None:
    """A commit ts keeps all its 64 bits."""
    line = canal_line(canal_message(KINDS, ROW, _tidb={"commitTs": 2**64 - 1}))
    assert from_canal(line, *KINDS)[0][1] == 2**64 - 1


def message(**changed: object) -> str:
    """The good message with other fields, as a line."""
    return canal_line(canal_message(KINDS, ROW, **changed))


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(_tidb=...), "enable-tidb-extension=true"),
        (message(_tidb=None), "enable-tidb-extension=true"),
        (message(_tidb={}), "enable-tidb-extension=true"),
        (message(_tidb={"commitTs": 0}), "enable-tidb-extension=true"),
        (message(_tidb={"commitTs": -1}), "enable-tidb-extension=true"),
        (message(_tidb={"commitTs": "9"}), r"Expected `int`, got `str` - at `\$\._tidb\.commitTs`"),
        (message(_tidb={"commitTs": 9.5}), "Expected `int`, got `float`"),
        (message(type="QUERY"), r"the type 'QUERY' \(isDdl False\) is not a row change"),
        (message(isDdl=True), r"the type 'INSERT' \(isDdl True\) is not a row change"),
        (message(type=...), "missing required field `type`"),
        (message(data=None), r"Expected `array`, got `null` - at `\$\.data`"),
        (message(data=[]), "Expected `array` of length 1"),
        (message(data=[{}, {}]), "Expected `array` of length 1"),
        (message(data=[{"c0": 7, "c1": "x", "c2": ""}]), r"Expected `str \| null`, got `int`"),
        (message(data=[{"c0": "7", "c1": "x"}]), r"lacks the column c2; shop\.orders should have c0, c1, c2"),
        (message(type="UPDATE", data=[{"c0": "7"}]), "lacks the column c1, c2; "),
        (message(type="DELETE", data=[{"c0": "x"}]), r"column c0 \(BIGINT\): 'x' does not have the form"),
        (message(type="DELETE", data=[{"c0": "7", "d": "1"}]), "lacks the column c1, c2 and has the unknown column d"),
        (
            message(data=[{"c0": "7", "c1": "x", "new": "", "c3": "\n"}]),
            "lacks the column c2 and has the unknown column new, c3",
        ),
        (message(data=[{"c0": "7", "c1": "x", "new": ""}]), "lacks the column c2 and has the unknown column new"),
        (message(data=[{"c0": "7", "c1": "x", "c2": "", "c3": ""}]), "has the unknown column c3"),
        (message(type="UPDATE", old=[{"gone": "1"}]), "has the unknown column gone"),
        (message(type="UPDATE", old=[{"c0": "x"}]), "column c0"),
        (message(table="items"), r"belongs to shop\.items, .* files of shop\.orders"),
        (message(database="other"), r"belongs to other\.orders, .* files of shop\.orders"),
        ("\r\n", "not a readable canal-json row change"),
        ("[]\r\n", "Expected `object`, got `array`"),
        (GOOD.replace("}\r\n", "}}\r\n"), "not a readable canal-json row change"),
        ('{"id":0\r\n', "not a readable canal-json row change"),
        (GOOD.replace('"sql":""', '"sql":' + "[" * 10_000 + "]" * 10_000), "recursion"),
        (GOOD.replace("seven", "\\ud800"), "not a readable canal-json row change"),
        ("\x00" * 20 + "\r\n", "not a readable canal-json row change"),
    ],
)
def test_bad_row(bad: str, reason: str, size: int) -> None:
    """A line that is not a row change of this table stops it after the rows before it; at_end only when it is the last."""
    for data, at_end in ((GOOD + bad + GOOD, False), (GOOD + bad, True)):
        content = data.encode()
        pieces = (content[start : start + size] for start in range(0, len(content), size))
        found = CanalJsonDecoder().rows(file_read(pieces, layout(*KINDS)))
        assert next(found)[0] == 1
        with pytest.raises(
            UndecodableRow, match=f"{SOURCE}: row 2 at byte {len(GOOD.encode())}.*: .*{reason}"
        ) as caught:
            next(found)
        assert caught.value.at_end is at_end


def test_error_has_the_commit_ts() -> None:
    """Once the commit ts is read, an error about the row names it."""
    with pytest.raises(UndecodableRow, match=f"row 1 at byte 0, commit ts {TS}: column c0"):
        from_canal(message(data=[{"c0": "x", "c1": "x", "c2": ""}]), *KINDS)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_invalid_utf8(size: int) -> None:
    """Bytes that are not UTF-8 in a value stop the table."""
    with pytest.raises(UndecodableRow, match=r"(?i)row 2 .*utf-8"):
        from_canal((GOOD * 2).encode().replace(b"seven", b"\xff").replace(b"\xff", b"seven", 1), *KINDS, size=size)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("cut", [1, 2, 3, 10, len(GOOD) - 1])
def test_torn_file(cut: int, size: int) -> None:
    """A file that ends before its last line end is torn there, complete JSON or not."""
    with pytest.raises(UndecodableRow, match=f"row 2 at byte {len(GOOD.encode())}: the file ends inside") as caught:
        from_canal((GOOD + GOOD)[:-cut], *KINDS, size=size)
    assert caught.value.at_end


def test_line_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the size limit is refused instead of being held in memory."""
    monkeypatch.setattr("storage_consumer.decode.canal_files.MAX_ROW_BYTES", 1000)
    pieces = iter([GOOD.encode(), *[b"x" * 500] * 100])
    with pytest.raises(UndecodableRow, match=r"row 2 .* longer than 1000 bytes"):
        list(CanalJsonDecoder().rows(file_read(pieces, layout(*KINDS))))
    assert len(list(pieces)) > 90


def test_travels_to_tasks() -> None:
    """A decoder can be pickled."""
    decoder = pickle.loads(pickle.dumps(CanalJsonDecoder()))  # noqa: S301 - our own bytes
    found = list(decoder.rows(file_read([GOOD.encode()], layout(*KINDS))))
    assert len(found) == 1
    assert layout(*KINDS).table == TableName(schema="shop", table="orders")


@pytest.mark.parametrize("kind", ["DOUBLE", "BIGINT", "BIT"])
def test_line_end_within_a_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of two numbers in two lines is no number, also where many rows are read at once."""
    monkeypatch.setattr(canal_json, "AT_ONCE_BYTES", 1)
    kinds = (kind, "VARCHAR")
    good = canal_line(canal_message(kinds, Row(operation="I", values=(17, "x"))))
    content = good + good.replace('"17"', '"1\\n7"')
    found = CanalJsonDecoder().changes(replace(file_read([content.encode()], layout(*kinds)), key=(0,)))
    with pytest.raises(UndecodableRow, match=r"row 2 .* does not have the form of such a value"):
        list(found)
