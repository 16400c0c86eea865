"""The possible forms of a CSV row's fields: those before the values, and the values by column type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.layout import is_hidden
from storage_consumer.decode.values import CsvForm, csv_form
from storage_consumer.inspection.csv_rows import Frame, Token
from storage_consumer.model import TSO_PHYSICAL_SHIFT, TableColumn, TableDefinition, folded_name

EARLIEST_TS = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""2015-01-01: nothing committed before TiDB existed."""
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
DIGITS = re.compile(rb"[0-9]{1,20}")
_TEMPORAL = re.compile(rb"-?[0-9:. -]+")
_DATES = frozenset({"DATE", "DATETIME", "TIMESTAMP", "TIME"})


@dataclass(frozen=True, slots=True)
class Prefix:
    """Which fields are between a row's schema name and its values."""

    commit_ts: bool
    old_value: bool
    handle_key: bool


def row_columns(definition: TableDefinition, virtual: frozenset[str] | None) -> list[TableColumn]:
    """Return the columns that rows have: neither hidden nor virtual; if the virtual ones are unknown, all that may be present."""
    gone = virtual or frozenset()
    return [c for c in definition.columns if not is_hidden(c.name) and folded_name(c.name) not in gone]


_Form = Callable[[Token, Frame, int], bool]


def is_commit_ts(token: Token, frame: Frame, newest: int) -> bool:  # noqa: ARG001 - one signature for all
    """Return whether a field can be a commit-ts: a bare number between 2015 and `newest`, both inclusive."""
    # A column of large numbers may look like one: `csv_options` asks for more before it decides.
    digits = not token.quoted and DIGITS.fullmatch(token.text)
    return bool(digits) and EARLIEST_TS <= int(token.text) <= newest


def _is_update(token: Token, frame: Frame, newest: int) -> bool:  # noqa: ARG001 - one signature for all
    return not token.quoted and token.text in {b"true", b"false"}


def _is_handle_key(token: Token, frame: Frame, newest: int) -> bool:  # noqa: ARG001 - one signature for all
    # TiCDC writes a handle key as a text, whatever the type of the key.
    return token.quoted or not frame.quote


def prefix_forms(prefix: Prefix) -> list[_Form]:
    """Return the forms of the fields between a row's schema name and its values."""
    chosen = ((prefix.commit_ts, is_commit_ts), (prefix.old_value, _is_update), (prefix.handle_key, _is_handle_key))
    return [form for wanted, form in chosen if wanted]


def is_null(token: Token, column: TableColumn, *, quoting: bool) -> bool:
    """Return whether a field of this column can only be NULL."""
    # With a quote only numbers and NULL are bare, so what is bare and no number is NULL.
    if quoting:
        return not token.quoted and (csv_form(column) is not CsvForm.BARE or not _NUMBER.fullmatch(token.text))
    # Without a quote only types with a form of their own show it; a text may be anything.
    if csv_form(column) is CsvForm.BARE or column.type == "DECIMAL":
        return not _NUMBER.fullmatch(token.text)
    return column.type in _DATES and not _TEMPORAL.fullmatch(token.text)


def is_value(token: Token, options: CsvOptions) -> bool:
    """Return whether a field holds a value that is neither NULL nor empty."""
    empty = (options.quote * 2).encode()
    return token.text not in {empty, options.null.encode(), b""}
