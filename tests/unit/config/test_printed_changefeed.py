"""--config takes what ``cdc cli changefeed create`` and ``query`` print, as it is pasted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.config.load import Loaded, load
from storage_consumer.config.settings import ColumnSelector, CsvOptions, LeftOut, Loading, Upstream
from storage_consumer.config.sources import read_document
from storage_consumer.errors import ConfigError

PRINTED = Path(__file__).resolve().parents[3] / "fixtures" / "changefeeds"
START_TS = 449660184420352001
TARGET = "mysql://root@127.0.0.1:3306/?time-zone=UTC"
EXPECTED = {
    "create-v6.5.0.txt": Upstream(
        scheme="file",
        root="/data/changes",
        protocol="csv",
        csv=CsvOptions(delimiter="\t", quote="", null="NULL", terminator="\n", include_commit_ts=True),
        date_separator="none",
        partition_separator=False,
        case_sensitive=True,
    ),
    "create-v8.5.0.txt": Upstream(
        scheme="s3",
        root="bucket/prefix",
        protocol="csv",
        csv=CsvOptions(
            delimiter="|+|", quote="'", include_commit_ts=True, binary_encoding_method="hex", output_old_value=True
        ),
        date_separator="day",
        partition_separator=True,
        file_expiration_days=7,
        left_out=(
            LeftOut(
                matcher=("shop.logs",),
                what=f"ignore-event 'delete' of [[filter.event-filters]] in {PRINTED / 'create-v8.5.0.txt'}",
            ),
        ),
        column_selectors=(ColumnSelector(matcher=("shop.customers",), columns=("*", "!secret")),),
    ),
    "query-v8.5.0.json": Upstream(
        scheme="s3",
        root="bucket/prefix",
        protocol="canal-json",
        enable_tidb_extension=True,
        date_separator="month",
        partition_separator=True,
    ),
    "create-new.txt": Upstream(
        scheme="s3",
        root="bucket/prefix",
        region="eu-west-1",
        protocol="csv",
        csv=CsvOptions(include_commit_ts=True, output_field_header=True),
        date_separator="day",
        partition_separator=True,
    ),
    "query-new.json": Upstream(
        scheme="azure",
        root="container/prefix",
        account_name="acc",
        protocol="canal-json",
        csv=CsvOptions(include_commit_ts=True, output_field_header=True),
        enable_tidb_extension=True,
        date_separator="day",
        partition_separator=True,
    ),
    "etcd-v8.5.0.json": Upstream(
        scheme="s3",
        root="bucket/prefix",
        protocol="csv",
        csv=CsvOptions(include_commit_ts=True, output_handle_key=True),
        date_separator="year",
        partition_separator=True,
    ),
}
MASKED = "create-v8.5.0.txt"
"""Its sink URI is of no use but for the settings in it."""


def _load(config: object, upstream: str | None = None, **options: object) -> Loaded:
    return load({"downstream_uri": TARGET, "upstream_uri": upstream, "config": config, **options}, {})


def _query(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> Path:
    """A printed changefeed that was changed."""
    content = json.loads((PRINTED / "query-v8.5.0.json").read_text(encoding="utf-8"))
    change(content)
    file = tmp_path / "changefeed.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_printed_changefeed_gives_every_setting_of_the_bucket(name: str) -> None:
    """The sink URI, the start-ts and all that says how the files look come from the JSON alone, whoever printed it."""
    loaded = _load(PRINTED / name, "s3://bucket/prefix" if name == MASKED else None)
    assert loaded.config.upstream == EXPECTED[name]
    assert loaded.config.loading.start_ts == START_TS
    assert loaded.unset == ()


def test_all_fixtures_are_expected() -> None:
    """No printed changefeed lies there without being read."""
    assert {path.name for path in PRINTED.iterdir()} == {*EXPECTED, "README.md"}


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {MASKED}))
def test_the_content_means_the_same_as_the_file(name: str) -> None:
    """The library takes the parsed object too."""
    text = (PRINTED / name).read_text(encoding="utf-8")
    content, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert _load(content).config == _load(PRINTED / name).config


def test_only_a_setting_that_somebody_chose_is_remarked_on() -> None:
    """The JSON has every setting of a changefeed, so those without effect are not listed; a filter that TiCDC applied is."""
    assert _load(PRINTED / "query-v8.5.0.json").notices == ()
    notices = " ".join(_load(PRINTED / MASKED, "s3://bucket/prefix").notices)
    assert "filter.rules: TiCDC applied them when it wrote" in notices
    assert "without effect" not in notices


@pytest.mark.parametrize("tail", ["access-key=xxxxx&secret-access-key=xxxxx", "access-key=A&secret-access-key=***"])
def test_a_masked_secret_is_no_secret(tail: str) -> None:
    """A key that was masked is refused with what to give instead, in a URI that was pasted too."""
    with pytest.raises(ConfigError, match="this is the mask that TiCDC prints") as caught:
        _load(None, f"s3://bucket/prefix?protocol=csv&{tail}", include_commit_ts=True)
    assert "Give --upstream-uri with the secret itself, or without" in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "azure://container/prefix?account-name=a&account-key=xxxxx",
        "azure://container/prefix?sas-token=xxxxx",
        "gcs://bucket/prefix?credentials-file=xxxxx",
        "s3://bucket/prefix?session_token=xxxxx",
    ],
)
def test_a_mask_is_known_in_every_store(uri: str) -> None:
    """Each store's secrets are known, whatever the parameter's spelling."""
    with pytest.raises(ConfigError, match="this is the mask that TiCDC prints"):
        _load(None, f"{uri}&protocol=csv", include_commit_ts=True)


def test_a_mask_of_what_only_the_writer_needs_does_not_matter() -> None:
    """TiCDC masks each parameter whose name sounds like a secret; those that a reader needs not are passed over."""
    loaded = _load(None, "s3://bucket/prefix?protocol=csv&sse-kms-key-id=xxxxx", include_commit_ts=True)
    assert loaded.config.upstream.root == "bucket/prefix"


def test_masked_keys_of_the_json_are_refused_if_its_uri_is_used() -> None:
    """Without --upstream-uri the sink URI of the JSON counts, and its masks are not taken for keys."""
    with pytest.raises(ConfigError, match="`access-key`, `secret-access-key`: this is the mask"):
        _load(PRINTED / MASKED)


def test_parameters_of_the_given_uri_beat_the_file() -> None:
    """--upstream-uri wins over the sink URI of the JSON, which wins over the configuration beside it."""
    loaded = _load(PRINTED / "query-v8.5.0.json", "s3://bucket/prefix?date-separator=year")
    assert (loaded.config.upstream.date_separator, loaded.config.upstream.protocol) == ("year", "canal-json")
    assert _load(PRINTED / "query-v8.5.0.json", "s3://bucket/prefix").config.upstream.date_separator == "month"


@pytest.mark.parametrize(
    ("upstream", "start_ts"),
    [
        ("s3://bucket/prefix/?region=eu-west-1", START_TS),
        ("s3://bucket//prefix", START_TS),
        ("s3://bucket/other", 0),
        ("s3://other/prefix", 0),
        ("gcs://bucket/prefix", 0),
        ("file:///bucket/prefix", 0),
    ],
)
def test_the_start_of_another_bucket_is_not_taken(upstream: str, start_ts: int) -> None:
    """A start-ts counts only if its changefeed writes to this bucket and prefix: it would prove what is not so. A notice says so."""
    loaded = _load(PRINTED / "query-v8.5.0.json", upstream)
    assert loaded.config.loading.start_ts == start_ts
    assert any("its start_ts is not" in notice for notice in loaded.notices) is (start_ts == 0)


def test_a_start_that_is_given_counts_for_any_bucket() -> None:
    """--start-ts wins over the JSON's, and over its being of another place."""
    loaded = _load(PRINTED / "query-v8.5.0.json", "file:///mounted", start_ts=7)
    assert loaded.config.loading.start_ts == 7


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ({"start_ts": START_TS}, {}, START_TS),
        ({"start_ts": str(START_TS)}, {}, START_TS),
        ({"start_ts": "1970-01-01T00:00:01Z"}, {}, 1000 << 18),
        ({}, {"STORAGE_CONSUMER_START_TS": "5"}, 5),
        ({"config": {"consumer": {"load": {"start-ts": 6}}}}, {"STORAGE_CONSUMER_START_TS": "5"}, 5),
        ({"config": {"consumer": {"load": {"start-ts": 6}}}}, {}, 6),
        ({}, {}, 0),
    ],
)
def test_the_start_is_a_setting_like_others(options: dict[str, object], environ: dict[str, str], expected: int) -> None:
    """A TSO or a time, as keyword, environment variable or key of [consumer.load], in the usual order."""
    given = {"upstream_uri": "file:///b?protocol=csv", "downstream_uri": TARGET, "include_commit_ts": True, **options}
    assert load(given, environ).config.loading.start_ts == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c["config"].update(case_sensitiv=True),
            "has no key `case_sensitiv`; did you mean `case-sensitive`?",
        ),
        (
            lambda c: c["config"]["sink"]["csv"].update(quot_e="x"),
            "[sink.csv] has no key `quot_e`; did you mean `quote`?",
        ),
        (
            lambda c: c.pop("sink_uri"),
            "lacks `sink_uri` or `config`: give what `cdc cli changefeed query` prints without",
        ),
        (lambda c: c.pop("config"), "lacks `sink_uri` or `config`"),
        (
            lambda c: c.update(sink_uri="kafka://broker/topic?sasl-password=p"),
            "this changefeed writes to kafka://, not to",
        ),
        (lambda c: c.update(start_ts="soon"), "[consumer.load] start-ts: a TSO or a time"),
        (lambda c: c["config"].update(enable_active_active=True), "`enable-active-active = true` is not supported"),
        (lambda c: c["config"]["sink"].update(csv=[1]), "`sink.csv` is a table"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path) -> None:
    """An unknown key is named as it is printed, with the nearest one; a changefeed without a bucket says nothing of one."""
    file = _query(change, tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        _load(file)
    assert str(file) in str(caught.value)
    assert "sasl-password" not in str(caught.value)


def test_the_older_form_with_info_is_taken(tmp_path: Path) -> None:
    """What was printed with the record of the changefeed in `info`, beside its status, is read as the record alone."""
    content = json.loads((PRINTED / "etcd-v8.5.0.json").read_text(encoding="utf-8"))
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"info": content, "status": {"checkpoint-ts": 5}, "count": 0}), encoding="utf-8")
    assert _load(file).config == _load(PRINTED / "etcd-v8.5.0.json").config


