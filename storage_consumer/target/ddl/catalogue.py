"""How a statement of TiDB is edited to run on MySQL or MariaDB: additions and omissions. Pure.

`DIFFERENCES` lists each with its reason. What changes nothing about rows is left out where a server
does not know it. What would change rows stays, so that the server refuses it and the table stops.
The rules for options of tables, partitions and databases are here, those for columns and indexes in
`column_rules` and `index_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.model import folded_name
from storage_consumer.sql.statement import INDEX_WORDS, Edit, Statement, is_name
from storage_consumer.sql.tokens import Token, closing, find_words, has_words, pieces, replace_spans
from storage_consumer.target.ddl import column_rules as columns
from storage_consumer.target.ddl import index_rules as indexes
from storage_consumer.target.ddl.column_rules import sets_sequence, sets_text
from storage_consumer.target.ddl.edits import Rule, Targeted, emptied, everywhere, outermost, spans
from storage_consumer.target.ddl.index_rules import (
    condition_fails,
    foreign_key_dropped,
    is_called_after_column,
    is_global,
    name_there,
    over_expression,
)

STORED_BY_TIDB_ONLY = (
    "STATS_BUCKETS|STATS_TOPN|STATS_SAMPLE_RATE|STATS_COL_CHOICE|STATS_COL_LIST|STATS_OPTIONS|ATTRIBUTES|NODEGROUP|ENCRYPTION|"
    "ENGINE_ATTRIBUTE|SECONDARY_ENGINE|SECONDARY_ENGINE_ATTRIBUTE|INSERT_METHOD|UNION|PASSWORD|CONNECTION|AUTO_ID_CACHE|"
    "AUTO_RANDOM_BASE|SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|TABLESPACE"
)
"""Options that only TiDB obeys, or that it ignores while others would obey or refuse them."""
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
        stays = {
            "ROW_FORMAT": not value.startswith("TOKUDB_"),
            "STORAGE": value not in ("DISK", "MEMORY"),
        }
        if not stays.get(statement.tokens[first].upper):
            yield statement.edit(first, last)
    folders = statement.find("{DATA|INDEX} DIRECTORY [=] text")
    yield from statement.without((*folders, *_partition_options(statement, _OF_PARTITIONS)))


def unknown(server_type: str) -> Rule:
    """Return the rule that takes off options which a server of this type does not know."""
    words = UNKNOWN[server_type]
    return lambda statement: statement.without(_options(statement, words))


def engine(statement: Targeted) -> Iterator[Edit]:
    """Write InnoDB for other engines; remove engines of partitions, which MariaDB wants alike."""
    found = statement.tokens
    if not has_words(found[:4], "TABLE"):
        return
    yield from statement.without(_partition_options(statement, "ENGINE"))
    # At the top level it is the table's; inside parentheses a partition's, removed above.
    for first, _ in statement.find("ENGINE [=] any", depth=0):
        value = found[_value_end(found, first) - 1]
        if not is_name(found, first) and value.name.strip("'\"").casefold() != "innodb":
            yield value.start, value.end, "InnoDB"


def system_time(statement: Targeted) -> Iterator[Edit]:
    """Remove PARTITION BY SYSTEM_TIME of a new table: TiDB creates it without partitions."""
    for first, _ in statement.find("PARTITION BY SYSTEM_TIME")[:1] if statement.creates else ():
        yield statement.edit(first, len(statement.tokens))


unlogged = everywhere("NO_WRITE_TO_BINLOG")
"""The source's log is not the target's, whose replicas need the statement."""


def splits(statement: Targeted) -> Iterator[Edit]:
    """Take off how TiDB is to split a new table into regions."""
    for first, _ in (
        statement.find(SPLIT, max(statement.body[1], 0), depth=0)[:1] if statement.creates else ()
    ):
        yield statement.edit(first, len(statement.tokens))


SPLIT = "SPLIT {BETWEEN|PRIMARY|INDEX}"
"""How a clause begins that splits a table or an index into regions."""


def turns_on_soft_delete(found: Sequence[Token]) -> bool:
    """Return whether a statement, comments opened, turns on soft delete or active-active."""
    values = (
        found[_value_end(found, at) - 1]
        for at, token in enumerate(found[:-1])
        if token.upper in _SOFT_DELETE and not token.depth
    )
    return any(value.name.strip("'\"").upper() != "OFF" for value in values)


def without_soft_delete(query: str) -> str:
    """Remove TiDB's comments on soft delete: tables for which they matter are refused."""
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
    yield from statement.without(
        statement.find("SET TIFLASH REPLICA [any] {LOCATION|LABELS|,|text}*")[:1]
    )


