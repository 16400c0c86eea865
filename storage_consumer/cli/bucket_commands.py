"""The commands `inspect` and `init`: describe a bucket, and write its configuration.

The description is text or JSON; the configuration has comments and no secrets.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage_consumer.bucket.inspector import (
    InspectedBucket,
    InspectedSetting,
    inspect,
    refuse_foreign,
)
from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import facts, table, wrapped
from storage_consumer.cli.verb import FlagsWithJson
from storage_consumer.cli.verbs import InitFlags
from storage_consumer.clock import data_size
from storage_consumer.config.commands import PROGRAM, bare_uri, uri_of
from storage_consumer.config.load import load_target
from storage_consumer.config.options import BY_KEYWORD, OWN_TABLE
from storage_consumer.config.sources import is_given
from storage_consumer.errors import ConfigError
from storage_consumer.model import physical_ms
from storage_consumer.session import Session
from storage_consumer.telemetry import escaped, redact

if TYPE_CHECKING:
    from storage_consumer.operating.checks import Finding

_SHOWN_TABLES = 10
_LABEL = 14
_AS_FOUND = (
    *(
        "layouts",
        "architecture",
        "index_widths",
        "dispatchers",
        "objects",
        "data_files",
        "schema_files",
    ),
    *("checkpoint", "warnings", "notes", "likely", "foreign"),
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


def answer_inspect(own: FlagsWithJson, session: Session) -> Answer:
    """Return what was found of a bucket; `MISCONFIGURED` if a setting is missing or contradicted.

    Raises `ConfigError` if the arguments are wrong or the bucket does not exist, and
    `StorageUnavailable` if it does not answer.
    """
    bucket, asked = looked_at(session)
    return told(own, as_document(bucket, asked), lines_of(bucket, asked), code_of(bucket))


def code_of(bucket: InspectedBucket) -> ExitCode:
    """Return `DONE` for a changefeed's folder without missing or contradicted settings.

    Else return `MISCONFIGURED`.
    """
    wrong = bucket.missing or bucket.contradictions or bucket.likely or bucket.foreign
    return ExitCode.MISCONFIGURED if wrong else ExitCode.DONE


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
            each.name: {"value": each.value, "state": each.state, "origin": each.origin}
            for each in bucket.settings
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
        "command": "" if bucket.foreign or bucket.likely else command(bucket, asked),
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
        "written by": either
        if bucket.architecture == "not tellable"
        else f"{bucket.architecture} architecture",
        "file numbers": f"{widths} digits{', with the dispatcher in the name' if bucket.dispatchers else ''}",
        "objects": f"{bucket.objects:,} ({data_size(bucket.size)}): {files}",
        "checkpoint": f"{bucket.checkpoint} ({_time(bucket.checkpoint)})"
        if bucket.checkpoint
        else "none yet",
    }
    if bucket.commit_ts:
        known["rows"] = (
            f"commit ts {between(*bucket.commit_ts)} in the {bucket.sampled} sampled files"
        )
    if bucket.foreign or bucket.likely:
        elsewhere = f"not the changefeed's folder, which is likely {' or '.join(bucket.likely)}"
        yield bucket.place
        yield from facts({"objects": known["objects"]}, _LABEL)
        yield from wrapped(bucket.foreign or elsewhere, further="  ")
        return
    if bucket.versions:
        known["versions"] = f"{between(*bucket.versions)}, of all paths"
    yield bucket.place
    yield from facts(known, _LABEL)
    yield ""
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
    yield ""
    count = len(bucket.tables)
    yield f"{count} table{'s' if count != 1 else ''}{', the largest' if count > _SHOWN_TABLES else ''}"
    largest = []
    for found in bucket.tables[:_SHOWN_TABLES]:
        versions = f"{found.versions} version{'s' if found.versions != 1 else ''}"
        number = f"{found.files:>6,} file{'s' if found.files != 1 else ' '}"
        largest.append(
            (str(found.name or found.directory), number, f"{data_size(found.size):>9}", versions)
        )
    yield from table(largest, "  ")
    for title, texts in {"warnings": bucket.warnings, "notes": bucket.notes}.items():
        yield from ("", title) if texts else ()
        yield from (line for text in texts for line in wrapped(text, "  ", "    "))
    yield ""
    for text in _open_questions(bucket):
        yield from wrapped(text, further="  ")
    if not bucket.missing and not bucket.contradictions:
        yield (
            "nothing is missing; continue with:"
            if bucket.checkpoint
            else "once it is there, continue with:"
        )
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
    """Return the bucket's `run` command with inferred settings and without credentials."""
    upstream = bucket.upstream
    words = [PROGRAM, "run"]
    if "--upstream-uri" not in asked.given:
        words += ["--upstream-uri", shlex.quote(uri_of(upstream))]
    words += map(shlex.quote, asked.given)
    for each in bucket.settings:
        # The paths show the first two to `run`; the time zone comes below, even if unknown.
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
    return " ".join(
        words if asked.has_target else [*words, "--downstream-uri", "'mysql://<USER>@<HOST>:3306/'"]
    )


