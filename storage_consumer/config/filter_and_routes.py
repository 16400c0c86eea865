"""The program's own filter and routes, from flags, environment or TOML, in the syntax of TiCDC's ``[filter]`` and dispatchers.

Flags and environment variables give a table of the TOML file as an inline table: ``{matcher = ["shop.*"], target-schema = "x"}``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from types import MappingProxyType

from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.reserved import why_reserved
from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.config.table_filter import table_rules
from storage_consumer.model import DdlKind

_OTHER_NAMES: Mapping[DdlKind, str] = {
    DdlKind.CREATE_SCHEMA: "create database",
    DdlKind.DROP_SCHEMA: "drop database",
    DdlKind.ALTER_SCHEMA: "modify schema charset and collate",
    DdlKind.CREATE_TABLES: "create table",
    DdlKind.RENAME_TABLES: "rename table",
    DdlKind.MODIFY_TABLE_CHARSET: "modify table charset and collate",
    DdlKind.ADD_PARTITION: "add table partition",
    DdlKind.DROP_PARTITION: "drop table partition",
    DdlKind.TRUNCATE_PARTITION: "truncate table partition",
    DdlKind.EXCHANGE_PARTITION: "exchange table partition",
    DdlKind.REORGANIZE_PARTITION: "reorganize table partition",
    DdlKind.ALTER_PARTITIONING: "alter table partitioning",
    DdlKind.REMOVE_PARTITIONING: "remove table partitioning",
    DdlKind.ADD_COLUMNS: "add column",
    DdlKind.DROP_COLUMNS: "drop column",
    DdlKind.ADD_INDEX: "create index",
    DdlKind.ALTER_TTL: "alter ttl info",
    DdlKind.REMOVE_TTL: "alter ttl remove",
}
EVENTS: Mapping[int, str] = MappingProxyType(
    {kind: _OTHER_NAMES.get(kind, kind.name.lower().replace("_", " ")) for kind in DdlKind}
)
"""TiDB's DDL action code → TiCDC's name of the event."""
ALL_DDL, ALTER_TABLE = "all ddl", "alter table"
NO_ALTERATIONS = frozenset(
    (
        DdlKind.CREATE_SCHEMA,
        DdlKind.DROP_SCHEMA,
        DdlKind.ALTER_SCHEMA,
        DdlKind.CREATE_TABLE,
        DdlKind.CREATE_TABLES,
        DdlKind.DROP_TABLE,
        DdlKind.TRUNCATE_TABLE,
        DdlKind.RECOVER_TABLE,
        DdlKind.CREATE_VIEW,
        DdlKind.DROP_VIEW,
        DdlKind.ADD_FOREIGN_KEY,
        DdlKind.DROP_FOREIGN_KEY,
        DdlKind.ADD_FULLTEXT_INDEX,
        DdlKind.CREATE_HYBRID_INDEX,
    )
)
"""Actions that TiCDC's ``alter table`` does not cover."""
ALIASES: Mapping[str, str] = MappingProxyType({"create schema": "create database", "drop schema": "drop database"})
_OF_ROWS = frozenset(("all dml", "insert", "update", "delete"))
_KNOWN_EVENTS = frozenset((*EVENTS.values(), *ALIASES, ALL_DDL, ALTER_TABLE))
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def rules(value: object) -> tuple[str, ...]:
    """Return rules of the table filter, from a list, a text with one a line, or a TOML array; ValueError for an unreadable one."""
    found: list[str] = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if not isinstance(item, str):
            raise ValueError(f"a rule like shop.* or !shop.items is expected, not {item!r}")  # noqa: TRY004 - one exception for every value that does not fit
        # A rule may begin with a bracket as well: what is no TOML array is one rule a line.
        found += _array(item) or item.splitlines()
    # Compiled here only to see whether they can be.
    given = tuple(found)
    table_rules(given)
    return given


