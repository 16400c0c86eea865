"""The places that a value may come from, which of them wins, and the log's settings as far as they are known while others are wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from storage_consumer.config import changefeed, parsers
from storage_consumer.config.option import OWN_TABLE, Option
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.parsers import Document, did_you_mean
from storage_consumer.config.uris import parse_downstream, parse_upstream, same_place
from storage_consumer.errors import ConfigError

_NO_BUCKET = "file:///nowhere"
"""A placeholder for commands that need no bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value and where it was given."""

    value: Any
    origin: str
    """Text for messages, like ``--tz`` or ``changefeed.toml: [sink] protocol``; empty for a default."""


class Sources:
    """The places that a value may come from, tried in the order of precedence."""

    def __init__(
        self, options: Mapping[str, object], environ: Mapping[str, str], *, target: bool, bucket: bool = True
    ) -> None:
        """Read the TOML files and parse the URIs; raise `ConfigError` for anything unknown or malformed in them.

        Without `target`, settings of the target are ignored; without `bucket`, those of the bucket.
        """
        self.options = known_options(options)
        self.environ = environ
        # Empty until the URIs are parsed: a URI cannot be given by a parameter of itself.
        self.parameters: dict[str, Mapping[str, str]] = {}
        self.settings: dict[str, tuple[object, str]] = {}
        # The files come first, since they may name both URIs.
        self.documents = tuple(changefeed.read_document(item) for item in self._config())
        for document in self.documents:
            changefeed.check_keys(document)
            changefeed.refuse_routed_selectors(document)
        # Dotted key → value and file, over all files.
        self.settings = changefeed.merged(self.documents)
        if f"{OWN_TABLE}.sink-uri" in self.settings:
            self.settings.setdefault(f"{OWN_TABLE}.upstream-uri", self.settings[f"{OWN_TABLE}.sink-uri"])
        self.upstream = parse_upstream(self.text_of("upstream-uri") if bucket else _NO_BUCKET)
        self.downstream = parse_downstream(self.text_of("downstream-uri")) if target else None
        self.parameters = {uri.side: uri.parameters for uri in (self.upstream, self.downstream) if uri is not None}
        uris = {
            each.source: dict(changefeed.leaves(each.content)).get(changefeed.SINK_URI)
            for each in self.documents
            if each.printed
        }
        self.elsewhere = tuple(
            source for source, uri in uris.items() if bucket and not same_place(self.upstream, str(uri))
        )
        """The printed changefeeds that write to another place than the bucket's URI names."""
        # A start-ts of another changefeed would prove what is not so.
        if self.settings.get(changefeed.START_TS, (0, ""))[1] in self.elsewhere:
            del self.settings[changefeed.START_TS]

    def _config(self) -> list[object]:
        given = self.find("config")
        from_environment = given.origin.startswith("environment") and isinstance(given.value, list)
        # Only a variable has to pack several paths into one text.
        if from_environment:
            return [part for item in given.value for part in str(item).split(os.pathsep) if part]
        return list(given.value or ())

    def text_of(self, name: str) -> str:
        """Return the URI that was given for an option; raise `ConfigError` if none was."""
        given = self.find(name.replace("-", "_"))
        if not given.value:
            example = "file:///dir?protocol=csv" if name == "upstream-uri" else "mysql://user@host:3306/"
            raise ConfigError(f"--{name} is missing; give it, for example, as --{name} '{example}'")
        return str(given.value)

    def find(self, keyword: str) -> Given:
        """Return the value of an option: flag or keyword, URI, environment, TOML, default."""
        option = BY_KEYWORD[keyword]
        for given, origin in self.candidates(keyword):
            if given is None:
                continue
            try:
                return Given(value=option.parse(given), origin=origin)
            except ValueError as error:
                shown = (
                    # A parser's message may quote the value, and these values hold secrets.
                    str(error) if "uri" not in option.name and "password" not in option.name else "a text is expected"
                )
                raise ConfigError(f"{origin}: {shown}") from None
        return Given(value=option.default, origin="")

    def candidates(self, keyword: str) -> list[tuple[object, str]]:
        """Return the unparsed values of an option with their places, the first in rank first; None where there is none."""
        option = BY_KEYWORD[keyword]
        by_hand = parsers.unescaped if option.escapes else lambda value: value
        found: list[tuple[object, str]] = [(by_hand(self.options.get(option.keyword)), f"--{option.name}")]
        if option.uri:
            side, parameter = option.uri
            # An empty parameter, or an empty variable below, counts as not given; an empty flag is a value.
            in_uri = self.parameters.get(side, {}).get(parameter) or None
            found.append((in_uri, f"--{side}-uri: parameter `{parameter}`"))
        in_environment = by_hand(self.environ.get(option.environment) or None)
        found.append((in_environment, f"environment variable {option.environment}"))
        if option.toml_key in self.settings:
            value, source = self.settings[option.toml_key]
            table, _, key = option.toml_key.rpartition(".")
            found.append((value, f"{source}: [{table}] {key}"))
        return found

    def sink_table(self) -> str:
        """Return the first file with a ``[sink]`` table, which makes it a changefeed's; empty if there is none."""
        return next((each.source for each in self.documents if isinstance(each.content.get("sink"), Mapping)), "")

    def explicit(self, keyword: str) -> Any:
        """Return the value of an option that was given, None if it was not."""
        given = self.find(keyword)
        return given.value if given.origin else None

    def values(self, *names: str) -> dict[str, Any]:
        """Return keyword → value for these keywords."""
        return {name: self.find(name).value for name in names}


