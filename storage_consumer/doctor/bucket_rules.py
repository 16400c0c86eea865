"""What the facts of the bucket mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from storage_consumer.amounts import some_of
from storage_consumer.clock import span
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Upstream
from storage_consumer.doctor.bucket_look import BucketFacts, MetadataFacts
from storage_consumer.doctor.findings import Outcome, fail, not_looked_at, ok, warn
from storage_consumer.model import is_ahead_of_clock
from storage_consumer.monitoring.health import lag_of
from storage_consumer.monitoring.status import STALLED
from storage_consumer.poll.metadata import ahead_of_clock, parse_metadata
from storage_consumer.telemetry import tso_time

_DAY = 86_400.0
_SOON = 0.5
"""Part of the expiry that the checkpoint may lie back."""
_SHOWN = 3
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def reachable(place: str) -> Outcome:
    """Judge that the bucket was listed."""
    return ok(f"{place} answers, and may be listed")


def metadata(facts: MetadataFacts) -> Outcome:
    """Judge whether there is a checkpoint."""
    if facts.content is None and facts.likely:
        places = " or ".join(facts.likely)
        return fail(
            "there is no metadata file here, but nearby", f"Give the changefeed's folder: --upstream-uri {places}"
        )
    if facts.content is None:
        remedy = "Give the changefeed's sink URI as --upstream-uri, and check that the changefeed runs."
        return fail("there is no metadata file: TiCDC has written no checkpoint here", remedy)
    if parse_metadata(facts.content) is None:
        return fail(f"metadata holds no checkpoint-ts but {facts.content[:60]!r}", "Check the changefeed, which writes this file.")  # fmt: skip
    return ok(f"metadata has the checkpoint {_of(facts)} ({tso_time(_of(facts))})")


def clock(facts: MetadataFacts) -> Outcome:
    """Judge the source's time beside ours."""
    if not _of(facts):
        return not_looked_at("there is no checkpoint")
    if is_ahead_of_clock(_of(facts), facts.now):
        return fail(f"checkpoint {_of(facts)}: {ahead_of_clock(_of(facts), facts.now)}", "Set the clock that is wrong.")
    return ok("the checkpoint's time fits this machine's clock")


def age(facts: MetadataFacts) -> Outcome:
    """Judge how far the source itself is behind."""
    lag = lag_of(_of(facts), facts.now)
    if lag is None:
        return not_looked_at("there is no checkpoint")
    if lag > STALLED:
        return warn(
            f"the bucket's checkpoint is {span(lag)} old; TiCDC moves it every few seconds",
            "Look at the changefeed: cdc cli changefeed query. If it was stopped on purpose, all is well.",
        )
    return ok(f"the bucket's checkpoint is {span(lag)} old")


def _of(facts: MetadataFacts) -> int:
    return (parse_metadata(facts.content) if facts.content is not None else None) or 0


def layout(facts: BucketFacts) -> Outcome:
    """Judge what `inspect` makes of the paths."""
    bucket = facts.bucket
    if bucket is None:
        return fail(f"the bucket could not be inspected: {facts.why}")
    if not bucket.layouts:
        return warn(
            "no schema file is here yet", "Wait for the changefeed's first table; storage-consumer inspect shows more."
        )
    text = f"{', '.join(bucket.layouts)}; {bucket.objects:,} objects, {len(bucket.tables):,} tables"
    # What is odd about `metadata` has checks of its own.
    odd = [each for each in bucket.warnings if bucket.checkpoint or "metadata" not in each]
    if odd:
        shown = "; ".join(odd[:_SHOWN])
        return warn(f"{text}. {shown}", "See storage-consumer inspect for all of it.")
    return ok(text)


def settings(facts: BucketFacts) -> Outcome:
    """Judge the settings beside what the files show."""
    bucket = facts.bucket
    if bucket is None:
        return not_looked_at("the bucket could not be inspected")
    if against := bucket.contradictions:
        said = "; ".join(f"--{each.name} was given as {each.value!r}, but {each.origin}" for each in against)
        return fail(said, "Give the values of the changefeed: its TOML file with --config.")
    if missing := bucket.missing:
        said = "; ".join(f"--{each.name} is missing: {each.origin}" for each in missing)
        flags = " ".join(f"--{each.name} '<{BY_KEYWORD[each.keyword].metavar}>'" for each in missing)
        config = (
            "" if all(each.keyword == "tz" for each in missing) else "--config with the changefeed's TOML file, or "
        )
        return fail(said, f"Give {config}{flags}.")
    if assumed := bucket.assumed:
        said = ", ".join(f"--{each.name} {each.value!r}" for each in assumed)
        return warn(f"assumed, since no file shows it: {said}", "Give it if the changefeed says another.")
    return ok("the settings fit what the files show")