def _flag(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "".join(_ESCAPES.get(char, char) for char in str(value))


def _shown(setting: InspectedSetting) -> str:
    value = setting.value
    if value is None or (value == "" and setting.keyword == "binary_encoding_method"):
        return "?" if setting.is_missing else "-"
    # Quoted where it is empty or has a blank that nobody would see.
    return (
        _flag(value)
        if isinstance(value, bool) or (value and not set(str(value)) & set("\r\n\t "))
        else repr(value)
    )


def _time(ts: int) -> str | None:
    """Return the time of a TSO in UTC; None for 0 and for a number that is not a time."""
    try:
        return (
            f"{datetime.fromtimestamp(physical_ms(ts) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
            if ts
            else None
        )
    except (ValueError, OverflowError, OSError):
        return None


_FILE = "storage-consumer.toml"
_NO_TARGET = "mysql://<USER>@<HOST>:3306/"


def answer_init(own: InitFlags, session: Session) -> Answer:
    """Write the file and return what to do; `MISCONFIGURED` for missing or contradicted settings.

    Raises `ConfigError` if the arguments are wrong, the file exists (without ``force``) or cannot
    be written, and `StorageUnavailable` if the bucket does not answer.
    """
    # Late: `inspect` needs neither the target nor its driver.
    from storage_consumer.cli.doctor_command import doctor_input, documents  # noqa: PLC0415 - see above
    from storage_consumer.operating.checks import Verdict, examined  # noqa: PLC0415 - see above

    path = Path(own.output or _FILE).expanduser()
    # Before the look at the bucket, which may take a while.
    if path.exists() and not own.force:
        raise ConfigError(
            f"{path} exists; overwrite it with --force, or write another file with --output"
        )
    given = {name: value for name, value in session.options.items() if name != "downstream_uri"}
    option = BY_KEYWORD["downstream_uri"]
    target = str(session.options.get(option.keyword) or session.environ.get(option.environment, ""))
    if target:
        load_target({option.keyword: target}, session.environ)
        # From here on without anything secret.
        target = bare_uri(target)
    bucket, asked = looked_at(Session(given, session.environ))
    refuse_foreign(bucket)
    configs, is_known = asked.configs, bool(target) or asked.has_target
    findings: list[Finding] = []
    if target:
        found = examined(
            replace(doctor_input(session), inspected=bucket), ("target", "network", "state")
        )
        findings = [each for each in found if each.verdict in (Verdict.WARN, Verdict.FAIL)]
    access = {
        name: str(value)
        for name, value in session.given.items()
        if BY_KEYWORD[name].group == "the target"
    }
    text = "\n".join(_toml_lines(bucket, target, configs, findings, access)).rstrip("\n")
    # Redacted here, since a file is not what is printed.
    _write(path, f"{redact(text)}\n", force=own.force)
    words = [word for config in (*configs, str(path)) for word in ("--config", config)]
    command = shlex.join([PROGRAM, "run", *words, "--once"])
    missing = [f"--{each.name}" for each in bucket.missing] + (
        [] if is_known else ["--downstream-uri"]
    )
    contradicted = [f"--{each.name}" for each in bucket.contradictions]
    # An unusable file must be read by a person, whether bucket or target is lacking.
    code = ExitCode.MISCONFIGURED if missing else code_of(bucket)
    document = {
        "file": str(path),
        "missing": missing,
        "contradictions": contradicted,
        "command": command,
    }
    lines = [f"wrote {path}"]
    lines += [f"missing: {name}; the file says what to check" for name in missing]
    lines += [f"contradicts the bucket: {name}; the file says why" for name in contradicted]
    lines += [f"no changefeed's folder, which is likely {place}" for place in bucket.likely]
    lines += [f"the target: {line}" for each in findings for line in _finding_lines(each)]
    lines += [
        "",
        "fill these in and continue with:" if missing else "continue with:",
        f"  {command}",
    ]
    return told(own, document | {"findings": documents(findings)}, lines, code)


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield _one_line(
        f"{finding.verdict}: {finding.check}: {finding.text}{f' → {finding.remedy}' if finding.remedy else ''}"
    )
    yield from (f"{statement};" for statement in finding.statements)


def _toml_lines(
    bucket: InspectedBucket,
    target: str,
    configs: Sequence[str],
    findings: Sequence[Finding],
    access: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines of the file.

    `configs`: the files that `run` is given before this one; `findings`: what is to be mended;
    `access`: keyword → text of the options, beside the URI, that lead to the target.
    """
    yield f"# Configuration of {PROGRAM} for {bucket.place}."
    yield f"# All options: {PROGRAM} run --help"
    if configs:
        yield f"# Give it after {', '.join(configs)}, which it completes."
    yield ""
    yield f"[{OWN_TABLE}]"
    yield "# The keys of the store are not in this file: give them by its usual environment variables, files or roles."
    yield f"upstream-uri = {_toml(uri_of(bucket.upstream))}"
    yield "# The password is not in this file: set STORAGE_CONSUMER_DOWNSTREAM_PASSWORD, or name a file that holds it alone."
    yield f"{'' if target else '# '}downstream-uri = {_toml(target or _NO_TARGET)}"
    if "downstream_password_file" not in access:
        yield '# downstream-password-file = "/run/secrets/downstream-password"'
    for name, value in access.items():
        # A switch was given as a truth value, everything else may be a text.
        yield f"{BY_KEYWORD[name].name} = {value if BY_KEYWORD[name].switch else _toml(value)}"
    settings = [each for each in bucket.settings if BY_KEYWORD[each.keyword].toml_key]
    own = [each for each in settings if _place(each)[0] == OWN_TABLE]
    sink = sorted((each for each in settings if each not in own), key=lambda each: _place(each)[0])
    for each in own:
        yield from _setting_lines(each, configs)
    if not bucket.upstream.has_commit_ts and not bucket.missing:
        yield "# The files have no commit-ts: a weaker promise holds."
        yield "allow-missing-commit-ts = true"
    # A file with [sink] counts as a changefeed's, and what it leaves out as TiCDC's default: half
    # of it would be wrong.
    whole = not any(each.is_missing or each.state == "contradicts" for each in sink)
    if not whole:
        yield ""
        yield "# Not all settings below are certain. Remove the signs of comment from all of them, once they are."
    for section, members in groupby(sink, key=lambda each: _place(each)[0]):
        yield ""
        yield f"{'' if whole else '# '}[{section}]"
        for each in members:
            yield from _setting_lines(each, configs, whole=whole)
    if findings:
        yield ""
        yield from (
            f"# doctor: {escaped(line)}" for each in findings for line in _finding_lines(each)
        )
        yield f"# Once they are mended, see that nothing is left: {PROGRAM} doctor --config FILE"


def _setting_lines(
    setting: InspectedSetting, configs: Sequence[str], *, whole: bool = True
) -> Iterator[str]:
    """Yield a setting's lines: its origin and its key, as a comment if it must not count yet."""
    option, value = BY_KEYWORD[setting.keyword], setting.value
    key = _place(setting)[1]
    if setting.is_missing or setting.state == "contradicts":
        yield f"# {setting.state}: {_one_line(setting.origin or option.help)}"
        yield f"# {key} = {_toml(f'<{option.metavar}>' if value is None else value)}"
        return
    if value is None or (value == "" and setting.keyword == "binary_encoding_method"):
        return
    yield f"# {setting.state}{f': {_one_line(setting.origin)}' if setting.origin else ''}"
    by_file = any(setting.origin.startswith(config) for config in configs)
    counts = whole and setting.state in ("given", "inferred") and not by_file
    yield f"{'' if counts else '# '}{key} = {_toml(value)}"


def _place(setting: InspectedSetting) -> tuple[str, str]:
    """Return table and key of a setting in the file."""
    table, _, key = BY_KEYWORD[setting.keyword].toml_key.rpartition(".")
    return table, key


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _toml(value: object) -> str:
    """Return a value as TOML; JSON's texts, numbers and truth values are TOML's, but for DEL."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file for its owner alone; raise `ConfigError`, also if it exists without `force`."""
    # Made beside it and renamed: an existing mode does not stay, and no link is followed.
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            if force:
                made.replace(path)
            else:
                path.hardlink_to(made)  # fails if somebody else wrote it meanwhile
        finally:
            made.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists; overwrite it with --force, or write another file with --output"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; name another file with --output"
        ) from None
