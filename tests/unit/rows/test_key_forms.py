"""How keys that a commit range has in several spellings are compared, by the types of source and target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import ValueForm
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.rows.fitting import KeyForms, TargetColumn, key_forms, other_families
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_keys import is_integer
from storage_consumer.rows.spec import Fold, TablePlan
from tests.unit.rows.test_match import source, step, table, there, unique, upstream

OLD, NEW = (100, "s/t"), (150, "s/t")


def of_type(kind: str, size: int | None = None, *elements: str) -> TableColumn:
    """A key column; `size`: digits after the point, or bytes of a BINARY."""
    sizes = {"precision": size} if kind == "BINARY" else {"scale": size}
    return TableColumn(name="id", type=kind, is_pk=True, nullable=False, elements=elements, **sizes)  # type: ignore[arg-type] # its fields


def target(kind: str, **facts: object) -> TargetColumn:
    """The target's column."""
    return there("id", data_type=kind, **facts)


def forms(old: TableColumn, new: TableColumn, column: TargetColumn, *, zone: str = "", is_key: bool = True) -> KeyForms:
    """Of two directories, of which the later one's structure is in force."""
    return key_forms({OLD: old, NEW: new}, new, column, "csv", zone, is_key=is_key)


def work(column: TargetColumn, *columns: TableColumn, protocol: str = "csv") -> TablePlan:
    """The work of a commit range over directories with these key columns."""
    definitions = [source(one, version=100 + 50 * number, query="") for number, one in enumerate(columns)]
    return table_work(0, step(*definitions), table(column, keys=(unique("id"),)), upstream(protocol))


@pytest.mark.parametrize(
    ("old", "new", "kind", "spelled"),
    [
        (of_type("DECIMAL", 1), of_type("DECIMAL", 3), "decimal", (ValueForm.NUMBER, ValueForm.NUMBER)),
        (of_type("INT"), of_type("DECIMAL", 3), "decimal", (None, ValueForm.NUMBER)),
        (of_type("FLOAT"), of_type("DOUBLE"), "float", (ValueForm.NEAREST_SINGLE, ValueForm.SINGLE)),
        (of_type("DATETIME"), of_type("DATETIME", 3), "datetime", (ValueForm.MOMENT, ValueForm.MOMENT)),
        (of_type("TIMESTAMP"), of_type("TIMESTAMP", 6), "timestamp", (ValueForm.MOMENT, ValueForm.MOMENT)),
        (of_type("DATE"), of_type("DATETIME"), "date", (None, ValueForm.DAY)),
        (of_type("TIME"), of_type("TIME", 3), "time", (ValueForm.TIME, ValueForm.TIME)),
        (of_type("INT"), of_type("VARCHAR"), "varchar", (None, None)),
        (of_type("BINARY", 4), of_type("BINARY", 8), "binary", (ValueForm.PADDED, ValueForm.PADDED)),
        (of_type("YEAR"), of_type("INT"), "int", (ValueForm.NUMBER, None)),
        (of_type("BIT"), of_type("BIGINT"), "bigint", (None, None)),
    ],
)
def test_spelled(
    old: TableColumn, new: TableColumn, kind: str, spelled: tuple[ValueForm | None, ValueForm | None]
) -> None:
    """Where two directories write one key in two ways, both write it in the one that the target's type gives it."""
    found = forms(old, new, target(kind, length=8))
    assert found.unknown == {}
    made = [found.spellings.get(place) for place in (OLD, NEW)]
    assert tuple(spelling and spelling.form for spelling in made) == spelled


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (of_type("INT"), of_type("BIGINT"), "bigint"),
        (of_type("DECIMAL", 3), of_type("DECIMAL", 3), "decimal"),
        (of_type("VARCHAR"), of_type("TEXT"), "varchar"),
        (of_type("DATETIME", 3), of_type("DATETIME", 3), "datetime"),
        (of_type("BINARY", 4), of_type("BINARY", 4), "binary"),
        (of_type("SET", None, "a", "b"), of_type("SET", None, "a", "b"), "set"),
    ],
)
def test_one_spelling_costs_nothing(old: TableColumn, new: TableColumn, kind: str) -> None:
    """Directories that write a key alike are read as they are."""
    column = target(kind, column_type="set('a','b')")
    assert forms(old, new, column) == KeyForms()
    assert [version.layout.spelled for version in work(column, old, new).versions.values()] == [(), ()]


@pytest.mark.parametrize(
    ("old", "new", "kind", "zone", "why"),
    [
        (of_type("FLOAT"), of_type("DOUBLE"), "double", "", "other digits as a FLOAT than as a DOUBLE"),
        (of_type("FLOAT"), of_type("DOUBLE"), "decimal", "", "other digits as a FLOAT than as a DOUBLE"),
        (
            of_type("TIMESTAMP"),
            of_type("DATETIME"),
            "datetime",
            "Europe/Berlin",
            "is converted from Europe/Berlin to UTC",
        ),
        (of_type("BINARY", 4), of_type("BINARY", 8), "varbinary", "", "the target keeps the text"),
        (of_type("INT"), of_type("DATE"), "varchar", "", "the target keeps the text"),
        (of_type("FLOAT"), of_type("VARCHAR"), "varchar", "", "does not read FLOAT values"),
        (of_type("VARCHAR"), of_type("ENUM"), "enum", "", "does not read VARCHAR values"),
        (of_type("INT"), of_type("YEAR"), "year", "", "does not read INT values"),
        (of_type("DATETIME"), of_type("TIME"), "time", "", "does not read DATETIME values"),
    ],
)
def test_no_known_form(old: TableColumn, new: TableColumn, kind: str, zone: str, why: str) -> None:
    """The other structure's rows have no known form of key, and the reason says so; those of the one in force have theirs."""
    found = forms(old, new, target(kind), zone=zone)
    assert found.unknown.keys() == {OLD}
    assert why in found.unknown[OLD]
    assert OLD not in found.spellings


