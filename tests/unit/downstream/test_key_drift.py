"""What a table's keys were when a statement of ours left it, and what somebody made of them since."""

from __future__ import annotations

from storage_consumer.downstream.key_drift import key_drift, keys_of
from storage_consumer.job.target_table import TargetColumn, TargetTable, UniqueKey
from storage_consumer.model import TableName

ID = TargetColumn(name="Id", data_type="varchar", nullable=False, collation="utf8mb4_bin")
V = TargetColumn(name="v", data_type="int", nullable=True)


def table(*keys: UniqueKey, identifier: TargetColumn = ID) -> TargetTable:
    """A table of two columns."""
    return TargetTable(name=TableName(schema="s", table="t"), columns=(identifier, V), unique_keys=keys)


def key(*columns: str, name: str = "PRIMARY") -> UniqueKey:
    """A unique key."""
    return UniqueKey(name=name, columns=columns, prefixes=(None,) * len(columns))


NOTED = keys_of(table(key("Id"), key("v", "Id", name="u")))


def test_nothing_changed() -> None:
    """The same keys under other names, in another order of columns, or fewer of them, let no row push out another."""
    assert key_drift(NOTED, table(key("id"), key("ID", "V", name="w"))) == ""
    assert key_drift(NOTED, table(key("Id"))) == ""


def test_one_more_unique_key() -> None:
    """It is told by its columns."""
    assert key_drift(NOTED, table(key("Id"), key("v", name="mine"))) == "unique key over `v`"


def test_another_collation() -> None:
    """A key whose texts the target now finds equal more often is told with both collations."""
    loose = TargetColumn(name="Id", data_type="varchar", nullable=False, collation="utf8mb4_general_ci")
    told = key_drift(NOTED, table(key("Id"), identifier=loose))
    assert told == "collation utf8mb4_general_ci of Id instead of utf8mb4_bin"
