"""A whole export: what is found in it, in which order, and which exports are refused."""

from __future__ import annotations

import gzip
import zlib

import pytest

from storage_consumer.bucket.export import Export, read_export
from storage_consumer.errors import ExportRefused
from storage_consumer.model import DdlKind, TableName
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.test_metadata import POS, text

HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
TABLE = "CREATE TABLE `{}` (\n  `id` int NOT NULL,\n  `v` int DEFAULT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB"
VIEW = (
    "DROP TABLE IF EXISTS `{0}`;\nDROP VIEW IF EXISTS `{0}`;\nSET character_set_client = utf8mb4;\n"
    "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `{0}` (`id`) AS SELECT `id` FROM `shop`.`{1}`;\n"
    "SET character_set_client = @PREV_CHARACTER_SET_CLIENT"
)
PLACE = "CREATE TABLE `{}`(\n`id` int\n)ENGINE=MyISAM"


def schema(statement: str) -> bytes:
    """Return a schema file."""
    return f"{HEAD}{statement};\n".encode()


def rows(table: str, *values: str) -> bytes:
    """Return a data file."""
    listed = ",\n".join(values)
    return f"{HEAD}INSERT INTO `{table}` VALUES\n{listed};\n".encode()


def objects() -> dict[str, bytes]:
    """Return the files of an export."""
    return {
        "metadata": text(),
        "shop-schema-create.sql": schema("CREATE DATABASE `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */"),
        "shop.orders-schema.sql": schema(TABLE.format("orders")),
        "shop.orders.000000001.sql": rows("orders", "(3,1)"),
        "shop.orders.000000000.sql": rows("orders", "(1,1)", "(2,1)"),
        "shop.empty-schema.sql": schema(TABLE.format("empty")),
    }


def export(changes: dict[str, bytes | None] | None = None) -> Export:
    """Return what is found in the export with some files changed, or without them (None)."""
    files = {path: content for path, content in (objects() | (changes or {})).items() if content is not None}
    return read_export(MemoryStorage(files))


def test_what_is_found() -> None:
    """Tables have their structure and their files in the order of numbers; an empty table has no file."""
    found = export()
    assert (found.snapshot, found.file_format, found.compression, found.time_zone) == (POS, "sql", "", "")
    assert (found.databases[0].name, found.databases[0].ddl_type) == (
        TableName(schema="shop", table=""),
        DdlKind.CREATE_SCHEMA,
    )
    empty, orders = found.tables
    assert (str(empty.name), empty.parts) == ("shop.empty", ())
    assert [part.path for part in orders.parts] == ["shop.orders.000000000.sql", "shop.orders.000000001.sql"]
    definition = orders.definition
    assert (definition.version, definition.ddl_type, definition.path) == (POS, 3, "shop.orders-schema.sql")
    assert definition.query == TABLE.format("orders")
    assert definition.checksum == zlib.crc32(objects()["shop.orders-schema.sql"])
    assert [column.name for column in definition.columns] == ["id", "v"]
    assert (found.views, found.notes) == ((), ())


def test_identity() -> None:
    """Any change of any file makes another export of it."""
    storage = MemoryStorage(objects())
    first = read_export(storage).identity
    assert read_export(storage).identity == first
    storage.put("shop.orders.000000000.sql", objects()["shop.orders.000000000.sql"])
    assert read_export(storage).identity != first


def test_views_come_in_order() -> None:
    """A view comes after those that it selects from, by the account that runs it; the file that holds its place is no table."""
    found = export(
        {
            "shop.a-schema.sql": schema(PLACE.format("a")),
            "shop.a-schema-view.sql": schema(VIEW.format("a", "b")),
            "shop.b-schema.sql": schema(PLACE.format("b")),
            "shop.b-schema-view.sql": schema(VIEW.format("b", "orders")),
        }
    )
    assert [view.name.table for view in found.views] == ["b", "a"]
    assert found.views[0].query == (
        "CREATE ALGORITHM=UNDEFINED DEFINER=CURRENT_USER SQL SECURITY DEFINER VIEW `b` (`id`) AS SELECT `id` FROM `shop`.`orders`"
    )
    assert [(column.name, column.type) for column in found.views[0].columns] == [("id", "UNSPECIFIED")]
    assert [table.name.table for table in found.tables] == ["empty", "orders"]


