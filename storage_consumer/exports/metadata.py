"""The file ``metadata`` of an export: Dumpling's, and mydumper's up to 0.10, which it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage_consumer.errors import ExportRefused
from storage_consumer.model import MAX_TSO, tso_of

_STARTED = re.compile(r"Started dump at: *(.*)")
_FINISHED = re.compile(r"Finished dump at: *(.*)")
_FIELD = re.compile(r"\s+(Log|Pos|GTID): *(.*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_FIRST_TSO = tso_of(1_420_070_400)
"""2015-01-01, before the first TiDB: no position in a file of MySQL's is as large."""
_GIVE = "give the copy's instant as a TSO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What an export says of itself."""

    started_at: str
    """Local time of the machine that wrote it, without a zone."""
    finished_at: str
    """Likewise."""
    snapshot: int
    """TSO of the snapshot; 0 if `metadata` tells none."""
    snapshot_hint: str = ""
    """Why there is no snapshot, and what to give; empty if there is one."""


def read_metadata(content: bytes, where: str) -> Metadata:
    """Return what ``metadata`` says; `where`: its path, for messages. Raise `ExportRefused` if it is none of a finished export."""
    text = content.decode("utf-8", "replace")
    if re.search(r"^\[", text, re.MULTILINE) or text.startswith("# Started dump at"):
        raise ExportRefused(
            f"{where} is written as mydumper writes it from 0.11 on, which this program does not read: export with "
            "Dumpling, or with mydumper 0.10"
        )
    started, finished = _STARTED.search(text), _FINISHED.search(text)
    if not started:
        raise ExportRefused(
            f"{where} is not what Dumpling or mydumper writes there (it lacks 'Started dump at'): give the folder that "
            "the export was written to"
        )
    if not finished:
        raise ExportRefused(
            f"{where} lacks 'Finished dump at': the export is still running, or it failed; wait for it, or export again "
            "into an empty folder"
        )
    snapshot, hint = _snapshot(text, where)
    return Metadata(
        started_at=started[1].strip(), finished_at=finished[1].strip(), snapshot=snapshot, snapshot_hint=hint
    )


def _snapshot(text: str, where: str) -> tuple[int, str]:
    """Return the TSO of the snapshot, or 0 and why there is none."""
    # What a source replicates from is none of its own positions.
    own = text.split("SHOW SLAVE STATUS:", maxsplit=1)[0]
    fields = [(match[1], match[2].strip()) for match in _FIELD.finditer(own)]
    positions = {value for name, value in fields if name == "Pos"}
    logs = {value for name, value in fields if name == "Log"}
    if len(positions) > 1:
        return 0, (
            f"{where} has several positions ({', '.join(sorted(positions))}): the export was made without a snapshot; "
            "export again with --consistency snapshot"
        )
    position = "".join(positions)
    if not position:
        return 0, f"{where} has no Pos: {_GIVE}, if the export was made at one"
    if _DATE.fullmatch(position):
        return 0, (
            f"Pos in {where} is the date {position}, in a time zone that the export does not name: {_GIVE}, its "
            "milliseconds since 1970 UTC shifted left by 18 bits"
        )
    if position.isdecimal() and position.isascii() and _FIRST_TSO <= int(position) <= MAX_TSO:
        return int(position), ""
    log = "".join(logs)
    return 0, (
        f"Pos in {where} is {position[:40]} of {log[:80] or 'no log'}, which is no TSO: the export was not made from TiDB; "
        f"{_GIVE} if it belongs to one"
    )
