"""Parts of a DDL, or whole statements, that MySQL or MariaDB have no use for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.ddl.rules.defaults import is_long
from storage_consumer.ddl.rules.index_options import is_called_after_column, over_expression
from storage_consumer.ddl.rules.names import (
    condition_fails,
    foreign_key_dropped,
    is_global,
    name_there,
)
from storage_consumer.ddl.rules.table_options import (
    STORED_BY_TIDB_ONLY,
    UNKNOWN_TO_MARIADB,
    UNKNOWN_TO_MYSQL,
    begins_split,
    is_about_database,
)
from storage_consumer.ddl.statement import Statement
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import TableColumn, folded_name
from storage_consumer.sql.column_parts import INDEX_WORDS, column_at
from storage_consumer.sql.tokens import Token, find_words, has_words

_SEARCH = ("FULLTEXT", "VECTOR", "HYBRID", "COLUMNAR")
_OWN_OBJECTS = (("SEQUENCE",), ("PLACEMENT", "POLICY"), ("RESOURCE", "GROUP"))
_OWN_ACTIONS = (
    *(
        ("SET", "HYPO"),
        ("READ", "ONLY"),
        ("READ", "WRITE"),
        ("SPLIT",),
        ("COMPACT",),
        ("CACHE",),
        ("NOCACHE",),
        ("ADD", "STATS_EXTENDED"),
        ("DROP", "STATS_EXTENDED"),
    ),
    *(("PLACEMENT",), ("DEFAULT", "PLACEMENT"), ("REMOVE", "TTL"), ("TTL",), ("TTL_ENABLE",), ("TTL_JOB_INTERVAL",)),
)


_UNKNOWN = {"mariadb": UNKNOWN_TO_MARIADB, "mysql": UNKNOWN_TO_MYSQL}


def parts_left_out(statement: Statement, server_type: str) -> tuple[frozenset[int], list[str]]:
    """Return the indexes of the parts to leave out, and the names of the differences that call for it."""
    gone: dict[int, str] = {}
    everything = frozenset(range(len(statement.parts)))
    if server_type != "tidb" and _is_about_own_object(statement.found):
        return everything, ["object of TiDB"]
    if _is_bare_database(statement.found, server_type):
        return everything, ["attribute of TiDB"]
    for number in range(len(statement.parts)):
        if reason := _reason_to_leave_out(statement, number, server_type):
            gone[number] = reason
    return frozenset(gone), list(dict.fromkeys(gone.values()))


def _is_about_own_object(found: Sequence[Token]) -> bool:
    """Return whether a statement creates, changes or drops an object besides tables that only TiDB has."""
    if not found or found[0].upper not in ("CREATE", "ALTER", "DROP"):
        return False
    # Its rows live as long as a transaction and never reach a file.
    if find_words(found[1:4], "GLOBAL", "TEMPORARY", "TABLE") == 0:
        return True
    return any(find_words(found, *words, start=1) == 1 for words in _OWN_OBJECTS)


def _is_bare_database(found: Sequence[Token], server_type: str) -> bool:
    """Return whether ALTER DATABASE says nothing to this server; TiFlash replicas are each cluster's own affair."""
    if not is_about_database(found) or found[0].upper != "ALTER":
        return False
    at = find_words(found, "SET", "TIFLASH")
    only_encryption = server_type != "tidb" and len(found) > 3 and found[3].upper == "ENCRYPTION" and len(found) <= 6  # noqa: PLR2004 - and its value
    return 0 < at <= 3 or only_encryption  # noqa: PLR2004 - directly after the name


