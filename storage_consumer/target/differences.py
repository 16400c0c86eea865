"""What a statement of TiDB needs to run on MySQL or MariaDB: what is put in or taken out, as edits of its text. Pure.

`DIFFERENCES` lists each, with the reason. What changes nothing about rows is taken out where a server does not know it; what
would change them stays, so that the server refuses it and the table stops.
"""

from __future__ import annotations

from collections.abc import Callable

from storage_consumer.target import clauses, idioms, literals
from storage_consumer.target.leaving_out import parts_left_out
from storage_consumer.target.parts import Edit, Statement, spans

DIFFERENCES = {
    "backslash": "TiCDC leaves backslashes bare in comments of tables, partitions, indexes and in members of ENUM, SET; escaped.",
    "timestamp default": "The text has a TIMESTAMP default in the zone of the source's session; it is written in that of ours.",
    "string collation": "_UTF8MB4'x' means utf8mb4_bin at the source, the target's default here; the session's is the source's.",
    "database defaults": "CREATE DATABASE that names no charset or collation means utf8mb4_bin at the source; written in.",
    "table defaults": "CREATE TABLE in a database with other defaults: the source's charset and collation are written in.",
    "charset without collation": "CHARACTER SET x alone means the source's default collation of x, not the target's; written in.",
    "storage engine": "TiDB ignores ENGINE; another one than InnoDB may lack transactions or be unknown; InnoDB is written in.",
    "algorithm and lock": "ALGORITHM and LOCK say how a server should alter a table, not what comes out; left out.",
    "check constraint": "TiDB enforces CHECK only if told to, so rows may not pass it; left out.",
    "search index": "FULLTEXT, VECTOR, HYBRID and COLUMNAR indexes of TiDB mean nothing for rows; left out.",
    "vector type": "MySQL and MariaDB have no VECTOR like TiDB's; its text goes to a LONGTEXT column.",
    "sequence default": "Sequences are not replicated, and rows come with their values; the default is left out.",
    "missing index": "DROP, RENAME or ALTER of an index that the target does not have, since it was left out; left out as well.",
    "expression index": "MariaDB has no indexes over expressions; an ordinary one means nothing for rows and is left out.",
    "unique expression index": "MariaDB has none; the source goes on to keep the rows unique, the target no longer does; left out.",
    "index name": "MySQL calls an index over an expression otherwise than TiDB where none is given; TiDB's name is written in.",
    "foreign key name": "MySQL and MariaDB want each name once per database, TiDB once per table; the table's name goes in front.",
    "missing foreign key": "DROP FOREIGN KEY of one that the target does not have; foreign keys are not checked here; left out.",
    "global index": "A unique index over all partitions of a table, which only TiDB has; the source keeps the rows unique; left out.",
    "attribute of TiDB": "TiFlash replicas, caching, placement, TTL, statistics and the like mean nothing for rows; left out.",
    "object of TiDB": "Sequences, placement policies and resource groups are no tables and hold no rows; not run.",
    "table option": "Options that TiDB alone heeds, or takes without heeding (ENCRYPTION, DATA DIRECTORY …); left out.",
    "unknown option": "MariaDB has no COMPRESSION and AUTOEXTEND_SIZE, which TiDB does not heed; left out.",
    "IF EXISTS": "MySQL has no IF [NOT] EXISTS for columns, indexes and partitions; left out, with the action where it has none to do.",
    "IF NOT EXISTS": "The source made the table; one that the target has already is another: left out, so that it is refused.",
    "validation": "MariaDB always checks the rows of EXCHANGE PARTITION; WITH and WITHOUT VALIDATION are left out.",
    "linear partitions": "TiDB takes LINEAR HASH and LINEAR KEY for HASH and KEY, so that rows are elsewhere; LINEAR is left out.",
    "random default": "ADD COLUMN with a default like UUID() fills the rows otherwise than the source did; they stay so until changed.",
    "generated NOT NULL": "MariaDB knows no NOT NULL on generated columns; the expression decides anyway; left out.",
    "generated primary key": "MariaDB takes no primary key on a generated column; a unique key does the same for rows.",
    "invisible index": "MariaDB says IGNORED for an INVISIBLE index and NOT IGNORED for a VISIBLE one.",
    "newer collation": "MariaDB has no utf8mb4_0900_ai_ci and utf8mb4_0900_bin; its own without padding stand in.",
    "default partition": "MariaDB says DEFAULT for VALUES IN (DEFAULT).",
    "JSON NOT NULL": "ADD COLUMN gives rows that are there JSON's null; on MariaDB an empty text, no JSON: the default is written in.",
}
"""Name → what is done and why. Backslashes, timestamps, new tables and their defaults, defaults of sequences and by chance are for all targets, the rest for MySQL
and MariaDB, or one of them where the text says so."""

Rule = Callable[[Statement], list[Edit]]

_EVERYWHERE: dict[str, Rule] = {
    "timestamp default": literals.timestamps,
    "table defaults": clauses.table_defaults,
    "sequence default": clauses.sequences,
    "IF NOT EXISTS": idioms.table_is_new,
}
_OUTSIDE_TIDB: dict[str, Rule] = {
    "string collation": literals.introducers,
    "database defaults": clauses.database_defaults,
    "charset without collation": clauses.charsets,
    "storage engine": clauses.engine,
    "algorithm and lock": clauses.index_options,
    "check constraint": clauses.checks,
    "vector type": clauses.vectors,
    "table option": idioms.table_options,
    "foreign key name": idioms.foreign_key_names,
    "global index": idioms.global_marks,
    "linear partitions": idioms.linear,
}
_MYSQL: dict[str, Rule] = {"index name": idioms.index_names, "IF EXISTS": idioms.conditions}
_MARIADB: dict[str, Rule] = {
    "generated NOT NULL": clauses.generated_not_null,
    "generated primary key": clauses.generated_primary_key,
    "invisible index": clauses.invisible,
    "newer collation": clauses.collations,
    "default partition": clauses.default_partition,
    "JSON NOT NULL": idioms.json_not_null,
    "unknown option": idioms.mariadb_options,
    "validation": idioms.validation,
}


def all_edits(statement: Statement, flavor: str) -> tuple[list[Edit], list[str]]:
    """The edits for a server of this flavor, and the names of the differences; where no part is left, no text is."""
    rules = dict(_EVERYWHERE)
    if flavor != "tidb":
        rules |= _OUTSIDE_TIDB
    rules |= {"mariadb": _MARIADB, "mysql": _MYSQL}.get(flavor, {})
    edits: list[Edit] = []
    notes: list[str] = []
    for name, rule in rules.items():
        made = rule(statement)
        edits += made
        notes += [name] if made else []
    gone, reasons = parts_left_out(statement, flavor)
    if len(gone) == len(statement.parts):
        return [(0, max(statement.found[-1].end, len(statement.text)), "")], reasons
    notes += [reason for reason in reasons if reason not in notes]
    for span in spans(statement, gone):
        edits = [edit for edit in edits if not span[0] <= edit[0] < span[1]]
        edits.append((*span, ""))
    if column := idioms.random_default(statement):
        notes.append(f"random default of {column}")
    return edits, notes
