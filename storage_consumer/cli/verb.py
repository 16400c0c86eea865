"""What a command is: how it is used, its help, its flags, and the module that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, dataclass_transform

from storage_consumer.config import parsers
from storage_consumer.config.option import Option
from storage_consumer.config.parsers import Parser
from storage_consumer.errors import ConfigError


def flag(help_text: str, metavar: str, parse: Parser = parsers.filled, hint: str = "") -> Any:
    """Return the field for a flag with a value, None if it is not given. Words in small letters, with | between them, are all there are.

    `hint`: where a value is found, for the message about a wrong one.
    """
    return field(default=None, metadata={"help": help_text, "metavar": metavar, "parse": parse, "hint": hint})


def switch(help_text: str) -> Any:
    """Return the field for a flag without a value."""
    return field(default=False, metadata={"help": help_text, "parse": parsers.boolean})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of one command: it has neither keyword nor environment variable nor key. It may be given once."""

    field: str
    """The field of the command's record."""
    help: str
    parse: Parser
    metavar: str = ""
    """Empty for a flag without a value."""
    hint: str = ""
    """Where a value is found."""

    @property
    def keyword(self) -> str:
        """What argparse calls it."""
        return self.field.removesuffix("_")

    @property
    def name(self) -> str:
        """The flag as it is typed."""
        return f"--{self.keyword.replace('_', '-')}"

    @property
    def words(self) -> tuple[str, ...]:
        """The values to choose from; empty if any may be given. Words in capitals stand for values."""
        return tuple(self.metavar.split("|")) if "|" in self.metavar and self.metavar.islower() else ()


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Flags:
    """What a command takes beside the table of options: a record with its flags, and its action and words if it has them."""

    def __init_subclass__(cls) -> None:
        """Make each of them a frozen record."""
        dataclass(frozen=True, kw_only=True)(cls)


class NoFlags(Flags):
    """What `run` takes: options alone."""


class FlagsOfAll(Flags):
    """What each command takes but `run`, which has no answer."""

    color: str | None = flag(
        "When state words are coloured; auto: on a terminal, unless NO_COLOR is set.", "auto|always|never"
    )


class FlagsWithJson(FlagsOfAll):
    """What commands take whose answer may be a document."""

    json: bool = switch("One JSON document instead of text.")


_LAST = ("json", "color")
"""Fields that come last in the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One command."""

    name: str
    usage: str
    """What follows program and command."""
    summary: str
    """Its line in the list of commands."""
    description: str
    examples: tuple[str, ...] = ()
    """Words after the program's name."""
    actions: tuple[tuple[str, str], ...] = ()
    """Word and meaning, for a command that does one of several things; the first one is done if none is named."""
    words: str = ""
    """Placeholder of the words that it takes beside flags, any number of them; empty if it takes none."""
    takes: type[Flags] = NoFlags
    options: tuple[Option, ...] = ()
    """What it takes of the table of options, in that order."""
    without_action: str = ""
    """Help of the action, where something else than the first one is done if none is named."""
    module: str = ""
    """Module below `storage_consumer.cli` whose function `answer` is a `Command`; empty for `run`."""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Its own flags, in the order of the help."""
        found = [Flag(field=each.name, **each.metadata) for each in fields(self.takes) if each.metadata]  # type: ignore[arg-type] # a record
        return tuple(sorted(found, key=lambda each: _LAST.index(each.field) if each.field in _LAST else -1))

    def divided(self, options: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        """Return its own record of these options, by keyword, and those that lead to bucket and target; raise `ConfigError`."""
        rest, own = dict(options), dict[str, object]()
        for each in self.flags:
            if (given := rest.pop(each.keyword, None)) is not None:
                try:
                    own[each.field] = each.parse(given)
                except ValueError as fault:
                    hint = f"; {each.hint}" if each.hint else ""
                    raise ConfigError(f"{each.name}: {fault}{hint}") from None
        own |= {name: rest.pop(name) for name in ("action", "words") if rest.get(name)}
        return self.takes(**own), rest
