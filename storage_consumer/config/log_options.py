"""Where and how to log, as far as that is known while other settings are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from storage_consumer.config.option import OWN_TABLE, Option
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.parsers import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWish:
    """The log that was asked for."""

    level: str = "info"
    file: str = ""
    """Path; empty: standard error."""
    style: str = "text"


def log_wish(options: Mapping[str, object], environ: Mapping[str, str]) -> LogWish:
    """Return the log settings of options, environment and the TOML files that were read; invalid ones are left out."""
    names = {"level": "log_level", "file": "log_file", "style": "log_format"}
    found = {field: _found(BY_KEYWORD[name], options, environ) for field, name in names.items()}
    return LogWish(**{field: value for field, value in found.items() if value})


def _found(option: Option, options: Mapping[str, object], environ: Mapping[str, str]) -> str:
    for given in (options.get(option.keyword), environ.get(option.environment), *_in_files(option, options)):
        with suppress(ValueError):
            if given not in {None, ""}:
                return str(option.parse(given))
    return ""


def _in_files(option: Option, options: Mapping[str, object]) -> Iterator[object]:
    """Yield the values in the files, the last file first."""
    documents = options.get("config")
    for document in reversed(documents if isinstance(documents, list) else []):
        table = document.content.get(OWN_TABLE) if isinstance(document, Document) else None
        if isinstance(table, Mapping):
            yield table.get(option.name)
