"""The places that a value may come from, which of them wins, and the log's settings as far as they are known while others are wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from storage_consumer.config import changefeed, parsers
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.parsers import Document, did_you_mean
from storage_consumer.config.secrets import password_in
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


class Places:
    """The places that a value may come from but URIs, tried in the order of precedence; nothing is checked but what is asked for."""

    def __init__(self, options: Mapping[str, object], environ: Mapping[str, str]) -> None:
        """Take options by keyword; of the files only those that were read."""
        self.options = options
        self.environ = environ
        # Empty until the URIs are parsed: a URI cannot be given by a parameter of itself.
        self.parameters: dict[str, Mapping[str, str]] = {}
        config = options.get("config")
        documents = config if isinstance(config, list) else ()
        self.documents = tuple(each for each in documents if isinstance(each, Document))
        # Dotted key → value and file, over all files.
        self.settings = changefeed.merged(self.documents)
        if changefeed.SINK_URI in self.settings:
            self.settings.setdefault(BY_KEYWORD["upstream_uri"].toml_key, self.settings[changefeed.SINK_URI])

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


class Sources(Places):
    """All places, checked as far as anything is unknown or malformed in files and URIs."""

    def __init__(
        self, options: Mapping[str, object], environ: Mapping[str, str], *, target: bool, bucket: bool = True
    ) -> None:
        """Read the TOML files and parse the URIs; raise `ConfigError`.

        Without `target`, settings of the target are ignored; without `bucket`, those of the bucket.
        """
        super().__init__(with_files_read(options, environ), environ)
        for document in self.documents:
            changefeed.check_keys(document)
            changefeed.refuse_routed_selectors(document)
        # The files come first, since they may name both URIs.
        self.upstream = parse_upstream(self._uri("upstream_uri") if bucket else _NO_BUCKET)
        self.downstream = parse_downstream(self._uri("downstream_uri")) if target else None
        self.parameters = {uri.side: uri.parameters for uri in (self.upstream, self.downstream) if uri is not None}
        self.elsewhere = tuple(
            each.source
            for each in self.documents
            if each.printed
            and bucket
            and not same_place(self.upstream, str(dict(changefeed.leaves(each.content))[changefeed.SINK_URI]))
        )
        """The printed changefeeds that write to another place than the bucket's URI names."""
        # A start-ts of another changefeed would prove what is not so.
        if self.settings.get(changefeed.START_TS, (0, ""))[1] in self.elsewhere:
            del self.settings[changefeed.START_TS]

    def _uri(self, keyword: str) -> str:
        given = self.find(keyword)
        if not given.value:
            name = BY_KEYWORD[keyword].name
            example = "file:///dir?protocol=csv" if name == "upstream-uri" else "mysql://user@host:3306/"
            raise ConfigError(f"--{name} is missing; give it, for example, as --{name} '{example}'")
        return str(given.value)

    def values(self, *names: str) -> dict[str, Any]:
        """Return keyword → value for these keywords."""
        return {name: self.find(name).value for name in names}


def with_files_read(options: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """Return the options that are given, by keyword, aliases resolved, with the files that ``config`` and ``downstream_password_file`` name already read.

    A caller that loads the same options twice must read these files only once, since they may be pipes.
    `load` returns the same for the result as for `options`. Raises `ConfigError`, also for an unknown option.
    """
    known: dict[str, object] = {}
    for keyword, value in options.items():
        # Aliases are in this table as well, so two names of one option meet in the keyword of the record.
        if keyword not in BY_KEYWORD:
            raise ConfigError(f"there is no option `{keyword}`{did_you_mean(keyword, BY_KEYWORD)}")
        name = BY_KEYWORD[keyword].keyword
        if value is not None and known.setdefault(name, value) != value:
            raise ConfigError(f"`{keyword}` and `{name}` mean the same option but were given different values")
    places = Places(known, environ)
    config = places.find("config")
    items = config.value or ()
    if config.origin.startswith("environment"):
        # Only a variable has to pack several paths into one text.
        items = [part for item in items for part in str(item).split(os.pathsep) if part]
    if documents := [changefeed.read_document(item) for item in items]:
        known["config"] = documents
    file = known.get("downstream_password_file")
    if file and known.get("downstream_password") is None:
        given = places.find("downstream_password_file")
        known["downstream_password"] = password_in(given.value, given.origin)
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
    places, found = Places(options, environ), dict[str, str]()
    for field, name in (("level", "log_level"), ("file", "log_file"), ("style", "log_format")):
        for given in filter(None, (each for each, _ in places.candidates(name))):
            # What is wrong here is reported with the other settings; until then the next place decides.
            with suppress(ValueError):
                found.setdefault(field, str(BY_KEYWORD[name].parse(given)))
    return LogWish(**found)


def is_given(keyword: str, options: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Return whether an option, environment or a file that was read gives a value. `options`: see `with_files_read`."""
    return any(given for given, _ in Places(options, environ).candidates(keyword))
