"""Where settings come from, which of them wins, and that secrets stay apart."""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage_consumer.cli.arguments import parse
from storage_consumer.config.load import Loaded, load
from storage_consumer.config.parsers import Document
from storage_consumer.config.settings import Config, CsvOptions, Downstream, Tuning, Upstream
from storage_consumer.config.sources import LogWish, log_wish, with_files_read
from storage_consumer.errors import ConfigError

CSV = "file:///bucket?protocol=csv"
TARGET = "mysql://root@127.0.0.1:3306/"


def _load(options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    given: dict[str, object] = {"upstream_uri": CSV, "downstream_uri": TARGET, "include_commit_ts": True, "tz": "UTC"}
    return load({**given, **(options or {})}, environ or {})


def _target_password(loaded: Loaded) -> str:
    return loaded.secrets.password


def test_the_shortest_settings_give_the_defaults() -> None:
    """Two URIs and the fact that CSV rows carry their commit ts are enough."""
    loaded = _load()
    csv = loaded.config.upstream.csv
    assert loaded.config == Config(
        upstream=Upstream(scheme="file", root="/bucket", protocol="csv", csv=csv, time_zone="UTC"),
        downstream=Downstream(),
        tuning=Tuning(),
    )
    assert csv.include_commit_ts
    assert loaded.notices == ()


def test_each_source_beats_the_ones_behind_it() -> None:
    """Keyword, then URI parameter, then environment, then TOML, then default: one is taken away after the other."""
    options: dict[str, object] = {"state_schema": "by_keyword", "config": {"consumer": {"state-schema": "by_toml"}}}
    environ = {"STORAGE_CONSUMER_STATE_SCHEMA": "by_environment"}
    uri = {"downstream_uri": f"{TARGET}?state-schema=by_uri"}

    def found(options: dict[str, object], environ: dict[str, str]) -> str:
        return _load(options, environ).config.downstream.state_schema

    assert found({**options, **uri}, environ) == "by_keyword"
    del options["state_schema"]
    assert found({**options, **uri}, environ) == "by_uri"
    assert found(options, environ) == "by_environment"
    assert found(options, {}) == "by_toml"
    assert found({}, {}) == "storage_consumer"


def test_an_unset_source_counts_as_absent() -> None:
    """None, an empty environment variable and an empty URI parameter give the word to the next source."""
    options = {"state_schema": None, "downstream_uri": f"{TARGET}?state-schema="}
    assert _load(options, {"STORAGE_CONSUMER_STATE_SCHEMA": ""}).config.downstream.state_schema == "storage_consumer"


def test_a_uri_parameter_beats_the_changefeeds_file() -> None:
    """As in TiCDC, protocol and date separator of the URI win over the file."""
    file = {"sink": {"protocol": "canal-json", "date-separator": "none"}}
    upstream = _load({"config": file, "upstream_uri": f"{CSV}&date-separator=year"}).config.upstream
    assert (upstream.protocol, upstream.date_separator) == ("csv", "year")


def test_everything_may_come_from_the_environment(tmp_path: Path) -> None:
    """A service needs no command line."""
    file = tmp_path / "changefeed.toml"
    file.write_text("[sink.csv]\ninclude-commit-ts = true\n")
    other = tmp_path / "consumer.toml"
    other.write_text("[consumer]\nflush-interval = '7s'\n")
    environ = {
        "STORAGE_CONSUMER_SINK": "unknown",
        "STORAGE_CONSUMER_UPSTREAM_URI": CSV,
        "STORAGE_CONSUMER_DOWNSTREAM_URI": TARGET,
        "STORAGE_CONSUMER_CONFIG": f"{file}{os.pathsep}{other}",
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": "geheim",
        "STORAGE_CONSUMER_ONCE": "true",
    }
    loaded = load({}, environ)
    assert (loaded.config.tuning.flush_interval, loaded.secrets.password, loaded.program.once) == (7.0, "geheim", True)
    assert any("STORAGE_CONSUMER_SINK is not known" in notice for notice in loaded.notices)


def test_a_later_file_overrides_an_earlier_one() -> None:
    """Several files are laid over each other, key by key."""
    first = {"consumer": {"flush-interval": "1s", "gap-timeout": "1s"}}
    tuning = _load({"config": [first, {"consumer": {"flush-interval": "3s"}}]}).config.tuning
    assert (tuning.flush_interval, tuning.gap_timeout) == (3.0, 1.0)


def test_the_uris_may_stand_in_the_file() -> None:
    """[consumer] takes the URIs too, sink-uri as another name of upstream-uri."""
    file = {
        "consumer": {"sink-uri": "s3://b/p", "downstream-uri": TARGET},
        "sink": {"protocol": "csv", "csv": {"include-commit-ts": True}},
    }
    assert load({"config": file}, {}).config.upstream.root == "b/p"


def test_a_bucket_in_s3_is_understood() -> None:
    """Bucket, prefix, endpoint, region and addressing go into the settings, keys into the secrets."""
    uri = "s3://b/p/q?protocol=canal-json&enable-tidb-extension=true&endpoint=http://h:9000/&region=r&force-path-style=false"
    loaded = _load({"upstream_uri": f"{uri}&access-key=AK&secret-access-key=a/b+c&session-token=t"})
    upstream = loaded.config.upstream
    assert (upstream.scheme, upstream.root, upstream.endpoint, upstream.region) == ("s3", "b/p/q", "http://h:9000", "r")
    assert not upstream.force_path_style
    secrets = loaded.secrets
    assert (secrets.access_key, secrets.secret_access_key, secrets.session_token) == ("AK", "a/b+c", "t")


def test_a_bad_path_style_is_refused() -> None:
    """A parameter that is neither true nor false is an error that names it."""
    with pytest.raises(ConfigError, match="parameter `force-path-style`: true or false"):
        _load({"upstream_uri": "s3://b/p?protocol=csv&force-path-style=perhaps"})


@pytest.mark.parametrize(
    ("uri", "port", "noted"), [("mysql://h/", 3306, True), ("tidb://h/", 4000, True), ("mysql://h:1/", 1, False)]
)
def test_a_port_that_is_taken_by_default_is_reported(uri: str, port: int, noted: bool) -> None:  # noqa: FBT001 - the expected value
    """MySQL's and TiDB's usual ports differ, so a notice says which one was taken."""
    loaded = _load({"downstream_uri": uri})
    assert loaded.config.downstream.port == port
    assert any("has no port" in notice for notice in loaded.notices) == noted


def test_the_password_has_an_order_too(tmp_path: Path) -> None:
    """File of a flag, then URI, then environment, then file of the environment; one newline at the end is left out."""
    file = tmp_path / "password"
    file.write_text("by file \n\n")
    with_password = {"downstream_uri": "mysql://root:by%20uri@h:1/"}
    environ = {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": "by environment"}
    by_environment = {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": str(file)}
    assert _target_password(_load({**with_password, "downstream_password_file": file}, environ)) == "by file \n"
    assert _target_password(_load(with_password, environ)) == "by uri"
    assert _target_password(_load({"downstream_uri": "mysql://root:@h:1/"}, environ)) == ""
    assert _target_password(_load({}, {**environ, **by_environment})) == "by environment"
    assert _target_password(_load({}, by_environment)) == "by file \n"
    assert _target_password(_load()) == ""


def test_files_are_named_by_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in messages name these files, and are pasted in another folder than that of the program."""
    monkeypatch.chdir(tmp_path)
    for name in ("password", "ca.pem"):
        (tmp_path / name).write_text("x")
    found = _load({"downstream_password_file": "password", "ssl_ca": "ca.pem"}).config.downstream
    assert (found.password_file, found.ssl_ca) == (str(tmp_path / "password"), str(tmp_path / "ca.pem"))
    assert _load().config.downstream.password_file == ""


@pytest.mark.parametrize("keyword", ["downstream_password_file", "source_password_file"])
def test_an_empty_path_of_a_password_is_refused(keyword: str) -> None:
    """It comes from a variable of a script that is not set; an account without a password is not what was meant."""
    with pytest.raises(ConfigError, match=f"--{keyword.replace('_', '-')}: a path is expected, not an empty text"):
        _load({keyword: "", "source": "tidb://r@h:4000/"})


def test_two_commands_for_alerts_are_refused() -> None:
    """The first one would be told nothing, without a word."""
    with pytest.raises(ConfigError, match="--on-halt: one command takes the documents"):
        _load(parse(["run", "--on-halt", "mail -s halt", "--on-halt=page"])[1])
    assert _load(parse(["run", "--on-halt", "mail -s halt"])[1]).program.on_halt == ("mail", "-s", "halt")


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    """The message names the flag and the file."""
    with pytest.raises(ConfigError, match=r"--downstream-password-file: the password file .*nothing cannot be read"):
        _load({"downstream_password_file": tmp_path / "nothing"})


def test_secrets_are_in_no_repr_and_not_in_the_settings() -> None:
    """Settings can be printed and pickled: they hold no secret; the secrets' own repr names them only."""
    uri = "s3://b/p?protocol=csv&access-key=AKIAX&secret-access-key=hush&session-token=shh"
    loaded = _load({"upstream_uri": uri, "downstream_uri": "mysql://root:geheim@h:1/"})
    text = f"{loaded!r}{pickle.dumps(loaded.config)!r}"
    assert not [secret for secret in ("AKIAX", "hush", "shh", "geheim") if secret in text]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tz": "Mars/Base"}, "--tz: a time zone like UTC"),
        ({"flush_interval": "2"}, "--flush-interval: a duration like 2s"),
        ({"flush_interval": "0s"}, "--flush-interval: at least 0.1s"),
        ({"flush_intervall": "2s"}, "there is no option `flush_intervall`; did you mean `flush_interval`?"),
        ({"downstream_uri": f"{TARGET}?time-zone=Mars"}, "--downstream-uri: parameter `time-zone`: a time zone"),
        ({"config": {"consumer": {"partitions": -1}}}, "config: [consumer] partitions: a whole number from 0"),
        ({"config": {"sink": {"date-separator": 5}}}, "config: [sink] date-separator: one of none, year, month, day"),
        ({"config": 5}, "--config: a path of a TOML or JSON file or a mapping"),
        ({"upstream_uri": None}, "--upstream-uri is missing"),
        ({"downstream_uri": ""}, "--downstream-uri is missing"),
        ({"sink_uri": "file:///other?protocol=csv"}, "mean the same option but were given different values"),
        ({"ssl_ca": "/nowhere/ca.pem"}, "`ssl-ca`: there is no file /nowhere/ca.pem"),
        ({"state_schema": "mysql"}, "--state-schema: a schema name"),
        ({"log_level": "loud"}, "--log-level: one of debug, info"),
    ],
)
def test_errors_name_the_place_and_the_remedy(options: dict[str, object], message: str) -> None:
    """A bad value is reported with the name under which it was given and what was expected."""
    options = {"tz": None, **options} if "time-zone" in str(options.get("downstream_uri")) else options
    with pytest.raises(ConfigError, match=re.escape(message)):
        _load(options)


def test_a_bad_environment_variable_is_named() -> None:
    """The message names the variable, since nobody sees it on the command line."""
    with pytest.raises(ConfigError, match="environment variable STORAGE_CONSUMER_LEASE_TTL: at least 3s"):
        _load({}, {"STORAGE_CONSUMER_LEASE_TTL": "1s"})


def test_a_secret_of_the_wrong_type_is_not_shown() -> None:
    """A password that is no text is refused without being printed."""
    with pytest.raises(ConfigError) as caught:
        _load({"downstream_password": ["geheim"]})
    assert "geheim" not in str(caught.value)


def test_both_sides_share_the_time_zone() -> None:
    """The session's zone is the one in which TiCDC wrote, so that a TIMESTAMP keeps its instant (T3)."""
    config = _load({"tz": "+08:00"}).config
    assert (config.upstream.time_zone, config.downstream.time_zone) == ("+08:00", "+08:00")
    assert _load({"tz": None, "downstream_uri": f"{TARGET}?time-zone=+08:00"}).config == config


def test_no_time_zone_is_assumed() -> None:
    """Without any, the bucket's zone is unknown; the session's is UTC, as for all that has none."""
    config = _load({"tz": None}).config
    assert (config.upstream.time_zone, config.downstream.time_zone) == ("", "UTC")


def test_the_systems_time_zone_is_resolved_and_reported() -> None:
    """System becomes the host's zone, and a notice warns that TiCDC's counts."""
    loaded = _load({"tz": "system"}, {"TZ": "Asia/Tokyo"})
    assert loaded.config.downstream.time_zone == "Asia/Tokyo"
    assert any("System is this host's time zone, Asia/Tokyo" in notice for notice in loaded.notices)


def test_flags_without_effect_are_reported() -> None:
    """The reference consumer's flags that mean nothing here are accepted with a notice."""
    loaded = _load({"file_index_width": "6", "enable_profiling": True, "downstream_uri": f"{TARGET}?safe-mode=true"})
    notices = "\n".join(loaded.notices)
    assert "any width" in notices
    assert "no profiling port" in notices
    assert "safe-mode" in notices


def test_files_can_be_read_once_for_two_loads(tmp_path: Path) -> None:
    """After `with_files_read` the files may vanish, as pipes do."""
    config, password = tmp_path / "c.toml", tmp_path / "p"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n[consumer]\nflush-interval = '9s'\n")
    password.write_text("geheim")
    options = {"upstream_uri": CSV, "downstream_uri": TARGET, "config": config, "downstream_password_file": password}
    before = load(options, {})
    read = with_files_read(options, {})
    config.unlink()
    password.unlink()
    assert load(read, {}) == before
    assert (before.config.tuning.flush_interval, before.secrets.password) == (9.0, "geheim")


def test_the_file_is_named_after_it_was_read(tmp_path: Path) -> None:
    """Messages about a file that was read in beforehand still name it."""
    config = tmp_path / "c.toml"
    config.write_text("[sink]\ndate-separator = 'week'\n")
    with pytest.raises(ConfigError, match=r"c\.toml: \[sink\] date-separator"):
        _load(with_files_read({"config": [str(config)]}, {}))


def test_flags_may_be_written_with_escapes() -> None:
    """A TAB or a line end is hard to type: flags and variables take it escaped, and null as it is."""
    upstream = _load({"delimiter": r"\t", "terminator": r"\r\n", "null": r"\N", "quote": ""}).config.upstream
    csv = upstream.csv
    assert (csv.delimiter, csv.terminator, csv.null, csv.quote) == ("\t", "\r\n", "\\N", "")
    assert _load({}, {"STORAGE_CONSUMER_DELIMITER": r"\x01"}).config.upstream.csv.delimiter == "\x01"
    assert _load({"config": {"sink": {"csv": {"delimiter": r"\t"}}}}).config.upstream.csv.delimiter == r"\t"


def test_what_is_found_out_completes_the_settings() -> None:
    """Completed settings leave nothing unset; files without commit ts are refused then as they are when they are explicit."""
    loaded = _load()
    assert loaded.unset
    full = loaded.completed(loaded.config.upstream, dict.fromkeys(loaded.unset, "x.csv row 1"))
    assert full.unset == ()
    assert full.origins["delimiter"] == "x.csv row 1"
    without = dataclasses.replace(loaded.config.upstream, csv=CsvOptions())
    with pytest.raises(ConfigError, match="include-commit-ts"):
        loaded.completed(without, {})


def test_the_bucket_alone_can_be_loaded() -> None:
    """Who only looks at the bucket needs no target."""
    loaded = load({"upstream_uri": CSV}, {}, target=False)
    assert loaded.config.upstream.root == "/bucket"
    with pytest.raises(ConfigError, match="--downstream-uri is missing"):
        load({"upstream_uri": CSV}, {})


_RAW = {"sink": {"csv": {"include-commit-ts": True}, "cloud-storage-config": {"output-raw-change-event": True}}}


@pytest.mark.parametrize(
    "options",
    [
        {"upstream_uri": "file:///b?protocol=csv", "config": _RAW},
        {
            "upstream_uri": "file:///b?protocol=csv&output-raw-change-event=true",
            "config": {"sink": {"csv": {"include-commit-ts": True}}},
        },
    ],
)
def test_updates_that_lose_their_old_key_are_refused(options: dict[str, object]) -> None:
    """CSV with raw updates and without old values is refused, whoever told so, and the error says what to change (C13)."""
    with pytest.raises(ConfigError, match=r"output-raw-change-event.*= true.*output-old-value = true"):
        load(options, {}, target=False)


def test_updates_that_lose_their_old_key_are_refused_once_the_bucket_tells() -> None:
    """Where the files have to show whether rows have old values, raw updates are refused as soon as they did."""
    loaded = load({"upstream_uri": "file:///b?protocol=csv&output-raw-change-event=true"}, {}, target=False)
    shown = dataclasses.replace(loaded.config.upstream, csv=CsvOptions(include_commit_ts=True))
    with pytest.raises(ConfigError, match="output-raw-change-event"):
        loaded.completed(shown, {})
    told = dataclasses.replace(shown, csv=CsvOptions(include_commit_ts=True, output_old_value=True))
    assert loaded.completed(told, {}).config.upstream == told


@pytest.mark.parametrize(
    "options",
    [
        {"upstream_uri": "file:///b?protocol=csv", "config": _RAW, "output_old_value": True},
        {"upstream_uri": "file:///b?protocol=canal-json&enable-tidb-extension=true", "config": _RAW},
        {
            "upstream_uri": "file:///b?protocol=csv&output-raw-change-event=false",
            "config": {"sink": {"csv": {"include-commit-ts": True}}},
        },
    ],
)
def test_raw_updates_are_taken_where_the_old_key_is_given(options: dict[str, object]) -> None:
    """With old values in CSV, with canal-json, and where updates are split, nothing is refused."""
    load(options, {}, target=False)


def test_a_raw_update_setting_that_is_no_boolean_is_refused() -> None:
    """A value that says neither yes nor no is refused with its place."""
    with pytest.raises(ConfigError, match="output-raw-change-event"):
        load({"upstream_uri": "file:///b?protocol=csv&output-raw-change-event=maybe"}, {}, target=False)


@pytest.mark.parametrize("level", [["debug"], {"a": "debug"}, "loud", None, 5])
def test_log_while_settings_are_wrong(level: object) -> None:
    """A level that cannot be one, whatever its type, leaves the default, and the other settings of the log hold."""
    document = Document(source="x.toml", content={"consumer": {"log-level": level, "log-format": "json"}})
    assert log_wish({"config": [document]}, {}) == LogWish(level="info", style="json")
