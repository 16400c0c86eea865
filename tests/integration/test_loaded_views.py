"""Views that an export has, where the target has one of that name already."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.program import command
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, ts
from tests.harness.small_export import HEAD, export
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark]
CREATE_VIEW = 21


def view(folder: Path) -> None:
    """Add the view d.v to an export, as Dumpling writes it."""
    (folder / "d.v-schema.sql").write_text(f"{HEAD}CREATE TABLE `v`(\n`id` int\n)ENGINE=MyISAM;\n", encoding="utf-8")
    created = "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `v` (`id`) AS SELECT `id` AS `id` FROM `d`.`t`;"
    text = f"{HEAD}DROP TABLE IF EXISTS `v`;\nDROP VIEW IF EXISTS `v`;\n{created}\n"
    (folder / "d.v-schema-view.sql").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken"])
def test_a_view_is_replaced(
    server: DatabaseServer,
    broken: bool,  # noqa: FBT001 - a variant
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    """Only when asked to: what somebody made of it in the target is dropped, whether it can be read or not, and the source's is created."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.schema("d.v", ts(3), "CREATE VIEW `d`.`v` AS SELECT `id` FROM `d`.`t`", CREATE_VIEW, ())
    bucket.metadata(ts(9))
    assert not once(bucket, server, tz="UTC").halted
    server.query("DROP VIEW d.v")
    server.query("CREATE TABLE d.base (name INT)")
    server.query("CREATE VIEW d.v AS SELECT name FROM d.base")
    if broken:
        server.query("DROP TABLE d.base")
    full = export(tmp_path / "full", 20, {"t": ["(1,'copy')"]})
    view(full)

    def asked(*more: str) -> str:
        words = ("load", "--table", "d.v", "--dump", full.as_uri(), *more)
        assert command(*words, server=server).returncode == 0
        assert not once(bucket, server, tz="UTC").halted
        return command("load", "--all", "--table", "d.v", server=server).stdout

    # The feed is at tick 9, and the copy is as of tick 20.
    bucket.metadata(ts(9))
    assert "already has d.v, where the copy has to create it" in " ".join(asked().split())
    bucket.metadata(ts(30))
    assert "d.v  done" in asked("--replace")
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'd' AND table_name = 'v'"
    assert server.query(columns) == (("id",),)
