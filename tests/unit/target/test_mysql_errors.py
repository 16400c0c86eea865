"""What a server's error number means: play it again, wait, or stop the table."""

from __future__ import annotations

import pymysql.err
import pytest

from storage_consumer.errors import ConfigError, RowRefused, StorageConsumerError, TargetUnavailable
from storage_consumer.target.mysql_errors import described, is_conflict, is_connection_loss, is_refusal, translated


@pytest.mark.parametrize("number", [1020, 1205, 1213, 3101, 8002, 8005, 8022, 8027, 8028, 9004, 9005, 9006, 9007])
def test_conflicts(number: int) -> None:
    """Deadlocks, lock waits, and TiDB's write conflicts and schema changes are no fault of a row: they pass."""
    fault = pymysql.err.OperationalError(number, "text")
    assert is_conflict(fault)
    assert not is_refusal(fault)
    assert isinstance(translated(fault, "writing"), TargetUnavailable)


def test_inconsistent_table() -> None:
    """TiDB's failed assertion is tried again, since it may pass; where it stays it stops its table and says what to do."""
    fault = pymysql.err.OperationalError(8141, "assertion failed")
    assert is_conflict(fault)
    assert not is_refusal(fault)
    assert isinstance(translated(fault, "writing"), RowRefused)
    assert "ADMIN CHECK TABLE" in str(translated(fault, "writing"))


@pytest.mark.parametrize(
    "fault",
    [pymysql.err.OperationalError(2013, "lost"), pymysql.err.InterfaceError(0, ""), OSError("reset"), EOFError()],
)
def test_losses(fault: Exception) -> None:
    """After a loss nobody knows what became of a commit."""
    assert is_connection_loss(fault)
    assert not is_conflict(fault)
    assert isinstance(translated(fault, "writing"), TargetUnavailable)


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (1836, TargetUnavailable, "read-only"),
        (1114, TargetUnavailable, "full"),
        (3, TargetUnavailable, "full"),
        (3675, TargetUnavailable, "full"),
        (1045, ConfigError, "password"),
        (1406, RowRefused, "error 1406: text"),
        (8025, RowRefused, "error 8025: text"),
    ],
)
def test_other_numbers(number: int, kind: type[StorageConsumerError], hint: str) -> None:
    """A server that cannot write, a login that is wrong, and a value that does not fit (or a row too large for TiDB) differ."""
    error = translated(pymysql.err.OperationalError(number, "text"), "writing s.t")
    assert type(error) is kind
    assert str(error).startswith("writing s.t: ")
    assert hint in str(error)


@pytest.mark.parametrize(
    ("option", "waits"), [("--read-only", True), ("--super-read-only", True), ("--secure-file-priv", False)]
)
def test_option_of_the_server(option: str, *, waits: bool) -> None:
    """Of the options by which a server refuses statements only that of being read-only is waited for."""
    text = f"The server is running with the {option} option so it cannot execute this statement"
    error = translated(pymysql.err.OperationalError(1290, text), "writing")
    assert isinstance(error, TargetUnavailable) is waits


@pytest.mark.parametrize(
    ("number", "text", "full"),
    [
        (1005, 'Can\'t create table `d`.`t` (errno: 28 "No space left on device")', True),
        (1026, "Error writing file 'x' (errno: 28 - No space left on device)", True),
        (1030, "Got error 28 from storage engine", True),
        (1030, "Got error 128 'Out of memory in engine' from storage engine", False),
        (1005, 'Can\'t create table `d`.`t` (errno: 150 "Foreign key constraint is incorrectly formed")', False),
    ],
)
def test_full_disk_behind_another_number(number: int, text: str, *, full: bool) -> None:
    """A full disk stands in the text of some errors that mean other things as well; it is waited for, they are not."""
    fault = pymysql.err.OperationalError(number, text)
    assert is_refusal(fault) is not full
    assert isinstance(translated(fault, "writing"), TargetUnavailable) is full


def test_what_is_said() -> None:
    """A server's number and text are kept; other faults say their class."""
    assert described(pymysql.err.DataError(1406, "Data too long")) == "error 1406: Data too long"
    assert described(OSError("reset")) == "OSError: reset"
    assert described(ValueError("NULL in the key")) == "NULL in the key"
