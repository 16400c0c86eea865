"""Setting a session: in one statement, once it is known which variables the server has and this user may set."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pymysql.err
from pymysql.connections import Connection

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.time_zone import session_zone
from storage_consumer.downstream.mysql_errors import number_of
from storage_consumer.downstream.query import text_of
from storage_consumer.downstream.session_settings import SETTINGS, Kind, Setting, assigned

ROW_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for rows: a value that does not fit is an error; zero and invalid dates are values that the source may hold."""
LOOSE_ROW_MODE = ROW_MODE.removeprefix("STRICT_ALL_TABLES,")
"""The same, but a value that does not fit is changed; only for rows that were seen to fit otherwise."""
DDL_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for DDL: not strict, since the source took the statement. TiCDC's own MySQL sink does the same."""
MARIADB_DDL_MODE = DDL_MODE + ",TIME_ROUND_FRACTIONAL"
"""The same for MariaDB, which otherwise truncates fractions of a second that the source rounds when a column gets fewer digits."""
_NOT_SETTABLE = frozenset((1193, 1227, 1228, 1229, 1231, 1232, 1235, 1238, 1621, 8047))
"""Errors for variables that this version lacks or sets in another way, values that it does not have, and a missing privilege."""

Query = Callable[[str], Any]
"""Runs a statement, and raises the driver's errors."""
_known: dict[tuple[object, ...], tuple[Setting, ...]] = {}
"""Server and user → what can be set there, found out by the first connection of this process."""


def kind_of(version: str) -> Kind:
    """Return the kind of server that reports this version."""
    # A MariaDB or a TiDB may begin with the version of a MySQL; the words behind it decide.
    text = version.lower()
    return "tidb" if "tidb" in text else "mariadb" if "mariadb" in text else "mysql"


def fetched(connection: Connection[Any], sql: str, arguments: Collection[Any] | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of a query; raise the driver's errors. A doubled ``%`` stands for one only with arguments."""
    with connection.cursor() as cursor:
        cursor.execute(sql, None if arguments is None else tuple(arguments))
        return list(cursor.fetchall())


def set_session(connection: Connection[Any], version: str, downstream: Downstream, *, ddl: bool) -> None:
    """Set everything that the meaning of our statements depends on. Raise the driver's errors."""
    kind, query = kind_of(version), connection.query
    key = (downstream.address, downstream.user, version, ddl)
    own = _own(kind, downstream, ddl=ddl)
    # A known server costs one statement; only the first connection of a process asks which variables there are.
    known = _known.get(key)
    if known is not None:
        try:
            query(assigned((*own, *known)))
        except pymysql.err.MySQLError as fault:
            # The server or its privileges have changed since they were found out: do that again below.
            if number_of(fault) not in _NOT_SETTABLE:
                raise
        else:
            return
    query(assigned(own))
    wanted = [each for each in SETTINGS if kind in each.servers and not (ddl and each.not_for_ddl)]
    # Without these the server may refuse even the query for its variables.
    _set(query, [setting for setting in wanted if setting.first])
    listed = ", ".join(f"'{setting.name}'" for setting in wanted)
    names = {
        text_of(name).lower()
        for name, *_ in fetched(connection, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})")
    }
    there = [setting for setting in wanted if setting.name in names]
    # Apart from those that need a right: one refusal has all of its statement set one by one.
    taken = _set(query, [setting for setting in there if not setting.needs_right])
    _known[key] = (*taken, *_set(query, [setting for setting in there if setting.needs_right]))


def _own(kind: Kind, downstream: Downstream, *, ddl: bool) -> tuple[Setting, ...]:
    """Return what every server knows and any user may set; no connection goes without."""
    mode = (MARIADB_DDL_MODE if kind == "mariadb" else DDL_MODE) if ddl else ROW_MODE
    # The wait for the lock on a table as a whole; connections without DDL get a day of it from `SETTINGS`.
    others = {"lock_wait_timeout": str(max(1, downstream.ddl_lock_wait))} if ddl else {}
    # An ALTER that copies a table would ask again whether its JSON is valid, which MariaDB denies of what is deeper than 31 levels.
    others |= {"check_constraint_checks": "0"} if ddl and kind == "mariadb" else {}
    values = {
        "sql_mode": f"'{mode}'",
        "time_zone": f"'{session_zone(downstream.time_zone)}'",
        "foreign_key_checks": "0",
        "sql_select_limit": "18446744073709551615",
        **others,
    }
    return tuple(Setting(name, value, "") for name, value in values.items())


def _set(query: Query, settings: list[Setting]) -> list[Setting]:
    """Set these in one statement, or one by one if the server refuses that; return those that were accepted."""
    if not settings:
        return []
    try:
        query(assigned(settings))
    except pymysql.err.MySQLError as fault:
        if number_of(fault) not in _NOT_SETTABLE:
            raise
        if len(settings) == 1:
            return []
        # One variable that cannot be set refuses the whole statement, so each gets a statement of its own.
        return [taken for setting in settings for taken in _set(query, [setting])]
    return settings
