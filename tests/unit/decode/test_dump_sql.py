"""SQL data files of exports: literals, statements, and what is refused."""

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
from tests.unit.decode.exporting import HEAD, SQL, changes_of, layout, read, values_of

KINDS = ("BIGINT", "VARCHAR", "VARBINARY")
RAW = DumpOptions(escape_backslash=False)


def of(literal: str | bytes, kind: str = "VARCHAR", options: DumpOptions = SQL, zone: str = "") -> object:
    """The wire text of a literal."""
    content = HEAD.encode() + b"INSERT INTO `orders` VALUES\n(%b);\n" % (
        literal if isinstance(literal, bytes) else literal.encode()
    )
    (values,) = values_of(content, layout(kind, zone=zone), options)
    assert isinstance(values, tuple)
    return values[0]


def refused(content: str | bytes, table: RowLayout | None = None, options: DumpOptions = SQL) -> str:
    """Why a file is refused."""
    with pytest.raises(UndecodableRow) as fault:
        values_of(content if isinstance(content, bytes) else content.encode(), table or layout(*KINDS), options)
    assert not fault.value.at_end
    return str(fault.value)


def test_rows() -> None:
    """Rows are numbered through all statements, and each is an INSERT at the file's clock plus its number."""
    content = f"{HEAD}INSERT INTO `orders` VALUES\n(1,'a',x'00ff'),\n(2,NULL,NULL);\nINSERT INTO `orders` VALUES\n(-3,'','');\n"
    tally = Tally()
    file = read(content.encode(), layout(*KINDS), SQL, clock=5 << 32, tally=tally)
    assert list(ExportDecoder(SQL).rows(file)) == [
        (1, (5 << 32) + 1, INSERT, ("1", "a", "00FF"), None),
        (2, (5 << 32) + 2, INSERT, ("2", None, None), None),
        (3, (5 << 32) + 3, INSERT, ("-3", "", ""), None),
    ]
    assert tally == Tally(rows=3, max_ts=(5 << 32) + 3)


def test_commit_range() -> None:
    """Rows outside the commit range are counted, and their values are not looked at."""
    content = f"{HEAD}INSERT INTO `orders` VALUES\n('no number'),\n(2),\n(3),\n('no number');\n"
    tally = Tally()
    file = read(content.encode(), layout("INT"), SQL, commit_range=CommitRange(low=11, high=13), clock=10, tally=tally)
    assert [change[0] for change in ExportDecoder(SQL).rows(file)] == [2, 3]
    assert tally == Tally(rows=4, duplicates=1, repeated_ts=11, later=1, max_ts=14, next_ts=14)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'a\'b\"c\\d\n\r\0\Z'", "a'b\"c\\d\n\r\0\x1a"),
        ("'it''s'", "it's"),
        ("'say \"\"'", 'say ""'),
        ('"say ""it\'\'s"""', "say \"it''s\""),
        ("'raw \n\t\x01 日本😀'", "raw \n\t\x01 日本😀"),
        ("CONVERT('x' USING UTF8MB4)", "x"),
        ('CONVERT("say \\"x\\"" USING utf8mb4)', 'say "x"'),
        ("''", ""),
        ("NULL", None),
        ("null", None),
        ("'NULL'", "NULL"),
    ],
)
def test_strings(literal: str, value: object) -> None:
    """Strings in either quote mean what a server reads, and NULL is none of them."""
    assert of(literal) == value


@pytest.mark.parametrize("following", ["t", "b", "%", "_", "x", "u", "1", "\n", " "])
@pytest.mark.parametrize("before", [0, pytest.param(20_000, marks=pytest.mark.slow)])
def test_unknown_escape(following: str, before: int) -> None:
    """What no program writes behind a backslash shows that backslashes are content: refused, also among many rows, and the option is named."""
    rows = ["('a')"] * before + [f"('C:\\{following}emp')"]
    listed = ",\n".join(rows)
    content = f"INSERT INTO `orders` VALUES\n{listed};\n".encode()
    with pytest.raises(UndecodableRow, match="escape-backslash=false"):
        list(ExportDecoder(SQL).changes(read(content, layout("VARCHAR"), SQL)))


