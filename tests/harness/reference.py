"""The structure that a workload leaves behind where it is executed directly: on an empty server, with the source's defaults.

This is what a target has to look like: the same kind of server, set manually as the recording's source was set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql.err

from storage_consumer.sql.tokens import Token, tokens
from tests.harness.servers import DatabaseServer, quoted
from tests.harness.structures import Structure, structure_of

_MODE = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
"""TiDB's sql_mode, without NO_AUTO_CREATE_USER, which newer servers no longer know."""
_EVERYWHERE = (
    f"SET SESSION sql_mode = '{_MODE}'",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET SESSION collation_server = utf8mb4_bin",
    "SET SESSION time_zone = '+00:00'",
)
_OTHERS = (*_EVERYWHERE, "SET SESSION explicit_defaults_for_timestamp = ON")
DEFAULTS = {"tidb": _EVERYWHERE, "mysql": _OTHERS, "mariadb": _OTHERS}
"""Kind of server → what gives a session the source's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """What an operator of such a server would type instead of the source's words."""

    name: str
    kinds: frozenset[str]
    pattern: str
    instead: str
    reason: str


_MARIADB, _OTHER = frozenset({"mariadb"}), frozenset({"mariadb", "mysql"})
BY_HAND = (
    ByHand(
        name="clustered",
        kinds=_OTHER,
        pattern=r"(?i) (?:non)?clustered\b",
        instead="",
        reason="how TiDB keeps a primary key; others know no word for it",
    ),
    ByHand(
        name="collation of a charset",
        kinds=_OTHER,
        pattern=r"(?i)\b(character set )(ascii|latin1|utf8mb4)\b(?! collate)",
        instead=r"\1\2 collate \2_bin",
        reason="the collation that a charset means at the source; these servers can't be told it as a default",
    ),
    ByHand(
        name="names by case",
        kinds=_OTHER,
        pattern="camelcase.inbetween to camelcase.mixedTABLE",
        instead="CamelCase.InBetween to CamelCase.mixedTABLE",
        reason="names that differ in case only are one name at the source, and several on servers for Linux",
    ),
    ByHand(
        name="names by case",
        kinds=_OTHER,
        pattern="table CamelCase.MixedTable change",
        instead="table CamelCase.mixedTABLE change",
        reason="likewise",
    ),
    ByHand(
        name="invisible index",
        kinds=_MARIADB,
        pattern=r"(?i)\binvisible\b",
        instead="ignored",
        reason="MariaDB's word for it",
    ),
    ByHand(
        name="generated NOT NULL",
        kinds=_MARIADB,
        pattern=r"(?i)\b(virtual|stored) not null\b",
        instead=r"\1",
        reason="MariaDB takes no NOT NULL on a generated column",
    ),
    ByHand(
        name="generated primary key",
        kinds=_MARIADB,
        pattern=r"(?i)\b(\w+)( \w+ as \([^()]*\) stored) primary key\b",
        instead=r"\1\2, unique key primary_key (\1)",
        reason="MariaDB takes no primary key over a generated column",
    ),
    ByHand(
        name="expression index",
        kinds=_MARIADB,
        pattern=r"(?i), (?:unique )?key \w+ \(\((?:[^()]|\([^()]*\))*\)[^()]*\)",
        instead="",
        reason="MariaDB knows no indexes over expressions",
    ),
    ByHand(
        name="check constraint",
        kinds=_OTHER,
        pattern=r"(?i)^alter table \w+ add constraint \w+ check \(.*\)$",
        instead="",
        reason="TiDB does not enforce a CHECK unless it is told to, so rows may not pass it",
    ),
    ByHand(
        name="cached table",
        kinds=_OTHER,
        pattern=r"(?i)^alter table \w+ (?:no)?cache$",
        instead="",
        reason="how TiDB keeps a table; others know no word for it",
    ),
    ByHand(
        name="far name",
        kinds=_OTHER,
        pattern="(?i)^create table `?[^` ]*[\U00010000-\U0010ffff].*",
        instead="",
        reason="no name there has a character beyond U+FFFF: MariaDB refuses it, MySQL turns it into a question mark",
    ),
    ByHand(
        name="sequence",
        kinds=frozenset({"mysql"}),
        pattern=r"(?i)^create sequence .*",
        instead="",
        reason="MySQL has no sequences; they are not replicated anyway",
    ),
    ByHand(
        name="vector type",
        kinds=_OTHER,
        pattern=r"(?i)\bvector\(\d+\)",
        instead="longtext",
        reason="TiDB's VECTOR is another one, or none",
    ),
)
"""What is put in manually before a server is given a statement; everything else it gets as the source got it."""
ROWS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "BEGIN", "COMMIT", "ROLLBACK", "SET", "USE"})
"""How a statement begins that leaves every structure as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A statement about structures that the server did not take."""

    statement: str
    error: str

    def __str__(self) -> str:
        """Both in one line."""
        return f"{self.statement!r} ({self.error})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was there at one cut."""

    structure: Structure
    refused: dict[str, tuple[Refusal, ...]]
    """Folded name of a table → the statements that would have changed it."""
    by_hand: frozenset[str]
    """Names of what was put in manually until then."""


