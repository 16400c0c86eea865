"""A state schema of an earlier version, in the middle of a bucket, is taken over: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.target.state_tables import STATE_VERSION
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")
PLACE = "file:///BUCKET"
"""What stands in the dump for the bucket."""


@pytest.mark.parametrize("version", [3, 5])
def test_taken_over_in_the_middle_of_a_bucket(version: int, server: DatabaseServer, tmp_path: Path) -> None:
    """The target is as an earlier version left it half-way; after one round it is as the source, and its state is of our version."""
    replay = Replay(corpus=SHOP, server=server, folder=tmp_path)
    dump = (FIXTURES / "earlier_states" / f"version_{version}.sql").read_text(encoding="utf-8")
    middle, last = SHOP.cuts[(len(SHOP.cuts) - 1) // 2], SHOP.cuts[-1]
    SHOP.materialise(middle, replay.bucket)
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in dump.replace(PLACE, replay.bucket.resolve().as_uri()).split(";\n")[:-1]:
            cursor.execute(statement)
        connection.commit()
    assert server.query("SELECT version FROM storage_consumer.version") == ((version,),)
    with replay.consumer() as consumer:
        before = replay.round_to(middle, consumer)
        SHOP.materialise(last, replay.bucket)
        after = replay.round_to(last, consumer)
    assert (before.rows, before.ddls) == (0, 0)
    assert after.rows > 0
    assert not after.halted
    assert server.query("SELECT version FROM storage_consumer.version") == ((STATE_VERSION,),)
    notes = dict(server.query("SELECT table_key, upto FROM storage_consumer.table_writes"))
    # One note for what a job of the earlier version may have left, and those of the jobs since.
    assert notes.pop("") > 0
    assert notes
