"""Files of two exports in one folder, told apart by the times at which they were written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from storage_consumer.bucket.export import Export, read_export
from storage_consumer.errors import ExportRefused, ExportUnfinished
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.test_export import TABLE, objects, rows, schema
from tests.unit.bucket.test_metadata import POS

BEGAN = (POS >> 18) / 1000
"""When the snapshot was taken."""
HOUR, DAY = 3600.0, 86400.0
OLD = "shop.orders.000000002.sql"


def at(modified: dict[str, float], *, every: float = BEGAN + 1, metadata: bytes | None = None) -> Export:
    """Return an export of which one more file is there, written as `modified` says, and all others at one time."""
    files = {**objects(), OLD: rows("orders", "(5,1)"), "metadata": metadata or head(0)}
    storage = MemoryStorage(files)
    storage.modified = dict.fromkeys(files, every) | {"metadata": max(every, BEGAN + 2)} | modified
    return read_export(storage)


def local(seconds: float, zone: float) -> str:
    """Return a time as Dumpling writes it on a host in a zone so many hours ahead of UTC."""
    return f"{datetime.fromtimestamp(seconds + zone * HOUR, UTC):%Y-%m-%d %H:%M:%S}"


def head(zone: float, *, pos: object = POS, seconds: float = 2, began: float = BEGAN) -> bytes:
    """Return `metadata` of a run from `began` on, so many seconds long."""
    return (
        f"Started dump at: {local(began, zone)}\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {pos}\n\tGTID:\n\n"
        f"Finished dump at: {local(began + seconds, zone)}\n"
    ).encode()


@pytest.mark.parametrize("zone", [-12, -3.5, 0, 5.75, 14])
@pytest.mark.parametrize("before", [70.0, HOUR, DAY, 400 * DAY])
def test_a_file_of_an_older_run(before: float, zone: float) -> None:
    """Where the files have the times of the run, one that is older than its beginning is of another run, whatever the host's zone."""
    with pytest.raises(
        ExportRefused, match=r"orders\.000000002\.sql was written at .* files of two exports lie in one folder"
    ):
        at({OLD: BEGAN - before}, metadata=head(zone))


@pytest.mark.parametrize("path", ["shop.gone-schema.sql", "shop.gone.000000000.sql", "shop-schema-create.sql"])
def test_a_table_that_was_dropped(path: str) -> None:
    """The files of a table that the newer run no longer found stay as well."""
    files = {
        **objects(),
        "shop.gone-schema.sql": schema(TABLE.format("gone")),
        "shop.gone.000000000.sql": rows("gone", "(1,1)"),
    }
    storage = MemoryStorage({**files, "metadata": head(0)})
    storage.modified = dict.fromkeys([*files, "metadata"], BEGAN + 2) | {path: BEGAN - DAY}
    with pytest.raises(ExportRefused, match=f"{path} was written at"):
        read_export(storage)


@pytest.mark.parametrize("pos", [POS, "", "2026-11-22 20:40:44"])
@pytest.mark.parametrize("zone", [-12, 0, 8, 14])
def test_an_older_file_among_copies(zone: float, pos: object) -> None:
    """What is older than the beginning in any zone proves an older run, whenever all the others were copied, and without a snapshot too."""
    with pytest.raises(ExportRefused, match="two exports"):
        at({OLD: BEGAN - 2 * DAY}, every=BEGAN + 30 * DAY, metadata=head(zone, pos=pos))


@pytest.mark.parametrize("path", [OLD, "shop.orders-schema.sql"])
def test_a_newer_run_that_has_not_finished(path: str) -> None:
    """While a newer run writes, and after it failed, the older `metadata` is still there: it is waited for."""
    with pytest.raises(ExportUnfinished, match="another export into the same folder has begun since"):
        at({path: BEGAN + HOUR}, metadata=head(8))


@pytest.mark.parametrize("spread", [0.0, 2 * HOUR, 5 * DAY])
@pytest.mark.parametrize("later", [300.0, HOUR + 111, 9 * HOUR + 400, 40 * DAY + 77])
def test_copies_are_taken(later: float, spread: float) -> None:
    """The files of a copy have any times after the export, in any order, `metadata` among them."""
    for metadata in (BEGAN + later, BEGAN + later + spread):
        assert at({OLD: BEGAN + later + spread, "metadata": metadata}, every=BEGAN + later, metadata=head(8)).tables


@pytest.mark.parametrize("seconds", [0.0, 2.0, 3 * HOUR])
def test_one_run_is_taken(seconds: float) -> None:
    """All times of a run lie between its beginning and `metadata`."""
    times = {OLD: BEGAN + seconds, "metadata": BEGAN + seconds}
    assert at(times, every=BEGAN, metadata=head(-5, seconds=seconds)).tables


def test_a_snapshot_of_the_past() -> None:
    """With a snapshot from before the run the zone is not known, so times before the run are no proof, but those before the snapshot are."""
    run = BEGAN + 2 * HOUR
    metadata = head(8, began=run)
    assert at({OLD: run - HOUR, "metadata": run + 2}, every=run, metadata=metadata).tables
    with pytest.raises(ExportRefused, match="two exports"):
        at({OLD: BEGAN - HOUR, "metadata": run + 2}, every=run, metadata=metadata)


def test_a_clock_that_goes_back_meanwhile() -> None:
    """A run over the end of summer time seems an hour shorter than it was: the files of its first hour are its own."""
    metadata = head(2, seconds=4 * HOUR - HOUR)
    assert at({OLD: BEGAN + 60, "metadata": BEGAN + 4 * HOUR}, every=BEGAN + 10, metadata=metadata).tables


@pytest.mark.parametrize("every", [0.0, 1.0, 315532800.0])
def test_times_that_mean_nothing(every: float) -> None:
    """An archive without times gives all files one from long ago, or none."""
    assert at({"metadata": every}, every=every, metadata=head(0)).tables


def test_the_time_that_it_compares_with() -> None:
    """The error names the time before which no file of this export can be, what that follows from, and what helps where times were lost."""
    run = BEGAN + 40 * DAY
    with pytest.raises(ExportRefused) as fault:
        at({"metadata": run + 900}, every=BEGAN + DAY, metadata=head(0, began=run))
    said = str(fault.value)
    assert f"before {local(run, -14)} UTC, which is the earliest time" in said
    assert f"Started dump at {local(run, 0)}" in said
    assert "give all of them one time (`touch`, or in an object store a copy onto itself)" in said


def test_all_files_with_one_time() -> None:
    """Where an archive gave all files one time, `metadata` too, that says nothing: whatever `metadata` says."""
    run = BEGAN + 40 * DAY
    for every in (BEGAN - DAY, BEGAN + DAY, run + DAY):
        assert at({"metadata": every}, every=every, metadata=head(0, began=run)).tables


def test_metadata_without_dates() -> None:
    """What is no date is no proof."""
    assert at({OLD: BEGAN - DAY}, metadata=b"Started dump at: x\nPos: 1\nFinished dump at: y\n").tables
