"""What no file of an export says is asked for where the files could be misread, and only there."""

from __future__ import annotations

import re

import pytest

from storage_consumer.bucket.export import read_export, refuse_unsaid
from storage_consumer.config.load import export_origin, parse_export
from storage_consumer.config.settings import Upstream
from storage_consumer.driver.open_copies import with_form
from storage_consumer.errors import ExportRefused
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.test_export import HEAD, objects, schema
from tests.unit.bucket.test_metadata import text

BUCKET = Upstream(scheme="file", root="/b", protocol="csv")
COLUMNS = "  `id` int NOT NULL,\n  `t` text,\n  `b` varbinary(40),\n  PRIMARY KEY (`id`)"
NUMBERS = "  `id` int NOT NULL,\n  `n` int,\n  PRIMARY KEY (`id`)"
MOMENTS = "  `id` int NOT NULL,\n  `at` timestamp NULL DEFAULT NULL,\n  PRIMARY KEY (`id`)"


def judged(content: bytes | None, *, form: str = "sql", columns: str = COLUMNS, query: str = "") -> str:
    """Return why an export of one table with one file is refused; empty if it is not."""
    uri = f"file:///full?{query}"
    files = {"metadata": text(), "s-schema-create.sql": schema("CREATE DATABASE `s`")}
    files["s.t-schema.sql"] = schema(f"CREATE TABLE `t` (\n{columns}\n) ENGINE=InnoDB")
    if content is not None:
        files[f"s.t.000000000.{form}"] = content
    storage = MemoryStorage(files)
    export = read_export(storage)
    try:
        refuse_unsaid(
            storage, export, with_form(export_origin(uri, BUCKET), export, "UTC"), parse_export(uri).parameters
        )
    except ExportRefused as fault:
        return str(fault)
    return ""


def sql(*rows: str) -> bytes:
    """Return a data file."""
    listed = ",\n".join(rows)
    return f"{HEAD}INSERT INTO `t` VALUES\n{listed};\n".encode()


@pytest.mark.parametrize(
    "literal", [r"'C:\temp'", "'say \"x\"'", "'two\nlines'", "'it''s'", "'{\"a\": 1}'", r"'\d+'", "'a\\\\\\d'"]
)
def test_texts_without_escapes(literal: str) -> None:
    """A text that Dumpling would have escaped shows that it escaped nothing: the option is named, and once it is said all is well."""
    content = sql(f"(1,{literal},NULL)")
    found = judged(content)
    assert "s.t.000000000.sql holds texts" in found
    assert "--dump 'URI?escape-backslash=false'" in found
    assert judged(content, query="escape-backslash=false") == ""
    assert judged(content, query="escape-backslash=true") == ""


@pytest.mark.parametrize(
    "literal",
    [
        r"'C:\\temp'",
        r"'say \"x\"'",
        r"'two\nlines'",
        r"'it\'s'",
        r"'{\"a\": 1}'",
        "''",
        r"'\\\\d'",
        r"'\0\r\Z'",
        "NULL",
    ],
)
def test_texts_with_escapes(literal: str) -> None:
    """What Dumpling writes by default raises no question."""
    assert judged(sql(f"(1,{literal},x'00')", f"(2,{literal},x'')")) == ""


def test_names_are_no_texts() -> None:
    """A quote in the name of a table or of a column begins no text."""
    content = HEAD.encode() + b"INSERT INTO `t` (`id`,`it's \"t\"`,`b`) VALUES\n(1,'a',NULL);\n"
    assert judged(content) == ""


@pytest.mark.parametrize(
    ("values", "dialect"),
    [
        ([b"00ff", b"616263"], "redshift"),
        ([b"ab"], "redshift"),
        ([b"AP8=", b"YWJj"], "bigquery"),
        ([b"00ff", b"xyz"], ""),
        ([b"\x01\xff"], ""),
        ([b"abc"], ""),
        ([b""], ""),
        ([], ""),
    ],
)
def test_bytes_that_look_like_digits(values: list[bytes], dialect: str) -> None:
    """If all bytes of a CSV file may be digits, the dialect is asked for; whatever was said is taken."""
    rows = b"".join(b'%d,"a","%b"\r\n' % (number, value) for number, value in enumerate(values))
    content = b'"id","t","b"\r\n' + rows
    found = judged(content, form="csv")
    assert (f"--csv-output-dialect={dialect}" in found) if dialect else found == ""
    for said in ("default", "redshift", "bigquery"):
        assert judged(content, form="csv", query=f"csv-output-dialect={said}") == ""


