"""What ``quarantine --json`` prints of a row: keys that are part of the program's interface."""

from __future__ import annotations

import json

from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.cli.decision_commands import row_document
from storage_consumer.model import TableName

ENTRY = QuarantinedEntry(
    table_key="d\x00a",
    digest="123",
    table=TableName(schema="d", table="a"),
    key="id = 1",
    commit_ts=5,
    path="d/a/1/CDC1.csv",
    row=3,
    version=1,
    reason="error 1406: too long",
    error_number=1406,
    image={"id": "1"},
    held_before=None,
    first_seen="2026-11-30 09:00:00",
    last_seen="2026-11-30 09:00:00",
    retry_asked_by="",
    retry_answer="",
    key_columns="[]",
    written_columns="[]",
    line=b"\xff1\t2",
)


def test_a_row_is_a_document() -> None:
    """It has what a person may want to know, and not what a retry needs: bytes are no JSON, and digests nobody's business."""
    assert json.loads(json.dumps(row_document(ENTRY))) == {
        "table": "d.a",
        "key": "id = 1",
        "commit_ts": 5,
        "path": "d/a/1/CDC1.csv",
        "row": 3,
        "version": 1,
        "reason": "error 1406: too long",
        "error_number": 1406,
        "image": {"id": "1"},
        "held_before": None,
        "first_seen": "2026-11-30 09:00:00",
        "last_seen": "2026-11-30 09:00:00",
        "retry_asked_by": "",
        "retry_answer": "",
    }
