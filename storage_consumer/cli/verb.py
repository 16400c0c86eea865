"""A command: its usage, help, flags, shared options, and the module that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from keyword import iskeyword
from typing import Any, dataclass_transform

from storage_consumer.config import parsers
from storage_consumer.config.options import OPTIONS, Option
from storage_consumer.config.parsers import Parser
from storage_consumer.errors import ConfigError


def flag(help_text: str, metavar: str, parse: Parser = parsers.filled, hint: str = "") -> Any:
    """Return a flag's field, None if not given.

    Lowercase words with | between them are all its possible values.

    `hint`: where a value is found, for the message about a wrong one.
    """
    return field(
        default=None, metadata={"help": help_text, "metavar": metavar, "parse": parse, "hint": hint}
    )


def named_tables(help_text: str) -> Any:
    """Return the field of a repeatable flag --table: what `table_words.selected` takes."""
    return field(
        default=(),
        metadata={
            "help": help_text,
            "metavar": "S.T",
            "parse": parsers.filled_texts,
            "repeatable": True,
        },
    )


def switch(help_text: str) -> Any:
    """Return the field for a flag without a value."""
    return field(
        default=False,
        metadata={"help": help_text, "metavar": "", "parse": parsers.boolean, "switch": True},
    )


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Flags:
    """A command's own flags, beside the table of options, with its action and words if any."""

    def __init_subclass__(cls) -> None:
        """Make each of them a frozen record."""
        dataclass(frozen=True, kw_only=True)(cls)


class NoFlags(Flags):
    """What `run` takes: options alone."""


class FlagsOfAll(Flags):
    """What each command takes but `run`, which has no answer."""

    color: str | None = flag(
        "When state words are coloured; auto: on a terminal, unless NO_COLOR is set.",
        "auto|always|never",
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
    """Word and meaning, for a command with several actions; the first is the default."""
    words: str = ""
    """Placeholder of words beside flags, any number of them; empty if it takes none."""
    takes: type[Flags] = NoFlags
    options: tuple[Option, ...] = ()
    """What it takes of the table of options, in that order."""
    without_action: str = ""
    """Help of the action, where something else than the first one is done if none is named."""
    module: str = ""
    """Module of `storage_consumer.cli` with the command's ``answer_…``; empty for `run`."""

    @property
    def flags(self) -> tuple[Option, ...]:
        """Its own flags, in the help's order; they have no environment variable and no key."""
        own = [each for each in fields(self.takes) if each.metadata]  # type: ignore[arg-type] # a record
        found = [
            Option(keyword=each.name.removesuffix("_"), group="", **each.metadata) for each in own
        ]
        return tuple(
            sorted(
                found, key=lambda each: _LAST.index(each.keyword) if each.keyword in _LAST else -1
            )
        )

    def divided(self, options: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        """Split keyword options into its own record and those of bucket and target.

        Raise `ConfigError` if they are wrong.
        """
        rest, own = dict(options), dict[str, object]()
        for each in self.flags:
            if (given := rest.pop(each.keyword, None)) is not None:
                try:
                    own[each.keyword + "_" * iskeyword(each.keyword)] = each.parse(given)
                except ValueError as fault:
                    hint = f"; {each.hint}" if each.hint else ""
                    raise ConfigError(f"--{each.name}: {fault}{hint}") from None
        own |= {name: rest.pop(name) for name in ("action", "words") if rest.get(name)}
        return self.takes(**own), rest


_OF_RUN = ("local-infile", "quarantine", "quarantine-limit")
"""Options about the target that only a run needs."""
_LOG = ("log-file", "log-format")
_BUCKET = ("what is copied", "how TiCDC wrote the files")


def of_the_bucket(*more: str) -> tuple[Option, ...]:
    """Return options on where the bucket is and how it was written, and those in `more`."""
    ends = {*_LOG, *more}
    return tuple(
        each
        for each in OPTIONS
        if each.name in ends or (each.group in _BUCKET and each.name != "downstream-uri")
    )


def of_the_target(*more: str) -> tuple[Option, ...]:
    """Return the options that lead to the target and its state, and those called `more`."""
    ends = {"downstream-uri", "config", *_LOG, *more}
    return tuple(
        each
        for each in OPTIONS
        if each.name in ends or (each.group == "the target" and each.name not in _OF_RUN)
    )


def of_both_ends() -> tuple[Option, ...]:
    """Return options on the bucket's place and format, and those that lead to the target."""
    ends = {*of_the_bucket(), *of_the_target()}
    return tuple(each for each in OPTIONS if each in ends)


TABLE = "The table, as database.table, or a database alone."
SOURCE_PASSWORD_FILE = "File that holds the source's password."  # noqa: S105 - the help of a flag
WORKERS = parsers.integer(low=1, high=64)
ROWS_PER_SECOND = parsers.integer(low=0, high=1 << 40)
