"""What paths, schema files and messages tell of a bucket, and how it is shown."""

from __future__ import annotations

import json

import pytest

from storage_consumer import telemetry
from storage_consumer.bucket.inspector import completed
from storage_consumer.cli.bucket_commands import Asked, as_document, command, lines_of
from storage_consumer.cli.endings import answered
from storage_consumer.config.load import load
from storage_consumer.errors import ConfigError
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.building import (
    CREATE,
    ID_NAME,
    TS,
    V,
    bucket_of,
    csv_bucket,
    data_path,
    look,
    schema_file,
    setting,
    shown,
)

ROWS = (f'"I","orders","shop",{TS},1,"one"\r\n', f'"I","orders","shop",{TS},2,\\N\r\n')
STAMPED = (*ID_NAME, {"ColumnName": "at", "ColumnType": "TIMESTAMP"})


def message(*, extension: bool) -> str:
    """One canal-json message."""
    fields = {"database": "shop", "table": "orders", "type": "INSERT", "data": [{"id": "1", "name": "{}"}], "old": None}
    return json.dumps(fields | ({"_tidb": {"commitTs": TS}} if extension else {}))


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("end", ["\r\n", "\n", "<end>"])
def test_canal_json_shows_its_settings(*, extension: bool, end: str) -> None:
    """Commit ts and terminator are seen in the messages."""
    content = (message(extension=extension) + end) * 3
    bucket = look(bucket_of(schema_file(), (data_path(extension="json"), content.encode())))
    found = shown(bucket)
    assert (found["protocol"], found["enable-tidb-extension"], found["terminator"]) == ("canal-json", extension, end)
    assert bucket.commit_ts == ((TS, TS) if extension else ())


def test_messages_with_and_without_commit_ts_leave_it_open() -> None:
    """A changefeed that was altered wrote both: no one setting fits."""
    content = message(extension=True) + "\r\n" + message(extension=False) + "\r\n"
    bucket = look(bucket_of(schema_file(), (data_path(extension="json"), content.encode())))
    assert [each.name for each in bucket.missing] == ["enable-tidb-extension"]
    told = look(bucket_of(schema_file(), (data_path(extension="json"), content.encode())), enable_tidb_extension=True)
    assert [each.name for each in told.contradictions] == ["enable-tidb-extension"]


def test_both_protocols_have_to_be_told_apart() -> None:
    """Files of both protocols leave the protocol open; a told one decides, one without files contradicts."""
    files = [(data_path(), "".join(ROWS).encode()), (data_path(extension="json"), message(extension=True).encode())]
    assert "protocol" in [each.name for each in look(bucket_of(schema_file(), *files)).missing]
    assert setting(look(bucket_of(schema_file(), *files), protocol="csv"), "protocol").state == "given"
    alone = look(bucket_of(schema_file(), files[0]), protocol="canal-json")
    assert [each.name for each in alone.contradictions] == ["protocol"]


def test_a_bucket_without_data_leaves_everything_unknown() -> None:
    """No data file yet: each format setting is missing by name, until somebody tells it."""
    bucket = look(bucket_of(schema_file()))
    assert {"protocol", "delimiter", "enable-tidb-extension"} <= {each.name for each in bucket.missing}
    told = look(bucket_of(schema_file()), protocol="csv", config={"sink": {"csv": {"include-commit-ts": True}}})
    assert told.missing == ()


def test_the_time_zone_is_missing_where_it_matters() -> None:
    """Nothing tells the zone; it is missing once a table has a TIMESTAMP column, and the table is named."""
    row = f'"I","orders","shop",{TS},1,"one","2026-01-01 00:00:00"\r\n'
    storage = csv_bucket(row, row, columns=STAMPED, query=CREATE[:-1] + ", `at` TIMESTAMP)")
    assert [each.name for each in look(storage).missing] == ["tz"]
    assert "shop.orders" in setting(look(storage), "tz").origin
    assert look(storage, tz="UTC").missing == ()


def test_paths_are_held_against_what_was_told() -> None:
    """A date separator that the directories disprove contradicts."""
    storage = csv_bucket(*ROWS)
    assert [each.name for each in look(storage, date_separator="month").contradictions] == ["date-separator"]
    assert look(storage, date_separator="day").contradictions == ()


def test_oddities_become_warnings() -> None:
    """A gap, an empty object, an unknown path, a wrong checksum and missing metadata are told."""
    path, content = schema_file()
    wrong = (path.rpartition("_")[0] + "_0000000001.json", content)
    gap = [(data_path(number), "".join(ROWS).encode()) for number in (1, 4)]
    storage = MemoryStorage(dict([wrong, *gap, (data_path(9), b""), ("notes.txt", b"x")]))
    text = "\n".join(look(storage).warnings)
    for part in ("no metadata", "2 file numbers are missing", "empty object", "notes.txt", "checksum"):
        assert part in text


