"""canal-json messages that are read at once."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.bulk import BulkRows, message_form, read_messages
from storage_consumer.decode.canal_message import shape_of
from storage_consumer.decode.decoder import Tally
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.decode.wire_format import encode_field
from storage_consumer.model import CommitRange
from tests.unit.decode.encoders import EVERYTHING, Row, canal_line, canal_message, layout

_KINDS = ("INT", "VARCHAR")


def read(
    lines: str, *kinds: str, key: tuple[int, ...] = (0,), commit_range: CommitRange = EVERYTHING
) -> tuple[BulkRows, list[int], Tally]:
    """What is read at once of these lines, the numbers of those that are left over, and the counts."""
    content, tally = lines.encode(), Tally()
    form = message_form(shape_of(layout(*kinds), key), content[: content.index(b"\n")])
    assert form
    found = read_messages(form, content, commit_range, tally)
    assert found
    batch, others = found
    for start, number in others:
        assert content[:start].count(b"\n") == number
        assert content[start - 1 : start] in {b"", b"\n"}
    return batch, [number for _, number in others], tally


def lines_of(batch: BulkRows, columns: int = 2) -> list[bytes]:
    """All columns of all rows."""
    return list(batch.lines(range(columns), np.arange(len(batch.ts))))


def line(
    *values: object, kinds: tuple[str, ...] = _KINDS, operation: str = "I", old: tuple[object, ...] | None = None
) -> str:
    """The message of one change."""
    return canal_line(canal_message(kinds, Row(operation=operation, values=values, old=old)))


def told(text: str, chance: random.Random) -> str:
    """A JSON string that is this text, with as many escapes as there may be."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    found = []
    for sign in text:
        units = sign.encode("utf-16-be").hex()
        ways = ["".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))]
        ways += [ways[0].upper().replace("U", "u")]
        ways += [short[sign]] if sign in short else []
        ways += [sign] if sign >= " " and sign not in '"\\' else []
        found.append(chance.choice(ways))
    return f'"{"".join(found)}"'


@given(text=st.text(max_size=20), chance=st.randoms(use_true_random=True))
def test_text(text: str, chance: random.Random) -> None:
    """A text becomes its field of a line and its wire text, however it is escaped."""
    batch, others, _ = read(line(7, "?") + line(7, "TEXT").replace('"TEXT"', told(text, chance)), *_KINDS)
    assert not others
    assert lines_of(batch)[1] == b"7\t" + encode_field(text)
    assert batch.texts(1, np.array([1])) == [text]


@given(value=st.binary(max_size=20), chance=st.randoms(use_true_random=True))
def test_binary(value: bytes, chance: random.Random) -> None:
    """Bytes become hexadecimal digits, however their code points are escaped."""
    content = line(7, b"", kinds=("INT", "BLOB")) + line(7, b"BYTES", kinds=("INT", "BLOB")).replace(
        '"BYTES"', told(value.decode("latin-1"), chance)
    )
    batch, others, _ = read(content, "INT", "BLOB")
    assert not others
    assert lines_of(batch)[1] == b"7\t" + value.hex().upper().encode()
    assert batch.texts(1, np.array([1])) == [value.hex().upper()]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("VARCHAR", "\\ud83d"),
        ("VARCHAR", "\\ude00"),
        ("VARCHAR", "\\ud83d\\ud83d"),
        ("VARCHAR", "\\ud83dx"),
        ("VARCHAR", "\\u00e"),
        ("VARCHAR", "\\x"),
        ("VARCHAR", "\x01"),
        ("BLOB", "\u0100"),
        ("BLOB", "\\u0100"),
        ("BLOB", "\x01"),
        ("INT", ""),
        ("INT", "1x"),
        ("INT", "1\\n7"),
        ("INT", "123456789012345678901"),
        ("SET", "-1"),
        ("YEAR", "12345"),
        ("DOUBLE", "1."),
        ("FLOAT", "9e38"),
        ("FLOAT", "9" * 39),
        ("FLOAT", "1."),
    ],
)
def test_left_to_the_plain_reader(kind: str, text: str) -> None:
    """What is no value of its type, what no reader takes for text, and a FLOAT that may have to be another."""
    good = canal_line(canal_message(("INT", kind), Row(operation="I", values=(7, None))))
    content = good + good.replace('"c1":null', f'"c1":"{text}"') + good
    batch, others, tally = read(content, "INT", kind)
    assert others == [1]
    assert batch.numbers.tolist() == [1, 3]
    assert tally.rows == 3
    assert lines_of(batch) == [b"7\t\\N"] * 2


