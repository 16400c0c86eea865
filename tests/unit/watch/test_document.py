"""The document of a status, as ``status --json`` and the status page give it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from storage_consumer.watch.report import Table
from storage_consumer.watch.wording import document
from tests.unit.watch.test_status import at, report, snapshot, status, table

SKIPPED = "skipped by root since 2026-01-31 10:00:00 UTC, until `storage-consumer table reload-done`"
PAUSED = "paused by root since 2026-01-31 10:00:00 UTC, until `storage-consumer table resume`"


@pytest.mark.parametrize(
    ("chosen", "state", "checkpoint"),
    [
        (table("a", checkpoint=at(500)), "running", at(3)),
        (table("a", checkpoint=at(500), follows=False), "running", at(500)),
        (table("waits", checkpoint=at(500)), "waiting", at(3)),
        (table("a", "halted", checkpoint=at(500), error="why"), "halted", at(500)),
        (table("a", "halted", checkpoint=at(500), error=PAUSED), "paused", at(500)),
        (table("a", "excluded", checkpoint=at(500), error=SKIPPED), "skipped", at(500)),
        (table("a", "lost", checkpoint=at(500), error="gone"), "lost", at(500)),
    ],
)
def test_one_table(chosen: Table, state: str, checkpoint: int) -> None:
    """A table that was chosen has the state that users see, and the checkpoint that it has reached, whatever its own row says."""
    found = status(snapshot(chosen, table("other"), report=report(waiting={"d.waits": "a lock"})))
    assert document(found, chosen=chosen)["table"] == {
        "name": str(chosen.name),
        "state": state,
        "checkpoint": checkpoint,
    }


def test_times() -> None:
    """Times are texts in UTC, wherever the document names one."""
    found = document(status(snapshot(table("a"))))
    assert found["time"] == "2026-09-21T14:13:20.000Z"
    assert cast("dict[str, Any]", found["checkpoint"])["time"] == "2026-09-21T14:13:17.000Z"
