"""Every comparison of a commit ts with a border, in one place: which ends belong to an interval is decided here.

* A checkpoint of ours is *inclusive*: every change with commit ts <= checkpoint is in the target.
* The storage checkpoint C of ``metadata`` promises that all rows with commit ts <= C and all DDL with version < C are stored.
  A DDL at exactly C may still be missing (classic TiCDC writes ``metadata`` first), so it waits until C has passed it, or has
  stood still for long enough to be called settled.
* Rows with commit ts <= V belong before the DDL with version V, rows with commit ts > V after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.model import DAY_MS, physical_ms


def is_applied(commit_ts: int, checkpoint: int) -> bool:
    """Whether a row with this commit ts is in the target already, so that seeing it again means a repeated delivery."""
    return commit_ts <= checkpoint


def is_stored(commit_ts: int, storage_checkpoint: int) -> bool:
    """Whether all rows with this commit ts are known to be stored."""
    return commit_ts <= storage_checkpoint


def ddl_is_stored(version: int, storage_checkpoint: int, *, settled: bool) -> bool:
    """Whether all DDL with this version are known to be stored; `settled`: the storage checkpoint has stood still."""
    return version < storage_checkpoint or (settled and version == storage_checkpoint)


def ddl_is_pending(version: int, checkpoint: int, *, journalled: bool) -> bool:
    """Whether a DDL of a table still has to run; `journalled`: the journal of the target says that it is done.

    A table's checkpoint reaches V with its last row before the DDL, so at exactly V only the journal knows.
    """
    return version > checkpoint or (version == checkpoint and not journalled)


def may_hold_rows(version: int, high: int, *, is_ddl: bool) -> bool:
    """Whether the directory of this version can hold rows of a window that ends at `high` (inclusive).

    Rows with commit ts <= V in the directory of a DDL are repeated deliveries. A directory that only records a structure
    has no such border; where rows do not say when they committed it is taken to have it too, since TiCDC opens such a directory
    for rows after V.
    """
    return version < high or not is_ddl


def row_floor(low: int, version: int, *, is_ddl: bool) -> int:
    """The commit ts at or below which a row of this directory is a repeated delivery, for a window from `low` (exclusive)."""
    return max(low, version) if is_ddl else low


def may_have_expired(checkpoint: int, storage_checkpoint: int, days: int) -> bool:
    """Whether TiCDC may have deleted files with rows beyond our `checkpoint`.

    It deletes what is dated more than `days` before the storage checkpoint; 0 says that it deletes nothing.
    """
    return bool(checkpoint and days) and physical_ms(storage_checkpoint) - physical_ms(checkpoint) > days * DAY_MS


def lowest(checkpoints: Iterable[int], storage_checkpoint: int) -> int:
    """The checkpoint of the whole: the smallest one, and never beyond the storage's, which a copied table can be."""
    return min([storage_checkpoint, *checkpoints])
