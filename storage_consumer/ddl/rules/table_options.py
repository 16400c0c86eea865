"""Options of tables, partitions and databases that mean nothing to the target. Each rule returns edits of the text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from storage_consumer.ddl.statement import Edit, Statement
from storage_consumer.sql.column_parts import is_name
from storage_consumer.sql.tokens import Token, find_words, has_words, pieces, replace_spans

STORED_BY_TIDB_ONLY = frozenset(
    (
        *("STATS_BUCKETS", "STATS_TOPN", "STATS_SAMPLE_RATE", "STATS_COL_CHOICE", "STATS_COL_LIST", "STATS_OPTIONS"),
        *(
            "ATTRIBUTES",
            "NODEGROUP",
            "ENCRYPTION",
            "ENGINE_ATTRIBUTE",
            "SECONDARY_ENGINE",
            "SECONDARY_ENGINE_ATTRIBUTE",
        ),
        *(
            "INSERT_METHOD",
            "UNION",
            "PASSWORD",
            "CONNECTION",
            "AUTO_ID_CACHE",
            "AUTO_RANDOM_BASE",
            "SHARD_ROW_ID_BITS",
            "PRE_SPLIT_REGIONS",
            "TABLESPACE",
        ),
    )
)
"""Options that only TiDB obeys, or that it accepts and forgets while another server would act on them or refuse them."""
UNKNOWN_TO_MARIADB = frozenset(("COMPRESSION", "AUTOEXTEND_SIZE"))
UNKNOWN_TO_MYSQL = frozenset(
    (
        "PAGE_CHECKSUM",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "TRANSACTIONAL",
        "SEQUENCE",
        "IETF_QUOTES",
        "TABLE_CHECKSUM",
    )
)
_SOFT_DELETE = ("ACTIVE_ACTIVE", "SOFTDELETE")
_OF_SOFT_DELETE = ("/*T![active_active]", "/*T![softdelete]")
_OF_PARTITIONS = frozenset(
    ("INSERT_METHOD", "TABLESPACE", "NODEGROUP", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")
)


def table_options(statement: Statement) -> list[Edit]:
    """Take off options that only TiDB obeys, and folders that it ignores."""
    found = [*_options(statement, STORED_BY_TIDB_ONLY), *_directories(statement), *_row_formats(statement)]
    found += [*_storages(statement), *_partition_options(statement, _OF_PARTITIONS)]
    return [(first.start, last.end, "") for first, last in found]


def mariadb_options(statement: Statement) -> list[Edit]:
    """Take off options that MariaDB does not know."""
    return [(first.start, last.end, "") for first, last in _options(statement, UNKNOWN_TO_MARIADB)]


def mysql_options(statement: Statement) -> list[Edit]:
    """Take off options that MySQL does not know."""
    return [(first.start, last.end, "") for first, last in _options(statement, UNKNOWN_TO_MYSQL)]


def engine(statement: Statement) -> list[Edit]:
    """Write InnoDB for any other engine of a table. Take engines off partitions: MariaDB wants all of them alike."""
    if not has_words(statement.found[:4], "TABLE"):
        return []
    found = statement.found
    of_partitions = _partition_options(statement, frozenset(("ENGINE",)))
    edits: list[Edit] = [(first.start, last.end, "") for first, last in of_partitions]
    for at, token in enumerate(found[:-1]):
        # At the top level it is the table's; inside parentheses a partition's, which is taken off above.
        if token.upper == "ENGINE" and not token.depth and not is_name(found, at):
            value = found[_value(found, at)]
            known = value.name.strip("'\"").casefold() == "innodb"
            edits += [] if known else [(value.start, value.end, "InnoDB")]
    return edits


def system_time(statement: Statement) -> list[Edit]:
    """Take PARTITION BY SYSTEM_TIME off a new table: TiDB creates a table without partitions for it."""
    at = find_words(statement.found, "PARTITION", "BY", "SYSTEM_TIME")
    return [(statement.found[at].start, statement.found[-1].end, "")] if at > 0 and statement.body[1] > 0 else []


def unlogged(statement: Statement) -> list[Edit]:
    """Take NO_WRITE_TO_BINLOG off: the source's log is not the target's, whose replicas need the statement."""
    return [(token.start, token.end, "") for token in statement.found if token.upper == "NO_WRITE_TO_BINLOG"]


def splits(statement: Statement) -> list[Edit]:
    """Take off how TiDB is to split a new table into regions."""
    found = statement.found
    at = next((i for i in range(max(statement.body[1], 0), len(found)) if begins_split(found[i : i + 2])), -1)
    return [(found[at].start, found[-1].end, "")] if at > 0 and statement.body[1] > 0 and not found[at].depth else []


def begins_split(found: Sequence[Token]) -> bool:
    """Return whether two tokens begin a clause that splits a table or an index into regions."""
    return [token.upper for token in found] in (["SPLIT", word] for word in ("BETWEEN", "PRIMARY", "INDEX"))


def turns_on_soft_delete(found: Sequence[Token]) -> bool:
    """Return whether a statement with its comments opened has a table or a database keep deleted rows, or take those of other clusters."""
    values = (
        found[_value(found, at)]
        for at, token in enumerate(found[:-1])
        if token.upper in _SOFT_DELETE and not token.depth
    )
    return any(value.name.strip("'\"").upper() != "OFF" for value in values)


def without_soft_delete(query: str) -> str:
    """Take off TiDB's comments about deleted rows that stay: tables for which that matters are refused."""
    edits = [
        (start, end, "")
        for kind, start, end in (pieces(query) if "/*T![" in query else ())
        if kind == "comment" and query.startswith(_OF_SOFT_DELETE, start)
    ]
    return replace_spans(query, edits).strip() if edits else query


