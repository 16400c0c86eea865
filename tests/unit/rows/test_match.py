"""How a table's rows are told apart and written, and what does not fit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.config.settings import ColumnSelector, CsvOptions, Upstream
from storage_consumer.decode.values import WireKind
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import RowStep
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.rows.match import table_work, unread_work
from storage_consumer.rows.spec import Fold, Mode, TablePlan
from tests.unit.building import data_file, definition


def source(*columns: TableColumn, version: int = 100, query: str = "CREATE TABLE `t` (`id` INT)") -> TableDefinition:
    """The schema file of s/t with these columns."""
    return replace(definition("s/t", version, query), columns=columns)


def col(
    name: str, kind: str = "INT", *, pk: bool = False, nullable: bool | None = None, precision: int | None = None
) -> TableColumn:
    """A column of the schema file."""
    is_nullable = not pk if nullable is None else nullable
    return TableColumn(name=name, type=kind, is_pk=pk, nullable=is_nullable, precision=precision)


def there(name: str, **facts: object) -> TargetColumn:
    """A column of the target, not null and of a fitting type where nothing else is said."""
    known: dict[str, object] = {"data_type": "", "nullable": False, **facts}
    return TargetColumn(name=name, **known)  # type: ignore[arg-type] # the facts are named as the fields


def unique(*columns: str, name: str = "PRIMARY", prefixes: tuple[int | None, ...] = ()) -> UniqueKey:
    """A unique key of the target."""
    return UniqueKey(name=name, columns=columns, prefixes=prefixes or (None,) * len(columns))


def table(*columns: TargetColumn, keys: tuple[UniqueKey, ...] = ()) -> TargetTable:
    """The target's table."""
    return TargetTable(name=TableName(schema="s", table="T"), columns=columns, unique_keys=keys)


def step(*definitions: TableDefinition, low: int = 100, high: int = 200) -> RowStep:
    """A row step in which the last structure is in force."""
    return RowStep(
        table_key="`s`.`t`",
        name=definitions[-1].name,
        commit_range=CommitRange(low=low, high=high),
        current=definitions[-1],
        definitions={(d.version, "s/t"): d for d in definitions},
        files=(data_file("s/t", 100, 1),),
    )


def upstream(protocol: str = "csv", **settings: Any) -> Upstream:
    """A bucket of this protocol, with commit ts."""
    timed: dict[str, Any] = {"csv": CsvOptions(include_commit_ts=True), "enable_tidb_extension": True}
    return Upstream(scheme="file", root="/bucket", protocol=protocol, **(timed | settings))  # type: ignore[arg-type] # one of the two


def work(target: TargetTable, *definitions: TableDefinition, low: int = 100) -> TablePlan:
    """The work of a step against the target."""
    return table_work(0, step(*definitions, low=low), target, upstream("csv"))


def test_key_is_the_target_s_primary_key() -> None:
    """The key has the target's order of columns and prefixes; names are the same in any case."""
    target = table(there("A"), there("B"), keys=(unique("B", "A", prefixes=(3, None)),))
    made = work(target, source(col("a", "VARCHAR", pk=True), col("b", "VARCHAR", pk=True)))
    assert [(part.column.name, part.prefix) for part in made.key] == [("b", 3), ("a", None)]
    assert made.versions[100, "s/t"].key == (1, 0)
    assert made.name.table == "T"


def test_not_null_unique_key() -> None:
    """Without a primary key the first unique key whose columns cannot be NULL tells rows apart."""
    keys = (unique("a", name="u1"), unique("b", "c", name="u2"))
    target = table(there("a", nullable=True), there("b"), there("c"), keys=keys)
    made = work(target, source(col("a"), col("b"), col("c")))
    assert [part.column.name for part in made.key] == ["b", "c"]
    assert made.has_other_unique_keys