def _reason_to_leave_out(statement: Statement, number: int, server_type: str) -> str:
    """Return which difference takes this part out, or ""."""
    first, last = statement.parts[number]
    part = statement.found[first:last]
    if find_words(part[:2], "SET", "TIFLASH") == 0:
        return "attribute of TiDB"  # the target's own affair, a TiDB's too: TiCDC leaves it to each cluster
    if _sets_sequence(part):
        return "sequence default"
    if begins_split(part[:2]):
        return "attribute of TiDB"  # regions are the target's own affair, and not every TiDB has the clause
    if server_type == "tidb":
        return ""
    if not part:
        return "attribute of TiDB"  # in a comment that only TiDB reads
    # Empty words behind the last, so that none of the looks ahead needs a check of the length.
    words = [token.upper for token in part[:4]] + [""] * 4
    at = 1 if words[0] in ("ADD", "CREATE") else 0
    defines_index = words[at] in (*INDEX_WORDS, "UNIQUE", "CONSTRAINT")
    no_expressions = server_type == "mariadb" and defines_index and over_expression(part)
    # An index that TiDB names after a column is created over its columns alone, so that its name exists for later statements.
    no_expressions = no_expressions and not is_called_after_column(statement, part)
    dropped = foreign_key_dropped(part)
    # The first that holds counts, so a special case comes before the general one.
    reasons = {
        "algorithm and lock": statement.body[1] < 0 and words[0] in ("ALGORITHM", "LOCK"),
        "check constraint": words[at] == "CHECK"
        or (words[at] == "CONSTRAINT" and "CHECK" in words[at + 1 : at + 3])
        or (words[0] in ("DROP", "ALTER") and words[1] in ("CHECK", "CONSTRAINT")),
        "search index": words[at] == "FULLTEXT" or (words[at] in _SEARCH and words[at + 1] in INDEX_WORDS),
        "attribute of TiDB": statement.body[1] < 0 and any(words[: len(own)] == list(own) for own in _OWN_ACTIONS),
        "table option": statement.body[1] < 0 and words[0] in STORED_BY_TIDB_ONLY,
        "unknown option": statement.body[1] < 0 and words[0] in _UNKNOWN[server_type],
        "system time": words[:3] == ["PARTITION", "BY", "SYSTEM_TIME"],
        "missing index": _is_missing_index(part, statement.names),
        "missing foreign key": statement.names is not None
        and dropped is not None
        and not name_there(dropped.name, statement),
        "text default": server_type == "mysql" and _sets_text(part, statement.columns),
        "IF EXISTS": server_type == "mysql" and condition_fails(part, statement.names),
        "unique expression index": no_expressions and "UNIQUE" in words,
        "expression index": no_expressions,
        "global index": defines_index and "PRIMARY" not in words and is_global(statement, first, last),
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _sets_sequence(part: Sequence[Token]) -> bool:
    """Return whether a part is ALTER COLUMN … SET DEFAULT with a value of a sequence."""
    at = find_words(part, "SET", "DEFAULT", "(") + 3
    is_default = at > 3 and part[0].upper == "ALTER"  # noqa: PLR2004 - found after a column's name
    return is_default and (
        has_words(part[at : at + 1], "NEXTVAL") or has_words(part[at : at + 3], "NEXT", "VALUE", "FOR")
    )


def _sets_text(part: Sequence[Token], columns: Sequence[TableColumn]) -> bool:
    """Return whether a part is ALTER COLUMN … SET DEFAULT of a TEXT or BLOB; rows come with their values."""
    if find_words(part, "SET", "DEFAULT") < 2 or part[0].upper != "ALTER" or (at := column_at(part)) < 0:  # noqa: PLR2004 - after a column's name
        return False
    name = folded_name(part[at].name)
    return any(folded_name(column.name) == name and is_long(column.type) for column in columns)


def _is_missing_index(part: Sequence[Token], names: PartNames | None) -> bool:
    """Return whether a part drops, renames or alters an index that the target does not have."""
    # Without the target's names nothing counts as missing: the server's refusal is better than an index too many.
    if names is None or len(part) < 3 or part[0].upper not in ("DROP", "RENAME", "ALTER"):  # noqa: PLR2004 - verb, INDEX, name
        return False
    # Behind IF EXISTS.
    at = 4 if part[2].upper == "IF" else 2
    return part[1].upper in INDEX_WORDS and len(part) > at and folded_name(part[at].name) not in names.indexes
