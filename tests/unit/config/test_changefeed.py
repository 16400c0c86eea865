"""A changefeed's file is taken unchanged; what would be read wrongly is refused by name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from storage_consumer.config.load import CSV_KEYWORDS, Loaded, load
from storage_consumer.config.settings import ColumnSelector, CsvOptions
from storage_consumer.config.sources import OF_THE_WRITER, read_document
from storage_consumer.errors import ConfigError

CSV = "file:///bucket?protocol=csv"
JSON = "file:///bucket?protocol=canal-json&enable-tidb-extension=true"
TARGET = "mysql://root@127.0.0.1:3306/?time-zone=UTC"

EVERYTHING = """
case-sensitive = false
force-replicate = true
memory-quota = 1073741824
enable-sync-point = false
sync-point-interval = "10m"
bdr-mode = false
changefeed-error-stuck-duration = "30m"
sql-mode = ""

[mounter]
worker-num = 16

[filter]
ignore-txn-start-ts = [1, 2]
rules = ['*.*', '!test.*']
[[filter.event-filters]]
matcher = ["test.worker"]
ignore-event = ["insert"]
ignore-sql = ["^drop", "add column"]
ignore-insert-value-expr = "id >= 100"

[scheduler]
enable-table-across-nodes = false
region-threshold = 100000
write-key-threshold = 0

[sink]
transaction-atomicity = ""
protocol = "csv"
date-separator = 'month'
enable-partition-separator = false
terminator = "\\r\\n"
file-index-digit = 8
column-selectors = []
dispatchers = [
    {matcher = ['test1.*'], dispatcher = "ts"},
    {matcher = ['test2.*'], topic = "x", partition = "index-value", index = "i"},
]
[sink.csv]
delimiter = ','
quote = '"'
null = '\\N'
include-commit-ts = true
binary-encoding-method = 'base64'
output-old-value = false
output-handle-key = false
output-field-header = false
[sink.cloud-storage-config]
worker-count = 8
flush-interval = "5s"
file-size = 67108864
file-expiration-days = 7
file-cleanup-cron-spec = "0 0 2 * * *"
flush-concurrency = 1
output-raw-change-event = false
[sink.kafka-config]
partition-num = 3
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
[sink.pulsar-config]
tls-trust-certs-file-path = ""
[sink.mysql-config]
worker-count = 16

[consistent]
level = "none"
[integrity]
integrity-check-level = "none"
[synced-status]
checkpoint-interval = 15
"""


def _load(text: str, upstream: str = CSV) -> Loaded:
    return load({"upstream_uri": upstream, "downstream_uri": TARGET, "config": tomllib.loads(text)}, {})


def test_a_whole_changefeed_file_is_taken_unchanged() -> None:
    """Every section of TiCDC's own example is taken; what says how the files look is used."""
    upstream = _load(EVERYTHING).config.upstream
    assert (upstream.protocol, upstream.csv.include_commit_ts) == ("csv", True)
    assert (upstream.date_separator, upstream.partition_separator) == ("month", False)


@pytest.mark.parametrize(
    ("text", "uri", "days"),
    [
        ("", "", 0),
        ("file-expiration-days = 7", "", 7),
        ("", "&file-expiration-days=3", 3),
        ("file-expiration-days = 7", "&file-expiration-days=0", 0),
        ("file-expiration-days = 7", "&date-separator=month", 0),
    ],
)
def test_how_long_files_are_kept(text: str, uri: str, days: int) -> None:
    """The URI beats the file, and TiCDC deletes nothing where the folders are not of days; what is no number is refused."""
    text = f"[sink.csv]\ninclude-commit-ts = true\n[sink.cloud-storage-config]\n{text}"
    assert _load(text, CSV + uri).config.upstream.file_expiration_days == days
    with pytest.raises(ConfigError, match="file-expiration-days"):
        _load("", f"{CSV}&file-expiration-days=soon")