def linear(statement: Targeted) -> Iterator[Edit]:
    """Take LINEAR off PARTITION BY LINEAR HASH and LINEAR KEY."""
    for first, last in statement.find("BY <LINEAR> {HASH|KEY}"):
        yield statement.tokens[first].start, statement.tokens[last].start, ""


def default_partition(statement: Targeted) -> Iterator[Edit]:
    """Write DEFAULT for VALUES IN (DEFAULT), also with other values, which it includes."""
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


_OWN_OBJECTS = (
    "{CREATE|ALTER|DROP} {GLOBAL TEMPORARY TABLE|SEQUENCE|PLACEMENT POLICY|RESOURCE GROUP}"
)
"""A temporary table's rows live as long as a transaction and never reach a file."""
_REPLICAS = "ALTER {DATABASE|SCHEMA} [any] SET TIFLASH"
"""TiFlash replicas are each cluster's own affair."""
_OWN_ACTIONS = (
    "SET HYPO|READ {ONLY|WRITE}|SPLIT|COMPACT|CACHE|NOCACHE|{ADD|DROP} STATS_EXTENDED|[DEFAULT] PLACEMENT|REMOVE TTL|"
    "TTL|TTL_ENABLE|TTL_JOB_INTERVAL"
)
_CHECKS = "[ADD|CREATE] {CHECK|CONSTRAINT [any] CHECK}|{DROP|ALTER} {CHECK|CONSTRAINT}"
_SEARCH = "[ADD|CREATE] {FULLTEXT|{VECTOR|HYBRID|COLUMNAR} {INDEX|KEY}}"
_INDEXES = "[ADD|CREATE] {INDEX|KEY|UNIQUE|CONSTRAINT}"


def parts_left_out(statement: Targeted, server_type: str) -> tuple[frozenset[int], list[str]]:
    """Return the indexes of the parts to leave out, and the names of the differences behind it."""
    everything = frozenset(range(len(statement.parts)))
    if server_type != "tidb" and statement.begins(0, _OWN_OBJECTS):
        return everything, ["object of TiDB"]
    # With nothing but its value behind it.
    is_encryption = (
        statement.begins(0, "ALTER {DATABASE|SCHEMA} any ENCRYPTION") and len(statement.tokens) <= 6  # noqa: PLR2004
    )
    if statement.begins(0, _REPLICAS) or (server_type != "tidb" and is_encryption):
        return everything, ["attribute of TiDB"]
    reasons = {
        number: _reason_to_leave_out(statement, number, server_type)
        for number in sorted(everything)
    }
    gone = {number: reason for number, reason in reasons.items() if reason}
    return frozenset(gone), list(dict.fromkeys(gone.values()))


def _reason_to_leave_out(statement: Targeted, number: int, server_type: str) -> str:
    """Return which difference takes this part out, or ""."""
    first, last = statement.parts[number]
    part = statement.tokens[first:last]
    if not part:
        # in a comment that only TiDB reads
        return "" if server_type == "tidb" else "attribute of TiDB"
    if sets_sequence(part):
        return "sequence default"
    # The target's own affair, a TiDB's too: TiCDC leaves replicas to each cluster, and not every
    # TiDB has the clause for regions.
    if statement.begins(first, f"SET TIFLASH|{SPLIT}"):
        return "attribute of TiDB"
    if server_type == "tidb":
        return ""
    words = {token.upper for token in part[:4]}
    defines_index = statement.begins(first, _INDEXES)
    # An index that TiDB names after a column is created over its columns alone, so that its name
    # exists for later statements.
    no_expressions = (
        server_type == "mariadb"
        and defines_index
        and over_expression(part)
        and not is_called_after_column(statement, part)
    )
    dropped, verb, names = foreign_key_dropped(part), part[0].upper, statement.names
    # Behind IF EXISTS.
    name_at = 4 if has_words(part[2:3], "IF") else 2
    # The first that holds counts, so a special case comes before the general one.
    reasons = {
        "algorithm and lock": not statement.creates and statement.begins(first, "ALGORITHM|LOCK"),
        "check constraint": statement.begins(first, _CHECKS),
        "search index": statement.begins(first, _SEARCH),
        "attribute of TiDB": not statement.creates and statement.begins(first, _OWN_ACTIONS),
        "table option": not statement.creates and statement.begins(first, STORED_BY_TIDB_ONLY),
        "unknown option": not statement.creates and statement.begins(first, UNKNOWN[server_type]),
        "system time": statement.begins(first, "PARTITION BY SYSTEM_TIME"),
        # Without the target's names nothing counts as missing: the server's refusal is better than
        # an index too many.
        "missing index": names is not None
        and verb in ("DROP", "RENAME", "ALTER")
        and len(part) > name_at
        and part[1].upper in INDEX_WORDS
        and folded_name(part[name_at].name) not in names.indexes,
        "missing foreign key": names is not None
        and dropped is not None
        and not name_there(dropped.name, statement),
        "text default": server_type == "mysql" and sets_text(part, statement.stored),
        "IF EXISTS": server_type == "mysql" and condition_fails(part, names),
        "unique expression index": no_expressions and "UNIQUE" in words,
        "expression index": no_expressions,
        "global index": defines_index
        and "PRIMARY" not in words
        and is_global(statement, first, last),
    }
    return next((name for name, holds in reasons.items() if holds), "")