def test_notes() -> None:
    """What is not loaded is noted with its reason."""
    found = export(
        {
            "p-placement-policy-create.sql": schema("/*T![placement] CREATE PLACEMENT POLICY `p` */"),
            "shop.s-schema-sequence.sql": schema("CREATE SEQUENCE `s`"),
            "shop.orders-schema-triggers.sql": schema("CREATE TRIGGER `x`"),
            "shop.tmp-schema.sql": schema("CREATE GLOBAL TEMPORARY TABLE `tmp` (\n  `id` int\n) ENGINE=InnoDB"),
        }
    )
    assert [note.split(":")[1].strip() for note in found.notes] == [
        "sequence shop.s",
        "placement policy p",
        "triggers shop.orders",
        "table shop.tmp",
    ]


def test_mydumper() -> None:
    """An export of mydumper is told by the numbers of its files; what it cannot show is noted."""
    assert export().notes == ()
    found = export({"shop.empty.sql": rows("empty", "(1,1)")})
    assert [note.split()[0] for note in found.notes] == ["mydumper"]


def test_folders_in_buckets() -> None:
    """An empty object that stands for a folder is no file of the export."""
    assert len(export({"": b"", "shop/": b""}).tables) == 2


def test_only_wanted_tables_are_read() -> None:
    """Schema files of tables that are not wanted are not read: whatever is wrong in them does no harm."""
    storage = MemoryStorage(objects() | {"shop.empty-schema.sql": b"nonsense"})
    found = read_export(storage, wanted=lambda name: name.table == "orders")
    assert [str(table.name) for table in found.tables] == ["shop.orders"]


def test_compressed() -> None:
    """Schema files are compressed as the data files are; only metadata never is."""
    files = {path if path == "metadata" else f"{path}.gz": content for path, content in objects().items()}
    packed = {path: content if path == "metadata" else gzip.compress(content) for path, content in files.items()}
    found = read_export(MemoryStorage(packed))
    assert (found.compression, len(found.tables), found.tables[1].definition.query) == (
        "gzip",
        2,
        TABLE.format("orders"),
    )
    cut = packed | {"shop.empty-schema.sql.gz": packed["shop.empty-schema.sql.gz"][:-9]}
    with pytest.raises(ExportRefused, match=r"shop\.empty-schema\.sql\.gz: the gzip stream has no end"):
        read_export(MemoryStorage(cut))


def test_time_zone() -> None:
    """The head of mydumper's files names the zone of TIMESTAMP values."""
    head = b"/*!40101 SET NAMES binary*/;\n/*!40103 SET TIME_ZONE='+00:00' */;\n"
    found = export({"shop.orders.000000000.sql": head + b"INSERT INTO `orders` VALUES\n(1,2);\n"})
    assert found.time_zone == "+00:00"


