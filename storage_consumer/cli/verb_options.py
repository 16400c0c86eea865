"""The options that commands share: those that lead to the bucket, to the target, or to both."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.cli.verb import Flag
from storage_consumer.config.option import Group, Option
from storage_consumer.config.options import OPTIONS
from storage_consumer.config.parsers import Parser
from storage_consumer.errors import ConfigError

_OF_RUN = ("local-infile", "quarantine", "quarantine-limit")
"""Options about the target that only a run needs."""
_LOG = ("log-file", "log-format")
_BUCKET: tuple[Group, ...] = ("what is copied", "how TiCDC wrote the files")


def of_the_bucket(*more: str) -> tuple[Option, ...]:
    """Return the options that say where the bucket is and how it was written, and those called `more`."""
    ends = {*_LOG, *more}
    return tuple(
        each for each in OPTIONS if each.name in ends or (each.group in _BUCKET and each.name != "downstream-uri")
    )


def of_the_target(*more: str) -> tuple[Option, ...]:
    """Return the options that lead to the target and its state, and those called `more`."""
    ends = {"downstream-uri", "config", *_LOG, *more}
    return tuple(
        each for each in OPTIONS if each.name in ends or (each.group == "the target" and each.name not in _OF_RUN)
    )


def of_both_ends() -> tuple[Option, ...]:
    """Return the options that say where the bucket is and how it was written, and those that lead to the target."""
    ends = {*of_the_bucket(), *of_the_target()}
    return tuple(each for each in OPTIONS if each in ends)


def number_of(own: Mapping[str, str], name: str, parser: Parser, default: float = 0.0) -> float:
    """Return the number that a flag was given, by its keyword; raise `ConfigError`, which names the flag."""
    if name not in own:
        return default
    try:
        return float(parser(own[name]))  # type: ignore[arg-type] # the parsers used for flags return numbers
    except ValueError as error:
        raise ConfigError(f"--{name.replace('_', '-')}: {error}") from None


SOURCE_PASSWORD_FILE = Flag(
    name="--source-password-file", metavar="FILE", help="File that holds the source's password."
)
JSON = Flag(name="--json", help="One JSON document instead of text.")
TABLE = Flag(name="--table", metavar="S.T", help="The table, as database.table, or a database alone.")
