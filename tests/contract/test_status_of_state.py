"""The state as `status` reads it, on every server: who writes, how far all is, and what the writer said last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.findings import KEPT_MINUTES
from storage_consumer.checkpoint.store import operated
from storage_consumer.cli.endings import answered
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import identity, readable
from storage_consumer.errors import ConfigError
from storage_consumer.plan.journal_entry import STARTED, Sent
from storage_consumer.watch.report import Minute, Phase, Report, Snapshot
from storage_consumer.watch.status import judged
from tests.contract.state_rigs import BUCKET, Rig, progress, real_rig, statement
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server
ME = identity(1_790_000_000)
REPORT = Report(version="1", started_at=1.5, phase=Phase.IDLE, since=2.5, waiting={"shop.ä`'": "x"})
MINUTE = Minute(
    minute=10_000, checkpoint=1 << 63, checkpoint_running=2, storage_checkpoint=3, row_changes=4, statements=5
)


@pytest.fixture
def rig(server: DatabaseServer) -> Iterator[Rig]:
    """Its state."""
    found = real_rig(server)
    yield found
    found.close()


def look(server: DatabaseServer) -> Snapshot:
    """The state as it is."""
    desk = operated(Downstream(port=server.port), "")
    try:
        return desk.snapshot()
    finally:
        desk.close()


def minutes(server: DatabaseServer, most: int = 100) -> tuple[Minute, ...]:
    """The course of the feed."""
    desk = operated(Downstream(port=server.port), "")
    try:
        return desk.reports.minutes(most)
    finally:
        desk.close()


def test_one_word_for_one_state(server: DatabaseServer, rig: Rig) -> None:
    """A table that waits by the writer's report is called so wherever it is shown, with what it waits for; a halted one stays halted."""
    owner = rig.owner(ME)
    tables = [
        progress("shop/a", 5),
        progress("shop/b", 4, "halted", follows=False, error="broken"),
        progress("shop/c", 5),
    ]
    owner.progress.save(tables=tables, sequences={}, checkpoint=7, storage_checkpoint=9, lowest=4)
    owner.reports.save(replace(REPORT, waiting={"shop.a": "file 3", "shop.b": "file 4"}).to_json(), MINUTE)
    desk = operated(Downstream(port=server.port), "")
    rows = desk.decisions.tables()
    desk.close()
    words = {str(row.stored.name): row.shown for row in rows}
    assert words == {"shop.a": "waiting", "shop.b": "halted", "shop.c": "running"}
    found = look(server)
    assert {str(each.name): found.shown(each) for each in found.tables} == words
    status = judged(found, lambda verb, name: f"{verb} {name}")
    assert status.counts == {"halted": 1, "running": 1, "waiting": 1}
    assert {str(each.name): each.state for each in status.tables} == {"shop.a": "waiting", "shop.b": "halted"}
    options = {"downstream_uri": server.uri, "all": True}
    listed = json.loads(answered("table", options | {"json": True}, {}).text)["tables"]
    assert {each["table"]: (each["state"], each["error"]) for each in listed} == {
        "shop.a": ("waiting", "file 3"),
        "shop.b": ("halted", "broken"),
        "shop.c": ("running", ""),
    }
    plain = answered("table", {"downstream_uri": server.uri}, {}).text
    assert re.search(r"shop\.a +waiting .*\n +file 3\n", plain)
    assert "shop.c" not in plain


def test_everything_that_is_stored(server: DatabaseServer, rig: Rig) -> None:
    """Marks, tables, statements that are not done with their time, and the report."""
    owner = rig.owner(ME)
    fine, halted = progress("shop/a", 5), progress("shop/b", 4, "halted", follows=False, error="broken")
    owner.progress.save(tables=[fine, halted], sequences={}, checkpoint=7, storage_checkpoint=9, lowest=4)
    owner.journal.record(statement(), STARTED, run=Sent(statement="ALTER", structure_before=""))
    owner.reports.save(REPORT.to_json(), MINUTE)
    found = look(server)
    assert (found.upstream, found.state_schema, found.writer) == (BUCKET, "storage_consumer", readable(ME))
    assert (found.checkpoint, found.checkpoint_running, found.storage_checkpoint) == (4, 7, 9)
    assert [(str(each.name), each.state, each.checkpoint, each.follows, each.error) for each in found.tables] == [
        ("shop.a", "running", 5, True, ""),
        ("shop.b", "halted", 4, False, "broken"),
    ]
    (one,) = found.statements
    assert (str(one.name), one.state, one.identity.version, one.query) == ("shop.a", "started", 5, "ALTER TABLE a")
    assert one.seconds is not None
    assert 0 <= one.seconds < 60
    assert found.report == REPORT
    assert 0 <= found.report_age < 60
    ((now,),) = server.query("SELECT UNIX_TIMESTAMP(NOW(6))")
    assert abs(found.now - float(now)) < 60
    assert minutes(server) == (MINUTE,)


def test_writer_that_released_the_lease(server: DatabaseServer, rig: Rig) -> None:
    """Nobody writes, and nobody is suspected."""
    rig.owner(ME).lease.release()
    found = look(server)
    assert (found.writer, found.last_writer) == ("", "")


def test_writer_that_died(server: DatabaseServer, rig: Rig) -> None:
    """Once its lease has run out nobody writes, and it is named as the last."""
    rig.owner(ME)
    assert look(server).writer == readable(ME)
    rig.expire()
    found = look(server)
    assert (found.writer, found.last_writer) == ("", readable(ME))


