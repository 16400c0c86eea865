"""Which parts of a DDL, or which DDL as a whole, a server of MySQL's or MariaDB's kind has no use for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.sql_text import Token, find_words
from storage_consumer.target.column_parts import INDEX_WORDS
from storage_consumer.target.idioms import (
    STORED_BY_TIDB_ONLY,
    UNKNOWN_TO_MARIADB,
    condition_fails,
    foreign_key_dropped,
    is_global,
    name_there,
    over_expression,
)
from storage_consumer.target.part_names import PartNames
from storage_consumer.target.parts import Statement

_SEARCH = ("FULLTEXT", "VECTOR", "HYBRID", "COLUMNAR")
_OWN_OBJECTS = (("SEQUENCE",), ("PLACEMENT", "POLICY"), ("RESOURCE", "GROUP"))
_OWN_ACTIONS = (
    *(("SET", "HYPO"), ("CACHE",), ("NOCACHE",), ("ADD", "STATS_EXTENDED"), ("DROP", "STATS_EXTENDED")),
    *(("PLACEMENT",), ("DEFAULT", "PLACEMENT"), ("REMOVE", "TTL"), ("TTL",), ("TTL_ENABLE",), ("TTL_JOB_INTERVAL",)),
)


def parts_left_out(statement: Statement, flavor: str) -> tuple[frozenset[int], list[str]]:
    """Which parts go, and why."""
    gone: dict[int, str] = {}
    if flavor != "tidb" and _is_about_own_object(statement.found):
        return frozenset(range(len(statement.parts))), ["object of TiDB"]
    for number in range(len(statement.parts)):
        if reason := _reason_to_leave_out(statement, number, flavor):
            gone[number] = reason
    return frozenset(gone), list(dict.fromkeys(gone.values()))


def _is_about_own_object(found: Sequence[Token]) -> bool:
    """Whether a statement makes, changes or drops something that only TiDB has beside its tables."""
    if not found or found[0].upper not in ("CREATE", "ALTER", "DROP"):
        return False
    return any(find_words(found, *words, start=1) == 1 for words in _OWN_OBJECTS)


def _reason_to_leave_out(statement: Statement, number: int, flavor: str) -> str:
    """Which difference takes this part out, empty if none does."""
    first, last = statement.parts[number]
    part = statement.found[first:last]
    if find_words(part[:2], "SET", "TIFLASH") == 0:
        return "attribute of TiDB"  # the target's own affair, a TiDB's too: TiCDC leaves it to each cluster
    if flavor == "tidb" or not part:
        return ""
    words = [token.upper for token in part[:4]] + [""] * 4
    at = 1 if words[0] in ("ADD", "CREATE") else 0
    defines_index = words[at] in (*INDEX_WORDS, "UNIQUE", "CONSTRAINT")
    no_expressions = flavor == "mariadb" and defines_index and over_expression(part)
    dropped = foreign_key_dropped(part)
    reasons = {
        "algorithm and lock": statement.body[1] < 0 and words[0] in ("ALGORITHM", "LOCK"),
        "check constraint": words[at] == "CHECK"
        or (words[at] == "CONSTRAINT" and "CHECK" in words[at + 1 : at + 3])
        or (words[0] in ("DROP", "ALTER") and words[1] in ("CHECK", "CONSTRAINT")),
        "search index": words[at] == "FULLTEXT" or (words[at] in _SEARCH and words[at + 1] in INDEX_WORDS),
        "attribute of TiDB": statement.body[1] < 0 and any(words[: len(own)] == list(own) for own in _OWN_ACTIONS),
        "table option": statement.body[1] < 0 and words[0] in STORED_BY_TIDB_ONLY,
        "unknown option": flavor == "mariadb" and statement.body[1] < 0 and words[0] in UNKNOWN_TO_MARIADB,
        "missing index": _is_missing_index(part, statement.names),
        "missing foreign key": statement.names is not None
        and dropped is not None
        and not name_there(dropped.name, statement),
        "IF EXISTS": flavor == "mysql" and condition_fails(part, statement.names),
        "unique expression index": no_expressions and "UNIQUE" in words,
        "expression index": no_expressions,
        "global index": defines_index and "PRIMARY" not in words and is_global(statement, first, last),
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _is_missing_index(part: Sequence[Token], names: PartNames | None) -> bool:
    """Whether a part drops, renames or alters an index that the target does not have."""
    if names is None or len(part) < 3 or part[0].upper not in ("DROP", "RENAME", "ALTER"):  # noqa: PLR2004 - verb, INDEX, name
        return False
    at = 4 if part[2].upper == "IF" else 2
    return part[1].upper in INDEX_WORDS and len(part) > at and part[at].name.casefold() not in names.indexes
