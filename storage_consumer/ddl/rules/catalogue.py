"""What a statement of TiDB needs to run on MySQL or MariaDB: additions and omissions, as edits of its text. Pure.

`DIFFERENCES` lists each with its reason. What changes nothing about rows is left out where a server does not know it. What would
change rows stays, so that the server refuses it and the table stops.
"""

from __future__ import annotations

from collections.abc import Callable

from storage_consumer.ddl.rules import clauses, column_options, defaults, index_options, literals, names, table_options
from storage_consumer.ddl.rules.omissions import parts_left_out
from storage_consumer.ddl.statement import Edit, Statement, emptied, outermost, spans
from storage_consumer.sql.tokens import has_words

DIFFERENCES = {
    "backslash": "TiCDC leaves backslashes bare in comments of tables, partitions, indexes and in members of ENUM, SET; escaped.",
    "timestamp default": "The text has a TIMESTAMP default in the zone of the source's session; it is written in that of ours.",
    "string collation": "_UTF8MB4'x' means utf8mb4_bin at the source, the target's default here; the session's is the source's.",
    "database defaults": "CREATE DATABASE that names no charset or collation means utf8mb4_bin at the source; written in.",
    "table defaults": "CREATE TABLE in a database with other defaults: the source's charset and collation are written in.",
    "charset without collation": "CHARACTER SET x alone means the source's default collation of x, not the target's; written in.",
    "collation of new columns": "A statement that adds a column and changes the table's collation gives it the former one at the source; written in.",
    "storage engine": "TiDB ignores ENGINE; another one than InnoDB may lack transactions or be unknown; InnoDB is written in, and none for partitions.",
    "algorithm and lock": "ALGORITHM and LOCK say how a server should alter a table, not what comes out; left out.",
    "check constraint": "TiDB enforces CHECK only if told to, so rows may not pass it; left out.",
    "search index": "FULLTEXT, VECTOR, HYBRID and COLUMNAR indexes of TiDB mean nothing for rows; left out.",
    "vector type": "MySQL and MariaDB have no VECTOR like TiDB's; its text goes to a LONGTEXT column.",
    "vector default": "DEFAULT (VEC_FROM_TEXT('…')): the text itself, since the column is a LONGTEXT.",
    "text default": "MySQL takes the default of a TEXT, BLOB or JSON in parentheses only, and forgets an empty one; put there, or left out of SET DEFAULT.",
    "default value": "A number as default of an ENUM or SET, hexadecimals of an integer, 0 of a YEAR: written as the value that TiDB makes of it.",
    "random bytes": "MariaDB has no UUID_TO_BIN; UNHEX of a UUID makes as random a default.",
    "language of dates": "MariaDB's DATE_FORMAT depends on the session's language, so no stored column can have it; 'en_US', which is TiDB's, is written in.",
    "sequence default": "Sequences are not replicated, and rows come with their values; the default is left out.",
    "missing index": "DROP, RENAME or ALTER of an index that the target does not have, since it was left out; left out as well.",
    "expression index": "MariaDB has no indexes over expressions; an ordinary one means nothing for rows and is left out.",
    "columns of an expression index": "One without a name is called after the column in front; MariaDB makes it of its columns alone, not unique, so that names stay the source's.",
    "unique expression index": "MariaDB has none; the source goes on to keep the rows unique, the target no longer does; left out.",
    "index name": "MySQL calls an index over an expression otherwise than TiDB where none is given; TiDB's name is written in.",
    "foreign key name": "MySQL and MariaDB want each name once per database, TiDB once per table; the table's name goes in front.",
    "missing foreign key": "DROP FOREIGN KEY of one that the target does not have; foreign keys are not checked here; left out.",
    "partial index": "MySQL and MariaDB have no WHERE for indexes, which means nothing for rows: the index holds all of them.",
    "unique partial index": "One with WHERE keeps only some rows apart, which no key of MySQL or MariaDB does; an ordinary index is made.",
    "index option": "WITH PARSER, USING HASH or RTREE and SECONDARY_ENGINE_ATTRIBUTE of an index, which TiDB takes without heeding them; left out.",
    "column option": "COLUMN_FORMAT, STORAGE and SECONDARY_ENGINE_ATTRIBUTE of a column, which TiDB takes without heeding them; left out.",
    "column reference": "TiDB makes no foreign key of REFERENCES in a column, newer servers do; left out.",
    "counter without index": "MySQL and MariaDB want an index that begins with an AUTO_INCREMENT column, TiDB does not; AUTO_INCREMENT is left out.",
    "order of options": "TiDB takes the options of a generated column in any order; GENERATED ALWAYS AS is put behind the type and its collation.",
    "list of columns": "ADD COLUMN (…) with indexes or constraints in it; each gets an action of its own.",
    "global index": "A unique index over all partitions of a table, which only TiDB has; the source keeps the rows unique; left out.",
    "attribute of TiDB": "TiFlash replicas, caching, placement, TTL, statistics and the like mean nothing for rows; left out.",
    "object of TiDB": "Sequences, placement policies and resource groups are no tables and hold no rows; not run.",
    "table option": "Options that TiDB alone heeds, or takes without heeding (ENCRYPTION, DATA DIRECTORY …); left out.",
    "unknown option": "Options of tables that one server has and the other lacks (COMPRESSION, PAGE_COMPRESSED …); TiDB heeds none; left out.",
    "database option": "ENCRYPTION of a database, which TiDB does not heed, and its TiFlash replicas; left out.",
    "system time": "TiDB makes a table without partitions of PARTITION BY SYSTEM_TIME; left out.",
    "binlog": "NO_WRITE_TO_BINLOG is about the source's log; the target's own replicas need the statement; left out.",
    "IF EXISTS": "MySQL has no IF [NOT] EXISTS for columns, indexes and partitions; left out, with the action where it has none to do.",
    "IF NOT EXISTS": "The source made the table; one that the target has already is another: left out, so that it is refused.",
    "validation": "MariaDB always checks the rows of EXCHANGE PARTITION; WITH and WITHOUT VALIDATION are left out.",
    "linear partitions": "TiDB takes LINEAR HASH and LINEAR KEY for HASH and KEY, so that rows are elsewhere; LINEAR is left out.",
    "random default": "ADD COLUMN with a default like UUID() fills the rows otherwise than the source did; they stay so until changed.",
    "generated NOT NULL": "MariaDB knows no NULL and NOT NULL on generated columns; the expression decides anyway; left out.",
    "generated primary key": "MariaDB takes no primary key on generated columns; a unique key, called primary_key, does the same for rows.",
    "primary key dropped": "DROP PRIMARY KEY of one for which MariaDB has a unique key; that is dropped.",
    "invisible index": "MariaDB says IGNORED for an INVISIBLE index and NOT IGNORED for a VISIBLE one.",
    "newer collation": "MariaDB has no utf8mb4_0900_ai_ci and utf8mb4_0900_bin; its own without padding stand in.",
    "default partition": "MariaDB says DEFAULT for VALUES IN (DEFAULT), also where the list has other values, which would be in it anyway.",
    "JSON NOT NULL": "ADD COLUMN gives rows that are there JSON's null; on MariaDB an empty text, no JSON: the default is written in.",
}
"""Name → what is done and why.

Backslashes, timestamps, new tables and their defaults, and defaults of sequences and by chance are for all targets. The rest is for
MySQL and MariaDB, or for one of them where the text says so.
"""

