"""The command `inspect`: options in; out comes what was found of a bucket, as text or as one JSON document with stable keys."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from storage_consumer.bucket.inspector import InspectedBucket, InspectedSetting, inspect
from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.screen_layout import facts, table, wrapped
from storage_consumer.cli.verb import FlagsWithJson
from storage_consumer.clock import data_size
from storage_consumer.config.commands import PROGRAM, uri_of
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.sources import is_given
from storage_consumer.model import physical_ms
from storage_consumer.session import Session

_SHOWN_TABLES = 10
_LABEL = 14
_AS_FOUND = (
    *("layouts", "architecture", "index_widths", "dispatchers", "objects", "data_files", "schema_files"),
    *("checkpoint", "warnings", "likely"),
)
"""Fields of `InspectedBucket` that the document has under the same name."""
_ESCAPES = {"\t": r"\t", "\r": r"\r", "\n": r"\n"}


class Asked(NamedTuple):
    """How a bucket was asked about."""

    given: tuple[str, ...] = ()
    """The flags, without secrets."""
    has_target: bool = False
    """Whether the environment or a file names the target."""

    @property
    def configs(self) -> list[str]:
        """The names of the files of settings."""
        return [value for flag, value in pairwise(self.given) if flag == "--config"]


NOTHING = Asked()


def answer(own: FlagsWithJson, session: Session) -> Answer:
    """Return what was found of a bucket; `MISCONFIGURED` if a setting is missing or contradicted.

    Raises `ConfigError` if the arguments are wrong or the bucket does not exist, and
    `StorageUnavailable` if it does not answer.
    """
    bucket, asked = looked_at(session)
    return told(own, as_document(bucket, asked), lines_of(bucket, asked), code_of(bucket))


def code_of(bucket: InspectedBucket) -> ExitCode:
    """Return `DONE` if nothing is missing or contradicted and this is a changefeed's folder, else `MISCONFIGURED`."""
    return ExitCode.MISCONFIGURED if bucket.missing or bucket.contradictions or bucket.likely else ExitCode.DONE


def looked_at(session: Session) -> tuple[InspectedBucket, Asked]:
    """Return what was found of a bucket, and how it was asked about; raise as `answer` does."""
    loaded = session.bucket
    upstream = loaded.config.upstream
    storage = session.storage(upstream, loaded.secrets)
    # First: a wrong endpoint or key should be named as such, not as an empty bucket.
    storage.check()
    opened = partial(session.storage, secrets=loaded.secrets)
    bucket = inspect(storage, upstream, loaded.origins, time.time(), opened)
    has_target = is_given("downstream_uri", session.options, session.environ)
    return bucket, Asked(given=loaded.config.given, has_target=has_target)


def as_document(bucket: InspectedBucket, asked: Asked = NOTHING) -> dict[str, Any]:
    """Return the bucket as JSON takes it; the keys are part of the program's interface."""
    return {
        "bucket": bucket.place,
        **{name: getattr(bucket, name) for name in _AS_FOUND},
        "settings": {
            each.name: {"value": each.value, "state": each.state, "origin": each.origin} for each in bucket.settings
        },
        "missing": [each.name for each in bucket.missing],
        "contradictions": [each.name for each in bucket.contradictions],
        "tables": [
            {
                "path": each.directory,
                "name": str(each.name) if each.name else None,
                "versions": each.versions,
                "files": each.files,
                "bytes": each.size,
            }
            for each in bucket.tables
        ],
        "bytes": bucket.size,
        "sampled_files": bucket.sampled,
        "checkpoint_time": _time(bucket.checkpoint),
        "commit_ts": {"sampled": bucket.commit_ts, "table_versions": bucket.versions},
        "command": command(bucket, asked),
    }


def lines_of(bucket: InspectedBucket, asked: Asked = NOTHING) -> Iterator[str]:
    """Yield the bucket as text for readers."""

    def between(low: int, high: int) -> str:
        return f"{low} to {high} ({_time(low)} to {_time(high)})"

    either = "TiCDC of either architecture"
    widths = " and ".join(map(str, bucket.index_widths)) or "none"
    files = f"{bucket.data_files:,} data files, {bucket.schema_files:,} schema files"
    known = {
        "layout": ", ".join(bucket.layouts) or "no schema file found",
        "written by": either if bucket.architecture == "not tellable" else f"{bucket.architecture} architecture",
        "file numbers": f"{widths} digits{', with the dispatcher in the name' if bucket.dispatchers else ''}",
        "objects": f"{bucket.objects:,} ({data_size(bucket.size)}): {files}",
        "checkpoint": f"{bucket.checkpoint} ({_time(bucket.checkpoint)})" if bucket.checkpoint else "none yet",
    }
    if bucket.commit_ts:
        known["rows"] = f"commit ts {between(*bucket.commit_ts)} in the {bucket.sampled} sampled files"
    if bucket.versions:
        known["versions"] = f"{between(*bucket.versions)}, of all paths"
    yield bucket.place
    yield from facts(known, _LABEL)
    yield ""
    yield from _settings(bucket)
    yield ""
    yield from _tables(bucket)
    if bucket.warnings:
        yield ""
        yield "warnings"
        yield from (line for warning in bucket.warnings for line in wrapped(warning, "  ", "    "))
    yield ""
    yield from _verdict(bucket, asked)


