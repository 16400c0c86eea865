"""What a table's keys were when a statement of ours left it, and what somebody made of them since."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.model import TableName
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.target.structure import key_drift, keys_of

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
    """It is reported by its columns."""
    assert key_drift(NOTED, table(key("Id"), key("v", name="mine"))) == "unique key over `v`"


def test_another_collation() -> None:
    """A key whose texts the target now finds equal more often is reported with both collations."""
    loose = TargetColumn(name="Id", data_type="varchar", nullable=False, collation="utf8mb4_general_ci")
    drift = key_drift(NOTED, table(key("Id"), identifier=loose))
    assert drift == "collation utf8mb4_general_ci of Id instead of utf8mb4_bin"


def test_a_server_that_renames_its_collations() -> None:
    """An upgrade makes utf8_bin utf8mb3_bin, which is no other collation; another one is reported by both names."""
    older, newer, other = (replace(ID, collation=name) for name in ("utf8_bin", "utf8mb3_bin", "utf8mb3_general_ci"))
    noted = keys_of(table(key("Id"), identifier=older))
    assert key_drift(noted, table(key("Id"), identifier=newer)) == ""
    assert (
        key_drift(noted, table(key("Id"), identifier=other)) == "collation utf8mb3_general_ci of Id instead of utf8_bin"
    )


def test_line_break_in_a_name() -> None:
    """A note is read back line by line; a column whose name has a line break is no change."""
    odd = TargetColumn(name="I\nd", data_type="varchar", nullable=False, collation="utf8mb4_bin")
    same = table(key("I\nd"), identifier=odd)
    assert key_drift("\n".join(keys_of(same)).split("\n"), same) == ""


def test_name_in_another_case() -> None:
    """A column that somebody spells in another case still has its collation."""
    spelled = TargetColumn(name="ID", data_type="varchar", nullable=False, collation="utf8mb4_bin")
    assert key_drift(NOTED, table(key("ID"), identifier=spelled)) == ""


def test_columns_of_odd_names() -> None:
    """A line's end in a name does not cut the note, and ß is not ss: TiDB has both `maße` and `masse`."""
    odd = UniqueKey(name="u", columns=("a\nb",), prefixes=(None,))
    assert key_drift("\n".join(keys_of(table(key("Id"), odd))).split("\n"), table(key("Id"), odd)) == ""
    assert (
        key_drift(keys_of(table(key("maße"))), table(key("maße"), key("masse", name="u"))) == "unique key over `masse`"
    )


def test_key_over_an_expression() -> None:
    """One more is reported by what it is over; a note of an earlier build says nothing of such keys, so none is reported then."""
    over = replace(table(key("Id")), expression_keys=("(lower(`v`))", "(upper(`v`)), `id`"))
    assert key_drift(keys_of(over), over) == ""
    assert key_drift(NOTED, over) == "unique key over (lower(`v`)); unique key over (upper(`v`)), `id`"
    earlier = ["unique key over `id`", "collation utf8mb4_bin of Id"]
    assert key_drift(earlier, over) == ""