def test_other_tables_of_tidb_may_have_any_key(tmp_path: Path) -> None:
    """Settings of other kinds of sinks are not judged."""
    file = _query(lambda c: c["config"]["sink"].update(kafka_config={"new_key": {"deep_er": 1}}), tmp_path)
    assert _load(file).config.upstream == EXPECTED["query-v8.5.0.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('Info: {"config": {"sink', "this is not the whole JSON of a changefeed: "),
        ('{"config": {}}\n{"config": {}}', "this holds several JSON objects"),
        ('Info: {"id": "a"}\nInfo: {"id": "b"}\n', "this holds several JSON objects"),
        ("Create changefeed successfully!\nID: x\n", "this is not TOML: "),
        ("[sink]\ncolumn-selectors = [\n{matcher = ['a'], columns ['b']},\n]\n", "this is not TOML: "),
        ("[1, 2]", "this is not TOML: "),
    ],
)
def test_a_damaged_file_is_told_by_its_form(text: str, message: str, tmp_path: Path) -> None:
    """A fault in TOML is reported as one, and so is one in JSON; of several changefeeds none is guessed."""
    file = tmp_path / "changefeed"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(f"--config {file}: {message}")):
        read_document(file)


def test_text_around_the_object_may_hold_braces(tmp_path: Path) -> None:
    """Warnings with braces before it, and counts behind it, do not matter; nor does a byte order mark."""
    before = '\ufeff[WARN] tables: []v2.TableName{v2.TableName{Schema:"shop"}}\r\n'
    file = tmp_path / "pasted.txt"
    file.write_text(
        f"{before}Info: {(PRINTED / 'query-v8.5.0.json').read_text(encoding='utf-8')}\r\nAllTablesCount: 2\r\n"
    )
    assert _load(file).config.upstream == EXPECTED["query-v8.5.0.json"]


