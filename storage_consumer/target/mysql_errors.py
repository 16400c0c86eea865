"""From MySQL error numbers to our errors: try again, stop the table, or "that was done already"."""

from __future__ import annotations

import re

import pymysql.err

from storage_consumer.errors import (
    ConfigError,
    RowRefused,
    StateGone,
    StorageConsumerError,
    TargetUnavailable,
)

DRIVER_FAULTS = (pymysql.err.MySQLError, OSError, EOFError)
"""What the driver raises for whatever goes wrong with a statement or its connection."""
CONFLICTS = frozenset(
    (1020, 1205, 1213, 3101, 8002, 8005, 8022, 8027, 8028, 8141, 9004, 9005, 9006, 9007)
)
"""Lock wait timeout, deadlock, write conflict, schema change, TiDB's equivalents: retry."""
LOCK_WAIT_TIMEOUT = 1205
FEW_TRIES = {LOCK_WAIT_TIMEOUT: 3, 8141: 3}
"""Most tries after these: a lock wait is long, and TiDB's failed assertion mostly remains."""
_CONNECTION = frozenset(
    (
        # Of servers: too many connections or users, not ready, shutting down, network faults,
        # killed, out of time. 0 is PyMySQL's for a connection that is closed.
        *(0, 1040, 1047, 1053, 1129, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1927, 1969),
        # Of clients; of MySQL, ending an idle connection; of TiDB without PD or TiKV.
        *(2002, 2003, 2006, 2013, 2014, 2055, 4031, 9001, 9002, 9003),
    )
)
_READ_ONLY = frozenset((1792, 1836))
_OF_AN_OPTION = 1290
"""Names the server's option that forbids the statement, as ``--read-only`` does."""
_FULL = frozenset((1021, 1114, 3675, 3, 28))
_MAYBE_FULL = frozenset((1005, 1026, 1030))
"""Errors with the operating system's error number: a table or file could not be written."""
_NO_SPACE = re.compile(r"\b(?:errno|errcode|error):? 28\b", re.IGNORECASE)
_LOGIN = frozenset((1045, 1130, 1698, 1820, 1862, 3118, 4151))
"""Refused; also for the host, by a plug-in, for a changed or expired password, a locked account."""
DENIED = frozenset((1044, 1142, 1143, 1227, 1370, 8121))
"""Missing privilege: on a database, table, column, server, routine; and TiDB's own number."""

_ASSERTION = 8141
_UNKNOWN, _LOCK_LOST = 1105, "pessimistic lock not found"
"""TiDB's number for what has none; its text for a lock lost to another, or to an own failure."""
_MARIADB_CHECK = 4025

_NOT_THERE = frozenset((1049, 1146))
"""A database, a table."""
ALREADY_DONE = frozenset(
    (1007, 1008, 1050, 1051, 1054, 1060, 1061, 1068, 1091, 1176, 1507, 1517, 1831, 4092)
)
"""Answers to a statement that runs again after it took effect.

TiCDC's MySQL sink ignores the same numbers, except MariaDB's own one for a view that does not
exist.
"""


_MEANING = {
    8025: " (raise txn-entry-size-limit in TiDB's configuration, or with TiDB 7.6 and later tidb_txn_entry_size_limit, and TiKV's "
    "raft-entry-max-size with it)"
}
"""What a server's text does not say."""
_DUPLICATE = frozenset((1022, 1062, 1586))
_OF_CONTENT = frozenset(
    (
        # Out of range, too long, not a value of the type, of the character set, or of an ENUM; NULL
        # where there may be none.
        *(1048, 1263, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1416, 1690),
        # JSON: not valid, or in another character set.
        *(3140, 3144, 4036, 4038),
        # A foreign key or a CHECK does not hold; no partition takes the row; the row is larger than
        # the server allows.
        *(1216, 1452, 3819, _MARIADB_CHECK, 1526, 1748, 1118, 8025),
    )
)
"""Answers about a row's content; not 1364, a column for which no row has a value."""


_OF_FOREIGN_KEYS = frozenset(
    (
        # It can't be made so; a row, a partition, an index or a column needs it, or is needed in
        # it; the table that it refers to does not fit. The last two: an index's name is taken,
        # perhaps by a key's own index; a table is missing, perhaps one that is referred to.
        *(
            1215,
            1217,
            1451,
            1506,
            1553,
            1701,
            1740,
            1822,
            1826,
            1828,
            1829,
            1830,
            1832,
            1833,
            1834,
            1905,
        ),
        *(3104, 3730, 3733, 3734, 3780, 6125, 1061, 1146),
    )
)
_FOREIGN_KEY = re.compile(r"foreign key|errno: 150", re.IGNORECASE)
"""What errors say that have other reasons as well, such as 1005, 1025 and 1846."""


