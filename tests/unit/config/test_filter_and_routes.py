"""The program's own filter and routes, as flags, environment and TOML give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage_consumer.config.load import load
from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.errors import ConfigError

_TS = 470607624255045632
URIS = {"upstream_uri": "file:///b?protocol=canal-json&enable-tidb-extension=true", "downstream_uri": "mysql://h:1/"}


def selecting(options: dict[str, Any], environ: dict[str, str] | None = None) -> Selecting:
    """What these options and this environment give."""
    return load({**URIS, **options}, environ or {}).config.selecting


def test_everything_without_a_word() -> None:
    """Without a filter every table is taken, under its own name."""
    assert selecting({}) == Selecting()


def test_toml_file(tmp_path: Path) -> None:
    """The tables of the TOML file have the keys of TiCDC's own."""
    file = tmp_path / "consumer.toml"
    file.write_text(
        """
        [consumer.filter]
        rules = ['shop.*', '!shop.items']
        [[consumer.filter.event-filters]]
        matcher = ['shop.orders']
        ignore-event = ['Drop Table', 'create schema']
        ignore-sql = ['^ALTER.*COMMENT']
        [[consumer.routes]]
        matcher = ['shop.*']
        target-schema = 'copy'
        target-table = '{table}_old'
        """,
        encoding="utf-8",
    )
    assert selecting({"config": str(file)}) == Selecting(
        rules=("shop.*", "!shop.items"),
        event_filters=(
            EventFilter(
                matcher=("shop.orders",),
                ignore_event=("drop table", "create database"),
                ignore_sql=("^ALTER.*COMMENT",),
            ),
        ),
        routes=(Route(matcher=("shop.*",), target_schema="copy", target_table="{table}_old"),),
    )


def test_flags() -> None:
    """Repeated flags add up; tables are inline tables of TOML."""
    found = selecting(
        {
            "filter": ["a.*", "!a.b"],
            "event_filter": ['{matcher=["a.*"], ignore-event=["truncate table"]}'],
            "route": ['{matcher=["a.c"], target-table="d"}', '{matcher=["a.*"], target-schema="x"}'],
        }
    )
    assert found.rules == ("a.*", "!a.b")
    assert [each.ignore_event for each in found.event_filters] == [("truncate table",)]
    assert [(each.target_schema, each.target_table) for each in found.routes] == [("", "d"), ("x", "")]


@pytest.mark.parametrize("text", ["a.*\n!a.b", "['a.*', '!a.b']"])
def test_environment(text: str) -> None:
    """The environment variable of rules takes one a line, or a TOML array; that of routes an array of inline tables."""
    environ = {
        "STORAGE_CONSUMER_FILTER": text,
        "STORAGE_CONSUMER_ROUTE": "[{matcher=['a.*'], target-schema='x'}, {matcher=['b.*'], target-schema='y'}]",
    }
    found = selecting({}, environ)
    assert found.rules == ("a.*", "!a.b")
    assert [each.target_schema for each in found.routes] == ["x", "y"]


def test_transactions_that_are_left_out() -> None:
    """An entry has one or more commit-ts, of every table or of those of a rule, which may have any sign in it."""
    environ = {"STORAGE_CONSUMER_SKIP_COMMIT_TS": f"a.*:{_TS}\n{_TS},{_TS + 1}"}
    options = {"upstream_uri": "file:///b?protocol=csv", "downstream_uri": "mysql://h/", "include_commit_ts": True}
    assert load(options, environ).config.upstream.skip_commit_ts == (("a.*", _TS), ("", _TS), ("", _TS + 1))
    given = {**options, "skip_commit_ts": [_TS, f'"a:b,c".`d.e`:{_TS}']}
    assert load(given, environ).config.upstream.skip_commit_ts == (("", _TS), ('"a:b,c".`d.e`', _TS))


