"""Trees that no changefeed wrote, each laid out as its own program does, and what is said of them."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage_consumer.bucket.foreign import kind_of_content
from storage_consumer.bucket.inspector import completed, missing_metadata
from storage_consumer.cli.bucket_commands import as_document, code_of, lines_of
from storage_consumer.cli.endings import ExitCode
from storage_consumer.config.load import load
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.operating.checks import Verdict, examined
from storage_consumer.operating.doctor_facts import DoctorInput
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.building import CREATE, ID_NAME, TS, V, bucket_of, data_path, look, schema_file, setting

Tree = dict[str, bytes]
UUID = "a1b2c3d4-0000-4000-8000-0123456789ab"
METADATA = b'{"checkpoint-ts":%d}' % (TS + 1000)


def of_changefeed(*messages: object, extension: str = "json") -> Tree:
    """Messages where a changefeed's would be, beside its schema file and checkpoint."""
    text = "\r\n".join(each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in messages)
    path, content = schema_file()
    return {"metadata": METADATA, path: content, data_path(extension=extension): text.encode()}


def of_topic(*messages: object) -> Tree:
    """Messages as Kafka Connect's sink for S3 lays them out."""
    text = "\n".join(json.dumps(each, separators=(",", ":")) for each in messages)
    return {"topics/ticdc/partition=0/ticdc+0+0000000000.json": text.encode()}


def column(value: object, kind: int, flag: int) -> dict[str, object]:
    """A column of the open protocol."""
    return {"t": kind, "f": flag, "v": value}


SIMPLE = {
    "version": 1,
    "database": "shop",
    "table": "orders",
    "tableID": 148,
    "type": "INSERT",
    "commitTs": TS,
    "buildTs": 1708923662983,
    "schemaVersion": V,
    "data": {"id": "1", "name": "a"},
}
WATERMARK = {"version": 1, "type": "WATERMARK", "commitTs": TS, "buildTs": 1708923662983}
OPEN_ROW = {"u": {"id": {**column(1, 3, 11), "h": True}, "name": column("YQ==", 15, 64)}}
OPEN_KEY = {"ts": TS, "scm": "shop", "tbl": "orders", "t": 1}
OPEN_DDL = {"q": "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY)", "t": 3}
SOURCE = {
    "version": "2.4.0.Final",
    "connector": "TiCDC",
    "name": "default",
    "ts_ms": 1,
    "db": "shop",
    "table": "orders",
}
ENVELOPE = {"source": SOURCE, "ts_ms": 2, "transaction": None, "op": "c", "before": None, "after": {"id": 1}}
BARE = {"before": None, "after": {"id": 1}, "source": SOURCE, "op": "c", "ts_ms": 2, "transaction": None}
FLAT = {
    "data": [{"id": "1", "name": "a"}],
    "database": "shop",
    "es": 1668753205000,
    "gtid": "",
    "id": 3,
    "isDdl": False,
    "mysqlType": {"id": "bigint", "name": "varchar(20)"},
    "old": None,
    "pkNames": ["id"],
    "sql": "",
    "sqlType": {"id": -5, "name": 12},
    "table": "orders",
    "ts": 1668753205123,
    "type": "INSERT",
}
OWN = {
    "id": 0,
    "database": "shop",
    "table": "orders",
    "pkNames": ["id"],
    "isDdl": False,
    "type": "INSERT",
    "es": 1668753205000,
    "ts": 1668753205123,
    "sql": "",
    "sqlType": {"id": -5, "name": 12},
    "mysqlType": {"id": "bigint", "name": "varchar"},
    "old": None,
    "data": [{"id": "1", "name": "a"}],
    "_tidb": {"commitTs": TS},
}


def of_open_protocol() -> Tree:
    """A file as the open protocol's encoder frames it: the version, then lengths before keys and values."""
    key, value = (json.dumps(each, separators=(",", ":")).encode() for each in (OPEN_KEY, OPEN_ROW))
    content = (1).to_bytes(8) + len(key).to_bytes(8) + key + len(value).to_bytes(8) + value
    return {"topics/ticdc/partition=0/ticdc+0+0000000000.bin": content}


