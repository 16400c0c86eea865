"""``metadata`` of an export: which instant it names, and what is refused."""

from __future__ import annotations

import pytest

from storage_consumer.bucket.export_names import read_metadata
from storage_consumer.errors import ExportRefused

POS = 470648105234169856


def text(log: str = "tidb-binlog", pos: object = POS, rest: str = "") -> bytes:
    """Return what Dumpling writes."""
    return (
        f"Started dump at: 2026-11-22 20:40:44\nSHOW MASTER STATUS:\n\tLog: {log}\n\tPos: {pos}\n\tGTID:\n\n{rest}"
        "Finished dump at: 2026-11-22 20:40:46\n"
    ).encode()


def test_snapshot() -> None:
    """Pos is the TSO of the snapshot, exactly; the times stay as they are written."""
    found = read_metadata(text(), "metadata")
    assert (found.snapshot, found.snapshot_hint) == (POS, "")
    assert (found.started_at, found.finished_at) == ("2026-11-22 20:40:44", "2026-11-22 20:40:46")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            text(pos="2026-11-22 20:53:31"),
            "is the date 2026-11-22 20:53:31, in a time zone that the export does not name: write the copy's instant as a TSO behind `Pos:` in that file. `storage-consumer tso TIME`",
        ),
        (text("mysql-bin.000003", 4711), "Pos in metadata is 4711 of mysql-bin.000003, which is no TSO"),
        (text(pos=1 << 64), "which is no TSO"),
        (text(pos=""), "has no Pos"),
        (b"Started dump at: x\nFinished dump at: y\n", "has no Pos"),
        (
            text(
                rest="SHOW MASTER STATUS: /* AFTER CONNECTION POOL ESTABLISHED */\n\tLog: tidb-binlog\n\tPos: 470648105234169999\n\n"
            ),
            "made without a snapshot",
        ),
    ],
)
def test_no_snapshot(content: bytes, reason: str) -> None:
    """Where metadata names no TSO, none is guessed, and the hint says what to give."""
    found = read_metadata(content, "metadata")
    assert found.snapshot == 0
    assert reason in found.snapshot_hint


def test_where_the_source_replicates_from() -> None:
    """The position that the source itself replicates from is not that of the export."""
    content = text(rest="SHOW SLAVE STATUS:\n\tHost: 10.0.0.1\n\tLog: mysql-bin.000009\n\tPos: 77\n\tGTID:\n\n")
    assert read_metadata(content, "metadata").snapshot == POS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (text()[:-38], "still running, or it failed"),
        (b'{"checkpoint-ts":449}', "lacks 'Started dump at'"),
        (b"", "lacks 'Started dump at'"),
        (b"# Started dump at: 2026-01-01\n[master]\n# File = x\n", "from 0.11 on"),
    ],
)
def test_refused(content: bytes, reason: str) -> None:
    """A metadata of an unfinished export, of another program or of a later mydumper is refused."""
    with pytest.raises(ExportRefused, match="full/metadata") as fault:
        read_metadata(content, "full/metadata")
    assert reason in str(fault.value)