DIFFERENCES = {
    "backslash": (
        "TiCDC does not escape backslashes in comments of tables, partitions and indexes, or in members of ENUM and "
        "SET; they are escaped."
    ),
    "timestamp default": (
        "A TIMESTAMP default in the text is in the time zone of the source's session; it is converted to that of the "
        "consumer's session."
    ),
    "string collation": (
        "_UTF8MB4'x' means utf8mb4_bin at the source and the server's default in the target; _UTF8MB4 is left out, "
        "because the session's collation is the source's."
    ),
    "database defaults": "CREATE DATABASE without a charset or collation means utf8mb4_bin at the source; it is written in.",
    "table defaults": "CREATE TABLE in a database with other defaults: the source's charset and collation are written in.",
    "charset without collation": "CHARACTER SET x alone means the source's default collation of x, not the target's; it is written in.",
    "name of a collation": "utf8mb3_bin and the like have that name only on newer servers; all know utf8_bin, which is written.",
    "collation of new columns": (
        "A statement that adds a column and changes the table's collation gives the new column the former collation "
        "at the source; it is written in."
    ),
    "storage engine": (
        "TiDB ignores ENGINE; an engine other than InnoDB may lack transactions or be unknown. InnoDB is written in; "
        "for partitions the option is left out."
    ),
    "algorithm and lock": "ALGORITHM and LOCK say how a server should alter a table, not what the result is; left out.",
    "check constraint": "TiDB enforces CHECK only if configured to, so rows may violate it; left out.",
    "search index": "FULLTEXT, VECTOR, HYBRID and COLUMNAR indexes of TiDB mean nothing for rows; left out.",
    "vector type": "MySQL and MariaDB have no VECTOR type like TiDB's; its text goes to a LONGTEXT column.",
    "vector default": "DEFAULT (VEC_FROM_TEXT('…')) becomes the text itself, because the column is a LONGTEXT.",
    "text default": (
        "MySQL accepts the default of a TEXT, BLOB or JSON only in parentheses, and forgets an empty one; "
        "parentheses are added, or the default is left out of SET DEFAULT."
    ),
    "default value": (
        "A number as default of an ENUM or SET, hexadecimal digits of an integer, and 0 of a YEAR are written as the "
        "value that TiDB reads them as."
    ),
    "random bytes": "MariaDB has no UUID_TO_BIN; UNHEX of a UUID is an equally random default.",
    "language of dates": (
        "MariaDB's DATE_FORMAT depends on the session's language, so no stored column can use it; TiDB's language, "
        "'en_US', is written in."
    ),
    "sequence default": "Sequences are not replicated, and rows carry their values; the default is left out.",
    "missing index": "DROP, RENAME or ALTER of an index that the target lacks because it was left out; left out as well.",
    "expression index": "MariaDB has no indexes over expressions; one that is not unique means nothing for rows and is left out.",
    "columns of an expression index": (
        "One without a name is named after its first column; on MariaDB it is created over its columns alone and not "
        "unique, so that names stay the same as the source's."
    ),
    "unique expression index": "MariaDB has none; left out. The source still keeps the rows unique, but the target does not.",
    "index name": "MySQL names an unnamed index over an expression differently from TiDB; TiDB's name is written in.",
    "foreign key name": "MySQL and MariaDB require names to be unique per database, TiDB per table; the table's name is put in front.",
    "missing foreign key": (
        "DROP FOREIGN KEY of one that the target does not have; left out. The consumer's sessions do not check "
        "foreign keys."
    ),
    "foreign key left out": (
        "The target refuses the key (other types on both sides, SET NULL on NOT NULL, partitions, no index at the parent …), and nothing "
        "checks it; left out. The index that the source has for it is created."
    ),
    "foreign key in the way": (
        "The target refuses a statement for a foreign key that it has, be it of another table; the key is dropped, or its own "
        "index given another name, and the statement runs again."
    ),
    "partial index": "MySQL and MariaDB have no WHERE for indexes, and it means nothing for rows: the index holds all of them.",
    "unique partial index": (
        "One with WHERE keeps only some rows unique, which no key of MySQL or MariaDB can; an index that is not "
        "unique is created."
    ),
    "index option": (
        "WITH PARSER, USING HASH or RTREE and SECONDARY_ENGINE_ATTRIBUTE of an index, which TiDB accepts but "
        "ignores; left out."
    ),
    "column option": "COLUMN_FORMAT, STORAGE and SECONDARY_ENGINE_ATTRIBUTE of a column, which TiDB accepts but ignores; left out.",
    "column reference": "TiDB creates no foreign key for REFERENCES in a column, but newer servers do; left out.",
    "counter without index": (
        "MySQL and MariaDB require an index that begins with an AUTO_INCREMENT column, TiDB does not; AUTO_INCREMENT "
        "is left out."
    ),
    "order of options": (
        "TiDB accepts the options of a generated column in any order; GENERATED ALWAYS AS is moved after the type "
        "and its collation."
    ),
    "list of columns": "ADD COLUMN (…) with indexes or constraints in it is split into one action for each.",
    "global index": "Only TiDB has unique indexes over all partitions of a table; left out. The source keeps the rows unique.",
    "attribute of TiDB": (
        "TiFlash replicas, caching, placement, TTL, statistics, splits into regions and the like mean nothing for rows; "
        "left out. So is what a database says of deleted rows that stay: its tables halt."
    ),
    "object of TiDB": "Sequences, placement policies and resource groups are not tables and hold no rows; not run.",
    "table option": "Options that only TiDB uses, or that it accepts but ignores (ENCRYPTION, DATA DIRECTORY …); left out.",
    "unknown option": (
        "Options of tables that one server has and the other lacks (COMPRESSION, PAGE_COMPRESSED …); TiDB ignores "
        "them; left out."
    ),
    "database option": "ENCRYPTION of a database, which TiDB ignores, and its TiFlash replicas; left out.",
    "system time": "TiDB creates a table without partitions for PARTITION BY SYSTEM_TIME; left out.",
    "binlog": "NO_WRITE_TO_BINLOG is about the source's log; the target's own replicas need the statement; left out.",
    "IF EXISTS": (
        "MySQL has no IF [NOT] EXISTS for columns, indexes and partitions; left out, together with the action if it "
        "has nothing to do."
    ),
    "IF NOT EXISTS": (
        "The source created the table, so one that the target already has is a different one; left out, so that the "
        "statement is refused."
    ),
    "validation": "MariaDB always checks the rows of EXCHANGE PARTITION; WITH and WITHOUT VALIDATION are left out.",
    "linear partitions": "TiDB reads LINEAR HASH and LINEAR KEY as HASH and KEY, so rows are in other partitions; LINEAR is left out.",
    "random default": (
        "ADD COLUMN with a default like UUID() fills existing rows with other values than at the source; they stay "
        "different until the rows change."
    ),
    "virtual column": (
        "No file has the values of a virtual generated column, so they are the target's own. They are the source's for "
        "certain where the expression has nothing but literals, columns of texts, integers and dates, and "
        f"{', '.join(columns.PROVEN)} of the sorts for which all servers were tried; any other one is noted."
    ),
    "JSON cast": "CAST of a JSON_EXTRACT in a generated column: MariaDB has a text with its quotes there, so JSON_UNQUOTE is written in.",
    "generated NOT NULL": "MariaDB has no NULL and NOT NULL on generated columns, where the expression decides anyway; left out.",
    "generated primary key": "MariaDB accepts no primary key on generated columns; a unique key called primary_key does the same for rows.",
    "primary key dropped": "DROP PRIMARY KEY of one for which MariaDB has a unique key; the unique key is dropped.",
    "invisible index": "MariaDB says IGNORED for an INVISIBLE index and NOT IGNORED for a VISIBLE one.",
    "newer collation": "MariaDB has no utf8mb4_0900_ai_ci and utf8mb4_0900_bin; its own collations without padding replace them.",
    "default partition": (
        "MariaDB says DEFAULT for VALUES IN (DEFAULT), even if the list has other values, which belong to that "
        "partition anyway."
    ),
    "JSON NOT NULL": (
        "ADD COLUMN fills existing rows with JSON's null, but on MariaDB with an empty text, which is not JSON; the "
        "default is written in."
    ),
}
"""Name → what is done and why.

Backslashes, timestamps, new tables and their defaults, and defaults of sequences and by chance are
for all targets. The rest is for MySQL and MariaDB, or for one of them where the text says so.
"""