BACKUP: Tree = {
    **dict.fromkeys(
        ("backup.lock", "backupmeta", "backupmeta.schema.000000001", "backupmeta.datafile.000000001"), b"\x08\x01"
    ),
    f"1/4_2_44_{'ab' * 32}_1663000000000_default.sst": b"sst",
    f"1/4_2_44_{'ab' * 32}_1663000000000_write.sst": b"sst",
}
LOG_BACKUP: Tree = {
    "backup.lock": b"lock",
    f"v1/backupmeta/{V}-{UUID}.meta": b"\x0a",
    "v1/global_checkpoint/1.ts": b"12345678",
    f"v1/20261121/10/1/{V}-{UUID}.log": b"zstd",
    "v1_stream_truncate_safepoint.txt": b"449000000000000000",
}
REDO: Tree = {
    f"capture-1_default_to-bucket_row_{TS}_{UUID}.log": b"\x00\x00\x00\x00\x00\x00\x00\x08",
    f"capture-1_default_to-bucket_ddl_{TS}_{UUID}.log": b"\x00\x00\x00\x00\x00\x00\x00\x08",
    f"capture-1_default_to-bucket_meta_{UUID}.meta": b"\x82",
}
ICEBERG: Tree = {
    f"shop/orders/data/00000-0-{UUID}.parquet": b"PAR1",
    f"shop/orders/metadata/00001-{UUID}.metadata.json": b'{"format-version":2}',
    f"shop/orders/metadata/snap-1-1-{UUID}.avro": b"Obj\x01",
    f"shop/orders/metadata/{UUID}-m0.avro": b"Obj\x01",
    "shop/orders/metadata/version-hint.text": b"1",
}
DELTA: Tree = {
    "orders/_delta_log/00000000000000000000.json": b'{"protocol":{"minReaderVersion":1}}',
    f"orders/part-00000-{UUID}-c000.snappy.parquet": b"PAR1",
}
EXPORT: Tree = {
    "metadata": b"Started dump at: 2026-11-21 10:00:00\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 449000000000000001\n",
    "shop-schema-create.sql": b"CREATE DATABASE `shop`;",
    "shop.orders-schema.sql": b"CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY);",
    "shop.orders.0000000010000.sql": b"INSERT INTO `orders` VALUES (1);",
}
PACKED = {
    "metadata": METADATA,
    **dict([schema_file()]),
    f"{data_path()}.gz": gzip.compress(b'"I","orders","shop",1\r\n'),
}
TREES: dict[str, tuple[Tree, str, str]] = {
    "simple": (of_changefeed(SIMPLE, WATERMARK), "simple protocol", "protocol=canal-json"),
    "simple in a topic": (of_topic(WATERMARK, SIMPLE), "simple protocol", "protocol=canal-json"),
    "open-protocol": (of_open_protocol(), "open-protocol", "protocol=canal-json"),
    "open-protocol's rows": (of_topic(OPEN_ROW), "open-protocol", "protocol=canal-json"),
    "open-protocol's statements": (of_changefeed(OPEN_DDL), "open-protocol", "protocol=canal-json"),
    "debezium": (of_changefeed({"payload": ENVELOPE, "schema": {}}), "Debezium", "protocol=canal-json"),
    "debezium, schema first": (of_topic({"schema": {"type": "struct"}, "payload": ENVELOPE}), "Debezium", "canal-json"),
    "debezium without a schema": (of_topic(BARE), "Debezium", "protocol=canal-json"),
    "canal": (of_changefeed(FLAT), "canal's own messages", "protocol=canal-json"),
    "canal in a topic": (of_topic(FLAT), "canal's own messages", "protocol=canal-json"),
    "avro": ({"topics/ticdc/partition=0/ticdc+0+0000000000.avro": b"Obj\x01\x04"}, "Avro", "protocol=canal-json"),
    "parquet": ({"shop/orders/part-0.parquet": b"PAR1"}, "Parquet", "protocol=canal-json"),
    "parquet by content": (of_changefeed("PAR1\x15\x04", extension="csv"), "Parquet", "protocol=canal-json"),
    "packed": (PACKED, "compressed files", "gunzip"),
    "packed by content": ({**of_changefeed(), data_path(): gzip.compress(b"x")}, "compressed files", "gunzip"),
    "packed topic": ({"topics/t/partition=0/t+0+0.json.gz": gzip.compress(b"{}")}, "compressed files", "gunzip"),
    "backup": (BACKUP, "snapshot backup", "br restore full"),
    "log backup": (LOG_BACKUP, "log backup", "br restore point"),
    "redo": (REDO, "redo logs", "cdc redo apply"),
    "iceberg": (ICEBERG, "Iceberg", "changefeed's own folder"),
    "delta": (DELTA, "Delta", "changefeed's own folder"),
    "export": (EXPORT, "export by Dumpling", "--dump"),
    "empty": ({}, "no object at all", "sink URI"),
    "holiday": ({"2026/holiday.jpg": b"\xff\xd8"}, "none of the 1 objects is one that TiCDC writes", "sink URI"),
}