def event_filters(value: object) -> tuple[EventFilter, ...]:
    """Return event filters, from tables of the TOML file or their texts; ValueError names the wrong event or expression."""
    found = []
    for table in _tables(value):
        given = _texts(table, "matcher", "ignore-event", "ignore-sql")
        for event in map(str.lower, given["ignore-event"]):
            if event in _OF_ROWS:
                raise ValueError(
                    f"the event {event!r} concerns rows, which only TiCDC can leave out, when it writes: it belongs in the changefeed's "
                    "[[filter.event-filters]]"
                )
            if event not in _KNOWN_EVENTS:
                raise ValueError(f"there is no event {event!r}{did_you_mean(event, _KNOWN_EVENTS)}")
        for pattern in given["ignore-sql"]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"the regular expression {pattern!r} cannot be read: {error}") from None
        # In TiCDC's own spelling, which statements are compared with.
        events = tuple(ALIASES.get(event.lower(), event.lower()) for event in given["ignore-event"])
        found.append(EventFilter(matcher=given["matcher"], ignore_event=events, ignore_sql=given["ignore-sql"]))
    return tuple(found)


def routes(value: object) -> tuple[Route, ...]:
    """Return routes, from tables of the TOML file or their texts; ValueError names what is wrong."""
    found = []
    for table in _tables(value):
        given = _texts(table, "matcher", "target-schema", "target-table")
        schema, name = ("".join(given[key]) for key in ("target-schema", "target-table"))
        if not schema and not name:
            raise ValueError(
                f"the route of {', '.join(given['matcher'])} has neither `target-schema` nor `target-table`"
            )
        for placeholder in _PLACEHOLDER.findall(schema + name):
            if placeholder not in ("{schema}", "{table}"):
                raise ValueError(f"{placeholder} is not a placeholder; use {{schema}} or {{table}}")
        found.append(Route(matcher=given["matcher"], target_schema=schema, target_table=name))
    return tuple(found)


def routed_to_reserved(selecting: Selecting, state_schema: str) -> str:
    """Return why a route is impossible: it leads into a database that the target reserves; empty if none does.

    If `{schema}` is filled by names that no rule spells out, that shows only when a table of such a name arrives.
    """
    for route in selecting.routes:
        target = route.target_schema or "{schema}"
        schemas = [target.replace("{schema}", name) for name in table_rules(route.matcher).named_schemas()]
        for schema in (*schemas, target):
            if "{" not in schema and (why := why_reserved(schema, state_schema)):
                return f"the route of {', '.join(route.matcher)} leads into {schema}, which {why}"
    return ""


def taken_from_reserved(selecting: Selecting, state_schema: str) -> str:
    """Return why the filter is impossible: it names such a database, and no route leads its tables elsewhere; empty if it is not."""
    for schema in table_rules(selecting.rules).named_schemas():
        # One route that leads some table elsewhere is enough here: what stays behind is refused when it arrives.
        moved = any(r.target_schema and table_rules(r.matcher).matches_schema(schema) for r in selecting.routes)
        if not moved and (why := why_reserved(schema, state_schema)):
            return (
                f"the filter includes {schema}, which {why}. Route its tables to another database with --route, "
                "or exclude them"
            )
    return ""


def _array(text: str) -> list[str]:
    """Return the texts of a TOML array, empty if it is not one; a rule may begin with a bracket too."""
    try:
        found = tomllib.loads(f"x = {text}")["x"] if text.lstrip().startswith("[") else []
    except tomllib.TOMLDecodeError:
        return []
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else []


def _tables(value: object) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        parsed: object = item
        if isinstance(item, str):
            try:
                parsed = tomllib.loads(f"x = {item}")["x"]
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"{item!r} is not an inline table of TOML: {error}") from None
        for table in parsed if isinstance(parsed, list) else [parsed]:
            if not isinstance(table, Mapping):
                raise ValueError(f'an inline table like {{matcher = ["shop.*"], …}} is expected, not {table!r}')  # noqa: TRY004 - one exception for every value that does not fit
            found.append(table)
    return found


def _texts(table: Mapping[str, object], *keys: str) -> dict[str, tuple[str, ...]]:
    """Return key → its texts, for a table with no other keys; the first key is the matcher, which must be present."""
    for key in table:
        if key not in keys:
            raise ValueError(f"there is no key `{key}`{did_you_mean(key, keys)}")
    found: dict[str, tuple[str, ...]] = {}
    for key in keys:
        value = table.get(key, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`{key}` takes strings, not {value!r}")
        found[key] = tuple(texts)
    matcher = found[keys[0]]
    if not matcher:
        raise ValueError("`matcher` is missing: the rules that select the tables")
    table_rules(matcher)
    return found
