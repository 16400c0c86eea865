"""A small corpus whose process ends before and after every step; ``python -m tests.campaigns.stop_everywhere`` does so with all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from storage_consumer.plan.journal_entry import DdlAnswer
from tests.campaigns.stop_everywhere import alone, in_a_row
from tests.harness.corpora import FIXTURES, CorpusSource
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import DatabaseServer
from tests.harness.stopping import Crash, Effects

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SMALL = CorpusSource(path=FIXTURES / "batch_create" / "classic" / "batch_create__csv.tar.xz")


@pytest.fixture
def replay(mariadb: DatabaseServer, tmp_path: Path) -> Replay:
    """The corpus on a server."""
    return Replay(corpus=SMALL.open(tmp_path / "corpus"), server=mariadb, folder=tmp_path / "replay")


def test_in_a_row(replay: Replay) -> None:
    """Processes that come one point further each make the target equal at every cut, and no statement takes effect twice."""
    stopped = in_a_row(replay)
    assert stopped.points == stopped.of > 9 * 5


def test_alone(replay: Replay) -> None:
    """One process that ends at one point leaves what the next one completes."""
    stopped = alone(replay, 4)
    assert 3 <= stopped.points <= 4
    assert stopped.of > 9 * 4


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
