"""The commands that messages name do what the settings that were given do, and show no secret."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from storage_consumer.cli.arguments import parse
from storage_consumer.config.commands import bare_uri, command, reaching, run_command
from storage_consumer.config.load import Loaded, load, load_target
from storage_consumer.config.sources import with_files_read

FILE = """\
[sink]
protocol = "csv"
[sink.csv]
include-commit-ts = true
[consumer]
upstream-uri = "file:///bucket"
state-schema = "mine"
tz = "Asia/Tokyo"
"""
LINES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("--config {file} --downstream-uri mysql://app:hush@db:3307/", {}),
    ("--config {file} --downstream-uri mysql://app@db/ --state-schema other --once --max-files 7 --tz +05:00", {}),
    ("--upstream-uri {uri} --config {file} --config {more}", {}),
    ("--config {more} --config {file} --filter '*.*' --filter '!a.*' --flush-interval 7s", {}),
    ("--config {file}", {"DOWNSTREAM_URI": "tidb+ssl://app:hush@db:4000/?ssl-mode=required", "SSL_MODE": "required"}),
    ("--config {file} --downstream-uri mysql://app@db/ --connect-timeout 3s", {"DOWNSTREAM_PASSWORD": "hush"}),
    ("--upstream-uri {uri} --tz UTC", {"CONFIG": "{more}"}),
    ("--config {file} --downstream-uri mysql://app@db/ --quarantine 'a.*' --no-progress=false -tz -05:00", {}),
)
"""Arguments of `run`, and the environment."""


def _loaded(words: list[str], environ: Mapping[str, str]) -> Loaded:
    return load(with_files_read(parse(words)[1], environ), environ)


def _given(tmp_path: Path, line: str, variables: Mapping[str, str]) -> tuple[Loaded, dict[str, str]]:
    places = {"file": tmp_path / "feed.toml", "more": tmp_path / "my own.toml"}
    places["file"].write_text(FILE, encoding="utf-8")
    uri = "downstream-uri = 'mysql://app:hush@db:3306/'\n"
    places["more"].write_text(f"[consumer]\n{uri}allow-unverified-server = true\n", encoding="utf-8")
    texts = {name: shlex.quote(str(path)) for name, path in places.items()}
    texts["uri"] = "'s3://b/p?protocol=csv&access-key=hush&secret-access-key=hush&region=eu-west-1'"
    environ = {
        f"STORAGE_CONSUMER_{name}": value.format(**{k: str(v) for k, v in places.items()})
        for name, value in variables.items()
    }
    return _loaded(["run", *shlex.split(line.format(**texts))], environ), environ


@pytest.mark.parametrize(("line", "variables"), LINES)
def test_a_command_has_the_settings_that_were_given(line: str, variables: Mapping[str, str], tmp_path: Path) -> None:
    """`run` as it is printed loads the same settings, and another command reaches the same target, each without a secret."""
    loaded, environ = _given(tmp_path, line, variables)
    again = run_command(loaded.config)
    other = command("table list", loaded.config.downstream)
    assert "hush" not in again + other
    words = shlex.split(again)[1:]
    # The one that is given with a password that nothing else has.
    secret = [] if "hush" not in line else ["--downstream-uri", "mysql://app:hush@db:3307/"]
    found = _loaded([*words, *secret] if not secret else [*_without(words), *secret], environ)
    assert found.config == loaded.config
    assert (found.program, found.secrets.password) == (loaded.program, loaded.secrets.password)
    _, options = parse(shlex.split(other)[1:])
    found_target = load_target({k: v for k, v in options.items() if k != "action"}, environ)
    here = loaded.config.downstream
    assert replace(found_target.settings, time_zone=here.time_zone, ddl_lock_wait=here.ddl_lock_wait) == here
    assert secret or found_target.password == loaded.secrets.password


def _without(words: list[str]) -> list[str]:
    place = words.index("--downstream-uri")
    return [*words[:place], *words[place + 2 :]]


def test_a_missing_setting_is_added(tmp_path: Path) -> None:
    """What a message adds stands beside what was given, and the target comes last."""
    loaded, _ = _given(tmp_path, "--config {file} --downstream-uri mysql://app@db/ --once", {})
    file = tmp_path / "feed.toml"
    target = "--downstream-uri mysql://app@db/ --state-schema mine"
    assert (
        run_command(loaded.config, "--tz", "ZONE") == f"storage-consumer run --config {file} --once --tz ZONE {target}"
    )


def test_a_password_in_an_uri_is_for_its_account_alone(tmp_path: Path) -> None:
    """The password of a URI in a file goes to no other account and no other server."""
    file = tmp_path / "own.toml"
    file.write_text("[consumer]\ndownstream-uri = 'mysql://app:hush@db:3306/'\n", encoding="utf-8")
    for uri, password in (("mysql://app@db", "hush"), ("mysql://root@db/", ""), ("mysql://app@db:3307/", "")):
        target = load_target({"downstream_uri": uri, "config": str(file)}, {})
        assert target.password == password
        assert reaching(target.settings)[:2] == ["--downstream-uri", uri]


@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("s3://b/p?access-key=a&protocol=csv&secret-access-key=a%26b", "s3://b/p?protocol=csv"),
        ("s3://b/p?secret-access-key=x&protocol=csv&endpoint=http://h:1", "s3://b/p?protocol=csv&endpoint=http://h:1"),
        ("mysql://app:p@ss@h:1/?ssl-ca=x", "mysql://app@h:1/?ssl-ca=x"),
        ("s3://key@b/p", "s3://b/p"),
        ("file:///b?protocol=csv", "file:///b?protocol=csv"),
        ("azure://c/p?account-name=n&sas-token=s&protocol=csv", "azure://c/p?account-name=n&protocol=csv"),
    ],
)
def test_a_uri_without_secrets(uri: str, bare: str) -> None:
    """Passwords and secret parameters go, the rest stays as it is."""
    assert bare_uri(uri) == bare