def _settings(bucket: InspectedBucket) -> Iterator[str]:
    yield "settings"
    rows = []
    # An origin that repeats is shown as "likewise": several settings often come from one file.
    before = ""
    for each in bucket.settings:
        state = f"{each.state}: " if each.origin and each.state not in ("given", "inferred") else ""
        origin = f"inferred from {each.origin}" if each.state == "inferred" else each.origin
        origin, before = ("likewise" if origin == before else origin), origin
        rows.append((each.name, _shown(each), f"{state}{origin or each.state}"))
    yield from table(rows, "  ")


def _tables(bucket: InspectedBucket) -> Iterator[str]:
    count = len(bucket.tables)
    yield f"{count} table{'s' if count != 1 else ''}{', the largest' if count > _SHOWN_TABLES else ''}"
    rows = []
    for each in bucket.tables[:_SHOWN_TABLES]:
        versions = f"{each.versions} version{'s' if each.versions != 1 else ''}"
        files = f"{each.files:>6,} file{'s' if each.files != 1 else ' '}"
        rows.append((str(each.name or each.directory), files, f"{data_size(each.size):>9}", versions))
    yield from table(rows, "  ")


def _verdict(bucket: InspectedBucket, asked: Asked) -> Iterator[str]:
    if bucket.likely:
        yield from wrapped(f"not the changefeed's folder, which is likely {' or '.join(bucket.likely)}", further="  ")
        return
    for text in _open_questions(bucket):
        yield from wrapped(text, further="  ")
    if not bucket.missing and not bucket.contradictions:
        yield ("nothing is missing; continue with:" if bucket.checkpoint else "once it is there, continue with:")
    elif not bucket.contradictions:
        yield "fill these in and continue with:"
    if not bucket.contradictions:
        yield f"  {command(bucket, asked)}"


def _open_questions(bucket: InspectedBucket) -> Iterator[str]:
    for each in bucket.contradictions:
        yield f"contradicts: --{each.name} was given as {_shown(each)}, but {each.origin}"
    for each in bucket.missing:
        yield f"missing: --{each.name} ({each.origin})"
    for each in bucket.assumed:
        yield f"assumed: --{each.name} {_shown(each)} ({each.origin}); give it if the changefeed says another"
    if bucket.missing:
        yield (
            "  The changefeed's TOML file, given with --config, has all of these except --tz and what its sink URI "
            "sets."
        )
    if not bucket.checkpoint:
        yield (
            "missing: the metadata file, which TiCDC writes into its folder with the first checkpoint; nothing is "
            "applied before that"
        )


def command(bucket: InspectedBucket, asked: Asked = NOTHING) -> str:
    """Return the command that copies the bucket: as it was asked about, with inferred settings spelled out, and no credentials."""
    upstream = bucket.upstream
    words = [PROGRAM, "run"]
    if "--upstream-uri" not in asked.given:
        words += ["--upstream-uri", shlex.quote(uri_of(upstream))]
    words += map(shlex.quote, asked.given)
    for each in bucket.settings:
        # The paths show `run` the first two as well; the time zone comes below, even if it is not known.
        if each.keyword in ("date_separator", "enable_partition_separator", "tz"):
            continue
        if each.is_missing:
            words += [f"--{each.name}", f"'<{BY_KEYWORD[each.keyword].metavar}>'"]
        elif each.state == "inferred" and each.value not in (None, ""):
            words += [f"--{each.name}", shlex.quote(_flag(each.value))]
        # An empty value has to be given as such, or the shell would lose it.
        elif each.state == "inferred" and each.keyword != "binary_encoding_method":
            words.append(f"--{each.name}=''")
    # Spelled out, since nothing in the files shows it.
    if "--tz" not in asked.given:
        words += ["--tz", shlex.quote(upstream.time_zone or "<ZONE>")]
    weaker = not upstream.has_commit_ts and "--allow-missing-commit-ts" not in asked.given
    if weaker and not any(each.is_missing for each in bucket.settings if each.keyword != "tz"):
        words.append("--allow-missing-commit-ts")
    return " ".join(words if asked.has_target else [*words, "--downstream-uri", "'mysql://<USER>@<HOST>:3306/'"])


def _flag(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "".join(_ESCAPES.get(char, char) for char in str(value))


def _shown(setting: InspectedSetting) -> str:
    value = setting.value
    if value is None or (value == "" and setting.keyword == "binary_encoding_method"):
        return "?" if setting.is_missing else "-"
    # Quoted where it is empty or has a blank that nobody would see.
    return _flag(value) if isinstance(value, bool) or (value and not set(str(value)) & set("\r\n\t ")) else repr(value)


def _time(ts: int) -> str | None:
    """Return the time of a TSO in UTC; None for 0 and for a number that is not a time."""
    try:
        return f"{datetime.fromtimestamp(physical_ms(ts) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ts else None
    except (ValueError, OverflowError, OSError):
        return None
