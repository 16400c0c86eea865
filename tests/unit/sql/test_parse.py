"""What a statement says: found once, held by its definition, and found anew for a changed one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from unittest.mock import patch

import pytest

from storage_consumer.checkpoint.journal import definition_of, record_of
from storage_consumer.model import TableName
from storage_consumer.sql import parse
from storage_consumer.sql.parse import parsed
from tests.unit.building import ALTER, CREATE, RENAME, definition, named

RENAMES = "RENAME TABLE `s`.`a` TO `s`.`b`"


def test_parsed_once() -> None:
    """A definition is parsed at the first question; its answer is the same record from then on."""
    made = definition("s/b", 5, RENAMES, RENAME)
    with patch.object(parse, "parse_ddl", wraps=parse.parse_ddl) as counted:
        assert parsed(made) is parsed(made)
    assert counted.call_count == 1


@pytest.mark.parametrize(
    ("table", "query", "renamed", "astray"),
    [
        ("s/b", "RENAME TABLE `s`.`a` TO `s`.`c`", "a > c", True),
        ("s/b", "ALTER TABLE `b` ADD `c` INT", "", False),
        ("s/c", RENAMES, "a > b", True),
        ("S/B", RENAMES, "a > b", False),
    ],
)
def test_changed(table: str, query: str, renamed: str, astray: bool) -> None:  # noqa: FBT001 - a column of the table
    """A changed statement or name is parsed anew, and nothing of what was held before remains."""
    made = definition("s/b", 5, RENAMES, RENAME)
    before = parsed(made)
    after = replace(made, name=named(table), query=query)
    says = parsed(after)
    assert says.own == after.name
    assert " > ".join(name.table for name in says.renamed or ()) == renamed
    assert says.is_astray is astray
    assert parsed(made) is before


def test_held_aside() -> None:
    """What a definition holds is no part of it: not of its value, its text, or what is stored of it."""
    asked, fresh = (definition("s/b", 5, RENAMES, RENAME) for _ in range(2))
    parsed(asked)
    assert (asked, hash(asked), repr(asked)) == (fresh, hash(fresh), repr(fresh))
    assert record_of("s/b", asked) == record_of("s/b", fresh)
    for again in (definition_of(record_of("s/b", asked)), pickle.loads(pickle.dumps(asked))):  # noqa: S301 - our own
        assert (again, parsed(again)) == (asked, parsed(asked))
        assert not parsed(again).is_astray


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ""),
        ("CREATE TABLE `t` (`id` INT)", "head"),
        ("CREATE TABLE `t` (`id` INT REFERENCES `p` (`i`))", "head references others"),
        ("CREATE TABLE `t` LIKE `p`", "head others"),
        ("CREATE TABLE IF NOT EXISTS `t` (`like` INT)", "head"),
        ("ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", "exchanges others"),
        ("ALTER TABLE `t` ADD UNIQUE INDEX `i` (`a`) /*T![global_index] GLOBAL */", "global"),
        ("ALTER TABLE `t` COMMENT 'GLOBAL REFERENCES EXCHANGE PARTITION'", ""),
        ("DROP TABLE `t`", "others"),
        ("DROP INDEX `table` ON `t`", ""),
    ],
)
def test_what_it_says(query: str, found: str) -> None:
    """Keywords count where they are bare words, and a statement names others only if its kind may."""
    says = parsed(definition("s/t", 5, query, CREATE if query.startswith("CREATE") else ALTER))
    flags = {
        "head": says.creates_table,
        "references": says.has_references,
        "exchanges": says.exchanges_partition,
        "global": says.makes_global_index,
        "others": bool(says.others),
    }
    assert " ".join(name for name, is_so in flags.items() if is_so) == found
    assert named("s/t") in says.mentioned
    assert says.touched == {name.folded() for name in says.mentioned}


def test_mentioned() -> None:
    """A name without a database is looked for in that of the file, and the file's own name is always touched."""
    says = parsed(definition("S/T", 5, "DROP TABLE `U`, r.V", CREATE))
    assert {TableName(schema=s, table=t) for s, t in (("S", "T"), ("S", "U"), ("r", "V"))} <= says.mentioned
    assert {named("s/t"), named("s/u"), named("r/v")} <= says.touched
