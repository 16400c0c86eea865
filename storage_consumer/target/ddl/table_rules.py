"""Options of tables, partitions and databases that mean nothing to the target. Each rule returns edits of the text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.sql.statement import Edit, Statement, is_name
from storage_consumer.sql.tokens import Token, closing, find_words, has_words, pieces, replace_spans
from storage_consumer.target.ddl.edits import Rule, Targeted, everywhere

STORED_BY_TIDB_ONLY = (
    "STATS_BUCKETS|STATS_TOPN|STATS_SAMPLE_RATE|STATS_COL_CHOICE|STATS_COL_LIST|STATS_OPTIONS|ATTRIBUTES|NODEGROUP|ENCRYPTION|"
    "ENGINE_ATTRIBUTE|SECONDARY_ENGINE|SECONDARY_ENGINE_ATTRIBUTE|INSERT_METHOD|UNION|PASSWORD|CONNECTION|AUTO_ID_CACHE|"
    "AUTO_RANDOM_BASE|SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|TABLESPACE"
)
"""Options that only TiDB obeys, or that it accepts and forgets while another server would act on them or refuse them."""
UNKNOWN = {
    "mariadb": "COMPRESSION|AUTOEXTEND_SIZE",
    "mysql": "PAGE_CHECKSUM|PAGE_COMPRESSED|PAGE_COMPRESSION_LEVEL|TRANSACTIONAL|SEQUENCE|IETF_QUOTES|TABLE_CHECKSUM",
}
"""Options that this server does not know."""
_SOFT_DELETE = ("ACTIVE_ACTIVE", "SOFTDELETE")
_OF_SOFT_DELETE = ("/*T![active_active]", "/*T![softdelete]")
_OF_PARTITIONS = "INSERT_METHOD|TABLESPACE|NODEGROUP|ENGINE_ATTRIBUTE|SECONDARY_ENGINE_ATTRIBUTE"


def table_options(statement: Targeted) -> Iterator[Edit]:
    """Take off options that only TiDB obeys, and folders that it ignores."""
    for first, last in _options(statement, f"{STORED_BY_TIDB_ONLY}|ROW_FORMAT|STORAGE"):
        value = statement.tokens[last - 1].upper
        # Of these TiDB ignores some values alone.
        stays = {"ROW_FORMAT": not value.startswith("TOKUDB_"), "STORAGE": value not in ("DISK", "MEMORY")}
        if not stays.get(statement.tokens[first].upper):
            yield statement.edit(first, last)
    folders = statement.find("{DATA|INDEX} DIRECTORY [=] text")
    yield from statement.without((*folders, *_partition_options(statement, _OF_PARTITIONS)))


def unknown(server_type: str) -> Rule:
    """Return the rule that takes off options which a server of this type does not know."""
    words = UNKNOWN[server_type]
    return lambda statement: statement.without(_options(statement, words))


def engine(statement: Targeted) -> Iterator[Edit]:
    """Write InnoDB for any other engine of a table. Take engines off partitions: MariaDB wants all of them alike."""
    found = statement.tokens
    if not has_words(found[:4], "TABLE"):
        return
    yield from statement.without(_partition_options(statement, "ENGINE"))
    # At the top level it is the table's; inside parentheses a partition's, which is taken off above.
    for first, _ in statement.find("ENGINE [=] any", depth=0):
        value = found[_value_end(found, first) - 1]
        if not is_name(found, first) and value.name.strip("'\"").casefold() != "innodb":
            yield value.start, value.end, "InnoDB"


def system_time(statement: Targeted) -> Iterator[Edit]:
    """Take PARTITION BY SYSTEM_TIME off a new table: TiDB creates a table without partitions for it."""
    for first, _ in statement.find("PARTITION BY SYSTEM_TIME")[:1] if statement.creates else ():
        yield statement.edit(first, len(statement.tokens))


unlogged = everywhere("NO_WRITE_TO_BINLOG")
"""The source's log is not the target's, whose replicas need the statement."""


def splits(statement: Targeted) -> Iterator[Edit]:
    """Take off how TiDB is to split a new table into regions."""
    for first, _ in statement.find(SPLIT, max(statement.body[1], 0), depth=0)[:1] if statement.creates else ():
        yield statement.edit(first, len(statement.tokens))


SPLIT = "SPLIT {BETWEEN|PRIMARY|INDEX}"
"""How a clause begins that splits a table or an index into regions."""


def turns_on_soft_delete(found: Sequence[Token]) -> bool:
    """Return whether a statement with its comments opened has a table or a database keep deleted rows, or take those of other clusters."""
    values = (
        found[_value_end(found, at) - 1]
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


def database_options(statement: Targeted) -> Iterator[Edit]:
    """Take ENCRYPTION and SET TIFLASH REPLICA off databases."""
    found = statement.tokens
    if not statement.begins(0, "{CREATE|ALTER} {DATABASE|SCHEMA}"):
        return
    for at, token in enumerate(found[:-1]):
        if token.upper == "ENCRYPTION" and at > 2:  # noqa: PLR2004 - after the database's name
            yield statement.edit(at, _value_end(found, at))
    # LOCATION LABELS has any number of texts.
    yield from statement.without(statement.find("SET TIFLASH REPLICA [any] {LOCATION|LABELS|,|text}*")[:1])


def linear(statement: Targeted) -> Iterator[Edit]:
    """Take LINEAR off PARTITION BY LINEAR HASH and LINEAR KEY."""
    for first, last in statement.find("BY <LINEAR> {HASH|KEY}"):
        yield statement.tokens[first].start, statement.tokens[last].start, ""


def default_partition(statement: Targeted) -> Iterator[Edit]:
    """Write DEFAULT for VALUES IN (DEFAULT), and for a list with DEFAULT in it, whose other values it includes anyway."""
    for first, last in statement.find("VALUES IN ( )"):
        if statement.find("DEFAULT", first, last, statement.tokens[first].depth + 1):
            yield statement.edit(first, last, "DEFAULT")


# where options are


def _options(statement: Statement, words: str) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of each option ``WORD [=] value`` of a table."""
    found = statement.tokens
    if not has_words(found[:4], "TABLE"):
        return
    # Options follow the columns or, where there are none, at least the first word of the name.
    for at, behind in statement.find(words, max(statement.body[1], 2) + 1, depth=0):
        if behind < len(found) and not is_name(found, at):
            yield at, _value_end(found, at)


def _value_end(found: Sequence[Token], at: int) -> int:
    """Return the index after the value that follows the option at `at`."""
    value = min(at + 1 + (found[at + 1].text == "="), len(found) - 1)
    if found[value].text == "(":
        return max(closing(found, value), value) + 1
    # A value such as `0.5` is several tokens with no space between them.
    while (
        value + 1 < len(found)
        and found[value + 1].start == found[value].end
        and found[value + 1].text not in (",", ")", "(")
    ):
        value += 1
    return value + 1


def _partition_options(statement: Statement, words: str) -> Iterator[tuple[int, int]]:
    """Yield the same for an option ``WORD = value`` in the definition of a partition."""
    found = statement.tokens
    behind = find_words(found, "PARTITION", start=max(statement.body[1], 2))
    for at, _ in statement.find(f"{{{words}}} =", behind + 1) if behind >= 0 else ():
        # After one of these the word is a partition's column or value, not an option.
        if found[at].depth and found[at - 1].text not in ("(", ","):
            yield at, _value_end(found, at)
