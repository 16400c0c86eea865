"""What a command is: how it is used, its help, its flags, and the module that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.config.option import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag of one command: it has neither keyword nor environment variable nor key. It may be given once."""

    name: str
    help: str
    metavar: str = ""
    """Empty for a flag without a value."""

    @property
    def words(self) -> tuple[str, ...]:
        """The values to choose from; empty if any may be given. Words in capitals stand for values."""
        return tuple(self.metavar.split("|")) if "|" in self.metavar and self.metavar.islower() else ()


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
    flags: tuple[Flag, ...] = ()
    options: tuple[Option, ...] = ()
    """What it takes of the table of options, in that order."""
    without_action: str = ""
    """Help of the action, where something else than the first one is done if none is named."""
    module: str = ""
    """Module below `storage_consumer.cli` whose function `answer` is a `Command`; empty for `run`."""