def test_a_directory_from_before_a_computed_column() -> None:
    """Repeats in it are passed over, as those of any structure that no longer fits; only a row that counts is an error."""
    target = table(there("id"), there("g", data_type="int", generated="STORED"), keys=(unique("id"),))
    made = work(target, source(col("id", pk=True), version=90), source(col("id", pk=True), col("g")))
    assert [column.name for column in made.written] == ["id", "g"]
    assert made.versions[90, "s/t"].misfit == "the rows do not carry columns that the target's table computes: g"
    assert (made.versions[90, "s/t"].written, made.versions[100, "s/t"].written) == ((), (0, 1))


def test_keyless() -> None:
    """A table whose unique keys may hold NULL has no key; its rows replace the ones that share such a key."""
    made = work(table(there("a", nullable=True), keys=(unique("a", name="u"),)), source(col("a")))
    assert made.mode is Mode.KEYLESS
    assert made.replaces
    plain = work(table(there("a", nullable=True)), source(col("a")))
    assert (plain.mode, plain.replaces, plain.has_other_unique_keys) == (Mode.KEYLESS, False, False)


@pytest.mark.parametrize(
    ("target", "columns", "words"),
    [
        (table(there("id"), keys=(unique("id"),)), [col("id")], "but the source has none"),
        (table(there("id")), [col("id", pk=True)], "no unique key over the primary key"),
        (table(there("id"), keys=(unique("id", name="u"),)), [col("id", pk=True), col("x")], "lacks: x"),
        (table(there("id"), there("x"), keys=(unique("id"),)), [col("id", pk=True)], "do not carry: x"),
        (table(there("id"), there("x"), keys=(unique("x"),)), [col("id", pk=True), col("x")], "no unique key over"),
    ],
    ids=["target alone has a key", "target lacks the key", "column lacking", "column too many", "other key"],
)
def test_refused(target: TargetTable, columns: list[TableColumn], words: str) -> None:
    """A table whose structure or key is not the source's is refused, never written by guess (C17)."""
    with pytest.raises(NotReplicable, match=words) as refusal:
        work(target, source(*columns))
    assert "s.t" in str(refusal.value)


def test_generated_columns() -> None:
    """Generated columns are never written; only virtual ones are not in the rows either (T6)."""
    columns = (there("id"), there("v", generated="VIRTUAL"), there("w", generated="STORED"), there("x"))
    made = work(table(*columns, keys=(unique("id"),)), source(col("id", pk=True), col("v"), col("w"), col("x")))
    assert [column.name for column in made.written] == ["id", "x"]
    assert [column.name for column in made.versions[100, "s/t"].layout.columns] == ["id", "w", "x"]
    assert made.versions[100, "s/t"].written == (0, 2)


def test_hidden_columns() -> None:
    """The hidden columns of expression indexes are neither in the rows nor in the target."""
    target = table(there("id"), keys=(unique("id"),))
    assert work(target, source(col("id", pk=True), col("_V$_i_0", "BIGINT"))).versions[100, "s/t"].misfit == ""


@pytest.mark.parametrize(
    ("kind", "facts", "prefix", "fold"),
    [
        ("INT", {}, None, Fold.EXACT),
        ("DATETIME", {}, None, Fold.EXACT),
        ("VARBINARY", {}, None, Fold.EXACT),
        ("FLOAT", {}, None, Fold.NUMBER),
        ("DOUBLE", {}, None, Fold.NUMBER),
        ("VARCHAR", {"pads": True}, None, Fold.PAD),
        ("VARCHAR", {"pads": False}, None, Fold.EXACT),
        ("VARCHAR", {"pads": True}, 5, Fold.LOOSE),
        ("VARCHAR", {"pads": False}, 5, Fold.EXACT),
        ("VARCHAR", {"binary_collation": False, "pads": True}, None, Fold.LOOSE),
        ("VARCHAR", {"binary_collation": False}, 5, Fold.LOOSE),
    ],
)
def test_equality_of_keys(kind: str, facts: dict[str, object], prefix: int | None, fold: Fold) -> None:
    """Each type and collation has its own notion of equal keys; where it is loose, changes are written in sequence."""
    made = work(table(there("id", **facts), keys=(unique("id", prefixes=(prefix,)),)), source(col("id", kind, pk=True)))
    assert made.key[0].fold is fold
    assert made.mode is (Mode.ORDERED if fold is Fold.LOOSE else Mode.KEYED)


