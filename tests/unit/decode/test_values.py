"""Each column type, from the text in a file to wire text, for both protocols."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import BinaryEncoding, WireKind, converter, grammar, wire_kind
from storage_consumer.errors import NotReplicable, UndecodableRow
from tests.unit.decode.encoders import Row, canal_line, canal_message, column, from_canal, from_csv

TEXT, HEX, UNSIGNED = WireKind.TEXT, WireKind.HEX, WireKind.UNSIGNED
HEAD = '"I","orders","shop",449000000000000009,'

CSV = [
    ("TINYINT", "-128", "-128", TEXT),
    ("SMALLINT", "32767", "32767", TEXT),
    ("MEDIUMINT", "0", "0", TEXT),
    ("INT", "4294967295", "4294967295", TEXT),
    ("BIGINT", "18446744073709551615", "18446744073709551615", TEXT),
    ("BIT", "18446744073709551615", "18446744073709551615", UNSIGNED),
    ("YEAR", "2024", "2024", TEXT),
    ("YEAR", "0", "0000", TEXT),
    ("FLOAT", "1.6777216e+07", "1.6777216e+07", TEXT),
    ("FLOAT", "-0", "-0", TEXT),
    ("DOUBLE", "1.5e-05", "1.5e-05", TEXT),
    ("DOUBLE", "999999.5", "999999.5", TEXT),
    ("DECIMAL", '"-1.50"', "-1.50", TEXT),
    ("DATE", '"0000-00-00"', "0000-00-00", TEXT),
    ("DATETIME", '"2024-01-00 10:00:00.500"', "2024-01-00 10:00:00.500", TEXT),
    ("TIMESTAMP", '"2024-01-31 23:59:59.123456"', "2024-01-31 23:59:59.123456", TEXT),
    ("TIME", '"-838:59:59"', "-838:59:59", TEXT),
    ("CHAR", '"pad"', "pad", TEXT),
    ("VARCHAR", '"say ""hi"", \\n"', 'say "hi", \\n', TEXT),
    ("VAR_STRING", '""', "", TEXT),
    ("TINYTEXT", '"日本😀"', "日本😀", TEXT),
    ("TEXT", '"a\r\nb"', "a\r\nb", TEXT),
    ("MEDIUMTEXT", '"\x00\t"', "\x00\t", TEXT),
    ("LONGTEXT", '"\\N"', "\\N", TEXT),
    ("VARCHAR", '"null"', "null", TEXT),
    ("VARCHAR", '"NULL"', "NULL", TEXT),
    ("BINARY", '"AAEC/w=="', "000102FF", HEX),
    ("VARBINARY", '""', "", HEX),
    ("TINYBLOB", '"gA=="', "80", HEX),
    ("BLOB", '"w6k="', "C3A9", HEX),
    ("MEDIUMBLOB", '"YWJj"', "616263", HEX),
    ("LONGBLOB", '"/////w=="', "FFFFFFFF", HEX),
    ("JSON", '"{""a"": [1, null]}"', '{"a": [1, null]}', TEXT),
    ("ENUM", '"c d"', "c d", TEXT),
    ("SET", '"a,c d"', "a,c d", TEXT),
    ("SET", '""', "", TEXT),
    ("VECTOR", '"[1,2.5,-3]"', "[1,2.5,-3]", TEXT),
]
CANAL = [
    ("TINYINT", "-128", "-128", TEXT),
    ("SMALLINT", "32767", "32767", TEXT),
    ("MEDIUMINT", "0", "0", TEXT),
    ("INT", "4294967295", "4294967295", TEXT),
    ("BIGINT", "18446744073709551615", "18446744073709551615", TEXT),
    ("BIT", "18446744073709551615", "18446744073709551615", UNSIGNED),
    ("YEAR", "2155", "2155", TEXT),
    ("YEAR", "0", "0000", TEXT),
    ("FLOAT", "16777216", "16777216", TEXT),
    ("DOUBLE", "0.000015", "0.000015", TEXT),
    ("DECIMAL", "-1.50", "-1.50", TEXT),
    ("DATE", "9999-12-31", "9999-12-31", TEXT),
    ("DATETIME", "2024-01-31 23:59:59", "2024-01-31 23:59:59", TEXT),
    ("TIMESTAMP", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000", TEXT),
    ("TIME", "838:59:59.000000", "838:59:59.000000", TEXT),
    ("CHAR", "", "", TEXT),
    ("VARCHAR", "<x> & \u2028\\N", "<x> & \u2028\\N", TEXT),
    ("VAR_STRING", "v", "v", TEXT),
    ("VARCHAR", "null", "null", TEXT),
    ("VARCHAR", "NULL", "NULL", TEXT),
    ("TINYTEXT", "\ufffd", "\ufffd", TEXT),
    ("TEXT", 'a\r\n"b"', 'a\r\n"b"', TEXT),
    ("MEDIUMTEXT", "\x00", "\x00", TEXT),
    ("LONGTEXT", "日本😀", "日本😀", TEXT),
    ("BINARY", "a\x00\x00", "610000", HEX),
    ("VARBINARY", "", "", HEX),
    ("TINYBLOB", "\x80", "80", HEX),
    ("BLOB", "Ã©", "C3A9", HEX),
    ("MEDIUMBLOB", '"\\', "225C", HEX),
    ("LONGBLOB", "ÿÿ", "FFFF", HEX),
    ("JSON", '{"a": "\\""}', '{"a": "\\""}', TEXT),
    ("ENUM", "0", "0", UNSIGNED),
    ("SET", "5", "5", UNSIGNED),
    ("VECTOR", "[1,2.5]", "[1,2.5]", TEXT),
]
NO_VALUE = {
    "BIGINT": ["", "1.5", "x", "--1", "1e3", "٣", "1_0", " 1", "\\n"],
    "BIT": ["-1", "1.0", "true"],
    "YEAR": ["24 AD", "-1", "12345"],
    "DOUBLE": ["NaN", "+Inf", "1.", ".5", "1e", "0x10"],
}


def canal_of(kind: str, text: str) -> str:
    """A file with one INSERT of the text as it is, which TiCDC need not have written."""
    return canal_line(canal_message(["VARCHAR"], Row(operation="I", values=(text,)), mysqlType={"c0": kind.lower()}))


@pytest.mark.parametrize(("kind", "text", "expected", "wire"), CSV)
def test_csv(kind: str, text: str, expected: str, wire: WireKind) -> None:
    """A CSV value of each type becomes its wire text of its kind (T1, T7)."""
    [(_, _, _, values, _)] = from_csv(f"{HEAD}{text}\r\n", kind)
    assert values == (expected,)
    assert wire_kind(column("c", kind), "csv") is wire


@pytest.mark.parametrize(("kind", "text", "expected", "wire"), CANAL)
def test_canal_json(kind: str, text: str, expected: str, wire: WireKind) -> None:
    """A canal-json value of each type becomes its wire text of its kind (T1, T7, T8)."""
    [(_, _, _, values, _)] = from_canal(canal_of(kind, text), kind)
    assert values == (expected,)
    assert wire_kind(column("c", kind), "canal-json") is wire


@pytest.mark.parametrize("kind", sorted({kind for kind, *_ in CSV}))
def test_null_of_every_type(kind: str) -> None:
    """NULL is None for every type in both protocols (T1)."""
    assert from_csv(f"{HEAD}\\N\r\n", kind)[0][3] == (None,)
    line = canal_line(canal_message([kind], Row(operation="I", values=(None,))))
    assert from_canal(line, kind)[0][3] == (None,)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NO_VALUE.items() for text in texts])
def test_not_a_number(kind: str, text: str) -> None:
    """Where a number is due, text that is none stops the table and names the column, in both protocols."""
    with pytest.raises(UndecodableRow, match="column c0"):
        from_csv(f"{HEAD}{text}\r\n", kind)
    with pytest.raises(UndecodableRow, match="column c0"):
        from_canal(canal_of(kind, text), kind)


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_canal_json_members_are_numbers(kind: str) -> None:
    """A member's name in canal-json stops the table: TiCDC writes the number (T15)."""
    with pytest.raises(UndecodableRow, match="column c0"):
        from_canal(canal_of(kind, "a"), kind)