@pytest.mark.parametrize(
    ("kind", "text", "field"),
    [
        ("YEAR", "0", "0000"),
        ("YEAR", "2024", "2024"),
        ("FLOAT", "-" + "9" * 38 + ".5", "-" + "9" * 38 + ".5"),
        ("DOUBLE", "1e300", "1e300"),
        ("ENUM", "2", "2"),
        ("BIT", "18446744073709551615", "18446744073709551615"),
        ("JSON", '{\\"a\\": 1}', '{"a": 1}'),
        ("TIMESTAMP", "2024-04-11 00:00:00.5", "2024-04-11 00:00:00.5"),
    ],
)
def test_values(kind: str, text: str, field: str) -> None:
    """Values of each type become what the plain reader makes of them."""
    good = canal_line(canal_message(("INT", kind), Row(operation="I", values=(7, None))))
    batch, others, _ = read(good + good.replace('"c1":null', f'"c1":"{text}"'), "INT", kind)
    assert not others
    assert lines_of(batch)[1] == f"7\t{field}".encode()
    assert batch.texts(1, np.array([0, 1])) == [None, field]


@pytest.mark.slow
def test_members_in_any_order() -> None:
    """TiCDC writes mysqlType's members as they come; all else has one sequence."""
    message = json.loads(line(7, "x"))
    shuffled = message | {"mysqlType": dict(reversed(message["mysqlType"].items()))}
    texts = [json.dumps(one, separators=(",", ":")) for one in (message, shuffled, dict(reversed(message.items())))]
    spaced = json.dumps(message)
    _, others, _ = read("\n".join([*texts, spaced, ""]), *_KINDS)
    assert others == [2, 3]


def test_moved_key() -> None:
    """An update that changes the key is a delete of the old row and an insert of the new one; what is not told of the old one stayed."""
    changes = [line(7, "x", operation="U", old=(7, "y")), line(8, "x", operation="U", old=(7, "y"))]
    partly = changes[1].replace('"old":[{"c0":"7","c1":"y"}]', '"old":[{"c0":"7"}]')
    assert partly != changes[1]
    batch, others, tally = read("".join([*changes, partly]), *_KINDS)
    assert not others
    assert batch.operations.tolist() == [UPDATE, DELETE, INSERT, DELETE, INSERT]
    assert batch.numbers.tolist() == [1, 2, 2, 3, 3]
    assert lines_of(batch) == [b"7\tx", b"7\ty", b"8\tx", b"7\tx", b"8\tx"]
    assert batch.integers(0).tolist() == [7, 7, 8, 7, 8]  # type: ignore[union-attr] # these are integers
    assert tally.rows == 3


def test_moved_key_with_escapes() -> None:
    """Where the bytes of two keys differ and have escapes, the plain reader says whether the keys do."""
    content = line("a/b", "x", kinds=("VARCHAR", "VARCHAR"), operation="U", old=("a/b", "x"))
    odd = content.replace('"old":[{"c0":"a/b"', '"old":[{"c0":"a\\/b"')
    assert odd != content
    assert read(content + odd, "VARCHAR", "VARCHAR")[1] == [1]


def test_without_a_key() -> None:
    """Every update that tells its old row is a delete and an insert, also one that changes nothing."""
    told_old = line(7, "x", operation="U", old=(7, "x"))
    untold = told_old.replace('"old":[{"c0":"7","c1":"x"}]', '"old":null')
    batch, others, _ = read(told_old + untold, *_KINDS, key=())
    assert not others
    assert batch.operations.tolist() == [DELETE, INSERT, UPDATE]


def test_window() -> None:
    """Messages are counted once, also those of which two rows are made."""
    updates = [Row(operation="U", values=(7, "x"), old=(6, "x"), ts=ts) for ts in (11, 12, 13)]
    changes = [canal_line(canal_message(_KINDS, update)) for update in updates]
    batch, others, tally = read("".join(changes), *_KINDS, commit_range=CommitRange(low=11, high=12))
    assert not others
    assert batch.numbers.tolist() == [2, 2]
    assert tally == Tally(rows=3, duplicates=1, repeated_ts=11, later=1, max_ts=13, next_ts=13)


def test_many_short_lines() -> None:
    """Lines that can be no messages do not take up memory: the plain reader looks at all."""
    content = (line(7, "x") + "\n" * 10_000).encode()
    form = message_form(shape_of(layout(*_KINDS), (0,)), content[: content.index(b"\n")])
    assert form
    assert read_messages(form, content, EVERYTHING, tally := Tally()) is None
    assert tally == Tally()


@pytest.mark.parametrize(
    "message",
    [
        canal_message(_KINDS, Row(operation="I", values=(7, "x")), table="other"),
        canal_message(_KINDS, Row(operation="I", values=(7, "x")), database=7),
        canal_message(_KINDS, Row(operation="I", values=(7, "x")), isDdl=True),
        canal_message(_KINDS, Row(operation="I", values=(7, "x")), id=...),
        dict(sorted(canal_message(_KINDS, Row(operation="I", values=(7, "x"))).items())),
        {"data": {"isDdl": False, "type": ""}} | canal_message(_KINDS, Row(operation="I", values=(7, "x")), isDdl=...),
    ],
    ids=["table", "database", "DDL", "lacks one", "other sequence", "within a member"],
)
def test_other_heads(message: dict[str, object]) -> None:
    """Messages that do not begin as the table's do are not read at once."""
    assert message_form(shape_of(layout(*_KINDS), (0,)), canal_line(message).encode()) is None
