"""Secrets on their way to workers: a file of one's own, and the environment where there is none."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from storage_consumer.config.secrets_file import (
    PASSWORD_VARIABLE,
    names_of,
    remove_secrets,
    secrets_from,
    write_secrets,
)
from storage_consumer.config.settings import Secrets
from storage_consumer.errors import ConfigError

SECRETS = Secrets(password="p'ä\n\"", access_key="a", secret_access_key="s", session_token="t")  # noqa: S106 - made up


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_file_round_trip() -> None:
    """What is written is read again, by its owner only, until it is removed."""
    path = write_secrets(SECRETS)
    assert secrets_from(path, {}) == SECRETS
    assert Path(path).stat().st_mode & 0o777 == 0o600
    remove_secrets(path)
    remove_secrets(path)
    assert not Path(path).exists()


@pytest.mark.parametrize("path", ["", "/no/such/file"])
def test_without_a_file(path: str) -> None:
    """On a machine without the file the password comes from the environment."""
    assert secrets_from(path, {PASSWORD_VARIABLE: "x"}) == Secrets(password="x")  # noqa: S106 - made up
    assert secrets_from(path, {}) == Secrets()


def test_environment_of_an_executor(tmp_path: Path) -> None:
    """There the password may be in a file as well, and the bucket's keys in its URI; the names of what is set are no secrets."""
    (file := tmp_path / "password").write_text("x\n", encoding="utf-8")
    environ = {
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": str(file),
        "STORAGE_CONSUMER_UPSTREAM_URI": "s3://bucket/prefix?access-key=a&secret-access-key=s",
    }
    found = secrets_from("", environ)
    assert found == Secrets(password="x", access_key="a", secret_access_key="s")  # noqa: S106 - made up
    assert names_of(found) == ("password", "access_key", "secret_access_key")
    assert secrets_from("", environ | {PASSWORD_VARIABLE: "y"}).password == "y"  # noqa: S105 - made up
    with pytest.raises(ConfigError, match="cannot be read"):
        secrets_from("", {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": str(tmp_path / "none")})


def test_what_killed_processes_left(folder: Path) -> None:
    """The files of processes that are gone are removed; those of living ones, of other machines and of others stay."""
    script = (
        "from storage_consumer.config.secrets_file import write_secrets; "
        "from storage_consumer.config.settings import Secrets; import os; "
        f"import tempfile; tempfile.tempdir = {str(folder)!r}; print(write_secrets(Secrets()), flush=True); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.exists()
    living = Path(write_secrets(SECRETS))
    assert not left.exists()
    elsewhere = left.with_name(living.name.replace("consumer-", "consumer-1", 1))
    strange = left.with_name("storage-consumer-notes")
    for kept in (elsewhere, strange):
        kept.touch()
    write_secrets(SECRETS)
    assert living.exists()
    assert elsewhere.exists()
    assert strange.exists()
