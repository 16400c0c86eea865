"""The URI of an export: where it is, how it was written, and what may not be in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.load import export_origin, load, parse_export, with_time_zone
from storage_consumer.config.settings import DumpOptions, Upstream
from storage_consumer.errors import ConfigError

BUCKET = Upstream(
    scheme="s3", root="b/p", protocol="csv", endpoint="http://10.0.0.1:9000", region="eu", force_path_style=True
)
GIVEN = {
    "upstream_uri": "file:///b?protocol=csv",
    "downstream_uri": "mysql://root@127.0.0.1:3306/",
    "include_commit_ts": "true",
}


def test_place() -> None:
    """An export in the same kind of store is on the bucket's server, unless its URI names another one."""
    origin = export_origin("s3://b/full/", BUCKET)
    assert (origin.scheme, origin.root, origin.endpoint, origin.region) == ("s3", "b/full", BUCKET.endpoint, "eu")
    assert export_origin("s3://b/full?endpoint=http://10.0.0.2:9000", BUCKET).endpoint == "http://10.0.0.2:9000"
    assert export_origin("s3://b/full?region=us", BUCKET).endpoint == ""
    elsewhere = export_origin("file:///exports/full", BUCKET)
    assert (elsewhere.scheme, elsewhere.root, elsewhere.endpoint) == ("file", "/exports/full", "")


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", DumpOptions()),
        ("escape-backslash=false", DumpOptions(escape_backslash=False)),
        ("csv-separator=|", DumpOptions(separator="|")),
        ("csv-separator=%26%26", DumpOptions(separator="&&")),
        (r"csv_separator=\t&csv-delimiter=", DumpOptions(separator="\t", delimiter="")),
        (r"csv-null-value=\N", DumpOptions()),
        ("csv-null-value=NULL&no-header=true", DumpOptions(null="NULL", header=False)),
        (r"csv-line-terminator=\n", DumpOptions(terminator="\n")),
        ("csv-output-dialect=redshift", DumpOptions(binary="hex")),
        ("csv-output-dialect=snowflake", DumpOptions(binary="hex")),
        ("csv-output-dialect=bigquery", DumpOptions(binary="base64")),
        ("csv-output-dialect=default", DumpOptions()),
    ],
)
def test_options(query: str, options: DumpOptions) -> None:
    """Options of Dumpling are parameters of the same names, and escapes in them mean what they do on its command line."""
    assert export_origin(f"file:///full?{query}", BUCKET).dump == options


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("s3://b/full?access-key=AK&secret-access-key=SECRET", "no secret belongs here"),
        ("azure://c/full?sas-token=SECRET", "no secret belongs here"),
        ("gcs://b/full?credentials-file=/SECRET.json", "no secret belongs here"),
        ("s3://AK:SECRET@b/full", "keys go into parameters"),
        ("file:///full?no-heading=true", "unknown parameter `no-heading`; did you mean `no-header`?"),
        ("file:///full?protocol=csv", "unknown parameter `protocol`"),
        ("file:///full?no-header=maybe", "parameter `no-header`"),
        ("file:///full?csv-output-dialect=oracle", "parameter `csv-output-dialect`"),
        ("file:///full?time-zone=Mars", "parameter `time-zone`"),
        ("file:///full?time-zone=System", "give the zone by its name"),
        ("file:///full?csv-separator=", "cannot be empty"),
        ("/full", "a URI is expected, like s3://bucket/full"),
        ("ftp://host/full", "is not a storage"),
    ],
)
def test_refused(uri: str, reason: str) -> None:
    """What cannot be read, or must not be stored, is refused by the name of the flag, and no secret is shown."""
    with pytest.raises(ConfigError) as fault:
        parse_export(uri)
    assert str(fault.value).startswith("--dump ")
    assert reason in str(fault.value)
    assert "SECRET" not in str(fault.value)


def test_time_zone() -> None:
    """The zone becomes a parameter of the URI, which every process reads; two different ones contradict each other."""
    assert with_time_zone("file:///full", "") == "file:///full"
    zoned = with_time_zone("file:///full?no-header=true", "+08:00")
    assert zoned == "file:///full?no-header=true&time-zone=+08:00"
    assert export_origin(zoned, BUCKET).time_zone == "+08:00"
    assert with_time_zone(zoned, "+08:00") == zoned
    with pytest.raises(ConfigError, match="give one of them"):
        with_time_zone(zoned, "UTC")


def test_settings() -> None:
    """The options of a run give one URI; a zone without an export means nothing, and the host's own zone no other process has."""
    loaded = load({**GIVEN, "dump": "file:///full", "dump_tz": "Asia/Shanghai"}, {})
    assert loaded.config.loading.dump == "file:///full?time-zone=Asia/Shanghai"
    assert load(GIVEN, {}).config.loading.dump == ""
    with pytest.raises(ConfigError, match="it goes with --dump"):
        load({**GIVEN, "dump_tz": "UTC"}, {})
    with pytest.raises(ConfigError, match="give the zone by its name"):
        load({**GIVEN, "dump": "file:///full", "dump_tz": "System"}, {})


def test_a_bucket_elsewhere_lends_nothing() -> None:
    """Another kind of store has a server of its own."""
    assert (
        export_origin("azure://c/full?account-name=acme", replace(BUCKET, account_name="other")).account_name == "acme"
    )