def test_a_printed_file_and_one_of_our_own_go_together(tmp_path: Path) -> None:
    """The JSON says what TiCDC writes, [consumer] in a second file the rest; an upstream-uri there wins over the sink URI."""
    own = tmp_path / "consumer.toml"
    own.write_text('[consumer]\nupstream-uri = "s3://bucket/prefix?region=x"\nflush-interval = "9s"\n')
    config = _load([PRINTED / "query-v8.5.0.json", own]).config
    assert (config.upstream.region, config.upstream.protocol, config.tuning.flush_interval) == ("x", "canal-json", 9.0)
    assert config.loading.start_ts == START_TS


def test_what_is_taken_for_granted_is_said() -> None:
    """A start-ts by hand without an export says that the target has the rows from before; a printed one does not."""
    loaded = _load(PRINTED / "query-v8.5.0.json", start_ts=START_TS)
    assert re.match(
        rf"rows up to start-ts {START_TS} \(2.* are taken to be in the target", loaded.config.loading.assumed
    )
    assert loaded.config.loading.assumed in loaded.notices
    assert "from before the changefeed" in Loading(no_copy=True).assumed
    assert _load(PRINTED / "query-v8.5.0.json").config.loading.assumed == ""
    assert _load(PRINTED / "query-v8.5.0.json", start_ts=START_TS, dump="file:///full").config.loading.assumed == ""


