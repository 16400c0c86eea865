"""Trees as each release of TiCDC writes them, by hand from its sources, lead to the same rows whatever its layout and attributes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from storage_consumer.bucket.schema_file import schema_checksum
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, ts
from tests.integration.rounds import content, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
NAMES = ("id", "name", "bin", "kind", "more")
CREATE = (
    "CREATE TABLE `t` (`id` INT PRIMARY KEY,`name` VARCHAR(20),`bin` VARBINARY(8),`kind` ENUM('a','b') DEFAULT 'a')"
)
ALTER = "ALTER TABLE `t` ADD COLUMN `more` INT NOT NULL DEFAULT 5"
PARTITIONED = "CREATE TABLE `p` (`id` INT PRIMARY KEY) PARTITION BY HASH (`id`) PARTITIONS 2"
V1, V2 = ts(10), ts(50)
Values = tuple[int | str | bytes | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of `t`; an update that changes the key is split by all of these but where `old` says so."""

    tick: int
    kind: str
    new: Values
    old: Values = ()


FIRST = (
    Change(tick=20, kind="I", new=(1, 'o"ne', b"\x00\xff", "a")),
    Change(tick=20, kind="I", new=(2, None, None, None)),
    Change(tick=21, kind="I", new=(3, "three", b"", "b")),
    Change(tick=30, kind="D", new=(3, "three", b"", "b")),
    Change(tick=30, kind="I", new=(4, "three", b"", "b")),
)
SECOND = (
    Change(tick=60, kind="U", new=(1, "uno", b"\x01", "a", 7), old=(1, 'o"ne', b"\x00\xff", "a", 5)),
    Change(tick=61, kind="D", new=(2, None, None, None, 5)),
)
ROWS = [(1, "uno", b"\x01", "a", 7), (4, "three", b"", "b", 5)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What distinguishes the files of one release with its default settings, as its sources say it."""

    older_layout: bool = False
    """``schema.json`` beside the data, no files of databases, six digits, no date."""
    index: bool = True
    partitions: bool = True
    """``enable-partition-separator``."""
    default: bool = True
    """``ColumnDefault``."""
    column_id: bool = False
    """``ColumnId``, with ``output-column-id``."""
    elements: bool = False
    """``ColumnElems``, of the new architecture."""
    hexadecimal: bool = False
    """``binary-encoding-method = "hex"``."""
    old_value: bool = False
    """``output-old-value``."""
    header: bool = False
    """``output-field-header``."""
    dispatcher: str = ""
    """In names, with ``enable-table-across-nodes``."""
    selector: bool = False
    """``[[sink.column-selectors]]`` without ``name``, which count from v26.3.4 on."""

    def columns(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        """The columns of a schema file, each with its attributes in the order of the file."""
        types = dict(zip(NAMES, ("INT", "VARCHAR", "VARBINARY", "ENUM", "INT"), strict=True))
        sizes = {"id": "11", "name": "20", "bin": "8", "more": "11"}
        found = []
        for number, name in enumerate(names, 1):
            one: dict[str, Any] = {"ColumnId": str(number)} if self.column_id else {}
            one |= {"ColumnName": name, "ColumnType": types[name]}
            one |= (
                {"ColumnDefault": {"kind": "a", "more": "5"}[name]} if self.default and name in ("kind", "more") else {}
            )
            one |= {"ColumnPrecision": sizes[name]} if name in sizes else {}
            one |= {"ColumnNullable": "false"} if name in ("id", "more") else {}
            one |= {"ColumnIsPk": "true"} if name == "id" else {}
            one |= {"ColumnElems": ["a", "b"]} if self.elements and name == "kind" else {}
            found.append(one)
        return found

    def csv(self, change: Change) -> Iterator[str]:
        """The lines of a change."""
        images = [(change.kind, change.new)]
        if change.kind == "U" and self.old_value:
            images = [("D", change.old), ("I", change.new)]
        for kind, values in images:
            meta = [f'"{kind}"', '"t"', '"d"', str(ts(change.tick))]
            meta += [str(change.kind == "U").lower()] if self.old_value else []
            yield ",".join((*meta, *(self._field(value) for _, value in self._kept(values))))

    def message(self, change: Change) -> str:
        """A change as canal-json."""
        kinds = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
        document = {
            "id": 0,
            "database": "d",
            "table": "t",
            "pkNames": ["id"],
            "isDdl": False,
            "type": kinds[change.kind],
            "es": ts(change.tick) >> 18,
            "ts": (ts(change.tick) >> 18) + 900,
            "sql": "",
            "sqlType": {"id": 4, "name": 12, "bin": 2004, "kind": 4, "more": 4},
            "mysqlType": {"id": "int", "name": "varchar", "bin": "varbinary", "kind": "enum", "more": "int"},
            "old": [self._image(change.old)] if change.old else None,
            "data": [self._image(change.new)],
            "_tidb": {"commitTs": ts(change.tick)},
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def _kept(self, values: Values) -> list[tuple[str, Any]]:
        return [
            (name, value) for name, value in zip(NAMES, values, strict=False) if name != "name" or not self.selector
        ]

    def _field(self, value: object) -> str:
        if value is None:
            return r"\N"
        if isinstance(value, bytes):
            value = value.hex() if self.hexadecimal else base64.b64encode(value).decode()
        return str(value) if isinstance(value, int) else '"{}"'.format(str(value).replace('"', '""'))

    def _image(self, values: Values) -> dict[str, str | None]:
        """Members of ENUM are numbers, and bytes are letters of Latin-1."""
        texts: dict[str, str | None] = {}
        for name, value in self._kept(values):
            number = {"a": 1, "b": 2}.get(str(value)) if name == "kind" else None
            text = value.decode("latin-1") if isinstance(value, bytes) else str(number or value)
            texts[name] = None if value is None else text
        return texts


CLASSIC = Release()
NEW = Release(elements=True)
RELEASES = {
    "v6.5.0": Release(older_layout=True, index=False, partitions=False, default=False),
    "v6.5.2": Release(older_layout=True, default=False),
    "v6.5.12": replace(CLASSIC, hexadecimal=True),
    "v7.1.0": replace(CLASSIC, default=False),
    "v7.1.6": CLASSIC,
    "v7.5.8": replace(CLASSIC, column_id=True, hexadecimal=True),
    "v8.5.8, classic": replace(CLASSIC, column_id=True, old_value=True),
    "v8.5.8": replace(NEW, header=True, old_value=True),
    "v8.5.8, across nodes": replace(NEW, dispatcher="123456789012345678901234567890"),
    "v26.3.4": replace(NEW, column_id=True, header=True),
    "v26.3.4, selectors": replace(NEW, header=True, selector=True),
}


class Tree:
    """A tree that one release writes into a bucket."""

    def __init__(self, bucket: SmallBucket, release: Release) -> None:
        """Empty."""
        self.bucket, self.release = bucket, release

    def schema(self, table: str, version: int, query: str, kind: int, columns: list[dict[str, Any]] | None) -> None:
        """The schema file of a statement, where this release writes one."""
        document: Mapping[str, Any] = {
            "Table": table,
            "Schema": "d",
            "Version": 1,
            "TableVersion": version,
            "Query": query,
            "Type": kind,
            "TableColumns": columns,
            "TableColumnsTotal": len(columns or ()),
        }
        text = json.dumps(document, indent=4, ensure_ascii=False)
        folder = f"d/{table}" if table else "d"
        if not self.release.older_layout:
            self.bucket.write(f"{folder}/meta/schema_{version}_{schema_checksum(text):010d}.json", text)
        elif table:
            self.bucket.write(f"{folder}/{version}/schema.json", text)

    def data(self, folder: str, *lines: str) -> None:
        """A data file, with its index where this release keeps one."""
        release, extension = self.release, "csv" if self.bucket.protocol == "csv" else "json"
        content = "".join(f"{line}\r\n" for line in lines).encode()
        if release.older_layout:
            name, index, place = f"CDC000001.{extension}", "CDC.index", folder
        else:
            mark = f"_{release.dispatcher}" if release.dispatcher else ""
            name, place = f"CDC{mark}{'_' if mark else ''}{1:020d}.{extension}", f"{folder}/2026-11-21"
            index = f"meta/CDC{mark}.index"
        self.bucket.write(f"{place}/{name}", content)
        if release.index:
            self.bucket.write(f"{place}/{index}", f"{name}\n")

    def changes(self, folder: str, changes: tuple[Change, ...]) -> None:
        """A data file of changes of `t`."""
        release = self.release
        if self.bucket.protocol == "canal-json":
            self.data(folder, *map(release.message, changes))
            return
        meta = ["operation", "table", "schema", "commit-ts", *(["is-update"] if release.old_value else [])]
        names = [name for name, _ in release._kept(changes[0].new)]
        header = [",".join((*(f"ticdc-meta${each}" for each in meta), *names))] if release.header else []
        self.data(folder, *header, *(line for change in changes for line in release.csv(change)))

    def write(self) -> None:
        """Two structures of one table, and rows of two partitions of another."""
        release = self.release
        self.schema("", ts(5), "CREATE DATABASE `d`", 1, None)
        self.schema("t", V1, CREATE, 3, release.columns(NAMES[:4]))
        self.changes(f"d/t/{V1}", FIRST)
        self.schema("t", V2, ALTER, 5, release.columns(NAMES))
        self.changes(f"d/t/{V2}", SECOND)
        self.schema("p", V1, PARTITIONED, 3, release.columns(NAMES[:1]))
        for number, partition in enumerate((113, 114)) if release.partitions else ():
            self.partition(f"d/p/{V1}/{partition}", number)
        self.bucket.metadata(ts(100))

    def partition(self, folder: str, number: int) -> None:
        """A row of `p`."""
        release, change = self.release, Change(tick=20 + number, kind="I", new=(number,))
        text = release.message(change) if self.bucket.protocol == "canal-json" else next(release.csv(change))
        names = ["operation", "table", "schema", "commit-ts", *(["is-update"] if release.old_value else [])]
        header = ",".join((*(f"ticdc-meta${each}" for each in names), "id"))
        has_header = release.header and self.bucket.protocol == "csv"
        self.data(folder, *([header] if has_header else []), text.replace('"t"', '"p"'))


@pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)
@pytest.mark.parametrize("name", RELEASES)
def test_a_release(name: str, bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """From the URI, the time zone and, with selectors, the changefeed's file alone the target gets the rows of the source."""
    release = RELEASES[name]
    Tree(bucket, release).write()
    sink: dict[str, Any] = {
        "protocol": bucket.protocol,
        "csv": {"include-commit-ts": True, "output-field-header": True},
    }
    sink["column-selectors"] = [{"matcher": ["d.t"], "columns": ["*", "!name"]}]
    config = {"sink": sink} if release.selector else {}
    summary = once(bucket, mariadb, upstream_uri=bucket.uri, config=config, tz="UTC")
    assert [(each.table, each.error) for each in summary.halted] == []
    assert content(mariadb, "d.t") == [(row[0], None, *row[2:]) if release.selector else row for row in ROWS]
    assert content(mariadb, "d.p") == ([(0,), (1,)] if release.partitions else [])
