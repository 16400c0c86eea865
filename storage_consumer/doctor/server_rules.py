"""What the settings of the target's server mean. Pure; `run` applies these at its start too, since two queries give all facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage_consumer.doctor.findings import Outcome, fail, ok, warn
from storage_consumer.downstream.server_look import Variables

_MIB = 1 << 20
_PACKET = 16 * _MIB
"""Bytes: a row of TiDB may have 6 MiB, and twice that as text of a statement."""
_WANTED_PACKET = 64 * _MIB
_OLDEST = {"mariadb": (10, 5), "mysql": (8, 0), "tidb": (6, 5)}
_TESTED = {"mariadb": "MariaDB 10.11 or 11.8", "mysql": "MySQL 9.7", "tidb": "TiDB 8"}
_ROW_FORMAT, _PAGE = "DYNAMIC", 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bad:
    """A setting that a session of ours wants to change, and may not."""

    value: str
    wanted: str
    """As SQL."""
    harm: str


_SESSION = {
    "sql_require_primary_key": _Bad(value="ON", wanted="OFF", harm="tables without a key are refused"),
    "sql_generate_invisible_primary_key": _Bad(value="ON", wanted="OFF", harm="tables without a key get a column of their own"),
    "binlog_format": _Bad(value="STATEMENT", wanted="'ROW'", harm="InnoDB refuses every write under READ COMMITTED"),
    "max_error_count": _Bad(value="0", wanted="64", harm="the texts of warnings, which errors quote, are thrown away"),
    "enforce_storage_engine": _Bad(value="MYISAM", wanted="NULL", harm="tables get no transactions"),
}  # fmt: skip


def version(facts: Variables) -> Outcome:
    """Judge the server's version."""
    text = facts.version
    # TiDB's own number stands behind that of the MySQL it speaks like.
    own = text.lower().partition("tidb-v")[2] if facts.server_type == "tidb" else text
    number = tuple(int(part) for part in own.replace("-", ".").split(".")[:2] if part.isdecimal())
    if number < _OLDEST[facts.server_type]:
        oldest = ".".join(map(str, _OLDEST[facts.server_type]))
        return warn(f"{facts.server_type} {text} is older than what this program is written for ({oldest})", f"Use {_TESTED[facts.server_type]}, on which it is tested, or try storage-consumer plan first.")  # fmt: skip
    return ok(f"{facts.server_type} {text}")


def packet(facts: Variables) -> Outcome:
    """Judge how large a statement, and so a row, may be."""
    size = facts.number("max_allowed_packet")
    if size < _PACKET:
        return warn(
            f"max_allowed_packet is {_mib(size)}: a larger row, as its text, halts its table; a row of TiDB may have 6 MiB",
            "Raise it, and in the server's configuration file as well.",
            f"SET GLOBAL max_allowed_packet = {_WANTED_PACKET}",
        )
    return ok(f"max_allowed_packet is {_mib(size)}")


def row_format(facts: Variables) -> Outcome:
    """Judge whether InnoDB takes keys as long as the source's."""
    if facts.server_type == "tidb":
        return ok("TiDB has its own storage")
    if (recovery := facts.number("innodb_force_recovery")) > 0:
        return fail(f"innodb_force_recovery is {recovery}: InnoDB takes no writes", "Repair the server, then start it without this setting.")  # fmt: skip
    if facts.is_on("innodb_force_primary_key"):
        return warn(
            "innodb_force_primary_key is ON: tables without a primary key are refused, and the source takes them",
            "Switch it off, unless all tables of the source have one.",
            "SET GLOBAL innodb_force_primary_key = OFF",
        )
    row = facts.every.get("innodb_default_row_format", _ROW_FORMAT)
    if row != _ROW_FORMAT:
        return warn(
            f"innodb_default_row_format is {row}: keys over 767 bytes are refused, and the source takes 3,072",
            "Let new tables have the format DYNAMIC.",
            "SET GLOBAL innodb_default_row_format = DYNAMIC",
        )
    page = facts.number("innodb_page_size")
    if page < _PAGE:
        return warn(f"innodb_page_size is {page}: keys and rows have less room than at the source", "It can be chosen only when a server is set up: use one with 16 KiB.")  # fmt: skip
    return ok(f"rows are {row.lower()}, pages have {page >> 10} KiB")


def binlog(facts: Variables) -> Outcome:
    """Judge whether the binary log takes what is written."""
    if facts.server_type == "tidb" or not facts.is_on("log_bin"):
        return ok("no binary log is written" if facts.server_type != "tidb" else "TiDB has no binary log of MySQL's")
    return ok(f"the binary log's format is {facts.every.get('binlog_format', '').lower()}")


def session(facts: Variables) -> Outcome:
    """Judge what sessions of ours inherit because they may not set it."""
    for name, bad in _SESSION.items():
        if facts.session.get(name) != bad.value or (name == "binlog_format" and not facts.is_on("log_bin")):
            continue
        return fail(
            f"{name} is {bad.value}, and our account may not set it: {bad.harm}",
            "Change it for new connections, or grant the account SESSION_VARIABLES_ADMIN (MariaDB: BINLOG ADMIN).",
            f"SET GLOBAL {name} = {bad.wanted}",
        )
    return ok("sql_mode, isolation, time zone and all else that statements rely on is set for each session")


def local_infile(facts: Variables, *, wanted: bool = True) -> Outcome:
    """Judge whether the fastest way to write rows is open; `wanted`: whether our settings allow it."""
    if facts.server_type == "mariadb":
        return ok("MariaDB gets its bulk statements")
    if not wanted:
        return ok("LOAD DATA LOCAL is switched off in the settings")
    if not facts.is_on("local_infile"):
        return warn(
            "local_infile is OFF: rows are written by statements, which is slower",
            "Switch it on; the program never sends a file, only rows from memory.",
            "SET GLOBAL local_infile = ON",
        )
    return ok("local_infile is ON")


def _mib(size: int) -> str:
    return f"{size / _MIB:g} MiB"


AT_START: Mapping[str, Callable[[Variables], Outcome]] = {
    "target-version": version,
    "target-packet": packet,
    "target-local-infile": local_infile,
    "target-innodb": row_format,
}
"""The rules for what two queries show."""