CLOUD: dict[str, Any] = {
    "changefeedId": "chg-abc",
    "clusterId": "10000",
    "sink": {
        "type": "CLOUD_STORAGE",
        "cloudStorage": {
            "storage": {
                "type": "S3",
                "s3": {"uri": "s3://bucket/prefix", "authType": "ROLE_ARN", "roleArn": "arn:aws:iam::1:role/writer"},
            },
            "dataFormat": {
                "protocol": "CSV",
                "csvConfig": {
                    "delimiter": "|",
                    "quote": "'",
                    "nullValue": "NULL",
                    "includeCommitTs": True,
                    "encoding": "HEX",
                },
            },
            "dateSeparator": "MONTH",
            "intervalInSeconds": 60,
            "sizeInMib": 64,
            "outputColumnId": True,
        },
    },
    "filter": {
        "filterRule": ["shop.*"],
        "mode": "FORCE_SYNC",
        "caseSensitive": True,
        "eventFilterRule": [{"matcher": ["shop.logs"], "ignoreEvent": ["ALL_DML"]}],
    },
    "startPosition": {"mode": "FROM_TSO", "tso": str(START_TS)},
    "arch": "TICDC_NEWARCH",
    "rcu": 2,
}
CANAL = {"protocol": "CANAL_JSON", "enableTidbExtension": True}


def _of_cloud(**changes: Any) -> dict[str, Any]:
    """The changefeed of TiDB Cloud with other parts of its `cloudStorage`."""
    content: dict[str, Any] = json.loads(json.dumps(CLOUD))
    content["sink"]["cloudStorage"] |= changes
    return content


def test_csv_of_tidb_cloud(tmp_path: Path) -> None:
    """The form of TiDB Cloud's API gives place, format, start and filters; the role that writes is not the reader's."""
    file = tmp_path / "cloud.json"
    file.write_text(json.dumps(CLOUD), encoding="utf-8")
    loaded = _load(file)
    assert loaded.config.upstream == Upstream(
        scheme="s3",
        root="bucket/prefix",
        protocol="csv",
        csv=CsvOptions(delimiter="|", quote="'", null="NULL", include_commit_ts=True, binary_encoding_method="hex"),
        date_separator="month",
        case_sensitive=True,
        left_out=(
            LeftOut(matcher=("shop.logs",), what=f"ignore-event 'all dml' of [[filter.event-filters]] in {file}"),
        ),
    )
    assert (loaded.config.loading.start_ts, loaded.config.loading.source_keyless) == (START_TS, True)
    assert (loaded.config.loading.source_rules, loaded.unset) == (("shop.*",), ())
    assert _load(CLOUD, "s3://bucket/prefix?role-arn=arn:aws:iam::1:role/r").config.loading.start_ts == START_TS


