"""What is said of a CSV row whose columns no header line names."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

from storage_consumer.decode.csv_files import _unnamed
from storage_consumer.model import TableName


def test_the_command_is_one_for_a_shell() -> None:
    """The name of a table is a text from outside, and a shell would read from a file in angle brackets."""
    table = TableName(schema="shop", table="it's $(touch x)")
    form: Any = SimpleNamespace(layout=SimpleNamespace(table=table, columns=(), vouching="--x"), order=())
    command = _unnamed(form).partition("after that: ")[2]
    assert shlex.split(command) == ["storage-consumer", "load", "--table", str(table), "--replace", "--dump", "URI"]