def test_time_zone_of_schema_files() -> None:
    """A table without rows has no other file, and the default of its TIMESTAMP is in a zone too; a file with rows comes first."""
    head = b"/*!40103 SET TIME_ZONE='+00:00' */;\n"
    stated: dict[str, bytes | None] = {"shop.empty-schema.sql": head + objects()["shop.empty-schema.sql"]}
    assert export(stated).time_zone == "+00:00"
    rows_of_another = b"/*!40103 SET TIME_ZONE='+08:00' */;\n" + rows("orders", "(1,1)")
    assert export({**stated, "shop.orders.000000000.sql": rows_of_another}).time_zone == "+08:00"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": None}, "still running, or it failed"),
        ({"metadata": None, "full/metadata": text()}, "There is one at full/metadata"),
        ({"metadata.partial": b"x"}, "still running, or it failed"),
        ({"shop.orders-schema.sql": None}, "shop.orders.000000000.sql has no schema file beside it"),
        ({"readme.txt": b"x"}, "readme.txt is not a name"),
        ({"shop/orders.000000000.sql": b"x;"}, "--output-filename-template"),
        ({"shop.orders.000000002.parquet": b"PAR1"}, "differ in their form"),
        (
            {
                "shop.orders.000000000.sql": None,
                "shop.orders.000000001.sql": None,
                "shop.orders.000000002.zst.parquet": b"PAR1xx",
            },
            "it does not end as Parquet does: it was cut",
        ),
        ({"db/part-0.PARQUET": b""}, "db/part-0.PARQUET is not a name"),
        ({"shop.orders.000000002.orc": b"ORC"}, "holds rows as .orc"),
        ({"shop.orders.000000002.json": b"{}"}, "holds rows as .json"),
        ({"shop.orders.000000002.csv.lz4": b"x"}, "is compressed as .lz4"),
        ({"shop.orders.000000002.sql": b""}, "shop.orders.000000002.sql is empty"),
        ({"shop.orders.000000002.csv": b"1,1\r\n"}, "differ in their form"),
        ({"shop.orders.000000002.sql.gz": b"x"}, "differ in their compression"),
        ({"shop.orders.0000000020000.sql": rows("orders", "(9,9)")}, "have different lengths"),
        ({"shop.orders.00009.sql": rows("orders", "(9,9)")}, "have different lengths"),
        ({"shop.orders.000000001.sql": rows("orders", "(1,1)", "(4,1)")}, "begin with the same row"),
        ({"shop.orders.000000001.sql": rows("orders", "(3,1)")[:-2]}, "its last statement has no semicolon"),
        ({"shop.orders-schema.sql": schema(TABLE.format("orders"))[:-2]}, "no semicolon"),
        ({"shop.orders-schema.sql": schema(TABLE.format("items"))}, "its name says 'orders', its statement 'items'"),
        ({"shop-schema-create.sql": schema("CREATE DATABASE `other`")}, "its name says 'shop'"),
        ({"shop.orders-schema.sql": schema("CREATE VIEW `orders` AS SELECT 1")}, "it is not one CREATE TABLE"),
        ({"shop.orders-schema.sql": schema("DELETE FROM `orders`")}, "it is not one CREATE TABLE"),
        ({"shop.orders-schema.sql": schema(TABLE.format("orders") + ";\nGRANT ALL ON *.* TO x")}, "GRANT ALL"),
        ({"shop.orders-schema.sql": b"\xff;"}, "cannot be read"),
        ({"shop.v-schema.sql": schema(PLACE.format("v"))}, "holds the place of the view shop.v"),
    ],
)
def test_refused(changes: dict[str, bytes | None], reason: str) -> None:
    """An export that is unfinished, cut, mixed with another one or not understood is refused, with the file and the remedy."""
    with pytest.raises(ExportRefused) as fault:
        export(changes)
    assert reason in str(fault.value)


@pytest.mark.parametrize("ending", ["orc", "csv.lz4", "dat"])
def test_no_advice_that_loses_rows(ending: str) -> None:
    """A file that may hold rows is never simply to be moved away: without it the table would be loaded in part, or empty."""
    with pytest.raises(ExportRefused) as fault:
        export({f"shop.orders.000000002.{ending}": b"x"})
    said = str(fault.value)
    assert "rows would be missing" in said or "Move it away only if the export did not write it" in said


def test_two_names_that_are_one() -> None:
    """TiDB does not tell names apart by their case, so one of the tables is of another export."""
    other = {"shop.ORDERS-schema.sql": schema("CREATE TABLE `ORDERS` (\n  `id` int NOT NULL\n)")}
    known = {"shop.orders-schema.sql": schema("CREATE TABLE `orders` (\n  `id` int NOT NULL\n)")}
    with pytest.raises(ExportRefused, match=r"are one table to TiDB, so files of two exports"):
        export({**known, **other})


def test_empty_folder() -> None:
    """An empty folder is no export."""
    with pytest.raises(ExportRefused, match="empty or does not exist"):
        read_export(MemoryStorage())


@pytest.mark.parametrize(
    "columns",
    [
        "`id` int,\n  `v` int",
        "`v` text,\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`)",
        "`id` varchar(9) NOT NULL,\n  `v` int,\n  PRIMARY KEY (`id`)",
    ],
)
def test_first_rows_that_may_be_alike(columns: str) -> None:
    """Without a primary key two files may begin with equal rows, and with a text in or before it with rows that look so."""
    table = schema(f"CREATE TABLE `orders` (\n  {columns}\n) ENGINE=InnoDB")
    found = export({"shop.orders-schema.sql": table, "shop.orders.000000001.sql": rows("orders", "(1,1)", "(4,1)")})
    assert len(found.tables[1].parts) == 2


