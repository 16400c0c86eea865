"""What the program makes of a recorded bucket is equal to what the recording's workload makes of a TiDB, by `verify` too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_consumer.config.settings import Downstream, Server
from storage_consumer.operating.verification import Wishes, verified
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from tests.harness import servers
from tests.harness.corpora import CorpusSource, available, chosen
from tests.harness.reference import play
from tests.harness.replay import Replay
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark")]
SOURCES = chosen(
    available(),
    workloads=("types", "text_traps", "keys", "keyless", "generated"),
    archs=("new",),
    variants=("csv", "json"),
)

NOW = "types_db.defs"
"""A table whose rows have the time at which they were written."""


@pytest.fixture(scope="module")
def played() -> Iterator[DatabaseServer]:
    """A TiDB of its own, which nobody writes to but the workload."""
    with servers.tidb() as server:
        yield server


def compared(source: DatabaseServer, target: DatabaseServer) -> list[TableResult]:
    """What a comparison finds."""
    here, there = (Server(settings=Downstream(port=server.port)) for server in (target, source))
    return [*verified(here, there, Wishes(chunk_rows=100, frozen=True)).tables]


if "tidb" in KINDS:  # else nobody can play a workload as the source did

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("source", SOURCES, ids=str)
    def test_equal(
        source: CorpusSource, kind: str, played: DatabaseServer, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        """Every table is found equal, in rows and structure; views have no rows to compare."""
        server: DatabaseServer = request.getfixturevalue(kind)
        corpus = source.open(tmp_path)
        play(played, corpus.workload_sql)
        replay = Replay(corpus=corpus, server=server, folder=tmp_path / "replay")
        corpus.materialise(corpus.cuts[-1], replay.bucket)
        with replay.consumer() as consumer:
            summary = consumer.run_once()
        # Rows of a table without a key that do not show which row they replace stop it, as is stated elsewhere.
        left_out = {NOW, *(table.table for table in summary.halted)}
        found = [each for each in compared(played, server) if str(each.table) not in left_out]
        wrong = [each for each in found if each.outcome is not VerifyOutcome.EQUAL and "view" not in each.reason]
        told = [(str(each.table), each.reason, each.structure, each.differences[:3]) for each in wrong]
        assert found
        assert told == [], told
