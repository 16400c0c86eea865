"""The options that commands share: those that lead to the bucket, to the target, or to both."""

from __future__ import annotations

from storage_consumer.config import parsers
from storage_consumer.config.option import Option
from storage_consumer.config.options import OPTIONS

_OF_RUN = ("local-infile", "quarantine", "quarantine-limit")
"""Options about the target that only a run needs."""
_LOG = ("log-file", "log-format")
_BUCKET = ("what is copied", "how TiCDC wrote the files")


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


TABLE = "The table, as database.table, or a database alone."
SOURCE_PASSWORD_FILE = "File that holds the source's password."  # noqa: S105 - the help of a flag
WORKERS = parsers.integer(low=1, high=64)
ROWS_PER_SECOND = parsers.integer(low=0, high=1 << 40)