@pytest.mark.parametrize(
    ("literal", "value"), [(r"'a\nb\'", "a\\nb\\"), ("'it''s'", "it's"), ("'two\nlines'", "two\nlines")]
)
def test_strings_without_escapes(literal: str, value: str) -> None:
    """Under NO_BACKSLASH_ESCAPES a backslash is a backslash, and only quotes are doubled."""
    assert of(literal, options=RAW) == value


@pytest.mark.parametrize(
    ("kind", "literal", "value"),
    [
        ("VARBINARY", "x'00ff'", "00FF"),
        ("VARBINARY", "X'00FF'", "00FF"),
        ("VARBINARY", "0x00ff", "00FF"),
        ("VARBINARY", "x''", ""),
        ("VARBINARY", b"'\xff\\0\\''", "FF0027"),
        ("BLOB", b"_binary '\xff'", "FF"),
        ("BLOB", b"_BINARY'\xff'", "FF"),
        ("BLOB", b'_binary "\xff"', "FF"),
        ("BIT", "x'01ffffffff'", "8589934591"),
        ("BIT", "x''", "0"),
        ("BIT", b"'\x01\xff'", "511"),
        ("BIT", "5", "5"),
        ("BIT", "256", "256"),
        ("MEDIUMINT", "'16777215'", "16777215"),
        ("BIGINT", "-9223372036854775808", "-9223372036854775808"),
        ("YEAR", "'0'", "0000"),
        ("YEAR", "0", "0000"),
        ("YEAR", "'2024'", "2024"),
        ("FLOAT", "3.4028235e+38", "3.4028234663852886e+38"),
        ("FLOAT", "1.6777216e+07", "1.6777216e+07"),
        ("DOUBLE", "2.2250738585072014e-308", "2.2250738585072014e-308"),
        ("DECIMAL", "-0.9999999999", "-0.9999999999"),
        ("DECIMAL", "'99.90'", "99.90"),
        ("DATETIME", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
        ("ENUM", "''", ""),
        ("SET", "'r,w'", "r,w"),
        ("JSON", r"'{\"a\": 1}'", '{"a": 1}'),
        ("VECTOR", "'[1,2.5,-3]'", "[1,2.5,-3]"),
    ],
)
def test_types(kind: str, literal: str | bytes, value: str) -> None:
    """Each type becomes the wire text that the target takes."""
    assert of(literal, kind) == value


def test_time_zone() -> None:
    """TIMESTAMP values become UTC; dates without a zone stay."""
    assert of("'2024-01-01 08:00:00.5'", "TIMESTAMP", zone="Asia/Shanghai") == "2024-01-01 00:00:00.5"
    assert of("'0000-00-00 00:00:00'", "TIMESTAMP", zone="Asia/Shanghai") == "0000-00-00 00:00:00"
    assert of("'2024-01-01 08:00:00'", "DATETIME", zone="Asia/Shanghai") == "2024-01-01 08:00:00"


@pytest.mark.parametrize(
    "head",
    [
        "",
        "-- written by hand; a comment\n# another\n",
        "/*!40101 SET NAMES binary*/;\n/*!40103 SET TIME_ZONE='+00:00' */;\n",
        "SET NAMES utf8mb4;\nSET @a = 'x;y', foreign_key_checks = 0;\n",
        "/* INSERT INTO `orders` VALUES (9,'','') */\n",
        "/*M!100101 SET sql_mode='' */;\n",
    ],
)
def test_heads(head: str) -> None:
    """Comments and settings before the rows change nothing."""
    assert values_of(f"{head}INSERT INTO `orders` VALUES\n(1,'a','b');\n".encode(), layout(*KINDS), SQL) == [
        ("1", "a", "62")
    ]


@pytest.mark.parametrize(
    "begin",
    [
        "INSERT INTO `orders` VALUES",
        "INSERT IGNORE INTO `orders` VALUES",
        "REPLACE INTO `ORDERS` VALUES",
        'insert  into\n"orders"\nvalues',
        "INSERT INTO orders VALUES",
        "INSERT INTO `orders` (`c0`,`C1`,c2) VALUES",
        'INSERT INTO `orders`("c0", "c1" , "c2")VALUES',
    ],
)
def test_begins(begin: str) -> None:
    """Each way to begin an INSERT is read, whatever the case of words and names."""
    assert values_of(f"{begin} (1,'a','b') ,\r\n ( 2 , 'c' , 'd' ) ;".encode(), layout(*KINDS), SQL) == [
        ("1", "a", "62"),
        ("2", "c", "64"),
    ]


def test_columns_in_another_order() -> None:
    """Values go to the columns that the statement names."""
    content = "INSERT INTO `orders` (`c2`,`c0`,`c1`) VALUES\n('b',1,'a');\nINSERT INTO `orders` VALUES (2,'c','d');\n"
    assert values_of(content.encode(), layout(*KINDS), SQL) == [("1", "a", "62"), ("2", "c", "64")]


@pytest.mark.parametrize(("name", "written"), [("`starts", "``starts"), ("ends`", "ends``"), ("mid`dle", "`mid``dle`")])
def test_backquotes_in_names(name: str, written: str) -> None:
    """Dumpling forgets the quotes of names that begin or end with a backquote; the table is found all the same."""
    content = f"{HEAD}INSERT INTO {written} VALUES\n(1,'a','b');\n".encode()
    assert values_of(content, layout(*KINDS, table=name), SQL) == [("1", "a", "62")]


@pytest.mark.parametrize("listed", ["`a`b`,`c)`", "`a``b`,`c)`", "`c)`,`a``b`"])
def test_backquotes_in_columns(listed: str) -> None:
    """Columns are found although mydumper does not double the backquotes in their names."""
    table = layout("VARCHAR", "VARCHAR")
    table = replace(table, columns=(replace(table.columns[0], name="a`b"), replace(table.columns[1], name="c)")))
    values = "'1','2'" if listed.startswith("`a") else "'2','1'"
    content = f"INSERT INTO `orders` ({listed}) VALUES\n({values});\n".encode()
    assert values_of(content, table, SQL) == [("1", "2")]


def test_rows_without_values() -> None:
    """A table of generated columns only has empty rows."""
    content = f"{HEAD}INSERT INTO `orders` VALUES\n(),\n();\n".encode()
    assert values_of(content, layout(), SQL) == [(), ()]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("INSERT INTO `items` VALUES\n(1,'a','b');\n", "its rows belong to `items`, not to shop.orders"),
        ("INSERT INTO `orders` VALUES\n(1,'a');\n", "row 1 at byte 28: it has 2 values, but shop.orders should have 3"),
        ("INSERT INTO `orders` VALUES\n(1,'a','b'),\n(2,'a','b',3);\n", "row 2 at byte 41: it has 4 values"),
        ("INSERT INTO `orders` VALUES\n('x','a','b');\n", "column c0: 'x' does not have the form"),
        ("INSERT INTO `orders` VALUES\n(1,2,'b');\n", "column c1: a number is no value of the type VARCHAR"),
        ("INSERT INTO `orders` VALUES\n(1,x'61','b');\n", "column c1: hexadecimal digits is no value"),
        ("INSERT INTO `orders` VALUES\n(1,_binary 'a','b');\n", "column c1: a string of bytes is no value"),
        ("INSERT INTO `orders` VALUES\n(1,now(),'b');\n", "a value was expected"),
        ("INSERT INTO `orders` VALUES\n(1,CONVERT('a' USING gbk),'b');" + " " * 99, "USING utf8mb4 only"),
        ("INSERT INTO `orders` VALUES\n(1,'a','b')\n(2,'a','b');\n", "a comma or semicolon was expected"),
        ("INSERT INTO `orders` VALUES\n(1 'a','b');\n", "a comma or parenthesis was expected after its value 1"),
        ("INSERT INTO `orders` VALUES\n(1,'a',);\n", "a value was expected"),
        (
            "INSERT INTO `orders` (`c0`,`c1`) VALUES\n(1,'a');\n",
            "the file names the columns c0, c1, but shop.orders has",
        ),
        ("INSERT INTO `orders` (`c0`,`c1`,`c3`) VALUES\n(1,'a','b');\n", "the file names the columns c0, c1, c3"),
        (
            "INSERT INTO `orders` VALUES\n(1,'a','b'),",
            "the file ends inside a statement (no semicolon after its last row)",
        ),
        ("INSERT INTO `orders` VALUES\n(1,'a','b'),\n(2,'c", "the file ends inside a statement (a value has no end)"),
        ("INSERT INTO `orders` VALUES\n(1,'a','b')", "the file ends inside a statement (a row has no end)"),
        ("INSERT INTO `orders` VALUES", "the file ends inside a statement"),
        ("INSERT INTO `orders` SELECT 1;\n", "the file ends inside a statement (a list of columns or VALUES"),
        ("DELETE FROM `orders`;\n", "an INSERT was expected"),
        ("/*!50000 DELETE FROM `orders` */;\n", "is neither a row nor a setting"),
        ("/*T! DELETE FROM `orders` */;\n", "is neither a row nor a setting"),
        ("/*!40101 SET NAMES gbk */;\n", "its texts are in gbk"),
        ("SET sql_mode='NO_BACKSLASH_ESCAPES';\n", "written under NO_BACKSLASH_ESCAPES"),
        ("", "the file holds no row"),
        (HEAD, "the file holds no row"),
    ],
)
def test_refused(body: str, reason: str) -> None:
    """Whatever is not a row of this table is refused, with the file, the row and its place."""
    said = refused(body)
    assert said.startswith("shop.orders.000000000.sql: row ")
    assert reason in said


