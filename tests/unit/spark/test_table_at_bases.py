"""Tables as of a commit-ts that are older than the bucket: an export is their base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage_consumer.errors import NotReplicable
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.harness.small_export import export
from tests.unit.spark.test_table_at import OLD, PAIR, at

KEY = "  PRIMARY KEY (`id`)"
BODY = "  `a` int DEFAULT NULL,\n  `b` int DEFAULT NULL"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """An empty bucket that is complete up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.metadata(ts(9))
    found.write("old.toml", OLD)
    return found


def test_equal_rows_in_several_files(tmp_path: Path, bucket: SmallBucket) -> None:
    """An export repeats nothing: rows without a key are as many as its files have."""
    bucket.schema("d.t", ts(1), "", 0, PAIR)
    base = export(tmp_path / "export", 2, {"t": ["(1,7),\n(1,7)"] * 4}, body=BODY)
    assert at(bucket, "d.t", base=base.as_uri(), config=str(bucket.root / "old.toml")) == [(1, 7)] * 8


THREE = (column("id", "INT", key=True), column("a", "INT"), column("g", "INT"))
GENERATED = "  `id` int NOT NULL,\n  `a` int DEFAULT NULL,\n  `g` int GENERATED ALWAYS AS (`a` + 1) {},\n"


@pytest.mark.parametrize("key", [KEY, ""])
@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
def test_generated_columns(tmp_path: Path, bucket: SmallBucket, kind: str, key: str) -> None:
    """That a column is generated only the export shows: rows have no virtual ones, and stored ones are refused unless they are left out."""
    columns = THREE if key else (column("id", "INT"), *THREE[1:])
    bucket.schema("d.t", ts(1), "", 0, columns)
    stored = ",6" if kind == "STORED" else ""
    bucket.rows("d.t", 1, f'"I","t","d",{ts(4)},false,2,5{stored}')
    more = (*columns, column("n", "INT", ColumnDefault="4"))
    bucket.schema("d.t", ts(5), "ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 4", 5, more)
    bucket.rows("d.t", 1, f'"I","t","d",{ts(6)},false,3,7{stored and ",8"},9', version=ts(5))
    body = (GENERATED.format(kind) + key).removesuffix(",\n")
    base = export(tmp_path / "export", 2, {"t": ["(1,7)"]}, body=body)
    for file in base.glob("d.t.*.sql"):
        file.write_text(file.read_text().replace("`t` VALUES", "`t` (`id`,`a`) VALUES"))
    config = str(bucket.root / "old.toml")
    assert at(bucket, "d.t", base=base.as_uri(), config=config, columns=("id", "a", "n")) == [
        (1, 7, 4),
        (2, 5, 4),
        (3, 7, 9),
    ]
    if kind == "VIRTUAL":
        assert len(at(bucket, "d.t", base=base.as_uri(), config=config)) == 3
        return
    with pytest.raises(NotReplicable, match=r"values of generated columns \(g\): leave them out with columns"):
        at(bucket, "d.t", base=base.as_uri(), config=config)


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_members_that_only_the_export_shows(tmp_path: Path, protocol: str) -> None:
    """Rows have ENUM and SET by name, in canal-json too, whose numbers mean the members that the export lists."""
    bucket = SmallBucket(root=tmp_path / "bucket", protocol="csv" if protocol == "csv" else "canal-json")
    bucket.metadata(ts(9))
    columns = (column("id", "INT", key=True), column("e", "ENUM"), column("s", "SET"))
    bucket.schema("d.t", ts(1), "", 0, columns)
    values = ('"y"', '"p,q"') if protocol == "csv" else ('"2"', '"3"')
    bucket.rows("d.t", 1, row("d.t", 4, "2", *values, names=("id", "e", "s")))
    body = f"  `id` int NOT NULL,\n  `e` enum('x','y') DEFAULT NULL,\n  `s` set('p','q') DEFAULT NULL,\n{KEY}"
    base = export(tmp_path / "export", 2, {"t": ["(1,'x','q')"]}, body=body)
    options: dict[str, Any] = {"include_commit_ts": "true"} if protocol == "csv" else {}
    assert at(bucket, "d.t", base=base.as_uri(), **options) == [(1, "x", "q"), (2, "y", "p,q")]
