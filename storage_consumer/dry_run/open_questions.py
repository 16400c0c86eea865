"""What nobody can know of a statement before it runs: what the rows of the target decide, or how the server is built and set up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.downstream.existing_names import takes_rows_of_partitions, to_integers
from storage_consumer.sql.tokens import Token, has_words, makes_global_index, tokens

_RANDOM = frozenset(("UUID", "RAND", "UUID_TO_BIN"))


def open_question(statement: str, server_type: str) -> str:
    """Return what a statement leaves open on a server of this type, or ""."""
    found = tokens(statement)
    if has_words(found[:2], "ALTER", "TABLE") and _has_random_default(found):
        return "whether the server's binary log allows a default that differs in each row"
    return _open_on_tidb(found) if server_type == "tidb" else _open_elsewhere(statement, found, server_type)


def _open_on_tidb(found: Sequence[Token]) -> str:
    if has_words(found, "FULLTEXT") or has_words(found, "VECTOR", "INDEX"):
        return "whether the table has a columnar replica, which such an index needs"
    return ""


def _open_elsewhere(statement: str, found: Sequence[Token], server_type: str) -> str:
    if to_integers(found):
        return "whether a text that it turns into an integer has a fraction by then"
    if takes_rows_of_partitions(found):
        return "whether the rows of the partition are those of the source"
    if makes_global_index(statement):
        return "whether the server takes the key: it has to contain all columns by which the table is partitioned"
    if has_words(found, "FIRST", "PARTITION") or has_words(found, "LAST", "PARTITION"):
        return "whether the server knows partitions of intervals"
    return (
        "whether the server knows a DEFAULT partition"
        if server_type == "mysql" and _has_default_partition(found)
        else ""
    )


def _has_default_partition(found: Sequence[Token]) -> bool:
    return any(
        before.upper == "PARTITION" and after.upper == "DEFAULT"
        for before, after in zip(found, found[2:], strict=False)
    )


def _has_random_default(found: Sequence[Token]) -> bool:
    return any(
        token.upper == "DEFAULT" and any(each.upper in _RANDOM for each in found[at + 1 : at + 4])
        for at, token in enumerate(found)
    )