CLUSTERED = "CREATE TABLE `{}` (\n  `id` int NOT NULL,\n  `v` int DEFAULT NULL,\n  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */\n) ENGINE=InnoDB"


def of_files(files: dict[str, bytes], create: str = CLUSTERED) -> Export:
    """Return an export whose table `orders` has these data files, by what their names have between the table and the ending."""
    without: dict[str, bytes | None] = {"shop.orders.000000000.sql": None, "shop.orders.000000001.sql": None}
    named = {f"shop.orders.{number}.sql": content for number, content in files.items()}
    return export({**without, "shop.orders-schema.sql": schema(create.format("orders")), **named})


def test_a_file_that_is_missing_within_a_chunk() -> None:
    """With --rows and --filesize a chunk's files are numbered without a gap, so the rows of the missing one are lost."""
    part = {f"00000000{number}": rows("orders", f"({number},1)") for number in ("10000", "10002", "20000")}
    with pytest.raises(ExportRefused, match=r"shop\.orders\.0000000010001\.sql is missing"):
        of_files(part)
    part["0000000010001"] = rows("orders", "(10001,1)")
    assert len(of_files(part).tables[1].parts) == 4
    del part["0000000010000"]
    with pytest.raises(ExportRefused, match=r"shop\.orders\.0000000010000\.sql is missing"):
        of_files(part)


def test_numbers_that_leave_something_out() -> None:
    """Of --rows it is normal, of --filesize it is a loss, and nothing tells which it was: it is noted, once for all tables."""
    (note,) = of_files({f"00000000{n}": rows("orders", f"({n},1)") for n in (0, 1, 3)}).notes
    assert "shop.orders" in note
    assert "000000002" in note
    (note,) = of_files({f"00000000{n}": rows("orders", f"({n},1)") for n in (1, 2)}).notes
    assert "000000000" in note
    assert not of_files({f"00000000{n}": rows("orders", f"({n},1)") for n in (0, 1, 2)}).notes


@pytest.mark.parametrize("key", ["2", "3", "'3'", "-7"])
def test_keys_that_go_back(key: str) -> None:
    """Dumpling orders rows by the key over all files: one that begins with a lower key, or the same, is of another export."""
    files = {
        "000000000": rows("orders", "(1,1)", "(2,1)"),
        "000000001": rows("orders", "(3,1)"),
        "000000002": rows("orders", f"({key},1)"),
    }
    with pytest.raises(ExportRefused, match=r"000000002\.sql begins with key -?\d, not after the 3 .*000000001\.sql"):
        of_files(files)
    files["000000002"] = rows("orders", "('4',1)")
    assert len(of_files(files).tables[1].parts) == 3


@pytest.mark.parametrize(
    "create",
    [
        CLUSTERED.replace(" CLUSTERED", " NONCLUSTERED"),
        CLUSTERED + "\nPARTITION BY HASH (`id`) PARTITIONS 2",
        CLUSTERED.replace("(`id`)", "(`id`,`v`)"),
        CLUSTERED.replace("`id` int", "`id` int GENERATED ALWAYS AS (`v` * -1) STORED"),
    ],
)
def test_keys_that_may_go_back(create: str) -> None:
    """Rows are in the order of something else than the first column, or lack the key since it is computed."""
    files = {f"00000000{at}": rows("orders", f"({key},1)") for at, key in enumerate((1, 3, 2))}
    assert len(of_files(files, create).tables[1].parts) == 3


def test_a_name_that_looks_like_a_key() -> None:
    """The names of the columns, with which each CSV file begins, are no keys."""
    create = CLUSTERED.replace("`id`", "`1 a`").format("orders")
    files = {f"shop.orders.00000000{at}.csv": f'"1 a","v"\r\n{key},1\r\n'.encode() for at, key in enumerate((1, 3))}
    without: dict[str, bytes | None] = {"shop.orders.000000000.sql": None, "shop.orders.000000001.sql": None}
    found = export({**without, "shop.orders-schema.sql": schema(create), **files})
    assert len(found.tables[1].parts) == 2