def is_given(keyword: str, options: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Return whether an option, environment or a file that was read gives a value. `options`: see `load.with_files_read`."""
    option = BY_KEYWORD[keyword]
    given = (*map(options.get, option.keywords), environ.get(option.environment), *_in_files(option, options))
    return any(given)


def known_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options that are given, by keyword, aliases resolved; raise `ConfigError` for an unknown one."""
    known: dict[str, object] = {}
    for keyword, value in options.items():
        # Aliases are in this table as well, so two names of one option meet in the keyword of the record.
        if keyword not in BY_KEYWORD:
            raise ConfigError(f"there is no option `{keyword}`{did_you_mean(keyword, BY_KEYWORD)}")
        name = BY_KEYWORD[keyword].keyword
        if value is None:
            continue
        if name in known and known[name] != value:
            raise ConfigError(f"`{keyword}` and `{name}` mean the same option but were given different values")
        known[name] = value
    return known


@dataclass(frozen=True, slots=True)
class LogWish:
    """The log that was asked for."""

    level: str = "info"
    file: str = ""
    """Path; empty: standard error."""
    style: str = "text"


def log_wish(options: Mapping[str, object], environ: Mapping[str, str]) -> LogWish:
    """Return the log settings of options, environment and the TOML files that were read; invalid ones are left out."""
    found: dict[str, str] = {}
    for field, name in (("level", "log_level"), ("file", "log_file"), ("style", "log_format")):
        option = BY_KEYWORD[name]
        for given in (options.get(name), environ.get(option.environment), *_in_files(option, options)):
            # What is wrong here is reported with the other settings; until then the next place decides.
            with suppress(ValueError):
                found.update({} if field in found or given in (None, "") else {field: str(option.parse(given))})
    return LogWish(**found)


def _in_files(option: Option, options: Mapping[str, object]) -> Iterator[object]:
    """Yield the values in the files, the last file first."""
    documents = options.get("config")
    for document in reversed(documents if isinstance(documents, list) else []):
        table = document.content.get(OWN_TABLE) if isinstance(document, Document) else None
        if isinstance(table, Mapping):
            yield from map(table.get, (option.name, *option.aliases))
