"""Parts of a DDL, or whole statements, that MySQL or MariaDB have no use for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.ddl.rules.columns import sets_sequence, sets_text
from storage_consumer.ddl.rules.indexes import is_called_after_column, is_global, over_expression
from storage_consumer.ddl.rules.names import condition_fails, foreign_key_dropped, name_there
from storage_consumer.ddl.rules.tables import SPLIT, STORED_BY_TIDB_ONLY, UNKNOWN
from storage_consumer.ddl.statement import Targeted
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import folded_name
from storage_consumer.sql.statement import INDEX_WORDS
from storage_consumer.sql.tokens import Token

_OWN_OBJECTS = "{CREATE|ALTER|DROP} {GLOBAL TEMPORARY TABLE|SEQUENCE|PLACEMENT POLICY|RESOURCE GROUP}"
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
    """Return the indexes of the parts to leave out, and the names of the differences that call for it."""
    everything = frozenset(range(len(statement.parts)))
    if server_type != "tidb" and statement.begins(0, _OWN_OBJECTS):
        return everything, ["object of TiDB"]
    # With nothing but its value behind it.
    is_encryption = statement.begins(0, "ALTER {DATABASE|SCHEMA} any ENCRYPTION") and len(statement.tokens) <= 6  # noqa: PLR2004
    if statement.begins(0, _REPLICAS) or (server_type != "tidb" and is_encryption):
        return everything, ["attribute of TiDB"]
    reasons = {number: _reason_to_leave_out(statement, number, server_type) for number in sorted(everything)}
    gone = {number: reason for number, reason in reasons.items() if reason}
    return frozenset(gone), list(dict.fromkeys(gone.values()))


def _reason_to_leave_out(statement: Targeted, number: int, server_type: str) -> str:
    """Return which difference takes this part out, or ""."""
    first, last = statement.parts[number]
    part = statement.tokens[first:last]
    if not part:
        return "" if server_type == "tidb" else "attribute of TiDB"  # in a comment that only TiDB reads
    if sets_sequence(part):
        return "sequence default"
    # The target's own affair, a TiDB's too: TiCDC leaves replicas to each cluster, and not every TiDB has the clause for regions.
    if statement.begins(first, f"SET TIFLASH|{SPLIT}"):
        return "attribute of TiDB"
    if server_type == "tidb":
        return ""
    words = {token.upper for token in part[:4]}
    defines_index = statement.begins(first, _INDEXES)
    # An index that TiDB names after a column is created over its columns alone, so that its name exists for later statements.
    no_expressions = (
        server_type == "mariadb"
        and defines_index
        and over_expression(part)
        and not is_called_after_column(statement, part)
    )
    dropped = foreign_key_dropped(part)
    # The first that holds counts, so a special case comes before the general one.
    reasons = {
        "algorithm and lock": not statement.creates and statement.begins(first, "ALGORITHM|LOCK"),
        "check constraint": statement.begins(first, _CHECKS),
        "search index": statement.begins(first, _SEARCH),
        "attribute of TiDB": not statement.creates and statement.begins(first, _OWN_ACTIONS),
        "table option": not statement.creates and statement.begins(first, STORED_BY_TIDB_ONLY),
        "unknown option": not statement.creates and statement.begins(first, UNKNOWN[server_type]),
        "system time": statement.begins(first, "PARTITION BY SYSTEM_TIME"),
        "missing index": _is_missing_index(part, statement.names),
        "missing foreign key": statement.names is not None
        and dropped is not None
        and not name_there(dropped.name, statement),
        "text default": server_type == "mysql" and sets_text(part, statement.stored),
        "IF EXISTS": server_type == "mysql" and condition_fails(part, statement.names),
        "unique expression index": no_expressions and "UNIQUE" in words,
        "expression index": no_expressions,
        "global index": defines_index and "PRIMARY" not in words and is_global(statement, first, last),
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _is_missing_index(part: Sequence[Token], names: PartNames | None) -> bool:
    """Return whether a part drops, renames or alters an index that the target does not have."""
    # Without the target's names nothing counts as missing: the server's refusal is better than an index too many.
    if names is None or len(part) < 3 or part[0].upper not in ("DROP", "RENAME", "ALTER"):  # noqa: PLR2004 - verb, INDEX, name
        return False
    # Behind IF EXISTS.
    at = 4 if part[2].upper == "IF" else 2
    return part[1].upper in INDEX_WORDS and len(part) > at and folded_name(part[at].name) not in names.indexes
