"""Which table a version directory belongs to, whatever its path is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import TableDefinition
from storage_consumer.plan.directories import Catalog, Restart
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_state import TableState
from tests.unit.building import ALTER, CREATE, RENAME, data_file, definition, key, named


def at(directory: str, name: str, version: int, query: str = "", kind: int = ALTER) -> TableDefinition:
    """A schema file of a table in a directory that is not named after it."""
    made = definition(name, version, query, kind)
    return replace(made, path=f"{directory}/meta/schema_{version}_1.json")


@pytest.fixture
def catalog() -> Catalog:
    """s.a lies in the directory 120 since version 5."""
    made = Catalog(Restart())
    made.define("120", at("120", "s/a", 5, "CREATE TABLE `a` (`id` INT)", CREATE))
    return made


def owners(catalog: Catalog, *places: tuple[int, str]) -> list[str]:
    """The tables of version directories."""
    return [str(catalog.owner(place).name) for place in places]


def offer(catalog: Catalog, directory: str, version: int) -> TableConsumer:
    """A data file is listed; the table that takes it."""
    table = catalog.owner((version, directory))
    table.files.offer(data_file(directory, version, 1))
    return table


def test_one_table_in_several_directories(catalog: Catalog) -> None:
    """Directories whose schema files name one table, in whatever case, are one table's, two of one version too."""
    for directory in ("121", "122"):
        assert catalog.define(directory, at(directory, "S/A", 5)) is catalog.tables[key("s/a")]
    assert len(catalog.tables) == 1
    assert set(catalog.tables[key("s/a")].files.versions) == {(5, "120"), (5, "121"), (5, "122")}


def test_several_tables_in_one_directory(catalog: Catalog) -> None:
    """After a rename the id's directory goes on as another table; what is older stays the first one's."""
    catalog.define("120", at("120", "s/b", 9, "RENAME TABLE `s`.`a` TO `s`.`b`", RENAME))
    assert owners(catalog, (5, "120"), (9, "120"), (12, "120"), (7, "120")) == ["s.a", "s.b", "s.b", "s.a"]


def test_stand_in() -> None:
    """Without any schema file a directory stands for a table by its path; once one comes its files and marks move."""
    catalog = Catalog(Restart(checkpoint=4))
    stand_in = offer(catalog, "120", 5)
    assert (stand_in.key, str(stand_in.name)) == ("`120`", "120")
    table = catalog.define("120", at("120", "s/a", 5, "CREATE TABLE `a` (`id` INT)", CREATE))
    assert set(catalog.tables) == {key("s/a")}
    assert (table.files.pending, table.checkpoint, table.status.state) == (1, 4, "running")
    assert catalog.to_be_stored == [table, stand_in]


def test_stand_in_of_an_earlier_run() -> None:
    """A table whose schema file an earlier run could not read begins where its stand-in stood still."""
    catalog = Catalog(Restart(checkpoint=50, tables={"`120`": 7}, behind=frozenset(["`120`"])))
    table = catalog.define("120", at("120", "s/a", 5, "CREATE TABLE `a` (`id` INT)", CREATE))
    assert (table.checkpoint, table.status.state) == (7, "running")
    assert [(one.key, one.checkpoint) for one in catalog.to_be_stored] == [(key("s/a"), 7), ("`120`", 50)]


def test_path_with_more_levels() -> None:
    """A name with a slash is what the schema file says, and the likeliest reading of the path until then."""
    catalog = Catalog(Restart())
    assert str(offer(catalog, "names/a/b", 5).name) == "names.a/b"
    catalog.define("names/a/b", at("names/a/b", "names/a/b", 5))
    assert set(catalog.tables) == {"`names`.`a/b`"}


def test_known_too_late(catalog: Catalog) -> None:
    """Files that turn out to be of a table after later rows of it were applied stop it, and a restart keeps it stopped."""
    stand_in = offer(catalog, "121", 7)
    table = catalog.tables[key("s/a")]
    table.advance(20)
    catalog.define("121", at("121", "s/a", 7))
    assert (table.status.state, table.status.shown) == (TableState.LOST, TableState.HALTED)
    assert "the files in 121" in table.status.error
    assert catalog.to_be_stored == [table, stand_in]
    assert stand_in.key not in catalog.tables


def test_known_too_late_after_a_restart() -> None:
    """What an earlier run left under a stand-in is not taken for applied because its table went on."""
    restart = Restart(tables={"`121`": 6, key("s/a"): 20}, behind=frozenset(["`121`"]))
    catalog = Catalog(restart)
    catalog.define("120", at("120", "s/a", 5, "CREATE TABLE `a` (`id` INT)", CREATE))
    assert catalog.tables[key("s/a")].status.state == "running"
    catalog.define("121", at("121", "s/a", 7))
    assert "storage-consumer table reload-done --table s.a --at TSO" in catalog.tables[key("s/a")].status.error
    assert {table.key: table.status.stored for table in catalog.to_be_stored} == {
        key("s/a"): "lost",
        "`121`": "dropped",
    }


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "reversed"])
def test_exchanged_id(catalog: Catalog, turn: int) -> None:
    """After EXCHANGE PARTITION an id is the other table's, though one of its two files of that version names the first."""
    stays, moves = at("120", "s/a", 9), replace(at("120", "s/p", 9), checksum=2)
    for each in (stays, moves)[::turn]:
        catalog.define("120", each)
    assert offer(catalog, "120", 9) is catalog.tables[key("s/p")]
    assert owners(catalog, (5, "120"), (9, "120")) == ["s.a", "s.p"]


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "reversed"])
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("RENAME TABLE `a`.`t` TO `b`.`t`", "RENAME TABLE `b`.`t` TO `b`.`tmp`"),
        ("", "RENAME TABLE `b`.`t` TO `b`.`tmp`"),
        ("ALTER TABLE `t` COMMENT 'x'", ""),
        ("RENAME TABLE `a`.`t` TO `b`.`t`", ""),
    ],
)
def test_two_files_of_one_version(better: str, worse: str, turn: int) -> None:
    """The file tells the structure whose statement leads to this very table, else the one without a statement for another."""
    catalog = Catalog(Restart())
    both = [definition("b/t", 20, query, RENAME, checksum) for checksum, query in ((1, better), (2, worse))]
    for each in both[::turn]:
        catalog.define("b/t", each)
    assert catalog.tables[key("b/t")].files.versions[20, "b/t"].definition == both[0]


def test_step_of_a_cycle_under_another_name() -> None:
    """The columns of a file whose statement leads to another table are not taken for those of the table that it lies under."""
    catalog = Catalog(Restart())
    made = catalog.define("b/t", definition("b/t", 5, "CREATE TABLE `t` (`id` INT)", CREATE))
    catalog.define("b/t", definition("b/t", 20, "RENAME TABLE `b`.`x` TO `b`.`tmp`", RENAME))
    found = made.timeline.structure_at(30)
    assert found is not None
    assert (found.version, made.name) == (5, named("b/t"))