Rule = Callable[[Statement], list[Edit]]

_EVERYWHERE: dict[str, Rule] = {
    "timestamp default": literals.timestamps,
    "table defaults": clauses.table_defaults,
    "sequence default": clauses.sequences,
    "IF NOT EXISTS": names.table_is_new,
}
_OUTSIDE_TIDB: dict[str, Rule] = {
    "string collation": literals.introducers,
    "database defaults": clauses.database_defaults,
    "charset without collation": clauses.charsets,
    "storage engine": table_options.engine,
    "algorithm and lock": clauses.index_options,
    "check constraint": clauses.checks,
    "vector type": clauses.vectors,
    "vector default": defaults.vectors,
    "default value": defaults.values,
    "table option": table_options.table_options,
    "collation of new columns": clauses.new_columns,
    "database option": table_options.database_options,
    "system time": table_options.system_time,
    "binlog": table_options.unlogged,
    "foreign key name": names.foreign_key_names,
    "global index": names.global_marks,
    "partial index": index_options.partial,
    "unique partial index": index_options.unique_partial,
    "index option": index_options.options,
    "column option": column_options.storage,
    "column reference": column_options.references,
    "counter without index": column_options.counters,
    "linear partitions": names.linear,
}
_MYSQL: dict[str, Rule] = {
    "index name": names.index_names,
    "IF EXISTS": names.conditions,
    "unknown option": table_options.mysql_options,
    "text default": defaults.texts,
}
_MARIADB: dict[str, Rule] = {
    "columns of an expression index": index_options.columns_alone,
    "generated NOT NULL": clauses.generated_not_null,
    "generated primary key": index_options.generated_primary_key,
    "primary key dropped": index_options.dropped_primary_key,
    "invisible index": clauses.invisible,
    "newer collation": clauses.collations,
    "default partition": clauses.default_partition,
    "JSON NOT NULL": names.json_not_null,
    "unknown option": table_options.mariadb_options,
    "validation": names.validation,
    "random bytes": defaults.random_bytes,
    "language of dates": defaults.dates,
}


def all_edits(statement: Statement, server_type: str) -> tuple[list[Edit], list[str]]:
    """Return the edits for a server of this type, and the names of the differences; if no part is left, the edit removes all text."""
    rules = dict(_EVERYWHERE)
    if server_type != "tidb":
        rules |= _OUTSIDE_TIDB
    rules |= {"mariadb": _MARIADB, "mysql": _MYSQL}.get(server_type, {})
    edits: list[Edit] = []
    notes: list[str] = []
    for name, rule in rules.items():
        made = rule(statement)
        edits += made
        notes += [name] if made else []
    gone, reasons = parts_left_out(statement, server_type)
    edits = outermost(edits)
    gone |= emptied(statement, edits) if has_words(statement.found[:2], "ALTER", "TABLE") else frozenset()
    if len(gone) == len(statement.parts):
        everything = (0, max(statement.found[-1].end, len(statement.text)), "")
        return [everything], reasons or notes
    notes += [reason for reason in reasons if reason not in notes]
    # An edit inside a part that goes is pointless, and would overlap with the part's own edit.
    for span in spans(statement, gone):
        edits = [edit for edit in edits if not span[0] <= edit[0] < span[1]]
        edits.append((*span, ""))
    if column := names.random_default(statement):
        notes.append(f"random default of {column}")
    return edits, notes