_EVERYWHERE: dict[str, Rule] = {
    "timestamp default": columns.timestamps,
    "table defaults": columns.table_defaults,
    "sequence default": columns.sequences,
    "IF NOT EXISTS": indexes.table_is_new,
    "attribute of TiDB": splits,
}
_OUTSIDE_TIDB: dict[str, Rule] = {
    "string collation": columns.introducers,
    "database defaults": columns.database_defaults,
    "charset without collation": columns.charsets,
    "name of a collation": columns.three_bytes,
    "storage engine": engine,
    "algorithm and lock": indexes.of_statement,
    "check constraint": columns.checks,
    "vector type": columns.vectors,
    "vector default": columns.vector_texts,
    "default value": columns.values,
    "table option": table_options,
    "collation of new columns": columns.new_columns,
    "database option": database_options,
    "system time": system_time,
    "binlog": unlogged,
    "foreign key name": indexes.foreign_key_names,
    "global index": indexes.global_marks,
    "partial index": indexes.partial,
    "unique partial index": indexes.unique_partial,
    "index option": indexes.options,
    "column option": columns.storage,
    "column reference": columns.references,
    "counter without index": columns.counters,
    "linear partitions": linear,
}
_MYSQL: dict[str, Rule] = {
    "index name": indexes.index_names,
    "IF EXISTS": indexes.conditions,
    "unknown option": unknown("mysql"),
    "text default": columns.texts,
}
_MARIADB: dict[str, Rule] = {
    "columns of an expression index": indexes.columns_alone,
    "generated NOT NULL": columns.generated_not_null,
    "generated primary key": indexes.generated_primary_key,
    "primary key dropped": indexes.dropped_primary_key,
    "invisible index": indexes.invisible,
    "newer collation": columns.collations,
    "default partition": default_partition,
    "JSON NOT NULL": columns.json_not_null,
    "unknown option": unknown("mariadb"),
    "validation": indexes.validation,
    "random bytes": columns.random_bytes,
    "JSON cast": columns.json_casts,
    "language of dates": columns.dates,
}