def test_what_has_no_effect_is_listed_in_notices() -> None:
    """The notices name the keys without effect, the filter that was already applied, and files that expire."""
    notices = "\n".join(_load(EVERYTHING).notices)
    assert "sink.cloud-storage-config.flush-interval" in notices
    assert "filter.rules: TiCDC applied them when it wrote" in notices
    assert "deletes files after 7 days" in notices
    assert "file numbers of any width are read" in notices
    assert "include-commit-ts" not in notices


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[sink.csv]\ninclude-comit-ts = true",
            "config: [sink.csv] has no key `include-comit-ts`; did you mean `include-commit-ts`?",
        ),
        ("case-sensitiv = true", "config: has no key `case-sensitiv`; did you mean `case-sensitive`?"),
        ("[snk]\nprotocol = 'csv'", "has no key `snk`; did you mean `sink`?"),
        ("[snk]", "has no key `snk`; did you mean `sink`?"),
        ("[filter.rules]", "`filter.rules` is a single value, not a table"),
        ("[sink.csv.include-commit-ts]", "`sink.csv.include-commit-ts` is a single value, not a table"),
        ("[[consumer.routes]]\n[consumer.routes.other]", "[consumer.routes] has no key `other`"),
        ("[[sink.dispatchers]]\nmatchr = ['*.*']", "[sink.dispatchers] has no key `matchr`; did you mean `matcher`?"),
        ("[[filter.event-filters]]\nignore-event-x = []", "did you mean `ignore-event`?"),
        ("flush-interval = '2s'", "has no key `flush-interval`; it belongs in [consumer]"),
        (
            "[consumer]\nflush-intervall = '2s'",
            "[consumer] has no key `flush-intervall`; did you mean `flush-interval`?",
        ),
        ("[consumer]\ndownstream-password = 'x'", "[consumer] has no key `downstream-password`"),
        (
            "[sink]\nflush-interval = '2s'",
            "[sink] has no key `flush-interval`; it belongs in [sink.cloud-storage-config]",
        ),
        ("[sink]\nmemory-quota = 1", "it belongs at the top of the file"),
        ("delimiter = ','", "has no key `delimiter`; it belongs in [sink.csv]"),
        ("sink = 'csv'", "`sink` is a table, written as [sink]"),
        ("[sink.protocol]\ncsv = true", "`sink.protocol` is a single value, not a table"),
    ],
)
def test_unknown_keys_are_errors_that_name_the_nearest(text: str, message: str) -> None:
    """A key that nobody knows stops the program, and the message says what was probably meant or where it belongs."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        _load(text)


@pytest.mark.parametrize("table", ["filter", "sink.kafka-config", "sink.kafka-config.glue", "consumer.load"])
def test_a_table_without_keys_says_nothing(table: str) -> None:
    """It is taken, as is one of a sink that is not this one."""
    csv = "[sink.csv]\ninclude-commit-ts = true\n"
    assert _load(f"{csv}[{table}]").config == _load(csv).config


def test_a_setting_that_is_not_read_is_refused_by_name_and_value() -> None:
    """A setting that changes the files in a way that is not read is an error with its name and value; its default is taken."""
    with pytest.raises(ConfigError, match="config: `enable-active-active = true` is not supported; only false is"):
        _load("enable-active-active = true")
    text = "enable-active-active = false\n[sink.csv]\ninclude-commit-ts = true"
    assert _load(text).config.upstream.csv.include_commit_ts


DIALECT = """
[sink]
terminator = "\\n"
[sink.csv]
delimiter = "|+|"
quote = ""
null = 'NULL'
include-commit-ts = true
binary-encoding-method = "hex"
output-old-value = true
output-handle-key = true
output-field-header = true
"""


def test_every_csv_setting_arrives() -> None:
    """What the changefeed says of its CSV is what the files are read by."""
    upstream = _load(DIALECT).config.upstream
    assert upstream.csv == CsvOptions(
        delimiter="|+|",
        quote="",
        null="NULL",
        terminator="\n",
        include_commit_ts=True,
        binary_encoding_method="hex",
        output_old_value=True,
        output_handle_key=True,
        output_field_header=True,
    )


def test_an_empty_terminator_is_passed_through() -> None:
    """TiCDC writes no terminator at all when its setting is an empty text."""
    text = "[sink]\nterminator = ''\n[sink.csv]\ninclude-commit-ts = true"
    assert _load(text).config.upstream.csv.terminator == ""


def test_a_sink_table_tells_all_of_itself() -> None:
    """What a changefeed's [sink] leaves out is TiCDC's default, and so is told; the extension is not of that table."""
    loaded = _load("[sink.csv]\ninclude-commit-ts = true")
    assert loaded.unset == ()
    assert loaded.origins["delimiter"] == "config: TiCDC's default"
    assert loaded.origins["include_commit_ts"] == "config: [sink.csv] include-commit-ts"
    assert _load("[sink]", "file:///bucket?protocol=canal-json").unset == ("enable_tidb_extension",)


def test_what_nobody_says_is_unset() -> None:
    """Without a [sink] table only what was given explicitly counts as told."""
    loaded = _load("[consumer]\ntz = 'UTC'\n", f"{CSV}&date-separator=day")
    assert loaded.unset == tuple(CSV_KEYWORDS)
    assert "protocol" in load({"upstream_uri": "file:///bucket", "downstream_uri": TARGET}, {}).unset


def test_column_selectors_arrive() -> None:
    """Which columns rows carry is read from the changefeed's file, in its order, and must be lists of texts."""
    selectors = (
        "[[sink.column-selectors]]\nmatcher=['a.*']\ncolumns=['b']\n[[sink.column-selectors]]\nmatcher=['c.*']\n"
    )
    upstream = _load(f"case-sensitive = true\n{selectors}columns=['*', '!d']", JSON).config.upstream
    assert upstream.case_sensitive
    assert upstream.column_selectors == (
        ColumnSelector(matcher=("a.*",), columns=("b",)),
        ColumnSelector(matcher=("c.*",), columns=("*", "!d")),
    )
    with pytest.raises(ConfigError, match="each a list of texts"):
        _load(selectors, JSON)


