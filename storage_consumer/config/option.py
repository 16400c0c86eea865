"""The record of one option with all its names; the table of all options is in options.py."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from storage_consumer.config import parsers
from storage_consumer.config.parsers import Parser

ENVIRONMENT_PREFIX = "STORAGE_CONSUMER_"
OWN_TABLE = "consumer"
"""Our table in the TOML file; everything beside it is TiCDC's."""

PRECEDENCE = "flag or keyword, then URI parameter, then environment variable, then TOML file, then default"


@dataclass(frozen=True, slots=True)
class Option:
    """One option, under all its names."""

    name: str
    """The flag without leading dashes: ``flush-interval``."""
    help: str
    """One or two sentences: what the value means, with its unit."""
    _: KW_ONLY
    group: str = ""
    """Its heading, by the table of all options."""
    parse: Parser = parsers.text
    default: object = ""
    """The value (already parsed) if none is given."""
    shown_default: str = ""
    """How help shows the default, if the value itself says too little."""
    metavar: str = "TEXT"
    switch: bool = False
    """Whether the flag may come without a value, meaning true."""
    repeatable: bool = False
    """Whether the flag may be given several times; the values are collected in a list."""
    aliases: tuple[str, ...] = ()
    """Other names of the flag and keyword."""
    toml: str | None = None
    """Dotted key in TiCDC's part of the TOML file; None: our own, under ``[consumer]``; empty: not in the file at all."""
    uri: tuple[Literal["upstream", "downstream"], str] | None = None
    """The URI parameter that sets the same option."""
    flag: bool = True
    """Whether it is a flag too; a secret is not, since other users can see command lines."""
    escapes: bool = False
    """Whether ``\\t``, ``\\r``, ``\\n`` and ``\\xNN`` mean these characters; not in TOML, which has escapes of its own."""

    @property
    def keyword(self) -> str:
        """The name as a keyword of `Consumer`."""
        return self.name.replace("-", "_")

    @property
    def environment(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.keyword.upper()

    @property
    def toml_key(self) -> str:
        """The dotted key in the TOML file, or an empty text."""
        # None and the empty text differ: None is a key of our own table, the empty text is no key.
        return f"{OWN_TABLE}.{self.name}" if self.toml is None else self.toml

    @property
    def default_text(self) -> str:
        """The default as help and the reference show it."""
        shown = self.shown_default or (self.default if self.default != "" else "none")
        return str(shown).lower() if isinstance(shown, bool) else str(shown)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keyword and its aliases."""
        return (self.keyword, *(alias.replace("-", "_") for alias in self.aliases))


def switch(name: str, help_text: str, **more: Any) -> Option:
    """Return an option that is true or false, and true if it is given without a value. `more`: further fields."""
    fields: dict[str, Any] = {"default": False, "parse": parsers.boolean, "switch": True, "metavar": "BOOL"}
    return Option(name, help_text, **(fields | more))