@pytest.mark.parametrize("name", TREES)
def test_a_foreign_tree_has_a_name(name: str) -> None:
    """It is called by its name with the way on, in a few lines and with code 2, and no setting is asked for; `run` says the same."""
    tree, what, way_on = TREES[name]
    bucket = look(MemoryStorage(tree))
    text = "\n".join(lines_of(bucket))
    flat = " ".join(text.split())
    assert what in flat
    assert way_on in flat
    assert (bucket.settings, code_of(bucket), as_document(bucket)["command"]) == ((), ExitCode.MISCONFIGURED, "")
    assert "--" not in flat.replace("--upstream-uri", "").replace("--dump", "").replace("--config", "")
    with pytest.raises(ConfigError, match="is no changefeed's folder"):
        completed(load({"upstream_uri": "file:///bucket"}, {}, target=False), bucket)


def written(tree: Tree, root: Path) -> Path:
    """The tree as a folder."""
    root.mkdir()
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


@pytest.mark.parametrize("name", TREES)
def test_doctor_names_it(name: str, tmp_path: Path) -> None:
    """One check fails with the name, and those that would have judged settings and checkpoint say no more than that."""
    tree, what, way_on = TREES[name]
    loaded = load({"upstream_uri": written(tree, tmp_path / "b").as_uri()}, {}, target=False)
    given = DoctorInput(
        config=loaded.config, secrets=loaded.secrets, origins=loaded.origins, environ={}, has_target=False
    )
    found = {each.check: each for each in examined(given, ("bucket",))}
    assert found["bucket-layout"].verdict is Verdict.FAIL
    assert what in found["bucket-layout"].text
    assert way_on in found["bucket-layout"].text
    assert found["bucket-settings"].verdict is found["bucket-metadata"].verdict is Verdict.NOT_LOOKED_AT


@pytest.mark.parametrize(
    "name", [name for name, (tree, _, _) in TREES.items() if tree and METADATA not in tree.values()]
)
def test_waiting_for_metadata_names_it(name: str) -> None:
    """With all settings given `run` does not inspect; what it says of the missing ``metadata`` has the name nevertheless."""
    tree, what, _ = TREES[name]
    storage = MemoryStorage({path: content for path, content in tree.items() if path != "metadata"})

    def opened(upstream: Upstream) -> MemoryStorage:
        return storage if upstream.root == "b" else MemoryStorage({})

    said = missing_metadata(Upstream(scheme="s3", root="b", protocol="csv"), opened)
    assert what in said or name == "holiday"


BESIDE: list[tuple[str, Callable[[], MemoryStorage]]] = [
    ("its own messages", lambda: MemoryStorage(of_changefeed(OWN, OWN))),
    (
        "a file of another kind among its own",
        lambda: MemoryStorage({**of_changefeed(OWN), data_path(2, extension="json"): b"PAR1"}),
    ),
    (
        "its own messages, laid out anew",
        lambda: MemoryStorage(of_changefeed(json.dumps(OWN), json.dumps(OWN, sort_keys=True))),
    ),
    (
        "a message in a text",
        lambda: MemoryStorage(of_changefeed({**OWN, "data": [{"id": "1", "name": json.dumps(SIMPLE)}]})),
    ),
    (
        "an export below it",
        lambda: MemoryStorage({**of_changefeed(OWN), **{f"full/{path}": each for path, each in EXPORT.items()}}),
    ),
    (
        "a backup below it",
        lambda: MemoryStorage({**of_changefeed(OWN), **{f"br/{path}": each for path, each in BACKUP.items()}}),
    ),
    ("a checkpoint alone", bucket_of),
    ("a checkpoint and a backup", lambda: bucket_of(*BACKUP.items())),
    ("a schema file alone", lambda: MemoryStorage(dict([schema_file()]))),
    ("an upload that is not finished", lambda: MemoryStorage({f"{schema_file()[0]}.tmp.{UUID}": b"{"})),
    (
        "CSV of texts that look like it",
        lambda: bucket_of(schema_file(), (data_path(), b'"I","orders","shop",1,"PAR1"\r\n')),
    ),
]