def test_header_that_should_not_be() -> None:
    """A file that begins with the names of its columns has a header, whatever was said; else the names would be a row."""
    content = b'"id","t","b"\r\n1,"a",\\N\r\n'
    assert "leave `no-header` out" in judged(content, form="csv", query="no-header=true")
    assert judged(content, form="csv") == ""
    assert judged(b'1,"a",\\N\r\n', form="csv", query="no-header=true") == ""


@pytest.mark.parametrize(
    ("query", "columns", "reason"),
    [
        ("csv-delimiter=", COLUMNS, ""),
        ("csv-delimiter=&csv-null-value=NULL", COLUMNS, "NULL and the text 'NULL' look alike in s.t.t"),
        (
            "csv-delimiter=&csv-null-value=NULL",
            COLUMNS.replace("text", "text NOT NULL").replace("(40)", "(40) NOT NULL"),
            "",
        ),
        ("csv-delimiter=&csv-null-value=NULL", "  `id` int NOT NULL,\n  `n` int,\n  PRIMARY KEY (`id`)", ""),
        ("csv-null-value=0", NUMBERS, "NULL and the value '0' look alike in s.t.n"),
        (
            "csv-null-value=-1e3",
            NUMBERS.replace("`n` int", "`n` double"),
            "NULL and the value '-1e3' look alike in s.t.n",
        ),
        ("csv-null-value=0", NUMBERS.replace("`n` int", "`n` int NOT NULL"), ""),
        ("csv-null-value=NULL", NUMBERS, ""),
        ("csv-delimiter=&csv-null-value=2024-01-01", NUMBERS.replace("`n` int", "`n` date"), "look alike in s.t.n"),
        ("csv-null-value=%22N%22", COLUMNS, "NULL and the text 'N' look alike in s.t.t"),
        ("csv-delimiter=&escape-backslash=false", COLUMNS, "nothing tells where a text of s.t.t ends"),
        ("csv-null-value=NULL&escape-backslash=false", COLUMNS, ""),
    ],
)
def test_values_that_look_alike(query: str, columns: str, reason: str) -> None:
    """Without a delimiter some values cannot be told apart: refused where a table has a column for them."""
    found = judged(b"1,2\r\n", form="csv", columns=columns, query=f"no-header=true&{query}")
    assert (reason in found) if reason else found == ""


def test_time_zone() -> None:
    """A TIMESTAMP needs the zone, unless the files say it, or there is neither a value nor a default."""
    rows = sql("(1,'2024-01-01 00:00:00')")
    found = judged(rows, columns=MOMENTS)
    assert "s.t.at: give it in the export's URI, ?time-zone=ZONE, or by --dump-tz ZONE" in found
    assert judged(rows, columns=MOMENTS, query="time-zone=UTC") == ""
    assert judged(b"/*!40103 SET TIME_ZONE='+00:00' */;\n" + rows, columns=MOMENTS) == ""
    assert judged(None, columns=MOMENTS) == ""
    default = MOMENTS.replace("NULL DEFAULT NULL", "DEFAULT '2024-01-01 00:00:00'")
    assert re.search("--dump-tz", judged(None, columns=default))


def test_the_zone_in_force_is_the_one_that_later_files_may_name() -> None:
    """The first file names none, so --dump-tz holds; a later file that names another one is refused where it is read."""
    storage = MemoryStorage(objects())
    export = read_export(storage)
    assert with_form(export_origin("file:///x?time-zone=%2B08:00", BUCKET), export, "UTC").dump.time_zone == "+08:00"