def statements(workload: str) -> Iterator[str]:
    """The statements of a workload in order; a line ``-- …`` is given as it is.

    In the recordings a line that ends with a semicolon ends a statement, in whatever string it may seem to be.
    """
    waiting: list[str] = []
    for line in workload.splitlines():
        if not waiting and line.startswith("-- "):
            yield line
        elif waiting or line.strip():
            waiting.append(line)
        if waiting and line.rstrip().endswith(";"):
            yield "\n".join(waiting).rstrip().removesuffix(";")
            waiting.clear()


def by_hand(statement: str, kind: str) -> tuple[str, set[str]]:
    """A statement in the words of a server of this kind, empty where it has none, and the reasons for what was changed."""
    reasons: set[str] = set()
    for one in BY_HAND:
        if kind in one.kinds and (changed := re.sub(one.pattern, one.instead, statement)) != statement:
            statement = changed
            reasons.add(one.name)
    return statement, reasons


@dataclass(slots=True)
class _Run:
    """One workload on its way through a server."""

    server: DatabaseServer
    cursor: Any
    database: str = ""
    used: set[str] = field(default_factory=set)
    refused: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)

    def execute(self, statement: str) -> None:
        statement, reasons = by_hand(statement, self.server.kind)
        self.used |= reasons
        found = tokens(statement)
        if not found:
            return
        verb = found[0].upper
        try:
            self.cursor.execute(statement)
        except pymysql.err.MySQLError as error:
            if verb not in ROWS:
                refusal = Refusal(statement=statement, error=str(error.args[-1]))
                for name in _mentioned(found, self.database):
                    self.refused[name] = (*self.refused.get(name, ()), refusal)
            return
        if verb == "USE":
            self.database = found[1].name
        elif verb not in ROWS:
            self._hand_on(found)

    def _hand_on(self, found: Sequence[Token]) -> None:
        """What a refusal left undone goes on with a table's structure, and ends with the table."""
        mentioned = _mentioned(found, self.database)
        if found[0].upper == "DROP" and found[1].upper == "TABLE":
            for name in mentioned:
                self.refused.pop(name, None)
        elif any(token.upper in ("RENAME", "LIKE", "EXCHANGE") for token in found):
            inherited = tuple(dict.fromkeys(one for name in mentioned for one in self.refused.get(name, ())))
            if inherited:
                self.refused |= dict.fromkeys(mentioned, inherited)

    def moment(self) -> Moment:
        return Moment(structure=structure_of(self.server), refused=dict(self.refused), by_hand=frozenset(self.used))


_WORDS = frozenset(
    ("ALTER", "CREATE", "DROP", "EXCHANGE", "INDEX", "KEY", "PARTITION", "RENAME", "TABLE", "TO", "VIEW")
)
"""Bare words that are no table's name."""


def _mentioned(found: Sequence[Token], database: str) -> frozenset[str]:
    """Folded names of everything that could be a table in a statement."""
    names: set[str] = set()
    at = 0
    while at < len(found):
        token = found[at]
        if token.kind in ("quoted", "word") and token.upper not in _WORDS:
            dotted = at + 2 < len(found) and found[at + 1].text == "."
            names.add((f"{token.name}.{found[at + 2].name}" if dotted else f"{database}.{token.name}").casefold())
            at += 2 if dotted else 0
        at += 1
    return frozenset(names)


def moments(server: DatabaseServer, workload: str) -> tuple[Moment, ...]:
    """Empty the server, execute a workload, and tell the structure at each of its cuts; the last one is that at its end."""
    found = play(server, workload)
    server.drop_all()
    return found


def play(server: DatabaseServer, workload: str) -> tuple[Moment, ...]:
    """The same, but what the workload leaves stays on the server."""
    server.drop_all()
    found: list[Moment] = []
    with server.connect() as connection, connection.cursor() as cursor:
        for setting in DEFAULTS[server.kind]:
            cursor.execute(setting)
        run = _Run(server, cursor)
        for statement in statements(workload):
            if statement.startswith("-- cut"):
                found.append(run.moment())
            elif batch := re.match(r"-- batch-create (\S+): (.*)", statement):
                _batch(run, batch[1], batch[2].split(" || "))
            elif not statement.startswith("-- "):
                run.execute(statement)
        last = run.moment()
    if not found or found[-1] != last:
        found.append(last)
    return tuple(found)


def _batch(run: _Run, database: str, creates: Sequence[str]) -> None:
    """Several tables of one database together."""
    before = run.database
    for statement in (f"USE {quoted(database)}", *creates, f"USE {quoted(before)}"):
        run.execute(statement)
