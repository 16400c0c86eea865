"""The command `init`: inspects a bucket and writes a commented configuration, without secrets, for it and its target."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from storage_consumer.bucket.inspector import InspectedBucket, InspectedSetting
from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.doctor_command import doctor_input, documents
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.inspect_command import code_of, looked_at
from storage_consumer.cli.verbs import PROGRAM, InitFlags
from storage_consumer.config.commands import bare_uri, uri_of
from storage_consumer.config.load import load_target
from storage_consumer.config.options import BY_KEYWORD, OWN_TABLE
from storage_consumer.errors import ConfigError
from storage_consumer.operating.checks import Finding, Verdict, examined
from storage_consumer.session import Session
from storage_consumer.telemetry import escaped, redact

_FILE = "storage-consumer.toml"
_TARGET = "mysql://<USER>@<HOST>:3306/"


def answer(own: InitFlags, session: Session) -> Answer:
    """Write the file and return what to do with it; `MISCONFIGURED` if a setting is missing or contradicted.

    Raises `ConfigError` if the arguments are wrong, the file exists (without ``force``) or cannot be written, and
    `StorageUnavailable` if the bucket does not answer.
    """
    path = Path(own.output or _FILE).expanduser()
    # Before the look at the bucket, which may take a while.
    if path.exists() and not own.force:
        raise ConfigError(f"{path} exists; overwrite it with --force, or write another file with --output")
    given = {name: value for name, value in session.options.items() if name != "downstream_uri"}
    target = _target(session)
    bucket, asked = looked_at(Session(given, session.environ))
    configs, is_known = asked.configs, bool(target) or asked.has_target
    findings = _alarms(session, bucket) if target else ()
    access = {name: str(value) for name, value in session.given.items() if BY_KEYWORD[name].group == "the target"}
    text = "\n".join(_lines(bucket, target, configs, findings, access)).rstrip("\n")
    # Redacted here, since a file is not what is printed.
    _write(path, f"{redact(text)}\n", force=own.force)
    words = [word for config in (*configs, str(path)) for word in ("--config", config)]
    command = shlex.join([PROGRAM, "run", *words, "--once"])
    missing = [f"--{each.name}" for each in bucket.missing] + ([] if is_known else ["--downstream-uri"])
    contradicted = [f"--{each.name}" for each in bucket.contradictions]
    # A file that cannot be run as it is has to be looked at, be it the bucket or the target that is lacking.
    code = ExitCode.MISCONFIGURED if missing else code_of(bucket)
    document = {"file": str(path), "missing": missing, "contradictions": contradicted, "command": command}
    lines = [f"wrote {path}"]
    lines += [f"missing: {name}; the file says what to check" for name in missing]
    lines += [f"contradicts the bucket: {name}; the file says why" for name in contradicted]
    lines += [f"no changefeed's folder, which is likely {place}" for place in bucket.likely]
    lines += [f"the target: {line}" for each in findings for line in _finding_lines(each)]
    lines += ["", "fill these in and continue with:" if missing else "continue with:", f"  {command}"]
    return told(own, document | {"findings": documents(findings)}, lines, code)


def _alarms(session: Session, bucket: InspectedBucket) -> tuple[Finding, ...]:
    """Return what `doctor` warns of, or faults, about the target of this bucket."""
    given = replace(doctor_input(session), inspected=bucket)
    found = examined(given, ("target", "network", "state"))
    return tuple(each for each in found if each.verdict in (Verdict.WARN, Verdict.FAIL))


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield _one_line(
        f"{finding.verdict}: {finding.check}: {finding.text}{f' → {finding.remedy}' if finding.remedy else ''}"
    )
    yield from (f"{statement};" for statement in finding.statements)


def _target(session: Session) -> str:
    """Return the target's URI without anything secret; empty if none was given. Raises `ConfigError` if it is wrong."""
    option = BY_KEYWORD["downstream_uri"]
    uri = str(session.options.get(option.keyword) or session.environ.get(option.environment, ""))
    if not uri:
        return ""
    load_target({option.keyword: uri}, session.environ)
    return bare_uri(uri)


def _lines(
    bucket: InspectedBucket, target: str, configs: Sequence[str], findings: Sequence[Finding], access: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of the file.

    `configs`: the files that `run` is given before this one; `findings`: what is to be mended; `access`: keyword → text of the options,
    beside the URI, that lead to the target.
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
    yield f"{'' if target else '# '}downstream-uri = {_toml(target or _TARGET)}"
    if "downstream_password_file" not in access:
        yield '# downstream-password-file = "/run/secrets/downstream-password"'
    yield from (f"{BY_KEYWORD[name].name} = {_toml_of_text(name, value)}" for name, value in access.items())
    settings = [each for each in bucket.settings if BY_KEYWORD[each.keyword].toml_key]
    own = [each for each in settings if _place(each)[0] == OWN_TABLE]
    sink = sorted((each for each in settings if each not in own), key=lambda each: _place(each)[0])
    for each in own:
        yield from _setting(each, configs)
    if not bucket.upstream.has_commit_ts and not bucket.missing:
        yield "# The files have no commit-ts: a weaker promise holds."
        yield "allow-missing-commit-ts = true"
    # A file with [sink] counts as a changefeed's, and what it leaves out as TiCDC's default: half of it would be wrong.
    whole = not any(each.is_missing or each.state == "contradicts" for each in sink)
    if not whole:
        yield ""
        yield "# Not all settings below are certain. Remove the signs of comment from all of them, once they are."
    for table, members in groupby(sink, key=lambda each: _place(each)[0]):
        yield ""
        yield f"{'' if whole else '# '}[{table}]"
        for each in members:
            yield from _setting(each, configs, whole=whole)
    if findings:
        yield ""
        yield from (f"# doctor: {escaped(line)}" for each in findings for line in _finding_lines(each))
        yield f"# Once they are mended, see that nothing is left: {PROGRAM} doctor --config FILE"


def _setting(setting: InspectedSetting, configs: Sequence[str], *, whole: bool = True) -> Iterator[str]:
    """Yield the lines of one setting: where it comes from, and its key, as a comment if it must not count yet."""
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


def _toml_of_text(keyword: str, text: str) -> str:
    """Return what a flag was given as TOML: a switch is a truth value, everything else may be a text."""
    return text if BY_KEYWORD[keyword].switch else _toml(text)


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file that only its owner may read; raise `ConfigError` if it cannot be written, or exists without `force`."""
    # A file made beside it and renamed: an existing one keeps no wider mode, and a link is not followed.
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
        raise ConfigError(f"{path} exists; overwrite it with --force, or write another file with --output") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; name another file with --output") from None