def database_options(statement: Statement) -> list[Edit]:
    """Take ENCRYPTION and SET TIFLASH REPLICA off databases."""
    found = statement.found
    if not is_about_database(found):
        return []
    edits: list[Edit] = []
    for at, token in enumerate(found[:-1]):
        if token.upper == "ENCRYPTION" and at > 2:  # noqa: PLR2004 - after the database's name
            edits.append((token.start, found[_value(found, at)].end, ""))
    at = find_words(found, "SET", "TIFLASH", "REPLICA")
    if at > 0:
        last = at + 3
        # LOCATION LABELS has any number of texts.
        while last + 1 < len(found) and (
            found[last + 1].upper in ("LOCATION", "LABELS", ",") or found[last + 1].kind == "string"
        ):
            last += 1
        edits.append((found[at].start, found[min(last, len(found) - 1)].end, ""))
    return edits


def is_about_database(found: Sequence[Token]) -> bool:
    """Return whether a statement creates or changes a database."""
    return any(
        find_words(found[:2], verb, word) == 0 for verb in ("CREATE", "ALTER") for word in ("DATABASE", "SCHEMA")
    )


# where options are


def _options(statement: Statement, words: frozenset[str]) -> Iterator[tuple[Token, Token]]:
    """Yield first and last token of each option ``WORD [=] value`` of a table."""
    found = statement.found
    if not has_words(found[:4], "TABLE"):
        return
    # Options follow the columns or, where there are none, at least the first word of the name.
    after_body = max(statement.body[1], 2)
    for at, token in enumerate(found[:-1]):
        if at > after_body and token.depth == 0 and token.upper in words and not is_name(found, at):
            yield token, found[_value(found, at)]


def _value(found: Sequence[Token], at: int) -> int:
    """Return the index of the last token of the value that follows the option at `at`."""
    value = min(at + 1 + (found[at + 1].text == "="), len(found) - 1)
    if found[value].text == "(":
        depth = found[value].depth
        return next(
            (i for i in range(value + 1, len(found)) if found[i].text == ")" and found[i].depth == depth), value
        )
    # A value such as `0.5` is several tokens with no space between them.
    while (
        value + 1 < len(found)
        and found[value + 1].start == found[value].end
        and found[value + 1].text not in (",", ")", "(")
    ):
        value += 1
    return value


def _row_formats(statement: Statement) -> Iterator[tuple[Token, Token]]:
    """Yield the same for ROW_FORMAT of an engine that TiDB knows by name alone."""
    for first, last in _options(statement, frozenset(("ROW_FORMAT",))):
        if last.upper.startswith("TOKUDB_"):
            yield first, last


def _storages(statement: Statement) -> Iterator[tuple[Token, Token]]:
    """Yield the same for STORAGE DISK and STORAGE MEMORY of a table."""
    for first, last in _options(statement, frozenset(("STORAGE",))):
        if last.upper in ("DISK", "MEMORY"):
            yield first, last


def _partition_options(statement: Statement, words: frozenset[str]) -> Iterator[tuple[Token, Token]]:
    """Yield the same for an option ``WORD = value`` in the definition of a partition."""
    found = statement.found
    start = max(statement.body[1], 2)
    behind = find_words(found, "PARTITION", start=start)
    for at in range(behind + 1 if behind >= 0 else len(found), len(found) - 1):
        if (
            found[at].depth
            and found[at].upper in words
            and found[at + 1].text == "="
            # After one of these the word is a partition's column or value, not an option.
            and found[at - 1].text not in ("(", ",")
        ):
            yield found[at], found[_value(found, at)]


def _directories(statement: Statement) -> Iterator[tuple[Token, Token]]:
    """Yield the same for DATA DIRECTORY and INDEX DIRECTORY of a table or a partition."""
    found = statement.found
    for at, (before, token) in enumerate(pairwise(found[:-1]), 1):
        value = min(at + 1 + (found[at + 1].text == "="), len(found) - 1)
        if token.upper == "DIRECTORY" and before.upper in ("DATA", "INDEX") and found[value].kind == "string":
            yield before, found[value]
