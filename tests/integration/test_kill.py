"""kill -9 of the real command, JVM and workers included, at random instants: the next run makes the target equal."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.campaigns.kills import LONGEST, arrived, twice
from tests.harness.corpora import FIXTURES, CorpusSource
from tests.harness.program import program
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer
from tests.harness.stopping import general_log

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
CORPORA = [
    CorpusSource(path=FIXTURES / path)
    for path in (
        "shop/new/shop__csv",
        "keyless/new/keyless__json.tar.xz",
        "keys/new/keys__csv.tar.xz",
        "ddl_storm/classic/ddl_storm__csv.tar.xz",
    )
]


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
        again = twice(mariadb, arrived(mariadb))
    assert took < 60, instants
    assert again == {}, instants