@pytest.mark.parametrize(
    ("path", "layout", "architecture"),
    [
        (f"shop/orders/{V}/CDC_12_000001.csv", "current (schema files in meta/)", "new"),
        (f"shop/orders/{V}/CDC000001.csv", "current (schema files in meta/)", "not tellable"),
    ],
)
def test_layout_and_architecture_are_told_as_far_as_possible(path: str, layout: str, architecture: str) -> None:
    """File names with a dispatcher are the new architecture's alone."""
    bucket = look(bucket_of(schema_file(), (path, "".join(ROWS).encode())))
    assert (bucket.layouts, bucket.architecture, bucket.index_widths) == ((layout,), architecture, (6,))
    assert shown(bucket)["date-separator"] == "none"


def test_the_older_layout_is_known() -> None:
    """schema.json beside the data is the layout of the first releases."""
    _, content = schema_file()
    files = {f"shop/orders/{V}/schema.json": content, f"shop/orders/{V}/CDC000001.csv": "".join(ROWS).encode()}
    bucket = look(MemoryStorage(files))
    assert bucket.layouts == ("before TiCDC 6.5.3 and 7.1 (schema.json beside the data)",)
    assert (bucket.architecture, shown(bucket)["delimiter"]) == ("classic", ",")
    assert "an update of a key shows only the new key" in " ".join(bucket.warnings)


def test_the_text_is_for_people() -> None:
    """Times, sizes, tables, settings with their origin, and the command to go on with."""
    text = "\n".join(lines_of(look(csv_bucket(*ROWS)), Asked(given=("--config", "c.toml"))))
    for part in (
        "file:///bucket",
        "UTC)",
        "shop.orders",
        "1 table",
        f"inferred from {data_path()} row 1",
        "nothing is missing",
    ):
        assert part in text
    assert r"--terminator '\r\n' --delimiter , --quote '\"'" in text.replace("'\"'", r"'\"'")
    assert "--config c.toml" in text


def test_metadata_that_is_not_there_is_missing() -> None:
    """A bucket whose settings are all known, but into which TiCDC has not written ``metadata``, does not pass for ready."""
    path, content = schema_file()
    bucket = look(MemoryStorage({path: content, data_path(): "".join(ROWS).encode()}), tz="UTC")
    text = "\n".join(lines_of(bucket))
    assert "missing: the metadata file" in text
    assert "nothing is missing" not in text
    assert "storage-consumer run" in text


def test_the_document_has_stable_keys() -> None:
    """The keys of the JSON document are an interface."""
    document = json.loads(json.dumps(as_document(look(csv_bucket(*ROWS)))))
    assert set(document) == {
        *("bucket", "layouts", "architecture", "index_widths", "dispatchers", "settings", "missing", "contradictions"),
        *("tables", "objects", "bytes", "data_files", "schema_files", "sampled_files", "checkpoint", "checkpoint_time"),
        *("commit_ts", "warnings", "notes", "likely", "foreign", "command"),
    }
    assert document["settings"]["delimiter"] == {"value": ",", "state": "inferred", "origin": f"{data_path()} row 1"}


def test_the_command_tells_everything() -> None:
    """The printed command, given back, leaves nothing unset, and the settings are those that were inferred."""
    from shlex import split  # noqa: PLC0415 - likewise

    from storage_consumer.cli.arguments import parse  # noqa: PLC0415 - only this test goes through the command line

    bucket = look(csv_bucket(*ROWS, columns=ID_NAME))
    _, options = parse(split(command(bucket).replace("'<ZONE>'", "UTC").replace("<USER>@<HOST>", "u@h"))[1:])
    loaded = load(options, {})
    assert loaded.unset in ((), ("binary_encoding_method",))
    assert loaded.config.upstream.csv.delimiter == ","
    assert loaded.config.upstream.csv.terminator == "\r\n"


def test_unset_settings_are_completed_or_named() -> None:
    """What the bucket shows completes the settings; what it does not is an error with the names, and so is a contradiction."""
    options = {"upstream_uri": "file:///bucket", "downstream_uri": "mysql://h:1/"}
    loaded = load(options, {})
    full = completed(loaded, look(csv_bucket(*ROWS)))
    assert full.unset == ()
    assert full.config.upstream.has_commit_ts
    with pytest.raises(
        ConfigError, match=r"does not show how it was written.*--protocol \(no data file yet\).*--delimiter"
    ):
        completed(loaded, look(bucket_of(schema_file())))
    with pytest.raises(ConfigError, match=r"--delimiter was given as ';'"):
        completed(load({**options, "delimiter": ";"}, {}), look(csv_bucket(*ROWS), delimiter=";"))
    with pytest.raises(ConfigError, match="--allow-missing-commit-ts"):
        completed(loaded, look(csv_bucket('"I","orders","shop",1,"one"\r\n'), allow_missing_commit_ts=False))


def test_secrets_of_uri_and_environment_are_blanked() -> None:
    """Looking at a bucket blanks the secrets of its URI, and those that its store's client takes from the environment."""
    uri = "azure://c/p?account-name=a&sas-token=sv%3D1%26sig%3Dsigned"
    try:
        environ = {"AWS_SECRET_ACCESS_KEY": "from-outside"}
        answered("inspect", {"upstream_uri": uri}, environ, open_storage=lambda *_: bucket_of(schema_file()))
        assert telemetry.redact("sig is signed, key is from-outside") == "sig is ***, key is ***"
    finally:
        telemetry.forget_secrets()
