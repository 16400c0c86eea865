"""The first half where files are read in parts: the same changes, reports and errors as of whole files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage_consumer.config.settings import Protocol
from storage_consumer.job.reports import FileReport, by_path
from storage_consumer.job.spec import WHOLE, FileSplit, Mode
from tests.unit.halves import Files, row, table


def outcomes(files: Files) -> tuple[list[tuple[str, bool, bool]], list[FileReport]]:
    """The errors of all files or parts, each once, and the reports of those files that have none, parts together."""
    found = [report for report in files.apply() if isinstance(report, FileReport)]
    faults = {(report.error, report.torn, report.gone) for report in found if report.error}
    return sorted(faults), [report for _, report in sorted(by_path(found).items()) if not report.error]


@pytest.mark.parametrize("size", [1, 30, 70])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_file_in_parts(protocol: Protocol, mode: Mode, size: int) -> None:
    """However a file is cut, its changes count in their sequence, and its parts' reports are that of the file."""
    whole, parts = (Files(table(mode, low=4, high=50), protocol=protocol) for _ in range(2))
    for files in (whole, parts):
        files.add(row("I", 3, "z"), row("I", 5, "a", "1"), row("I", 5, "b"), row("I", 5, "b"), row("D", 5, "c"))
        files.add(row("I", 6, "a"), row("D", 7, "a"), row("I", 7, "a", "2"), row("I", 60, "y"), row("I", 55, "x"))
        files.add(row("I", 5, "b"), row("I", 5, "d"), row("U", 8, "d", "y", old=("d", "x")))
    if mode is Mode.KEYLESS and protocol == "csv":
        for files in (whole, parts):
            files.contents = {path: content.replace(b'"U"', b'"I"') for path, content in files.contents.items()}
    parts.cut(size)
    assert len(parts.files) > 3
    assert outcomes(parts) == outcomes(whole)
    assert parts.rows() == whole.rows()
    assert parts.writer.checkpoints == whole.writer.checkpoints


@pytest.mark.parametrize("size", [1, 30, 70, 200])
@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("tail", ['"I","orders","shop",7,"to', "garbage\r\n", '"I","orders","shop",7,"a"\r\n'])
def test_error_in_a_part(tail: str, newest: bool, size: int) -> None:  # noqa: FBT001 - as given
    """A row that cannot be read is told as if the file had not been cut, and its table stands still."""
    whole, parts = Files(table()), Files(table())
    for files in (whole, parts):
        files.add(row("I", 5, "a"), row("I", 5, "b"), row("I", 6, "c"), newest=newest, tail=tail)
        files.add(row("I", 6, "d"))
    parts.cut(size)
    (error,), _ = outcomes(parts)
    assert [error] == outcomes(whole)[0]
    assert "row 4 at byte" in error[0]
    assert error[1] == newest
    assert parts.rows() == {}


@pytest.mark.parametrize("size", [1, 30, 70, 200])
def test_key_of_a_part_that_is_none(size: int) -> None:
    """A change that cannot be applied is told by its row's number in the file as well."""
    whole, parts = Files(table()), Files(table())
    for files in (whole, parts):
        files.add(row("I", 5, "a"), row("I", 5, "b"), replace(row("I", 6, "c"), values=(None, "x")))
    parts.cut(size)
    assert outcomes(parts) == outcomes(whole)
    assert "row 3" in outcomes(parts)[0][0][0]


def test_header_that_nobody_told_of() -> None:
    """A file that begins with no row is to be read whole: its first line may say what the rows of all parts are."""
    files = Files(table())
    file = files.add(row("I", 5, "a"), row("I", 5, "b"))
    header = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,c1,c0\r\n"
    files.contents[file.stored.path] = header + files.contents[file.stored.path]
    files.cut(40)
    assert {report.gone for report in files.apply() if isinstance(report, FileReport) and report.error} == {True}
    assert files.rows() == {}


def test_file_that_lost_its_fault() -> None:
    """A part with an error that the whole file does not have was of another file: it is to be read whole."""
    files = Files(table())
    file = files.add(row("I", 5, "a"), row("I", 5, "b"), row("I", 5, "c"))
    sound = files.contents[file.stored.path]
    files.contents[file.stored.path] = sound.replace(b'"c"', b'"c')
    files.cut(60)
    opened = files.open

    def repaired(work: FileSplit) -> Iterator[bytes]:
        if work.span == WHOLE:
            files.contents[file.stored.path] = sound
        return opened(work)

    files.open = repaired  # type: ignore[method-assign] # a file that changes while it is read
    faults = [report for report in files.apply() if isinstance(report, FileReport) and report.error]
    assert faults
    assert all(report.gone and report.torn for report in faults)
    assert files.rows() == {}