def test_error_names_the_key() -> None:
    """The reason that a table halts for names the column, both types and what to do."""
    made = work(target("double"), of_type("FLOAT"), of_type("DOUBLE"))
    assert made.versions[NEW].misfit == ""
    error = made.versions[OLD].misfit
    assert error.startswith("the key column id is FLOAT in this directory and DOUBLE in the current structure")
    assert "Reload the table" in error


@pytest.mark.parametrize(("protocol", "form"), [("csv", ValueForm.MEMBERS), ("canal-json", None)])
def test_members_by_number_have_no_names_to_spell(protocol: Protocol, form: ValueForm | None) -> None:
    """Beside rows of another type the names of a SET's members come in one sequence, and their numbers as they are."""
    new = of_type("SET", None, "a", "b")
    found = key_forms(
        {OLD: of_type("JSON"), NEW: new}, new, target("set", column_type="set('a','b')"), protocol, "", is_key=False
    )
    spelled = found.spellings.get(NEW)
    assert (spelled and spelled.form) == form


def test_members_by_name() -> None:
    """Names of a SET's members come in the target's sequence, whatever the source's is, and where nobody told that one."""
    column = target("set", column_type="set('a','b')")
    for old in (of_type("SET", None, "b", "a"), of_type("SET")):
        assert [one.members for one in forms(old, old, column).spellings.values()] == [("a", "b")] * 2
        assert forms(old, old, column, is_key=False) == KeyForms()
        assert key_forms({OLD: old}, old, column, "canal-json", "", is_key=True) == KeyForms()


def test_members_by_number() -> None:
    """The same number is another member in a directory whose members are listed in another sequence: its rows do not fit."""
    made = work(
        target("enum", column_type="enum('a','b')"),
        of_type("ENUM", None, "b", "a"),
        of_type("ENUM", None, "a", "b"),
        protocol="canal-json",
    )
    assert made.versions[NEW].misfit == ""
    assert "other ENUM or SET members in: id." in made.versions[OLD].misfit


def test_exact_numbers() -> None:
    """Floating point numbers among others are compared by their exact texts; alone, by value."""
    alone, among = (
        work(target("decimal"), of_type("DOUBLE")),
        work(target("decimal"), of_type("DOUBLE"), of_type("DECIMAL", 9)),
    )
    assert (alone.key[0].fold, among.key[0].fold) == (Fold.NUMBER, Fold.EXACT)


@pytest.mark.parametrize(
    ("source_type", "kind", "compared"),
    [
        ("FLOAT", "float", "FLOAT"),
        ("FLOAT", "double", "DOUBLE"),
        ("FLOAT", "decimal", "DECIMAL"),
        ("DOUBLE", "float", "FLOAT"),
        ("DOUBLE", "int", "DECIMAL"),
        ("INT", "decimal", "INT"),
    ],
)
def test_numbers_are_what_the_target_makes_of_them(source_type: str, kind: str, compared: str) -> None:
    """0.1 of a FLOAT is another number in a DECIMAL column than in a FLOAT one, so a delete has to say which."""
    assert work(target(kind), of_type(source_type)).key[0].column.type == compared


@pytest.mark.parametrize("pads", [False, True])
def test_whole_numbers_as_texts(*, pads: bool) -> None:
    """A number that becomes a text is compared as one: 5 is not 05 there. Nothing else may go with what becomes a text."""
    column = target("varchar", pads=pads)
    made = work(column, of_type("INT"), of_type("VARCHAR"))
    assert not is_integer(made.key)
    assert (made.key[0].column.type, made.key[0].fold) == ("VARCHAR", Fold.PAD if pads else Fold.EXACT)
    assert [version.misfit for version in made.versions.values()] == ["", ""]
    with pytest.raises(NotReplicable, match="id is varchar in the target, INT at the source"):
        work(column, of_type("INT"))
    assert (
        "id is varchar in the target, FLOAT at"
        in work(column, of_type("FLOAT"), of_type("VARCHAR")).versions[OLD].misfit
    )


@pytest.mark.parametrize(
    ("kind", "column"), [("INT", "bit"), ("INT", "year"), ("VARCHAR", "enum"), ("VARCHAR", "set"), ("ENUM", "set")]
)
def test_taken_for_something_else(kind: str, column: str) -> None:
    """A target's column that takes a text for a byte, a year of this century or a member's number gets none."""
    with pytest.raises(NotReplicable, match=f"id is {column} in the target, {kind} at the source"):
        work(target(column), of_type(kind))


def test_other_family_in_one_directory() -> None:
    """Rows of a directory whose type is of another family than the target's do not fit, the key or not."""
    rows = step(
        source(of_type("INT"), TableColumn(name="v", type="INT"), query=""),
        source(of_type("INT"), TableColumn(name="v", type="VARCHAR"), version=150, query=""),
    )
    rows = replace(rows, current=rows.definitions[OLD])
    made = table_work(0, rows, table(target("int"), there("v", data_type="int"), keys=(unique("id"),)), upstream())
    assert made.versions[OLD].misfit == ""
    assert "v is int in the target, VARCHAR at the source" in made.versions[NEW].misfit
    layout = made.versions[NEW].layout
    assert other_families(layout, table(target("int"), there("v", data_type="varchar"))) == ""