def test_report_of_a_former_owner(server: DatabaseServer, rig: Rig) -> None:
    """An owner that lost the lease and does not know it yet cannot replace the report of the new one."""
    old = rig.owner("old")
    old.reports.save(REPORT.to_json(), MINUTE)
    rig.expire()
    new = rig.owner("new")
    newer = replace(REPORT, version="2")
    new.reports.save(newer.to_json(), MINUTE)
    old.reports.save(replace(REPORT, version="zombie").to_json(), MINUTE)
    assert look(server).report == newer
    assert server.query("SELECT COUNT(*) FROM storage_consumer.report") == ((1,),)


def test_standby_reports_nothing(server: DatabaseServer, rig: Rig) -> None:
    """A process that never had the lease leaves the state alone."""
    rig.owner(ME)
    standby = rig.handle()
    standby.open(BUCKET)
    standby.reports.save(REPORT.to_json(), MINUTE)
    assert (look(server).report, minutes(server)) == (None, ())


def test_minutes_are_kept_for_a_day(server: DatabaseServer, rig: Rig) -> None:
    """A minute is stored once, with its last values; those of more than a day ago go."""
    owner = rig.owner(ME)
    for number in (0, 1, KEPT_MINUTES, KEPT_MINUTES + 1):
        owner.reports.save("{}", replace(MINUTE, minute=number, row_changes=1))
        owner.reports.save("{}", replace(MINUTE, minute=number, row_changes=2))
    assert [(each.minute, each.row_changes) for each in minutes(server)] == [
        (1, 2),
        (KEPT_MINUTES, 2),
        (KEPT_MINUTES + 1, 2),
    ]
    assert [each.minute for each in minutes(server, most=2)] == [KEPT_MINUTES, KEPT_MINUTES + 1]


def test_state_of_an_older_program(server: DatabaseServer, rig: Rig) -> None:
    """It has no place for reports: all else is read; the next start adds what is missing, and the older program runs on it again."""
    owner = rig.owner(ME)
    for name in ("report", "report_minutes"):
        server.query(f"DROP TABLE storage_consumer.{name}")
    found = look(server)
    assert (found.writer, found.report, minutes(server)) == (readable(ME), None, ())
    owner.open(BUCKET)
    owner.reports.save(REPORT.to_json(), MINUTE)
    assert look(server).report == REPORT


def test_report_that_cannot_be_read(server: DatabaseServer, rig: Rig) -> None:
    """A report of a program that writes another form counts as none."""
    rig.owner(ME).reports.save('{"phase": "dreaming"}', MINUTE)
    assert look(server).report is None


def test_state_without_a_bucket(server: DatabaseServer, rig: Rig) -> None:
    """A state that was created and bound to nothing yet is named as such."""
    rig.owner(ME)
    server.query("DELETE FROM storage_consumer.feed")
    with pytest.raises(ConfigError, match="is not bound to a bucket yet"):
        look(server)


def test_several_tables_are_decided_about_at_once(server: DatabaseServer, rig: Rig) -> None:
    """By names, rules and --all; each outcome is told, a refusal holds up no other, and a wrong name nothing is decided for."""
    kept = [
        progress("shop/a", 5, "halted", follows=False, error="broken"),
        progress("shop/b", 5, "lost", follows=False, error="lacks a file"),
        progress("shop/c", 5),
        progress("crm/a", 5, "halted", follows=False, error="paused by me"),
        progress("crm/gone", 5, "dropped"),
        progress("crm/out", 5, "excluded"),
    ]
    rig.owner(ME).progress.save(tables=kept, sequences={}, checkpoint=7, storage_checkpoint=9)

    def decided(action: str, *tables: str, **more: object) -> tuple[int, dict[str, str]]:
        given = {"downstream_uri": server.uri, "action": action, "table": list(tables), "json": True} | more
        answer = answered("table", given, {})
        found = json.loads(answer.text)["tables"]
        assert all(bool(each["refusal"]) == (each["outcome"] == "refused") for each in found)
        return answer.code, {each["table"]: each["outcome"] for each in found}

    with pytest.raises(ConfigError, match=r"the state knows no table shop\.z"):
        decided("resume", "shop.a", "shop.z")
    with pytest.raises(ConfigError, match=r"knows no table that 'shp\.\*' fits"):
        decided("resume", "shp.*")
    for action in ("skip", "moved"):
        with pytest.raises(ConfigError, match="--table"):
            decided(action, all=True)
    assert decided("resume", "shop.a", "SHOP.C") == (0, {"shop.a": "stored", "shop.c": "stored"})
    assert decided("resume", "shop.*") == (4, {"shop.a": "same", "shop.b": "refused"})
    assert decided("resume", all=True) == (4, {"shop.a": "same", "shop.b": "refused", "crm.a": "stored"})
    assert decided("pause", all=True) == (0, {"shop.a": "stored", "shop.c": "stored", "crm.a": "stored"})
    assert decided("resume", "shop.c", "crm.*") == (0, {"shop.c": "stored", "crm.a": "stored"})
    text = answered("table", {"downstream_uri": server.uri, "action": "resume", "all": True}, {}).text
    assert re.search(
        r"^shop\.b: refused: shop\.b lacks rows.*`storage-consumer load --table shop\.b", text, re.MULTILINE
    )
    assert decided("skip", "crm.?") == (0, {"crm.a": "stored"})