def all_edits(statement: Targeted, server_type: str) -> tuple[list[Edit], list[str]]:
    """Return edits for a server type and names of differences; without parts, all text goes."""
    rules = dict(_EVERYWHERE)
    if server_type != "tidb":
        rules |= _OUTSIDE_TIDB
    rules |= {"mariadb": _MARIADB, "mysql": _MYSQL}.get(server_type, {})
    edits: list[Edit] = []
    notes: list[str] = []
    for name, rule in rules.items():
        # Each rule sees the original text: none depends on what another one changes.
        made = list(rule(statement))
        edits += made
        notes += [name] if made else []
    gone, reasons = parts_left_out(statement, server_type)
    # Several rules may take away overlapping texts; the widest edit wins.
    edits = outermost(edits)
    # An action of which nothing is left must take its comma along.
    gone |= emptied(statement, edits) if statement.head == ("ALTER", "TABLE") else frozenset()
    # To the end of the text, not of the tokens: no comment may remain as a statement.
    if len(gone) == len(statement.parts):
        everything = (0, max(statement.tokens[-1].end, len(statement.text)), "")
        return [everything], reasons or notes
    notes += [reason for reason in reasons if reason not in notes]
    # An edit inside a part that goes is pointless, and would overlap with the part's own edit.
    for span in spans(statement, gone):
        edits = [edit for edit in edits if not span[0] <= edit[0] < span[1]]
        edits.append(span)
    # Nothing is changed for it, but whoever compares the tables should know.
    if column := columns.random_default(statement):
        notes.append(f"random default of {column}")
    if server_type != "tidb" and (computed := columns.virtual_columns(statement)):
        notes.append(f"virtual column of {', '.join(computed)}")
    return edits, notes