def test_text_that_is_not_utf8() -> None:
    """Bytes that are no text are refused in a column of texts."""
    assert "column c1: it is not UTF-8" in refused(b"INSERT INTO `orders` VALUES\n(1,'\xff','b');\n")


def test_other_zone() -> None:
    """A file whose head names another zone than the export's first one is refused."""
    body = "/*!40103 SET TIME_ZONE='+08:00' */;\nINSERT INTO `orders` VALUES\n(1,'a','b');\n"
    assert "its times are in +08:00, those of the export in +00:00" in refused(
        body, None, DumpOptions(time_zone="+00:00")
    )


def test_a_zone_that_is_named_otherwise() -> None:
    """Mydumper names UTC by its offset, whatever name the export was given for it."""
    body = "/*!40103 SET TIME_ZONE='+00:00' */;\nINSERT INTO `orders` VALUES\n(1,'a','b');\n"
    assert values_of(body.encode(), layout(*KINDS), DumpOptions(time_zone="Etc/UTC"))
    assert "its times are in +00:00, those of the export in Asia/Tokyo" in refused(
        body, None, DumpOptions(time_zone="Asia/Tokyo")
    )


def test_long_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that does not end is refused before it fills the memory."""
    monkeypatch.setattr(exported_rows, "MAX_ROW_BYTES", 1000)
    content = b"INSERT INTO `orders` VALUES\n(1,'" + b"x" * 3000
    with pytest.raises(UndecodableRow, match="longer than 1000 bytes"):
        list(ExportDecoder(SQL).rows(read(content, layout(*KINDS), SQL, size=100)))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_blocks_may_end_anywhere(size: int) -> None:
    """Where blocks end does not matter, be it inside an escape, a number, a word or a comment."""
    content = (
        f"{HEAD}-- note\nINSERT INTO `orders` VALUES\n(-12,'a\\'b日',x'00ff'),\n(3,NULL,0xab),\n"
        "(4,CONVERT('x' USING utf8mb4),_binary 'y');\nREPLACE INTO `orders` (`c0`,`c1`,`c2`) VALUES (5,'','it''s');\n"
    ).encode()
    assert [change[3] for change in changes_of(content, layout(*KINDS), SQL, size=size)] == [
        ("-12", "a'b日", "00FF"),
        ("3", None, "AB"),
        ("4", "x", "79"),
        ("5", "", "69742773"),
    ]