def is_of_foreign_key(fault: BaseException) -> bool:
    """Return whether a statement may have been refused for a foreign key that the target has."""
    return number_of(fault) in _OF_FOREIGN_KEYS or _FOREIGN_KEY.search(described(fault)) is not None


def content_error(fault: BaseException) -> int:
    """Return the error's number if the server refused a row for what it holds, else 0."""
    number = number_of(fault)
    return number if isinstance(fault, pymysql.err.MySQLError) and number in _OF_CONTENT else 0


def is_check(fault: BaseException) -> bool:
    """Return whether a CHECK of a MariaDB table, as on each JSON column, does not hold."""
    return number_of(fault) == _MARIADB_CHECK


def is_duplicate(fault: BaseException) -> bool:
    """Return whether a row shares a unique key with another one."""
    return isinstance(fault, pymysql.err.MySQLError) and number_of(fault) in _DUPLICATE


def number_of(fault: BaseException) -> int:
    """Return the server's or driver's error number, or 0 if it has none."""
    arguments = fault.args
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0


def is_conflict(fault: BaseException) -> bool:
    """Return whether the transaction lost against another one and may run again."""
    if not isinstance(fault, pymysql.err.MySQLError):
        return False
    return number_of(fault) in CONFLICTS or (
        number_of(fault) == _UNKNOWN and _LOCK_LOST in described(fault)
    )


def is_connection_loss(fault: BaseException) -> bool:
    """Return whether the connection failed or broke, leaving it unknown if a commit took effect."""
    if isinstance(fault, OSError | EOFError):
        return True
    # PyMySQL raises an InterfaceError over a connection that is closed already.
    return isinstance(fault, pymysql.err.InterfaceError) or (
        isinstance(fault, pymysql.err.MySQLError) and number_of(fault) in _CONNECTION
    )


def is_refusal(fault: BaseException) -> bool:
    """Return whether the fault lies in the rows, that is, fits no other of our errors."""
    # Not the server's: our checks of values and statement size raise before anything is sent.
    if isinstance(fault, ValueError):
        return True
    return not (is_conflict(fault) or is_denied(fault)) and isinstance(
        translated(fault, ""), RowRefused
    )


def is_denied(fault: BaseException) -> bool:
    """Return whether a privilege is missing."""
    return isinstance(fault, pymysql.err.MySQLError) and number_of(fault) in DENIED


def translated(fault: BaseException, doing: str) -> StorageConsumerError:
    """Return our error for the driver's; `doing` says what was tried, without any secret."""
    number, said = number_of(fault), described(fault)
    text = f"{doing}: {said}"
    # Before the conflicts, of which it is one: what is left of it after a few tries is a damaged
    # row, which no wait repairs.
    if number == _ASSERTION:
        return RowRefused(
            f"{text} (TiDB finds that a row and its index disagree: see ADMIN CHECK TABLE, repair the table, "
            "start again)"
        )
    # Neither says anything about the rows or the statement, so the same call may succeed later.
    if is_connection_loss(fault) or is_conflict(fault):
        return TargetUnavailable(text)
    if number in _READ_ONLY or (number == _OF_AN_OPTION and "read-only" in said.replace("_", "-")):
        return TargetUnavailable(
            f"{text} (the target is read-only: make it writable or point at its primary)"
        )
    if number in _FULL or (number in _MAYBE_FULL and _NO_SPACE.search(said) is not None):
        return TargetUnavailable(f"{text} (the target's disk or table space is full)")
    if number in _LOGIN:
        return ConfigError(f"{text} (check user, password and host of the downstream URI)")
    # What is left is about what was sent: a row, or a statement.
    return RowRefused(text)


def gone(fault: BaseException, doing: str, schema: str) -> StateGone | None:
    """Return the error for a state schema or state table that is gone; None for other faults."""
    if not isinstance(fault, pymysql.err.MySQLError) or number_of(fault) not in _NOT_THERE:
        return None
    return StateGone(
        f"{doing}: the state schema {schema} was dropped while this program ran ({described(fault)}). What was "
        "applied is no longer known: restore the schema from a backup, or, for a target that already has its rows, "
        "start again with a new one and run `storage-consumer table reload-done --at TSO` for each table, with the "
        "checkpoint of the last round_finished (tables without a key must be reloaded)"
    )


def described(fault: BaseException) -> str:
    """Return the server's number and text in one line."""
    if isinstance(fault, pymysql.err.MySQLError) and len(fault.args) > 1:
        return f"error {fault.args[0]}: {fault.args[1]}{_MEANING.get(number_of(fault), '')}"
    return str(fault) if isinstance(fault, ValueError) else f"{type(fault).__name__}: {fault}"