@pytest.mark.parametrize(
    ("collation", "tells_apart"),
    [
        ("utf8mb4_general_ci", False),
        ("utf8mb4_unicode_ci", False),
        ("utf8mb4_german2_ci", False),
        ("utf8mb4_unicode_520_ci", True),
        ("utf8mb4_0900_ai_ci", True),
        ("utf8mb4_uca1400_as_ci", True),
        ("uca1400_ai_ci", True),
    ],
)
def test_age_of_collations(collation: str, tells_apart: bool) -> None:  # noqa: FBT001 - a column of the table
    """Collations of before Unicode 5.2 find all characters beyond U+FFFF equal."""
    column = there("id", binary_collation=False, collation=collation)
    made = work(table(column, keys=(unique("id"),)), source(col("id", "VARCHAR", pk=True)))
    assert made.key[0].beyond_bmp is tells_apart


def test_kinds_by_protocol() -> None:
    """What a value's text means depends on the protocol: members of an ENUM are names in CSV, numbers in canal-json."""
    target, rows = (
        table(there("id"), there("e", data_type="enum"), keys=(unique("id"),)),
        step(source(col("id", pk=True), col("e", "ENUM"))),
    )
    kinds = [table_work(0, rows, target, upstream(protocol)).written[1].kind for protocol in ("csv", "canal-json")]
    assert kinds == [WireKind.TEXT, WireKind.UNSIGNED]


def test_older_structure() -> None:
    """A directory whose rows no longer fit is noted as such: it may only hold repeats, so its rows are never laid out."""
    target = table(there("id"), there("x", nullable=True), keys=(unique("id"),))
    before = source(col("id", pk=True))
    made = work(target, before, source(col("id", pk=True), col("x"), version=150))
    assert made.versions[150, "s/t"].misfit == ""
    assert (
        made.versions[100, "s/t"].misfit
        == "the target's table has columns that the rows do not carry: x; drop them as the source did"
    )
    assert (made.versions[100, "s/t"].written, made.versions[100, "s/t"].key) == ((), ())


def test_low_borders() -> None:
    """A statement's directory starts at its version, a mere structure's at the commit range."""
    target = table(there("id"), keys=(unique("id"),))
    pk = col("id", pk=True)
    made = work(
        target, source(pk, version=90, query=""), source(pk), source(pk, version=150), source(pk, version=160, query="")
    )
    assert {version: part.low for (version, _), part in made.versions.items()} == {
        90: 100,
        100: 100,
        150: 150,
        160: 100,
    }


def test_reordered_columns() -> None:
    """Directories may list the same columns in different orders; the written order is one (D21)."""
    target = table(there("id"), there("x"), keys=(unique("id"),))
    made = work(target, source(col("id", pk=True), col("x")), source(col("x"), col("id", pk=True), version=150))
    assert [column.name for column in made.written] == ["x", "id"]
    assert {version: part.written for (version, _), part in made.versions.items()} == {100: (1, 0), 150: (0, 1)}
    assert {version: part.key for (version, _), part in made.versions.items()} == {100: (0,), 150: (1,)}


def test_key_over_a_generated_column_that_older_rows_lack() -> None:
    """Rows that do not carry a stored generated column of the key do not fit either."""
    columns = (there("id"), there("g", generated="STORED"))
    made = work(
        table(*columns, keys=(unique("g"),)), source(col("id")), source(col("id"), col("g", pk=True), version=150)
    )
    assert "g" in made.versions[100, "s/t"].misfit


