"""What `from storage_consumer import …` has."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from dataclasses import fields, is_dataclass
from inspect import isclass
from typing import get_args, get_type_hints

import pytest

import storage_consumer
from storage_consumer import Consumer, errors, telemetry
from tests.harness.pages import PAGES
from tests.harness.program import ROOT

PUBLIC = {name: getattr(storage_consumer, name) for name in storage_consumer.__all__ if name != "__version__"}
OURS = "storage_consumer."


def _classes(hint: object) -> set[type]:
    """The classes of this package in a type."""
    found = {each for part in get_args(hint) for each in _classes(part)}
    return found | ({hint} if isclass(hint) and hint.__module__.startswith(OURS) else set())


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_documented(name: str) -> None:
    """It has a docstring of its own, and the page about Python names it."""
    assert PUBLIC[name].__doc__
    assert f"`{name}`" in PAGES["docs/guide/python.md"] or name == "StorageConsumerError"


def test_all_errors_are_there() -> None:
    """A caller needs no other import to catch one."""
    tree = {each.__name__ for each in vars(errors).values() if isclass(each) and issubclass(each, Exception)}
    assert tree <= PUBLIC.keys()


@pytest.mark.parametrize("name", [name for name, each in PUBLIC.items() if is_dataclass(each)])
def test_records_are_frozen_and_lead_to_public_ones(name: str) -> None:
    """Whatever a public record holds can be named in a caller's types."""
    record = PUBLIC[name]
    assert record.__dataclass_params__.frozen
    hints = get_type_hints(record)
    reached = {each for field in fields(record) for each in _classes(hints[field.name])}
    assert {each.__name__ for each in reached - set(PUBLIC.values())} == set()


def test_methods_return_public_records() -> None:
    """So it is for what the methods of `Consumer` take and return."""
    methods = [each for name, each in vars(Consumer).items() if callable(each) and not name.startswith("_")]
    reached = {each for method in methods for hint in get_type_hints(method).values() for each in _classes(hint)}
    assert {each.__name__ for each in reached - set(PUBLIC.values())} == set()


def test_import_is_light() -> None:
    """The package alone loads no other library and none of its own rooms; errors and records load no Spark."""
    code = "import sys; from storage_consumer import {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    for names, heavy in (
        (
            "__version__",
            {"pyspark", "numpy", "sqlalchemy", "pymysql", "jinja2", "prometheus_client", "msgspec", "inspect"},
        ),
        ("StorageConsumerError, RoundSummary, Plan, Options", {"pyspark", "numpy", "sqlalchemy", "jinja2"}),
        ("Status, Health", {"pyspark", "numba", "sqlalchemy", "jinja2", "prometheus_client"}),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.format(names)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert set(done.stdout.split()) & heavy == set()


def test_unknown_name() -> None:
    """A name that is not public is no attribute, and `dir` has those that are."""
    name = "Consumers"
    with pytest.raises(AttributeError, match="has no attribute 'Consumers'"):
        getattr(storage_consumer, name)
    assert dir(storage_consumer) == sorted(storage_consumer.__all__)


def test_consumer_that_nobody_closes() -> None:
    """It is freed like any object, and the log calls it no more."""
    before = telemetry._listeners
    consumer = Consumer(upstream_uri="file:///b?protocol=csv", downstream_uri="mysql://h/", include_commit_ts=True)
    gone = weakref.ref(consumer)
    assert len(telemetry._listeners) == len(before) + 1
    del consumer
    gc.collect()
    assert gone() is None
    assert telemetry._listeners == before
