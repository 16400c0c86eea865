"""Settings that are refused are told of without the secrets in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_consumer import telemetry
from storage_consumer.cli import main
from tests.harness.planting import Planted, encoded

URIS = (
    "mysql://u:{raw}@h:1/",
    "mysql://u:{raw}@h:1/database",
    "mysql://u:{secret}@h:1/database",
    "mysql://u:{secret}@h:port/",
    "mysql://u:{secret}@h:1/?password={secret}",
    "mysql://h:1/?dsn=mysql%3A%2F%2Fu%3A{secret}%40h",
    "postgres://u:{secret}@h:1/",
    "u:{secret}@tcp(h:1)/",
    "mysql+pymysql://u:{secret}@h:1/",
    "s3://{secret}:{secret}@b/p",
    "s3://b/p?access-key={secret}",
    "s3://b/p?access-key={secret}&secret-access-key={raw}",
    "s3://b/p?access-key={secret}&secret-acces-key={secret}",
    "s3://b/p?access-key={secret}&secret-access-key={secret}&session-token={secret}&account-key={secret}",
    "s3://b/p?access-key={secret}&secret-access-key={secret}&role-arn=x",
    "s3://b/p?access-key={secret}&access-key={secret}x&secret-access-key={secret}",
    "s3://b/p?endpoint=http%3A%2F%2Fu%3A{secret}%40h",
    "s3://b/p?endpoint=http://u:{secret}@h",
    "s3://b/p?protocol=nothing&access-key={secret}&secret-access-key={secret}",
    "S3://b/p?ACCESS_KEY={secret}&secret_access_key={secret}#x",
    "azure://c/p?account-name=a&account-key={secret}",
    "azure://c/p?account-name=a&account-key={raw}",
    "azure://c/p?account-name=a&sas-token=sv=1%26sig%3D{secret};",
    "azure://c/p?account-name=a&sas-token=sv=1&sig={secret}",
    "azure://c/p?account-name=a&encryption-key={secret}",
    "azure://c/p?account-name={secret}",
    "https://a.blob.core.windows.net/c?sv=1&sig={secret}",
    "gcs://b/p?credentials-file=/nowhere&api-key={secret}",
    "kafka://u:{secret}@h:1/topic?sasl-password={secret}",
    "file://u:{secret}@h/dir",
)
SIGNED = (
    "s3://b/p?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={secret}&X-Amz-Date=1&X-Amz-Signature={secret}",
    "s3://b/p?X-Amz-Signature={secret}",
    "s3://b/p?region=r&X-Amz-Security-Token={secret}&X-Amz-SignedHeaders=host",
    "s3://b/p?AWSAccessKeyId={secret}&Expires=1&Signature={secret}",
    "s3://b/p&X-Amz-Signature={secret}",
    "s3://b/p%3FX-Amz-Signature%3D{secret}",
    "https://b.s3.amazonaws.com/p?x-amz-signature={secret}",
    "gcs://b/p?GoogleAccessId={secret}&Signature={secret}",
    "gcs://b/p?X-Goog-Signature={secret}",
    "azure://c/p?sv=1&sp=rl&sig={secret}",
    "azure://c/p;sig={secret}",
    "oss://b/p?OSSAccessKeyId={secret}&x-oss-signature={secret}",
    "s3://b/p?q-signature={secret}&Authorization={secret}",
)
"""What stores give out as links: whoever has one may read."""
TARGET = ("--downstream-uri", "mysql://u@127.0.0.1:1/")
BUCKET = ("--upstream-uri", "file:///nowhere")
TAKING = (
    ("run", *TARGET, *BUCKET, "--dump"),
    ("run", *TARGET, "--upstream-uri"),
    ("load", *TARGET, "--table", "d.t", "--dump"),
    ("load", *TARGET, *BUCKET, "--table", "d.t", "--source"),
    ("verify", *TARGET, "--source"),
    ("verify", *TARGET, "--source", "mysql://u@127.0.0.1:1/", "--upstream-uri"),
    ("rebind", *TARGET, "--upstream-uri"),
    ("plan", *TARGET, "--upstream-uri"),
    ("doctor", *TARGET, "--upstream-uri"),
    ("changes", "--upstream-uri"),
    ("inspect", "--upstream-uri"),
    ("init", "--downstream-uri", "mysql://u@127.0.0.1:1/", "--upstream-uri"),
    ("serve", "--meta-uri", "sqlite:///x", "--destinations", "/nowhere", "--upstream-uri"),
    ("serve", "--destinations", "/nowhere", "--meta-uri"),
    ("status", "--downstream-uri"),
)
"""Commands, each up to a flag that takes a URI."""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What one test's program was told to hide is nothing to the next one."""
    yield
    telemetry.forget_secrets()


