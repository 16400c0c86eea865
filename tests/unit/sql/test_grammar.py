"""Every form of TiDB's grammar that TiDB took, through the gate."""

from __future__ import annotations

from storage_consumer.errors import StatementRefused
from storage_consumer.model import TableDefinition, TableVersion
from storage_consumer.sql.gate import refuse_foreign
from tests.campaigns.grammar import table
from tests.campaigns.grammar.playing import name_of

TYPES = (5, 3, 21, 4, 24, 11, 14, 19, 20, 23, 64, 71, 72, 42, 25, 1, 2, 26)
"""An action code of each kind of statement; changes of columns, indexes and options are not told apart."""
REFUSED = ("CREATE PLACEMENT", "FLASHBACK CLUSTER")
"""In what the gate refuses although TiDB takes it: a text with another meaning on the target, and objects that are no tables."""


def passes(query: str) -> bool:
    """Whether the statement passes as one of some Type."""
    for kind in TYPES:
        definition = TableDefinition(
            name=name_of(query),
            version=TableVersion(7),
            query=query,
            ddl_type=kind,
            columns=(),
            path="p.json",
            checksum=0,
        )
        try:
            refuse_foreign(definition, query, "mariadb")
        except StatementRefused:
            continue
        return True
    return False


def test_what_tidb_took_passes() -> None:
    """The gate refuses none of TiDB's own statements but the few that are listed."""
    queries = {text for form, _ in table.taken() for text in form.statements}
    refused = {text for text in queries if not passes(text)}
    assert len(queries) > 2_000
    assert [text for text in sorted(refused) if not any(words in text for words in REFUSED)] == []