def test_a_rule_may_begin_with_a_bracket() -> None:
    """A character class is no TOML array."""
    assert selecting({"filter": "[a-c]*.[xy]"}).rules == ("[a-c]*.[xy]",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": ["shop"]}, "--filter: the rule 'shop' cannot be read: a dot is missing"),
        ({"filter": [7]}, "--filter: a rule like"),
        ({"route": ["{matcher=['a']}"]}, "--route: the rule 'a' cannot be read"),
        ({"route": ["{matcher=['a.*']}"]}, "--route: the route of a.* has neither `target-schema` nor `target-table`"),
        ({"route": ["{target-schema='x'}"]}, "--route: `matcher` is missing"),
        (
            {"route": ["{matcher=['a.*'], target-shema='x'}"]},
            "there is no key `target-shema`; did you mean `target-schema`",
        ),
        ({"route": ["{matcher=['a.*'], target-schema='{database}'}"]}, "{database} is not a placeholder"),
        ({"route": ["a.* -> b"]}, "is not an inline table of TOML"),
        (
            {"route": ["{matcher=['a.*'], target-schema='storage_consumer'}"]},
            "--route: the route of a.* leads into storage_consumer, which has the name of the state schema",
        ),
        ({"route": ["{matcher=['a.*'], target-schema='MySQL'}"]}, "leads into MySQL, which has the name of a system"),
        ({"route": ["{matcher=['a.*'], target-schema='Stórage_Consumer '}"]}, "another --state-schema"),
        (
            {"route": ["{matcher=['my.*', 'x?.*'], target-schema='{schema}sql'}"]},
            "leads into mysql, which has the name",
        ),
        ({"route": ["{matcher=['`sys`.t'], target-table='u'}"]}, "leads into sys, which has the name of a system"),
        ({"route": ["{matcher=['a.*'], target-schema='S1'}"], "state_schema": "s1"}, "the name of the state schema s1"),
        (
            {"filter": ["*.*", "Storage_Consumer.*"]},
            "--filter: the filter includes Storage_Consumer, which has the name",
        ),
        ({"filter": ["TiDB_CDC.t"]}, "includes TiDB_CDC, which has the name of a system schema"),
        ({"filter": ["s1.*"], "state_schema": "S1"}, "the name of the state schema S1"),
        ({"event_filter": ["{matcher=['a.*'], ignore-event=['drop tabel']}"]}, "did you mean `drop table`"),
        ({"event_filter": ["{matcher=['a.*'], ignore-event=['all dml']}"]}, "belongs in the changefeed's"),
        ({"event_filter": ["{matcher=['a.*'], ignore-sql=['(']}"]}, "the regular expression '(' cannot be read"),
        ({"event_filter": [{"matcher": 1}]}, "`matcher` takes strings"),
        ({"event_filter": ["7"]}, "an inline table like"),
        (
            {"skip_commit_ts": "shop.orders"},
            "--skip-commit-ts: a commit-ts or RULE:commit-ts is expected, not 'shop.orders'",
        ),
        ({"skip_commit_ts": "2026-11-23T10:00:00Z"}, "a commit-ts or RULE:commit-ts is expected"),
        ({"skip_commit_ts": "orders:470607624255045632"}, "the rule 'orders' cannot be read"),
        ({"skip_commit_ts": "!a.b:470607624255045632"}, "the rule '!a.b' includes no table"),
        ({"skip_commit_ts": "1766000000000"}, "would be from before 2015"),
        (
            {
                "upstream_uri": "file:///b?protocol=canal-json&enable-tidb-extension=false",
                "skip_commit_ts": _TS,
                "allow_missing_commit_ts": True,
                "terminator": "x",
            },
            "--skip-commit-ts cannot",
        ),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], message: str) -> None:
    """A rule, event or key that is wrong is named, with the nearest known one."""
    with pytest.raises(ConfigError) as caught:
        selecting(options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"filter": ["*.*", "!storage_consumer.*"]},
        {"filter": ["mysql.*", "!mysql.*", "a.*"]},
        {"filter": ["storage_consumer.*"], "state_schema": "another"},
        {"filter": ["storage_consumer.*"], "route": ["{matcher=['storage_consumer.*'], target-schema='copy'}"]},
        {"filter": ["m*.*", "[s]ys.*"], "route": ["{matcher=['*.*'], target-schema='{schema}_1'}"]},
        {"route": ["{matcher=['*.*'], target-schema='{schema}'}"]},
    ],
)
def test_reserved_names_that_no_table_gets(options: dict[str, Any]) -> None:
    """A reserved name may be left out, led elsewhere, or hidden in a pattern, which only the tables show."""
    selecting(options)


@pytest.mark.parametrize("name", ["mysql", "MySQL", "SYS", "tidb_cdc", "Metrics_Schema", "ndbinfo"])
def test_state_schema_of_the_server(name: str) -> None:
    """The state has no place among a server's own tables."""
    with pytest.raises(ConfigError, match="--state-schema: a schema name"):
        selecting({"state_schema": name})


def test_unknown_key_of_the_file() -> None:
    """What only TiCDC can leave out belongs into its own table."""
    config = {"consumer": {"filter": {"event-filters": [{"matcher": ["a.*"], "ignore-insert-value-expr": "id > 1"}]}}}
    with pytest.raises(ConfigError, match=r"\[consumer.filter.event-filters\] has no key `ignore-insert-value-expr`"):
        selecting({"config": config})


def test_ticdcs_own_filter_is_not_ours() -> None:
    """What a changefeed's file says of filter and routing was done when TiCDC wrote: it is told so, and nothing more."""
    config = {
        "filter": {"rules": ["shop.*"], "event-filters": [{"matcher": ["shop.a"], "ignore-event": ["drop table"]}]},
        "sink": {"dispatchers": [{"matcher": ["shop.*"], "target-schema": "copy"}]},
    }
    loaded = load({**URIS, "config": config}, {})
    assert loaded.config.selecting == Selecting()
    assert any("TiCDC applied them when it wrote" in notice for notice in loaded.notices)
    assert any("the bucket has the new names" in notice for notice in loaded.notices)


def test_selectors_beside_ticdcs_routing() -> None:
    """The matchers of column selectors mean names that a routed bucket does not have."""
    sink = {
        "dispatchers": [{"matcher": ["shop.*"], "target-table": "x"}],
        "column-selectors": [{"matcher": ["shop.*"], "columns": ["*"]}],
    }
    with pytest.raises(ConfigError, match="the bucket has only the new names"):
        selecting({"config": {"sink": sink}})