@pytest.mark.parametrize("key", sorted(OF_THE_WRITER))
def test_settings_that_show_in_the_files_are_taken(key: str) -> None:
    """What each message or path shows by itself may be set either way, without a word."""
    table, _, name = key.rpartition(".")
    text = f"[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n[{table}]\n{name} = true\n"
    assert not any(name in notice for notice in _load(text).notices)


@pytest.mark.parametrize(
    ("text", "upstream", "message"),
    [
        ("[sink.csv]\ninclude-commit-ts = false", CSV, "`[sink.csv] include-commit-ts = true`"),
        ("[sink]", f"{JSON.partition('&')[0]}&enable-tidb-extension=false", "`enable-tidb-extension=true`"),
    ],
)
def test_files_without_commit_ts_are_refused_with_the_options_name(text: str, upstream: str, message: str) -> None:
    """The message names the missing option of TiCDC, and the flag by which they are taken all the same, with a warning."""
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        _load(text, upstream)
    assert "--allow-missing-commit-ts" in str(caught.value)
    loaded = _load(f"{text}\n[consumer]\nallow-missing-commit-ts = true", upstream)
    assert loaded.config.upstream.allow_missing_commit_ts
    assert "the target may run ahead of its checkpoint" in loaded.warning


def test_rows_with_commit_ts_weaken_no_promise() -> None:
    """The flag alone changes nothing: no warning where rows have their commit ts."""
    loaded = _load("[sink.csv]\ninclude-commit-ts = true\n[consumer]\nallow-missing-commit-ts = true")
    assert loaded.warning == ""


def test_the_extension_may_stand_in_the_file() -> None:
    """TiCDC reads enable-tidb-extension from its codec-config too."""
    text = "[sink]\nprotocol='canal-json'\n[sink.kafka-config.codec-config]\nenable-tidb-extension = true"
    assert _load(text, "file:///bucket").config.upstream.enable_tidb_extension


@pytest.mark.parametrize("protocol", ["avro", "debezium", "open-protocol", "CVS"])
def test_other_protocols_are_refused(protocol: str) -> None:
    """A protocol that is not read is an error with its name, wherever it is given."""
    with pytest.raises(ConfigError, match=protocol):
        _load(f"[sink]\nprotocol = '{protocol}'", "file:///bucket")
    with pytest.raises(ConfigError, match=protocol):
        _load("", f"file:///bucket?protocol={protocol}")


def test_a_file_that_is_no_toml_is_named_with_the_line(tmp_path: Path) -> None:
    """The message names the file and the line."""
    file = tmp_path / "changefeed.toml"
    file.write_text("[sink\nprotocol = 1\n")
    with pytest.raises(ConfigError, match=r"changefeed\.toml: this is not TOML: .*line 1"):
        read_document(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="this is not UTF-8 text"):
        read_document(file)
    with pytest.raises(ConfigError, match=r"other\.toml: the file cannot be read: No such file"):
        read_document(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("[consumer.load]\ndump = 'file:///full'\ndump-tz = 'UTC'", "dump"),
        ("[consumer.load]\nno-copy = true", "no_copy"),
        ("[consumer.routes]\nmatcher = 'a.*'\ntarget-schema = 'b'", "route"),
        ("[consumer.filter.event-filters]\nmatcher = 'a.*'\nignore-event = 'drop table'", "event_filter"),
    ],
)
def test_every_key_that_the_help_names_is_heeded(text: str, keyword: str) -> None:
    """Keys in a table of their own below [consumer] are taken; so is the one table of an array that is written as a plain table."""
    config = _load(f"{text}\n[sink.csv]\ninclude-commit-ts = true").config
    loading, selecting = config.loading, config.selecting
    found = {"dump": loading.dump, "no_copy": loading.no_copy}
    assert {**found, "route": selecting.routes, "event_filter": selecting.event_filters}[keyword]