@pytest.mark.parametrize("others", [("id",), ()], ids=["another key", "no other key"])
@pytest.mark.parametrize(
    ("declared", "name"),
    [(True, "PRIMARY"), (False, "PRIMARY"), (True, "primary_key")],
    ids=["in part", "wholly", "in part, on MariaDB"],
)
def test_rows_of_a_copy_lack_a_generated_column_of_the_primary_key(
    *, others: tuple[str, ...], declared: bool, name: str
) -> None:
    """Another key tells them apart, or none does. Of rows of the bucket, which carry such columns, it is an error."""
    primary = unique(*(["a"] if declared else []), "g", name=name)
    keys = (primary, *([unique(*others, name="u")] if others else []))
    target = table(there("id"), there("a"), there("g", generated="STORED"), keys=keys)
    rows = step(source(col("id"), col("a", pk=declared)))
    made = table_work(0, replace(rows, as_of=7), target, upstream("csv"))
    assert [part.column.name for part in made.key] == list(others)
    assert (made.mode, made.replaces) == ((Mode.KEYED, False) if others else (Mode.KEYLESS, True))
    with pytest.raises(NotReplicable, match="primary key"):
        table_work(0, rows, target, upstream("csv"))


def test_rows_of_a_copy_with_a_plain_primary_key_beside_a_generated_one() -> None:
    """The source's key is there as it is, so it counts, whatever other key holds a generated column too."""
    keys = (unique("a"), unique("a", "g", name="u"))
    target = table(there("a"), there("g", generated="STORED"), keys=keys)
    made = table_work(0, replace(step(source(col("a", pk=True))), as_of=7), target, upstream("csv"))
    assert [part.column.name for part in made.key] == ["a"]


def test_no_table() -> None:
    """Files of a table that is not there get layouts and a reason for each directory, and nothing to write."""
    made = unread_work(3, step(source(col("id", pk=True))), upstream())
    assert made.index == 3
    assert "s.t does not exist" in made.versions[100, "s/t"].misfit


@pytest.mark.parametrize(("dropped", "timed"), [(True, True), (False, False), (False, True)])
def test_rows_of_a_dropped_table_without_commit_ts(*, dropped: bool, timed: bool) -> None:
    """Rows that do not say their commit ts are repeats once their table is dropped, all others are still told apart."""
    rows = replace(step(source(col("id", pk=True))), dropped=True)
    (version,) = unread_work(0, rows, upstream(csv=CsvOptions())).versions.values()
    assert (version.is_all_duplicates, version.misfit) == (True, "")
    rows = replace(rows, dropped=dropped)
    options = CsvOptions(include_commit_ts=timed)
    (version,) = unread_work(0, rows, upstream(csv=options)).versions.values()
    assert (version.is_all_duplicates, bool(version.misfit)) == (False, True)


def test_unknown_type() -> None:
    """A type that has no rule is refused by name before any row is read."""
    with pytest.raises(NotReplicable, match="GEOMETRY"):
        work(table(there("id"), keys=(unique("id"),)), source(col("id", "GEOMETRY", pk=True)))


def test_travels() -> None:
    """The work pickles, as it goes to executors."""
    made = work(table(there("id"), keys=(unique("id"),)), source(col("id", pk=True)))
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - made here


def test_what_a_row_may_lack() -> None:
    """With selectors that leave out some column, rows may lack every column that is of no unique key, here or at the source."""
    selecting = upstream(column_selectors=(ColumnSelector(matcher=("*.*",), columns=("*", "!id", "!v")),))
    columns = [col("id", pk=True), col("code", nullable=False), col("v"), col("w")]
    keys = (unique("id"), unique("code", name="code"))
    target = table(there("id"), there("code", nullable=False), there("v"), there("w"), keys=keys)
    (version,) = table_work(0, step(source(*columns)), target, selecting).versions.values()
    assert version.layout.may_lack == {"v", "w"}
    assert not table_work(0, step(source(*columns)), target, upstream()).has_gaps


