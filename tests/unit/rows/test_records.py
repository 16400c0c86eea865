"""Results as records and documents, the commands that heal, the cut's judgement, and the settings of a source."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from storage_consumer.config.load import load_source
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.rows.comparison import (
    NOT_AT_SOURCE,
    RowDifference,
    Span,
    TableLook,
    TableResult,
    VerifyOutcome,
    heal_command,
    obstacle,
    result_from,
)
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.telemetry import redact
from tests.unit.rows.alike import EQUIVALENCES

NAME = TableName(schema="shop", table="o`r.ders")
RESULT = TableResult(
    table=NAME,
    target=replace(NAME, schema="copy"),
    outcome=VerifyOutcome.DIFFERENT,
    checkpoint=1 << 60,
    rows=7,
    differing=1,
    differences=(RowDifference(kind="differs", key={"id": "1"}, source={"v": None}, target={"v": "ä"}),),
    structure=("column a: the target lacks it",),
    spans=(Span(checkpoint=5, chunks=1, rows=3), Span(checkpoint=6, chunks=2, rows=4)),
    after=("00ff",),
    shapes="a5",
)
LOOK = TableLook(table_key="shop/a", table=NAME, target=NAME, state="running", checkpoint=9, writer=True)


def test_stored_and_read_again() -> None:
    """A result is the same after it was stored, also by a newer program."""
    document = json.loads(json.dumps(RESULT.document()))
    assert result_from(document) == RESULT
    assert result_from({**document, "new": 1}) == RESULT
    # Earlier builds had a comparison of samples.
    assert result_from({**document, "how": "sample"}) == replace(RESULT, how="sample")


@pytest.mark.parametrize(
    "result", [RESULT, replace(RESULT, structure=()), replace(RESULT, differences=(), differing=0)]
)
def test_healing(result: TableResult) -> None:
    """The table is paused, then loaded, or told to be a copy that somebody made; a shell takes each command as it is."""
    lines = heal_command(result, ["--downstream-uri", "mysql://root@db/"]).split("\n")
    pause, load = (line for line in lines if not line.startswith("#"))
    source, done, *mend = (line.partition(": ")[2] for line in lines if line.startswith("# Or"))
    assert any("drop the target's table" in line for line in lines) == bool(result.structure)
    target = ["--downstream-uri", "mysql://root@db/"]
    assert shlex.split(pause) == ["storage-consumer", "table", "pause", "--table", "`shop`.`o``r.ders`", *target]
    assert shlex.split(load) == [
        *("storage-consumer", "load", "--table", "`shop`.`o``r.ders`", "--dump", "URI", "--replace"),
        *target,
    ]
    # Single rows are mended where nothing but rows differs.
    assert [shlex.split(line)[:3] for line in mend] == [["storage-consumer", "verify", "--repair"]] * (
        not result.structure
    )
    assert shlex.split(source) == [
        *("storage-consumer", "load", "--table", "`shop`.`o``r.ders`", "--dump", "URI", "--replace"),
        *("--source", "SOURCE", "--upstream-uri", "BUCKET"),
        *target,
    ]
    assert shlex.split(done) == [
        *("storage-consumer", "table", "reload-done", "--table", "`shop`.`o``r.ders`", "--at", "TSO"),
        *target,
    ]


def test_a_table_that_only_the_target_has() -> None:
    """No export of the source can hold it, so no load is proposed."""
    healing = heal_command(replace(RESULT, structure=(NOT_AT_SOURCE,)), [])
    assert healing.split("\n")[1:] == ["storage-consumer table skip --table '`shop`.`o``r.ders`'"]


def test_nothing_to_heal() -> None:
    """An equal table needs no command."""
    assert heal_command(TableResult(table=NAME, target=NAME, outcome=VerifyOutcome.EQUAL), []) == ""


@pytest.mark.parametrize(
    ("look", "passes"),
    [
        (LOOK, None),
        (replace(LOOK, noted=9), None),
        (replace(LOOK, noted=10), True),
        (replace(LOOK, noted=10, writer=False), False),
        (replace(LOOK, noted=10, state="halted"), False),
        (replace(LOOK, noted=9, state="halted"), None),
        (replace(LOOK, statement=5), True),
        (replace(LOOK, statement=5, writer=False), False),
        (replace(LOOK, checkpoint=0), False),
        (replace(LOOK, is_loaded=False), True),
        (replace(LOOK, is_loaded=False, state="halted"), False),
        (replace(LOOK, error="a view that the target refused"), False),
    ],
)
def test_the_cut(look: TableLook, passes: bool | None) -> None:  # noqa: FBT001 - a parameter of the test
    """A table is at rest if nothing was noted beyond its checkpoint and no statement may run; waiting helps only while somebody writes."""
    found = obstacle(look)
    assert (None if found is None else found.passes) == passes


def test_equivalences_are_named_as_the_differences_are() -> None:
    """What a statement loses on purpose has one name, in both lists."""
    ours = {"display width", "json", "default expression", "foreign key index", "name of the character set"}
    ours |= {"member characters"}
    assert ours < EQUIVALENCES
    assert EQUIVALENCES - ours <= DIFFERENCES.keys()


def test_the_source_is_a_tidb() -> None:
    """Another server is taken only with a promise; the password comes from its own variable, and messages name its own flag."""
    target = Downstream()
    source = load_source("tidb://me@host/", None, {"STORAGE_CONSUMER_SOURCE_PASSWORD": "secret"}, target)
    there = source.settings
    assert (there.host, there.port, there.user, source.password) == ("host", 4000, "me", "secret")
    assert redact("it is secret") == "it is ***"
    with pytest.raises(ConfigError, match="--frozen"):
        load_source("mysql://me@host/", None, {}, target)
    assert load_source("mysql://me@host/", None, {}, target, frozen=True).settings.port == 3306
    with pytest.raises(ConfigError, match="--source "):
        load_source("tidb://me@host/?no-such=1", None, {}, target)
