"""The options of the filter and the routes; a part of the table in options.py."""

from __future__ import annotations

from storage_consumer.config import filter_and_routes
from storage_consumer.config.option import OWN_TABLE, Group, Option

_GROUP: Group = "which tables, and under which names"

SELECTING = (
    Option(
        name="filter",
        group=_GROUP,
        metavar="RULE",
        parse=filter_and_routes.rules,
        default=(),
        shown_default="every table",
        toml=f"{OWN_TABLE}.filter.rules",
        repeatable=True,
        help="Which tables to replicate: a rule of TiCDC's table filter, such as 'shop.*' or '!shop.items'. May be "
        "given several times; the last one that matches a table decides. (The environment variable takes one per "
        "line, or a TOML array.)",
    ),
    Option(
        name="event-filter",
        group=_GROUP,
        metavar="TABLE",
        parse=filter_and_routes.event_filters,
        default=(),
        shown_default="none",
        toml=f"{OWN_TABLE}.filter.event-filters",
        repeatable=True,
        help="Which statements not to run, as an inline table of TOML with `matcher` and `ignore-event` or "
        "`ignore-sql`: "
        '\'{matcher = ["shop.*"], ignore-event = ["drop table"]}\'. May be given several times.',
    ),
    Option(
        name="route",
        group=_GROUP,
        metavar="TABLE",
        parse=filter_and_routes.routes,
        default=(),
        shown_default="none",
        toml=f"{OWN_TABLE}.routes",
        repeatable=True,
        help="What tables are called in the target, as an inline table of TOML with `matcher` and `target-schema` or "
        "`target-table`: "
        '\'{matcher = ["shop.*"], target-schema = "copy", target-table = "{table}_old"}\'. May be given several times; the first '
        "one that matches a table applies.",
    ),
)
