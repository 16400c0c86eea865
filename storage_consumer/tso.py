"""Every comparison of a commit-ts with a border: which ends belong to an interval.

* A checkpoint of ours is *inclusive*: every change with commit-ts <= checkpoint is in the target.
* The storage checkpoint C of ``metadata`` promises that all rows with commit-ts <= C and all DDL
  with version < C are stored. A DDL at exactly C may still be missing, since classic TiCDC writes
  ``metadata`` first. It waits until C has passed it, or has not moved for long enough to be called
  stable.
* Rows with commit-ts <= V belong before the DDL with version V, rows with commit-ts > V after it.

Also instants as people type them, a TSO or a time with its zone: one parser for all commands and
options.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import SupportsIndex

from storage_consumer.model import DAY_MS, TSO_PHYSICAL_SHIFT, physical_ms


def is_applied(commit_ts: int, checkpoint: int) -> bool:
    """Return whether the target has a row of this commit-ts: seen again, it is a repeat."""
    return commit_ts <= checkpoint


def is_settled(noted: int, checkpoint: int) -> bool:
    """Return whether a table has no row beyond its checkpoint.

    `noted`: the commit-ts up to which windows may have written its rows.
    """
    return noted <= checkpoint


def is_stored(commit_ts: int, storage_checkpoint: int) -> bool:
    """Return whether all rows with this commit-ts are known to be stored."""
    return commit_ts <= storage_checkpoint


def ddl_is_stored(version: int, storage_checkpoint: int, *, is_stable: bool) -> bool:
    """Return whether all DDL of this version are stored; `is_stable`: the checkpoint is.

    That is the storage checkpoint.
    """
    return version < storage_checkpoint or (is_stable and version == storage_checkpoint)


def ddl_is_pending(version: int, checkpoint: int, *, journalled: bool) -> bool:
    """Return whether a table's DDL must still run; `journalled`: the journal says it is done.

    A table's checkpoint reaches V with its last row before the DDL, so at exactly V only the
    journal knows.
    """
    return version > checkpoint or (version == checkpoint and not journalled)


def may_hold_rows(version: int, high: int, *, is_ddl: bool) -> bool:
    """Return whether this version can hold rows of a commit range up to `high` (inclusive).

    Rows with commit-ts <= V in the directory of a DDL are repeated deliveries. A directory that
    only records a structure has no such border. If rows carry no commit-ts, it is taken to have the
    border too, since TiCDC opens such a directory for rows after V.
    """
    return version < high or not is_ddl


def row_floor(low: int, version: int, *, is_ddl: bool) -> int:
    """Return the commit-ts up to which rows of a directory are repeats, given `low`.

    `low` (exclusive) starts the commit range; the result is inclusive.
    """
    # A statement's directory repeats rows at or below its version, from an older one.
    return max(low, version) if is_ddl else low


def begins_in_time(start_ts: int, copied: int) -> bool:
    """Return whether a changefeed has all changes after a copy of all up to `copied`.

    It writes what commits after `start_ts`, so the two may be equal.
    """
    return start_ts <= copied


def may_have_expired(checkpoint: int, storage_checkpoint: int, days: int) -> bool:
    """Return whether TiCDC may have deleted files with rows after our `checkpoint`.

    TiCDC deletes files dated more than `days` before the storage checkpoint; 0 means that it
    deletes none.
    """
    # Without a checkpoint nothing was read yet, so nothing was lost to this program.
    return (
        bool(checkpoint and days)
        and physical_ms(storage_checkpoint) - physical_ms(checkpoint) > days * DAY_MS
    )


def lowest(checkpoints: Iterable[int], storage_checkpoint: int) -> int:
    """Return the overall checkpoint: the smallest, at most the storage's, unlike copies'."""
    return min([storage_checkpoint, *checkpoints])


Instant = SupportsIndex | str | datetime
"""A TSO, a time of RFC 3339 with its zone or a TSO in digits, or a time that knows its zone."""
_LONGEST = 20
"""Digits of the largest 64-bit number."""
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)
_SECONDS = 10**9
"""Numbers below are taken as they are; times of Unix begin here, in 2001."""
_FIRST = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""The TSO of 2015, before which there was no TiDB."""
_UNIX_NANOSECONDS = range(1_420_070_400 * 10**9, 4_102_444_800 * 10**9)
"""Times of Unix from 2015 to 2100 in nanoseconds; as TSOs they would be from after 2140."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def tso_of_instant(instant: Instant, *, is_end: bool = False) -> int:
    """Return the TSO of an instant; see `parse_instant`. Raises ValueError."""
    if isinstance(instant, str):
        return parse_instant(instant, is_end=is_end)
    if not isinstance(instant, datetime):
        # A TSO of any type of whole numbers, such as NumPy's.
        try:
            tso = -1 if isinstance(instant, bool) else operator.index(instant)
        except TypeError:
            tso = -1
        if not 0 <= tso < 1 << 64:
            raise ValueError(f"a TSO or a time is expected, not {instant!r:.80}")
        return _of_tidb(tso)
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone, so it may mean several instants")
    return _tso(instant - _EPOCH, str(instant), is_end=is_end)


def _of_tidb(tso: int) -> int:
    if _SECONDS <= tso < _FIRST or tso in _UNIX_NANOSECONDS:
        would_be = "before 2015" if tso < _FIRST else "after 2140"
        raise ValueError(
            f"{tso} is no TSO of a TiDB: it would be from {would_be}. Give a time of Unix as one with its zone, such as "
            "2026-11-23T10:00:00Z"
        )
    return tso


def parse_instant(given: str, *, is_end: bool = False) -> int:
    """Return the TSO in digits, or of an RFC 3339 time, such as ``2026-11-23T10:00:00Z``.

    A time is cut to milliseconds, and means the first TSO of its millisecond, as in TiDB's
    ``AS OF TIMESTAMP``. `is_end`: it is the inclusive end of a window, and means the last one,
    since times of changes are shown cut to milliseconds too. Raises ValueError, which says what is
    expected.
    """
    text = given.strip()
    if text.isascii() and text.isdecimal():
        if len(text) > _LONGEST or int(text) >= 1 << 64:
            raise ValueError(f"a TSO of 64 bits is expected, not {text[: _LONGEST + 1]}")
        return _of_tidb(int(text))
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(
            f"a TSO or a time with its zone, such as 2026-11-23T10:00:00Z or 2026-11-23T18:00:00+08:00, is expected, not {given!r:.80}"
        )
    date, clock, fraction, zone = found.groups()
    if zone is None:
        raise ValueError(
            f"{given!r} has no time zone, so it may mean several instants: write {date}T{clock}Z for UTC, or {date}T{clock}+08:00"
        )
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone.upper().replace('Z', '+00:00')}")
        since = moment - _EPOCH + int(f"{fraction or '':0<3}"[:3]) * _MILLISECOND
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{given!r} is no time: {error}") from None
    return _tso(since, repr(given), is_end=is_end)


def _tso(since: timedelta, shown: str, *, is_end: bool) -> int:
    """Return the first or the last TSO of the millisecond at a distance from 1970."""
    if since < timedelta():
        raise ValueError(f"{shown} is before 1970, and a TSO counts from there")
    milliseconds = since // _MILLISECOND
    return (
        (milliseconds + 1 << TSO_PHYSICAL_SHIFT) - 1
        if is_end
        else milliseconds << TSO_PHYSICAL_SHIFT
    )
