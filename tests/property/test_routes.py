"""Laws of routing: there and back again is where it was, and routes to the same names change nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import Route
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.selection import Routes, routed
from storage_consumer.sql.parse import table_names
from storage_consumer.sql.tokens import quote, tokens
from tests.unit.building import definition

_SIGNS = st.sampled_from("abT_0 .`'\"-/%{}é")
_NAMES = st.text(_SIGNS, min_size=1, max_size=6)
_WORDS = st.sampled_from(("TO", "table", "FROM", "AS", "LIKE", "REFERENCES", "select", "t", "u", "RENAME"))
_ANY = _NAMES | _WORDS

_SHAPES = (
    "CREATE TABLE {t} ({c} INT PRIMARY KEY, {d} INT COMMENT {x}, KEY {t1} ({c})) COMMENT = {x}",
    "CREATE TABLE {t} LIKE {o}",
    "CREATE TABLE {t} ({c} INT, CONSTRAINT {d} FOREIGN KEY ({c}) REFERENCES {o} ({c}) ON DELETE CASCADE)",
    "ALTER TABLE {t} ADD COLUMN {c} VARCHAR(10) DEFAULT {x} AFTER {d}, DROP INDEX {t1}",
    "ALTER TABLE {t} CHANGE COLUMN {c} {d} INT, RENAME INDEX {t1} TO {c}",
    "ALTER TABLE {t} EXCHANGE PARTITION {c} WITH TABLE {o} WITHOUT VALIDATION",
    "ALTER TABLE {o} RENAME TO {t}",
    "RENAME TABLE {o} TO {t}",
    "DROP TABLE {t}",
    "TRUNCATE TABLE {t}",
    "CREATE UNIQUE INDEX {t1} ON {t} ({c}, {d})",
    "DROP VIEW IF EXISTS {t}",
    "CREATE OR REPLACE VIEW {t} ({c}) AS SELECT {a}.{d} AS {c} FROM {o} AS {a} WHERE {a}.{c} IN (SELECT {c} FROM {o} AS {d})",
)


def text_literal(text: str) -> str:
    """A text in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@st.composite
def statements(draw: st.DrawFn) -> tuple[str, str, str]:
    """(database, table, statement) with names of every look, in backquotes as TiCDC writes them."""
    schema, table, other = draw(_ANY), draw(_ANY), draw(_ANY)
    qualified = draw(st.booleans())
    names = {key: quote(draw(_ANY)) for key in ("c", "d", "a")}
    written = {
        key: (f"{quote(schema)}." if qualified else "") + quote(name) for key, name in (("t", table), ("o", other))
    }
    shape = draw(st.sampled_from(_SHAPES))
    return schema, table, shape.format(**names, **written, t1=quote(table), x=text_literal(draw(_ANY)))


def of(schema: str, table: str, query: str) -> TableDefinition:
    """A schema file with the statement."""
    return replace(definition("s/t", 1, query, 3), name=TableName(schema=schema, table=table))


def made(schema: str, table: str, query: str) -> str:
    """The statement under a prefix on database and table, and under none again."""
    there = Routes([Route(matcher=("*.*",), target_schema="x_{schema}", target_table="{table}_y")])
    first = of(schema, table, query)
    gone = routed(first, there)
    assert (gone.name.schema, gone.name.table) == (f"x_{schema}", f"{table}_y")
    back = [
        (name.start, name.end, gone.query[name.start : name.end].replace("`x_", "`").replace("_y`", "`"))
        for name in table_names(tokens(gone.query))
    ]
    text = gone.query
    for start, end, old in sorted(back, reverse=True):
        text = text[:start] + old + text[end:]
    return text


@given(statements())
def test_there_and_back(given_statement: tuple[str, str, str]) -> None:
    """Taking a prefix and a suffix off the names that were routed gives the text back, byte for byte."""
    schema, table, query = given_statement
    assert made(schema, table, query) == query


@given(statements())
def test_routes_to_the_same_names(given_statement: tuple[str, str, str]) -> None:
    """They leave every text as it is."""
    schema, table, query = given_statement
    same = Routes([Route(matcher=("*.*",), target_schema="{schema}", target_table="{table}")])
    first = of(schema, table, query)
    found = routed(first, same)
    assert (found.query, found.name) == (query, first.name)


@given(statements())
def test_nothing_but_names_changes(given_statement: tuple[str, str, str]) -> None:
    """Token by token, what is no name of a table or database is the same before and after."""
    schema, table, query = given_statement
    there = Routes([Route(matcher=("*.*",), target_schema="x_{schema}", target_table="{table}_y")])
    first = of(schema, table, query)
    after = routed(first, there).query

    def others(text: str) -> list[str]:
        spans = [(name.start, name.end) for name in table_names(tokens(text))]
        return [t.text for t in tokens(text) if not any(start <= t.start < end for start, end in spans)]

    assert others(after) == others(query)