def test_unselected_columns_may_be_missing_in_the_target() -> None:
    """Columns that a column selector leaves out are written where the target has them, and no misfit where it does not; others still are."""
    selecting = upstream(column_selectors=(ColumnSelector(matcher=("*.*",), columns=("*", "!secret")),))
    columns = (col("id", pk=True), col("secret"), col("v"))
    rows = step(source(*columns), source(*columns, version=150))
    made = table_work(0, rows, table(there("id"), there("Secret"), there("v"), keys=(unique("id"),)), selecting)
    assert [column.name for column in made.written] == ["id", "secret", "v"]
    assert {version.misfit for version in made.versions.values()} == {""}
    made = table_work(0, rows, table(there("id"), there("v"), keys=(unique("id"),)), selecting)
    assert [column.name for column in made.written] == ["id", "v"]
    assert {version.misfit for version in made.versions.values()} == {""}
    more = table(there("id"), there("secret"), there("v"), there("other"), keys=(unique("id"),))
    with pytest.raises(NotReplicable, match="columns that the rows do not carry: other"):
        table_work(0, rows, more, selecting)


UNTIMED_CSV = upstream(csv=CsvOptions(), allow_missing_commit_ts=True)
UNTIMED_JSON = upstream("canal-json", enable_tidb_extension=False, allow_missing_commit_ts=True)
KEYED = table(there("id"), keys=(unique("id"),))


@pytest.mark.parametrize("settings", [UNTIMED_CSV, UNTIMED_JSON], ids=["csv", "canal-json"])
def test_rows_without_commit_ts(settings: Upstream) -> None:
    """A table with a key is written by the place of its rows in the files; one without a key halts, naming TiCDC's option."""
    assert not table_work(0, step(source(col("id", pk=True))), KEYED, settings).has_commit_ts
    option = "include-commit-ts" if settings.protocol == "csv" else "enable-tidb-extension"
    with pytest.raises(NotReplicable, match=option):
        table_work(0, step(source(col("id"))), table(there("id", nullable=True)), settings)


def test_files_whose_order_nothing_tells() -> None:
    """CSV without commit ts halts where files come from several dispatchers, behind later ones, or with one key; others do not."""
    several = replace(
        step(source(col("id", pk=True))),
        files=tuple(data_file("s/t", 100, 1, dispatcher=dispatcher) for dispatcher in ("1", "2")),
    )
    late = replace(step(source(col("id", pk=True))), out_of_turn="s/t/100/CDC000001.csv")
    moving = replace(step(source(col("id", pk=True))), crossing="s/t/meta/schema_100_1.json")
    told = (
        (several, "several dispatchers"),
        (late, "s/t/100/CDC000001.csv"),
        (moving, "schema_100_1.json.*include-commit-ts"),
    )
    for rows, words in told:
        with pytest.raises(NotReplicable, match=words):
            table_work(0, rows, KEYED, UNTIMED_CSV)
        assert table_work(0, rows, KEYED, UNTIMED_JSON).key
        assert table_work(0, rows, KEYED, upstream()).key


@pytest.mark.parametrize(
    ("length", "bits"), [(None, 10), (64, 10), (16_000, 10), (32_000, 9), (65_535, 8), (4_294_967_295, 8)]
)
def test_stripes_of_wide_rows_are_narrow(length: int | None, bits: int) -> None:
    """The longer values may be the fewer neighbours share a bucket, for they are in memory together; no fewer than 256, for pages' sake."""
    target = table(there("id"), there("v", length=length), keys=(unique("id"),))
    assert work(target, source(col("id", pk=True), col("v", "TEXT"))).stripe_bits == bits


