"""Tables as operators type them on a command line, and as messages quote them for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.table_filter import table_rules
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.tokens import quote
from storage_consumer.telemetry import UNSEEN, escaped

WAS_LEFT_OUT = "this table was left out until now, so its earlier rows are missing"
"""How the error begins of a table that the filter takes again, or skipped and now paused."""
DROPPED_UNSEEN = "the source dropped this table while the filter left it out, and the target may still have its old rows"
"""How the error of such a table begins if all that it lacks ended with a DROP."""
OR_BY_HAND = " -- or, after a copy that you made yourself, with its TSO: "
"""What stands between the two ways in which a table gets a copy."""
_PART = r"(?:`((?:[^`]|``)+)`|([^`.]+))"
T = TypeVar("T")
_RULE = re.compile(r"[*?\[/]")
_QUOTED = re.compile(rf"{_PART}(?:\.{_PART})?")


def table_word(name: TableName) -> str:
    """Return a table's exact name: ``database.table``, in backquotes where ambiguous."""
    # A leading dash would pass for an option.
    if name.schema.startswith("-"):
        return ".".join(map(quote, filter(None, (name.schema, name.table))))
    return str(name)


def shell_word(text: str) -> str:
    """Return a text as one shell word, without characters that terminals act on or hide."""
    if not UNSEEN.search(text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    # In this form the shell itself turns the escapes back into characters.
    return f"$'{escaped(plain)}'"


def table_flag(name: TableName) -> str:
    """Return ``--table NAME`` for a shell."""
    return f"--table {shell_word(table_word(name))}"


def copy_commands(name: TableName) -> tuple[str, str]:
    """Return how a table gets a copy, without options to the target: exported, or self-made."""
    flag = table_flag(name)
    return (
        f"storage-consumer load {flag} --dump URI --replace",
        f"storage-consumer table reload-done {flag} --at TSO",
    )


def copy_ways(name: TableName, reach: str) -> str:
    """Return both commands for a message, a self-made copy's last; `reach`: target options."""
    return OR_BY_HAND.join(f"{command} {reach}".rstrip() for command in copy_commands(name))


def parsed(given: str) -> TableName | None:
    """Return the name that backquotes or the only dot make unambiguous, or None."""
    found = _QUOTED.fullmatch(given)
    if found is None:
        return None
    schema, plain_schema, table, plain_table = found.groups()
    parts = [(part or "").replace("``", "`") for part in (schema, table)]
    return TableName(schema=parts[0] or plain_schema, table=parts[1] or plain_table or "")


def named(flag: str, given: str, *, whole: bool = False) -> TableName:
    """Return `parsed`; raise `ConfigError` with the flag if None, or if `whole` for a database."""
    name = parsed(given)
    if name is None or (whole and not name.table):
        raise ConfigError(
            f"{flag} {given!r}: database.table is expected, and `database`.`table` where a name holds a dot"
        )
    return name


def is_meant(name: TableName, given: str) -> bool:
    """Return whether an operator who typed `given` may mean this table."""
    if "`" in given and (exact := parsed(given)):
        return key_of(exact) == key_of(name)
    plain = ".".join(filter(None, (name.schema, name.table)))
    return folded_name(given) in (folded_name(plain), str(name.folded()))


def meant(given: str, rows: Iterable[T], name_of: Callable[[T], TableName]) -> list[T]:
    """Return rows of the one table meant by `given`, if any; raise `ConfigError` for several."""
    found = [row for row in rows if is_meant(name_of(row), given)]
    tables = {key_of(name_of(row)): name_of(row) for row in found}
    if len(tables) > 1:
        flags = " or ".join(sorted(map(table_flag, tables.values())))
        raise ConfigError(f"{given} is ambiguous: give {flags}")
    return found


def known(given: str, rows: Sequence[T], name_of: Callable[[T], TableName]) -> list[T]:
    """Return `meant`; raise `ConfigError`, naming the nearest tables, if there is none."""
    if found := meant(given, rows, name_of):
        return found
    names = [str(name_of(row)) for row in rows]
    near = did_you_mean(given, names) or (
        f"; known tables: {', '.join(names[:10])}" if names else ""
    )
    raise ConfigError(f"the state knows no table {given}{near}")


def is_rule(given: str) -> bool:
    """Return whether an operator's word may be a rule of the table filter, not a name."""
    return "`" not in given and bool(_RULE.search(given))


def selected(
    given: Iterable[str],
    rows: Sequence[T],
    name_of: Callable[[T], TableName],
    taken: Callable[[T], bool],
) -> list[T]:
    """Return the rows of all tables that an operator means, each once.

    A name means its table, a rule those of its tables that are `taken`.

    Raises `ConfigError` for a name or rule that fits no table, and for an ambiguous name.
    """
    found = dict[str, T]()
    for each in given:
        chosen = meant(each, rows, name_of)
        if not chosen and is_rule(each):
            try:
                rules = table_rules((each,))
            except ValueError as fault:
                raise ConfigError(f"--table: {fault}") from None
            fitting = [
                row for row in rows if rules.matches(name_of(row).schema, name_of(row).table)
            ]
            if not fitting:
                raise ConfigError(f"--table: the state knows no table that {each!r} fits")
            chosen = list(filter(taken, fitting))
        elif not chosen:
            chosen = known(each, rows, name_of)
        found |= {key_of(name_of(row)): row for row in chosen}
    return list(found.values())