@pytest.mark.parametrize(
    ("storage", "root"),
    [
        (
            {"type": "S3", "s3": {"uri": "s3://bucket/prefix", "accessKey": {"id": "AK", "secret": "SK"}}},
            "s3://bucket/prefix",
        ),
        ({"type": "GCS", "gcs": {"uri": "gs://bucket/prefix", "serviceAccountKey": "e30="}}, "gcs://bucket/prefix"),
        (
            {"type": "AZURE_BLOB", "azureBlob": {"uri": "azure://acc.blob.core.windows.net/c/p", "sasToken": "sig=x"}},
            "azure://c/p",
        ),
        ({"type": "OSS", "oss": {"uri": "oss://bucket/prefix?region=ap-southeast-1"}}, "s3://bucket/prefix"),
    ],
)
def test_canal_json_of_tidb_cloud(storage: dict[str, Any], root: str) -> None:
    """In each store; no key of the one that writes is taken."""
    loaded = _load(_of_cloud(storage=storage, dataFormat=CANAL))
    upstream = loaded.config.upstream
    assert (upstream.identity, upstream.protocol, upstream.enable_tidb_extension) == (root, "canal-json", True)
    assert (loaded.secrets.texts(), loaded.unset, loaded.config.loading.start_ts) == ((), (), START_TS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**CLOUD, "sink": {"type": "KAFKA", "kafka": {}}}, "this changefeed of TiDB Cloud is of type KAFKA"),
        (_of_cloud(dataFormat={"protocol": "AVRO"}), "protocol"),
        (
            _of_cloud(dataFormat={"protocol": "CSV", "csvConfig": {"quotes": "x"}}),
            "[sink.csv] has no key `quotes`; did you mean `quote`?",
        ),
        (_of_cloud(dataFormat={"protocol": "CSV", "rowFilter": "x"}), "has no key `row-filter`"),
        (
            _of_cloud(dataFormat={"protocol": "CSV", "csvConfig": {"includeCommitTs": False}}),
            "CSV rows without commit ts",
        ),
        (
            _of_cloud(dataFormat={"protocol": "CANAL_JSON", "enableTidbExtension": False}),
            "canal-json messages without commit ts",
        ),
    ],
)
def test_what_does_not_fit_of_tidb_cloud_is_refused(content: dict[str, Any], message: str) -> None:
    """Another sink or protocol, a format that nobody knows, and rows without commit-ts."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        _load(content)


@pytest.mark.parametrize("position", [{"mode": "FROM_NOW"}, {"mode": "FROM_TIME", "time": "2026-09-21T10:12:13Z"}, {}])
def test_a_start_that_tidb_cloud_does_not_tell(position: dict[str, str]) -> None:
    """Only a TSO is one."""
    assert _load({**CLOUD, "startPosition": position}).config.loading.start_ts == 0


def test_the_toml_of_the_api(tmp_path: Path) -> None:
    """`Accept: application/toml` gives the same changefeed with the keys of the TOML file below [config]."""
    file = tmp_path / "changefeed.toml"
    file.write_text(
        f"""upstream-id = 7180123456789012345
keyspace = "default"
id = "to-bucket"
sink-uri = "s3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true"
create-time = 2026-09-21T10:12:13.123456789Z
start-ts = {START_TS}
state = "normal"
creator-version = "v26.3.4"
checkpoint-time = "2026-09-21 10:12:13.000"

[config]
  case-sensitive = false
  sync-point-interval = "10m0s"
  [config.filter]
    rules = ["*.*"]
    [[config.filter.event-filters]]
      matcher = ["shop.logs"]
      ignore-event = ["delete"]
      ignore_sql = []
  [config.sink]
    protocol = "canal-json"
    date-separator = "year"
    enable-partition-separator = true
    file-index-digit = 20
    [config.sink.csv]
      delimiter = ","
    [config.sink.cloud-storage-config]
      worker-count = 16
""",
        encoding="utf-8",
    )
    upstream = _load(file).config.upstream
    assert (upstream.identity, upstream.protocol, upstream.date_separator) == (
        "s3://bucket/prefix",
        "canal-json",
        "year",
    )
    assert [each.matcher for each in upstream.left_out] == [("shop.logs",)]
    assert _load(file).config.loading.start_ts == START_TS
    assert _load(file).unset == ()
