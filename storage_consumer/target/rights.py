"""Privileges of an account, missing ones, and the GRANT for them; pure but for one query."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from storage_consumer.sql.tokens import names, quote, tokens
from storage_consumer.target.mysql_errors import described

_LINE = re.compile(r"(?P<verb>GRANT|REVOKE) (?P<rights>.+?) ON (?:TABLE )?(?P<place>\S.*?\.(?:\*|`(?:[^`]|``)*`|\S+)) (?:TO|FROM) ", re.DOTALL)  # fmt: skip
_ALL = frozenset(("ALL", "ALL PRIVILEGES"))


@dataclass(frozen=True, slots=True)
class _Grant:
    """One line: rights on a database, or on all of them."""

    rights: frozenset[str]
    schema: re.Pattern[str] | None
    """None for all databases."""
    is_revoked: bool


class Granted:
    """The privileges of an account on whole databases, without those on tables or columns."""

    def __init__(self, lines: Iterable[str], *, literal_names: bool = False) -> None:
        """Read the lines. `literal_names`: ``_`` and ``%`` are literal (partial_revokes)."""
        self._grants: list[_Grant] = []
        for found in filter(None, map(_LINE.match, lines)):
            place = found["place"].strip()
            if place.endswith(".*"):
                schema = place.removesuffix(".*").strip("`'\"").replace("``", "`")
                self._grants.append(
                    _Grant(
                        rights=frozenset(
                            part.strip().upper() for part in found["rights"].split(",")
                        ),
                        schema=None if place == "*.*" else _pattern(schema, literal=literal_names),
                        is_revoked=found["verb"] == "REVOKE",
                    )
                )

    def missing(self, rights: Collection[str], schema: str = "") -> tuple[str, ...]:
        """Return those of `rights` missing on a database, or on the server without one."""
        of_schema = [
            each
            for each in self._grants
            if each.schema is None or (schema and each.schema.fullmatch(schema))
        ]
        lacking = []
        for right in rights:
            there = [grant for grant in of_schema if grant.rights & {right, *_ALL}]
            if any(grant.is_revoked for grant in there):
                # A partial revoke takes back what is granted on all databases, and nothing else.
                there = [grant for grant in there if grant.schema and not grant.is_revoked]
            lacking += [] if there else [right]
        return tuple(lacking)


def _pattern(schema: str, *, literal: bool) -> re.Pattern[str]:
    """Return which database names a grant matches; a backslash escapes ``_`` and ``%``."""
    if literal:
        return re.compile(re.escape(schema), re.IGNORECASE)
    parts = re.findall(r"\\.|.", schema, re.DOTALL)
    wild = {"_": ".", "%": ".*"}
    text = "".join(
        wild.get(part) or re.escape(part[1:] if len(part) > 1 else part) for part in parts
    )
    return re.compile(text, re.IGNORECASE | re.DOTALL)


ROW_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW"
)
"""All that rows and statements of a replicated database need."""
_KNOWN = (
    *ROW_RIGHTS.split(", "),
    "TRIGGER",
    "EVENT",
    "EXECUTE",
    "ALTER ROUTINE",
    "CREATE ROUTINE",
    "LOCK TABLES",
)
_COMMAND = re.compile(r"([A-Za-z, ]+?) command denied")
_CHECK = re.compile(r"privilege check for '([^']+)' fail")
_SERVER = re.compile(r"you need \(at least one of\) the (.+?) privilege")
_DATABASE = re.compile(r"to database '(.+)'")
_TABLE = re.compile(r"for table `(.+?)`\.`")
_OF_A_DATABASE = re.compile(r"\s*(CREATE|DROP|ALTER)\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE)

Query = Callable[[str], Sequence[Sequence[Any]]]


def remedy(fault: BaseException, query: Query, schemas: Iterable[str], statement: str = "") -> str:
    """Return the GRANT for a privilege missing on `schemas`; `query` asks who we are."""
    text, user = described(fault), _account(query)
    server = _SERVER.search(text)
    if server:
        grants = [f"GRANT {server[1].split(',')[0].strip('( )')} ON *.* TO {user}"]
    else:
        named = _DATABASE.search(text) or _TABLE.search(text)
        where = (
            [named[1]]
            if named
            else sorted(
                {
                    schema
                    for schema in (*schemas, *(name for name, _, _ in names(tokens(statement))))
                    if schema
                }
            )
        )
        grants = [
            f"GRANT {_rights(text, statement)} ON {_database(query, schema)}.* TO {user}"
            for schema in where
        ]
    return (
        f"A right is missing: {'; '.join(grants)} (all that rows and statements need: {ROW_RIGHTS})"
    )


def state_remedy(fault: BaseException, query: Query, schema: str) -> str:
    """Return the GRANT for a privilege that is missing on the state's own schema."""
    return f"{described(fault)}. The state needs all rights on its schema: GRANT ALL ON {_database(query, schema)}.* TO {_account(query)}"


def all_rights(query: Query, schema: str) -> str:
    """Return the GRANT for all that rows and statements of a database need."""
    return f"A right is missing: {grant(query, ROW_RIGHTS, schema)}"


def grant(query: Query, rights: str, schema: str) -> str:
    """Return the GRANT of these rights on a database, or on all if `schema` is empty."""
    where = _database(query, schema) if schema else "*"
    return f"GRANT {rights} ON {where}.* TO {_account(query)}"


def _rights(text: str, statement: str) -> str:
    """Return the privileges that the server names, else the statement's, else all."""
    found = _COMMAND.search(text) or _CHECK.search(text) or _OF_A_DATABASE.match(statement)
    named = [part.strip().upper() for part in found[1].split(",")] if found else []
    # SHOW and ANY are words of messages, not privileges that can be granted.
    known = ["SELECT" if right in ("SHOW", "ANY") else right for right in named]
    # The text comes from the server and goes into a command that people paste: only known
    # privileges may be in it.
    return ", ".join(known) if known and all(right in _KNOWN for right in known) else ROW_RIGHTS


def _database(query: Query, schema: str) -> str:
    r"""Return the database as GRANT takes it.

    There ``_`` and ``%`` stand for any characters, except on a MySQL with partial_revokes.
    """
    literal = False
    with suppress(Exception):  # whatever comes of it, the right is what matters
        literal = [
            str(row[1]).upper() for row in query("SHOW VARIABLES LIKE 'partial_revokes'")
        ] == ["ON"]
    return quote(schema if literal else re.sub(r"([_%])", r"\\\1", schema))


def _account(query: Query) -> str:
    """Return our account as GRANT takes it; a message may name our own host instead."""
    with suppress(Exception):  # whatever comes of it, the right is what matters
        # From the right: a user's name may hold an @, a host's may not.
        user, _, host = str(query("SELECT CURRENT_USER()")[0][0]).rpartition("@")
        return "@".join("'" + part.replace("'", "''") + "'" for part in (user, host))
    return "the consumer's user"