def schema_file(facts: BucketFacts) -> Outcome:
    """Judge whether a schema file can be read."""
    return _readable("schema file", facts.schema_file, min(facts.listed.first_schema_files.values(), default=""))


def data_file(facts: BucketFacts) -> Outcome:
    """Judge whether a data file can be read."""
    first = facts.listed.first_data_file
    return _readable("data file", facts.data_file, first.path if first else "")


def _readable(kind: str, fault: str, path: str) -> Outcome:
    if not path:
        return not_looked_at(f"no {kind} is here yet")
    if fault:
        return fail(
            f"{path} cannot be read: {fault}", "Allow reading (GetObject, or the file's mode), not only listing."
        )
    return ok(f"{path} can be read")


def from_before(facts: BucketFacts) -> Outcome:
    """Judge whether the source had tables before the changefeed began: their rows from then are in no file."""
    if facts.checkpoint:
        return ok("the feed has begun")
    taken = [path for path in facts.from_before if not (facts.left_out and path.startswith(facts.left_out))]
    if taken:
        return warn(
            f"tables begin without a statement, so the source had them before the changefeed: {some_of(taken, _SHOWN)}. Their rows from then "
            "are in no file",
            "Begin with a copy of the source: run with --dump URI, or --source tidb://USER@HOST:4000/ to have one made. If the target has these tables with "
            "their rows, nothing is to be done.",
        )
    return ok("every table that was looked at begins with a statement")


def expiry(facts: BucketFacts) -> Outcome:
    """Judge how close files are to their end before they are applied."""
    days = facts.upstream.file_expiration_days
    lag = lag_of(facts.checkpoint, facts.now)
    if not days:
        return ok("the changefeed's settings name no expiry; a rule of the store's own is not seen here")
    if lag is None:
        return ok(f"files expire after {days} days; nothing is applied yet")
    if lag > days * _DAY * _SOON:
        rule = fail if lag > days * _DAY else warn
        return rule(
            f"the state's checkpoint is {span(lag)} old, and files expire after {days} days",
            "Raise file-expiration-days in the changefeed until this program has caught up.",
        )
    return ok(f"the state's checkpoint is {span(lag)} old, and files expire after {days} days")


def gaps(facts: BucketFacts) -> Outcome:
    """Judge whether every file that is still needed is here."""
    if facts.bucket is None:
        return not_looked_at("the bucket could not be inspected")
    lost = []
    for sequence, numbers in sorted(facts.listed.sequences.items()):
        # Nobody waits for what is not replicated.
        if facts.left_out and sequence.startswith(facts.left_out):
            continue
        following = facts.finished.get(sequence, 0) + 1
        if missing := numbers.highest - following + 1 - numbers.count:
            name = f"{sequence.rsplit('|', 2)[0]}: {missing} of the numbers {following} to {numbers.highest}"
            lost.append(name)
    if lost:
        more = f", and in {len(lost) - _SHOWN:,} more directories" if len(lost) > _SHOWN else ""
        return fail(
            f"files are missing: {'; '.join(lost[:_SHOWN])}{more}",
            "Restore them from a copy of the bucket. If they expired unread, the tables need a fresh copy: "
            "storage-consumer load --help",
        )
    return ok("every file after the finished ones is there")


def transport(upstream: Upstream) -> Outcome:
    """Judge whether the store is reached over TLS."""
    endpoint = urlsplit(upstream.endpoint)
    if upstream.scheme == "file":
        return ok("the bucket is a folder of this machine's file system")
    if endpoint.scheme == "http" and endpoint.hostname not in _LOOPBACK:
        return warn(f"rows of {upstream.identity} come in plain text from {endpoint.netloc}", "Give an endpoint that begins with https://.")  # fmt: skip
    return ok("on this machine" if endpoint.scheme == "http" else "the store is reached over TLS, and verified")


METADATA: Mapping[str, Callable[[MetadataFacts], Outcome]] = {
    "bucket-metadata": metadata,
    "bucket-clock": clock,
    "bucket-checkpoint-age": age,
}
BUCKET: Mapping[str, Callable[[BucketFacts], Outcome]] = {
    "bucket-layout": layout,
    "bucket-schema-file": schema_file,
    "bucket-data-file": data_file,
    "bucket-settings": settings,
    "bucket-tables-from-before": from_before,
    "bucket-expiry": expiry,
    "bucket-missing-files": gaps,
}
