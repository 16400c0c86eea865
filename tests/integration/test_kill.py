"""kill -9 of the real command, JVM and workers included, at random instants: the next run makes the target equal."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.corpora import FIXTURES, CorpusSource
from tests.program import program
from tests.replay import Replay
from tests.servers import DatabaseServer
from tests.stopping import general_log, logged

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
LONGEST = 4.0
"""Seconds after Spark's start within which the run is killed: about as long as such a run takes."""
REPEATABLE = ("TRUNCATE",)
"""Statements whose effect cannot be seen in the structure, so that one that was interrupted runs again."""
CORPORA = [
    CorpusSource(path=FIXTURES / path)
    for path in (
        "shop/new/shop__csv",
        "keyless/new/keyless__json.tar.xz",
        "keys/new/keys__csv.tar.xz",
        "ddl_storm/classic/ddl_storm__csv.tar.xz",
    )
]


def statements_run(server: DatabaseServer) -> Counter[str]:
    """How often the server got each statement that the journal knows."""
    known = {statement for (statement,) in server.query("SELECT statement FROM storage_consumer.ddl_journal")}
    return Counter({text: times for text, times in logged(server).items() if text in known})


@pytest.mark.parametrize("source", CORPORA, ids=str)
def test_killed_at_random(source: CorpusSource, mariadb: DatabaseServer, spark: object, tmp_path: Path) -> None:
    """After two kills at random instants a fresh run ends equal to the source, and no statement ran twice."""
    corpus = source.open(tmp_path / "corpus")
    replay = Replay(corpus=corpus, server=mariadb, folder=tmp_path)
    last = corpus.cuts[-1]
    corpus.materialise(last, replay.bucket)
    config = corpus.write_config(tmp_path)
    uris = ["--upstream-uri", corpus.sink_uri(replay.bucket), "--downstream-uri", mariadb.uri]
    instants = [random.uniform(0, LONGEST) for _ in range(2)]  # noqa: S311 - an instant is no secret
    with general_log(mariadb):
        for number, instant in enumerate(instants):
            log = tmp_path / f"log{number}"
            with program([*uris, "--config", str(config), "--tz", corpus.timezone, "--once"], log) as running:
                running.wait_for("spark_started")
                time.sleep(instant)
                running.kill()
        began = time.monotonic()
        with replay.consumer() as fresh:
            replay.round_to(last, fresh)
        took = time.monotonic() - began
        runs = statements_run(mariadb)
    assert took < 60, instants
    journal = Counter(statement for (statement,) in mariadb.query("SELECT statement FROM storage_consumer.ddl_journal"))
    twice = {text: times for text, times in runs.items() if times > journal[text] and not text.startswith(REPEATABLE)}
    assert twice == {}, instants
