"""Database names of the target that no table of the bucket may use: the state schema's, and those of the servers. Pure."""

from __future__ import annotations

import unicodedata

_SYSTEM = frozenset(
    (
        *("mysql", "information_schema", "performance_schema", "sys", "ndbinfo"),
        *("metrics_schema", "inspection_schema", "workload_schema"),
        *("tidb_cdc", "lightning_task_info", "lightning_metadata", "dm_heartbeat"),
    )
)
"""Names of MySQL and MariaDB, of TiDB, and of the tools around TiDB: TiCDC never replicates a database of these names."""
_PREFIXES = ("#mysql50#", "__tidb_br_temporary_")
"""Prefixes: of MySQL and MariaDB for a folder by its name on disk, and of BR for its copies of system schemas."""
_LETTERS = str.maketrans({"ß": "s", "\u0131": "i"})
_UNSEEN = frozenset(("Mn", "Me", "Cf", "Cc"))
"""Categories of characters that some collation ignores: accents, joiners, direction marks."""


def spelling(name: str) -> str:
    """Return one text for all spellings of a name that a server may find equal.

    Servers compare database names with case, without it, or by a collation of information_schema, which may ignore accents, width
    and trailing spaces. This text ignores all of that, so two names that differ in it are different on every server.
    """
    if name.isascii():
        return name.lower().rstrip()
    plain = unicodedata.normalize("NFKD", name.translate(_LETTERS)).casefold().translate(_LETTERS)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in _UNSEEN).rstrip()


def is_system(schema: str) -> bool:
    """Return whether a server, or a tool beside it, keeps its own tables in a database of this name."""
    plain = spelling(schema)
    return plain in _SYSTEM or plain.startswith(_PREFIXES)


def why_reserved(schema: str, state_schema: str) -> str:
    """Return whose name this database has on the target, and the remedy that only its owner has; empty if tables may use the name."""
    if spelling(schema) == spelling(state_schema):
        return (
            f"has the name of the state schema {state_schema}, in which this program keeps its progress "
            "(before the first start you can also choose another --state-schema)"
        )
    return "has the name of a system schema, in which the server keeps its own tables" if is_system(schema) else ""