@pytest.mark.parametrize("text", ["A", "AA==A", "AAE", "A A=", "AA==\r\n", "é", "AAE-"])
def test_bad_base64(text: str) -> None:
    """Base64 is read strictly: padding, alphabet and nothing behind it (T9)."""
    with pytest.raises(UndecodableRow, match=r"column c0: .* is not base64"):
        from_csv(f'{HEAD}"{text}"\r\n', "BLOB")


def test_binary_beyond_one_byte() -> None:
    """A code point above U+00FF in a canal-json binary value is no byte."""
    with pytest.raises(UndecodableRow, match=r"column c0: .* beyond U\+00FF"):
        from_canal(canal_of("BLOB", "日"), "BLOB")


@pytest.mark.parametrize("kind", ["GEOMETRY", "POINT", "UNSPECIFIED", ""])
def test_unknown_type(kind: str) -> None:
    """A type without a rule is refused by column and type, never passed on as text."""
    with pytest.raises(NotReplicable, match=f"column c: no rule for the column type {kind}"):
        wire_kind(column("c", kind), "csv")
    with pytest.raises(NotReplicable, match="column c"):
        converter(column("c", kind), "canal-json")


@pytest.mark.parametrize("protocol", ["dump-sql", "dump-csv"])
def test_exports_give_what_csv_gives(protocol: Protocol) -> None:
    """The target gets the same of an export as of TiCDC's CSV: kinds of wire texts, forms of numbers, converters."""
    for kind in {kind for kind, *_ in CSV}:
        one = column("c", kind)
        assert wire_kind(one, protocol) is wire_kind(one, "csv")
        if kind not in {"BIT", "DECIMAL"}:
            assert grammar(one, protocol) == grammar(one, "csv")
            assert converter(one, protocol, binary_encoding="hex") == converter(one, "csv", binary_encoding="hex")


@pytest.mark.parametrize(("encoding", "text"), [("hex", "01ff"), ("hex", "01FF"), ("base64", "Af8=")])
def test_bits_of_exports_are_bytes(encoding: BinaryEncoding, text: str) -> None:
    """BIT is bytes in exports, and a number for the target."""
    for protocol in ("dump-sql", "dump-csv"):
        convert = converter(column("c", "BIT"), protocol, binary_encoding=encoding)
        assert convert is not None
        assert convert(text) == "511"
