"""A corpus whose process ends before and after every step: a small one, and at night all that are about statements.

A point is where the program is about to make a call that changes something outside, the one before having been answered.
No statement may take effect twice, see `Effects`, and the server's general log must bear out what was sent.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from storage_consumer.plan.journal_entry import DdlAnswer
from tests.harness.corpora import FIXTURES, THOROUGH, CorpusSource, available, chosen
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import DatabaseServer, learn_zone
from tests.harness.stopping import (
    Crash,
    Effects,
    Points,
    finished,
    general_log,
    logged,
    round_to,
    watched,
)

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SMALL = CorpusSource(path=FIXTURES / "batch_create" / "classic" / "batch_create__csv.tar.xz")
WORKLOADS = "ddl_storm,databases,partitions,views,generated,names,gap,late_dups,batch_create,x_hidden,x_defaults,x_zero"
MOST_ALONE = 40 if THOROUGH else 4
"""Points of a corpus at which a process ends alone."""
SOURCES = chosen(available(), workloads=tuple(WORKLOADS.split(",")), variants=("csv", "json")) if THOROUGH else (SMALL,)


def in_a_row(replay: Replay) -> int:
    """Let each process come one point further, to the next cut when all were taken; return the points."""
    points = Points(replay.server, Effects(replay.server))
    _emptied(replay)
    with general_log(replay.server), watched(points):
        for cut in replay.corpus.cuts:
            round_to(replay, cut, points)
        ended = len(points.ended_at)
        _refuse_twice(replay, points)
    return ended


def alone(replay: Replay, most: int) -> int:
    """End one process at one point and let the next one finish, at no more than `most` points; return how many there are."""
    count = _one(replay, 0).passed
    every = max(1, -(-count // most))
    for number in range(every, count + 1, every):
        try:
            _one(replay, number)
        except NotEqual as fault:
            message = f"ended alone at point {number} of {count}: {fault}"
            raise NotEqual(message) from fault
    return count


def _one(replay: Replay, number: int) -> Points:
    points = Points(replay.server, Effects(replay.server), alone=number)
    _emptied(replay)
    with general_log(replay.server), watched(points):
        round_to(replay, replay.corpus.cuts[-1], points)
        passed = points.passed
        _refuse_twice(replay, points)
    points.passed = passed
    return points


def _emptied(replay: Replay) -> None:
    """No database, no bucket, and a server that knows the zone."""
    replay.server.drop_all()
    learn_zone(replay.server, "+00:00" if replay.corpus.timezone == "UTC" else replay.corpus.timezone)
    shutil.rmtree(replay.folder, ignore_errors=True)
    replay.folder.mkdir(parents=True)


def _refuse_twice(replay: Replay, points: Points) -> None:
    """Start once more, which must change nothing, and hold what was sent against the server's log."""
    effects, ended_at = points.effects, [*points.ended_at][-1:]
    points.alone = 0
    again = finished(replay, points)
    wrong = [f"one more start wrote {again.written} rows, ran {again.ddls} DDL"] if again.written or again.ddls else []
    wrong += effects.differences_from(effects.sent if replay.server.kind == "tidb" else logged(replay.server))
    if wrong:
        raise NotEqual("\n".join([str(replay.corpus), *ended_at, *wrong]))


@pytest.fixture(params=SOURCES, ids=str)
def replay(request: pytest.FixtureRequest, mariadb: DatabaseServer, tmp_path: Path) -> Replay:
    """A corpus on a server."""
    return Replay(corpus=request.param.open(tmp_path / "corpus"), server=mariadb, folder=tmp_path / "replay")


def test_in_a_row(replay: Replay) -> None:
    """Processes that come one point further each make the target equal at every cut, and no statement takes effect twice."""
    assert in_a_row(replay) > 9 * 5


def test_alone(replay: Replay) -> None:
    """One process that ends at one point leaves what the next one completes."""
    assert alone(replay, MOST_ALONE) > 9 * 4


def test_statement_that_takes_effect_twice_is_found(mariadb: DatabaseServer) -> None:
    """A statement that ran before is told where it changes rows again, and where the server got one that nobody sent."""
    mariadb.query("CREATE DATABASE d")
    mariadb.query("CREATE TABLE d.t (id INT)")
    effects, truncate = Effects(mariadb), "TRUNCATE TABLE d.t"

    def run() -> DdlAnswer:
        mariadb.query(truncate)
        return DdlAnswer()

    effects.note(run, truncate, 1)
    effects.note(run, truncate, 1)
    assert effects.differences_from(effects.sent) == []
    mariadb.query("INSERT INTO d.t VALUES (1)")
    effects.note(run, truncate, 1)
    effects.note(run, truncate, 2)
    assert effects.differences_from(effects.sent) == [f"took effect twice: {truncate}"]
    assert len(effects.differences_from(effects.sent + effects.sent)) == 2


def test_statement_without_an_answer(mariadb: DatabaseServer) -> None:
    """Where a process ended while it ran a statement, the server may have got that one or not; but no other one more."""
    effects = Effects(mariadb)

    def ends() -> DdlAnswer:
        raise Crash

    with pytest.raises(Crash):
        effects.note(ends, "DROP TABLE d.t", 1)
    for came in (0, 1):
        assert effects.differences_from(Counter({"DROP TABLE d.t": came})) == []
    assert len(effects.differences_from(Counter({"DROP TABLE d.t": 2, "DROP TABLE d.u": 1}))) == 2


def test_failure_says_where_the_process_ended(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong after an end is told with its point."""
    monkeypatch.setattr(Effects, "differences_from", lambda *_: ["as if"])
    with pytest.raises(NotEqual, match=r"as if"):
        alone(replay, 1)