def arguments(how: str, uri: str, tmp_path: Path) -> list[str]:
    """The command that gives `uri` as both URIs, by flags, flags with =, in ``[consumer]``, or as a changefeed tells it."""
    if how == "flags":
        return ["--upstream-uri", uri, "--downstream-uri", uri]
    if how == "joined":
        return [f"--upstream-uri={uri}", f"--downstream-uri={uri}"]
    file = tmp_path / "changefeed.toml"
    text = uri.replace("\\", "\\\\").replace('"', '\\"')
    consumer = f'[consumer]\nupstream-uri = "{text}"\ndownstream-uri = "{text}"\n'
    top = f'sink-uri = "{text}"\n[sink]\nprotocol = "csv"\n'
    file.write_text(consumer if how == "consumer" else top, encoding="utf-8")
    return ["--config", str(file)]


@pytest.mark.parametrize("verb", ["run", "inspect", "ddl", "history"])
@pytest.mark.parametrize("how", ["flags", "joined", "consumer", "changefeed"])
def test_bad_uris(how: str, verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A URI that is refused is shown without its secrets, whatever is wrong with it and wherever it stands (S2)."""
    planted, refused = Planted(), 0
    for uri in URIS:
        secret = planted.secret(uri)
        given = arguments(how, uri.format(secret=encoded(secret), raw=secret), tmp_path)
        half = {"flags": 2, "joined": 1}.get(how, 0)
        if half and verb != "run":
            given = given[:half] if verb == "inspect" else given[half:]
        refused += main.main([verb, *given]) == 2
    said = "".join(capfd.readouterr())
    assert planted.found(said) == set()
    assert said.count("storage-consumer: ") == refused == len(URIS)


def test_other_wrong_settings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A secret under a wrong name, of a wrong type or in a broken file is not shown with the error (S3)."""
    planted = Planted()
    files = {
        "toml": '[consumer]\ndownstream-uri = "mysql://u:{secret}@h:1/',
        "key": '[consumer]\ndownstream-password = "{secret}"\n',
        "number": '[consumer]\nupstream-uri = ["s3://b/p?access-key={secret}"]\n',
        "kafka": '[sink.kafka-config]\nsasl-password = "{secret}"\nsasl-mechanism = "plain"\nkey = "{secret}"\n',
        "misspelt": '[consumer]\ndownstream_uri = "mysql://u:{secret}@h:1/"\nspark-master = "{secret}"\n',
    }
    commands = []
    for name, text in files.items():
        file = tmp_path / name
        file.write_text(text.format(secret=planted.secret(name, joint="/+%")), encoding="utf-8")
        commands.append(["--config", str(file)])
    (tmp_path / "credentials").write_text(
        f'{{"private_key": "{planted.secret("credentials", joint="-")}"', encoding="utf-8"
    )
    good = ["--upstream-uri", "file:///nowhere", "--downstream-uri", "mysql://u@h:1/"]
    commands += [
        ["--upstream-uri", f"gcs://b?credentials-file={tmp_path / 'credentials'}", *good[2:]],
        [*good, "--downstream-password", planted.secret("flag")],
        [*good, f"--downstream-password={planted.secret('flag with =')}"],
        [*good, f"--downstream-pasword={planted.secret('misspelt flag')}"],
        [*good[:2], "--downstream-url", f"mysql://u:{planted.secret('misspelt URI')}@h:1/"],
        [*good, "--log-level", f"mysql://u:{planted.secret('swapped')}@h:1/"],
        [*good, f"--log-level=mysql://u:{planted.secret('swapped, with =')}@h:1/"],
        [*good[:2], f"--downstream-url=mysql://u:{planted.secret('misspelt URI with =')}@h:1/"],
        [f"mysql://u:{planted.secret('verb')}@h:1/"],
        [*good, "--ssl-ca", f"mysql://u:{planted.secret('file')}@h:1/"],
        [*good, "--config", f"mysql://u:{planted.secret('config')}@h:1/"],
    ]
    assert {main.main(["run", *command] if command[0].startswith("-") else command) for command in commands} == {2}
    assert planted.found("".join(capfd.readouterr())) == set()


@pytest.mark.parametrize("command", TAKING, ids=lambda command: f"{command[0]} {command[-1]}")
def test_signed_links(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A link that a store has signed is no place of a bucket, and its signature is not shown, whichever command is given it."""
    monkeypatch.chdir(tmp_path)
    planted = Planted()
    for uri in SIGNED:
        assert main.main([*command, uri.format(secret=encoded(planted.secret(uri)))]) == 2, uri
    assert planted.found("".join(capfd.readouterr())) == set()


def test_signed_links_of_others() -> None:
    """What a driver's error quotes of a link is hidden, whoever signed it."""
    planted = Planted()
    for uri in SIGNED[:4]:
        text = f"Cannot connect to '{uri.format(secret=encoded(planted.secret(uri)))}': timeout"
        assert planted.found(telemetry.redact(text)) == set()
        assert telemetry.redact(text).endswith("': timeout")