@pytest.mark.parametrize(("what", "made"), BESIDE, ids=[name for name, _ in BESIDE])
def test_a_changefeeds_own_folder_is_not_foreign(what: str, made: Callable[[], MemoryStorage]) -> None:
    """Whatever lies beside a changefeed's files, and however few of them there are yet."""
    assert not look(made()).foreign, what


def test_many_small_files() -> None:
    """A thousand of them are told with the setting that cures it; fewer, or larger ones, are not."""
    row = f'"I","orders","shop",{TS},1,"a"\r\n'.encode()

    def said(count: int, content: bytes) -> str:
        files = [(data_path(number), content) for number in range(1, count + 1)]
        return "\n".join(look(bucket_of(schema_file(), *files)).warnings)

    assert f"1,000 data files have {len(row)} B on average" in said(1000, row)
    assert "flush-interval" in said(1000, row)
    assert "flush-interval" not in said(999, row) + said(1000, row * 500)


def test_a_structure_that_no_statement_made() -> None:
    """A version with other columns and no statement is told, with the release that mends it; the same columns are not."""
    more = (*ID_NAME, {"ColumnName": "tail", "ColumnType": "INT", "ColumnPrecision": "11"})
    data = (data_path(), f'"I","orders","shop",{TS},1,"a"\r\n'.encode())

    def said(*later: tuple[str, bytes]) -> str:
        return "\n".join(look(bucket_of(schema_file(), *later, data)).warnings)

    found = said(schema_file(more, "", version=V + 50))
    assert f"shop.orders at version {V + 50}" in found
    assert "v8.5.8" in found
    assert "v8.5.8" not in said(schema_file(ID_NAME, "", version=V + 50))
    assert "v8.5.8" not in said(schema_file(more, f"{CREATE[:12]}", version=V + 50))
    several = [
        schema_file(more, "ALTER TABLE `orders` ADD COLUMN `tail` INT", version=V + each) for each in range(50, 80)
    ]
    assert "v8.5.8" not in said(*several, schema_file(more, "", version=V + 90))


def test_notes_of_older_releases() -> None:
    """NULL in a text of canal-json, and dispatchers in names, are notes that name the release; no warning of `doctor`."""
    null = {**OWN, "data": [{"id": "1", "name": None}]}
    bucket = look(MemoryStorage(of_changefeed(null)))
    assert "v8.5.5" in bucket.notes[0]
    assert data_path(extension="json") in bucket.notes[0]
    assert not [each for each in bucket.warnings if "v8.5" in each]
    assert "  v8.5.5" not in "\n".join(lines_of(look(MemoryStorage(of_changefeed(OWN)))))
    elsewhere = data_path(extension="json").replace("CDC", "CDC_12345678901234567890_")
    tree = of_changefeed(OWN)
    tree[elsewhere] = tree.pop(data_path(extension="json"))
    assert [each for each in look(MemoryStorage(tree)).notes if "v8.5.8" in each]
    assert setting(look(MemoryStorage(tree)), "protocol").value == "canal-json"


@pytest.mark.parametrize(
    "part", [b'"a":1,', b'"before":{', b'"payload":1,', b'"commitTs":1,', b'"q":"x",', b'"isDdl":', b" "]
)
@pytest.mark.parametrize("head", [b"{", b'{"schema":', b'{"version":1,', b'{"q":"', b'{"before":'])
def test_hostile_content_costs_nothing(head: bytes, part: bytes) -> None:
    """Whatever a file begins with, its beginning is judged in a moment: by the processor's time, not the clock's."""
    before = time.process_time()
    kind_of_content(head + part * (65536 // len(part)))
    assert time.process_time() - before < 0.5