def test_columns_that_only_full_case_folding_makes_equal() -> None:
    """TiDB lowers each character alone, so `maße` and `masse` are two columns of one table, and each gets its own values."""
    target = table(there("maße"), there("masse"), keys=(unique("maße"),))
    made = work(target, source(col("maße", pk=True), col("masse")))
    plan = made.versions[100, "s/t"]
    assert [(part.column.name, place) for part, place in zip(made.key, plan.key, strict=True)] == [("maße", 0)]
    assert [(column.name, place) for column, place in zip(made.written, plan.written, strict=True)] == [
        ("maße", 0),
        ("masse", 1),
    ]


def ahead(target: TargetTable, now: TableDefinition, then: TableDefinition) -> TablePlan:
    """The work of rows of a structure, where the next statement leads to another one, which the copy may have already."""
    return table_work(0, replace(step(now), upcoming=replace(then, version=TableVersion(150))), target, upstream("csv"))


BY_ID = unique("id")
ID = col("id", pk=True)


def test_a_copy_that_lacks_a_column_before_its_drop() -> None:
    """Rows from before a DROP COLUMN that the copy shows already are written without the column."""
    made = ahead(table(there("id"), there("b"), keys=(BY_ID,)), source(ID, col("old"), col("b")), source(ID, col("b")))
    (version,) = made.versions.values()
    assert [column.name for column in made.written] == ["id", "b"]
    assert version.written == (0, 2)
    assert not version.misfit


def test_a_copy_that_has_columns_before_they_are_added() -> None:
    """Rows from before an ADD COLUMN that the copy shows already leave the new column to its default."""
    target = table(there("e"), there("id"), there("b"), keys=(BY_ID,))
    made = ahead(target, source(ID, col("b")), source(col("e"), ID, col("b")))
    (version,) = made.versions.values()
    assert [column.name for column in made.written] == ["id", "b"]
    assert version.written == (0, 1)
    assert not version.misfit


def test_a_copy_that_has_texts_before_numbers_become_texts() -> None:
    """Rows from before a MODIFY that the copy shows already are written as their texts."""
    target = table(there("id", data_type="int"), there("v", data_type="varchar"), keys=(BY_ID,))
    made = ahead(target, source(ID, col("v", "INT")), source(ID, col("v", "VARCHAR")))
    assert [column.kind for column in made.written] == [WireKind.TEXT, WireKind.TEXT]


@pytest.mark.parametrize(
    ("columns", "then"),
    [(("id", "new"), (ID, col("new"))), (("id", "b", "x"), (ID, col("b"))), (("id",), (ID, col("b")))],
    ids=["another name", "not added by it", "not dropped by it"],
)
def test_what_the_next_statement_does_not_explain(columns: tuple[str, ...], then: tuple[TableColumn, ...]) -> None:
    """A column that may have another name is not left out, nor one that the next statement does not add or drop."""
    target = table(*(there(name) for name in columns), keys=(BY_ID,))
    with pytest.raises(NotReplicable):
        ahead(target, source(ID, col("b")), source(*then))


def test_an_earlier_table_of_the_name() -> None:
    """Its structure decides nothing about rows of the present one, and no row of its directory may be in the commit range."""
    former = source(col("a", "VARCHAR"), col("s", "VARCHAR"), version=50)
    current = source(col("a"), col("s", "SET"), version=100)
    target = table(there("a", nullable=True), there("s", nullable=True, data_type="set", column_type="set('x','y')"))
    made = replace(step(former, current, low=100), made_at=100)
    work = table_work(0, made, target, upstream("canal-json"))
    assert "earlier table of this name" in work.versions[50, "s/t"].misfit
    assert not work.versions[50, "s/t"].written
    alone = table_work(0, step(current), target, upstream("canal-json"))
    assert work.versions[100, "s/t"] == alone.versions[100, "s/t"]
    # One of another name is the same table, before its rename; without commit-ts nothing shows that its rows are repeats.
    renamed = replace(former, name=TableName(schema="s", table="x"))
    assert not any(
        "earlier" in found.misfit
        for found in table_work(
            0, replace(step(renamed, current), made_at=100), target, upstream("canal-json")
        ).versions.values()
    )
