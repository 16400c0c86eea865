"""Secrets on their way to workers: a file of one's own, and the environment where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_consumer.config.private_files import (
    PASSWORD_VARIABLE,
    held_secrets,
    remove_secrets,
    secrets_from,
    write_secrets,
)
from storage_consumer.config.settings import Secrets
from storage_consumer.errors import ConfigError
from tests.harness.intruder import as_nobody

SECRETS = Secrets(password="p'ä\n\"", access_key="a", secret_access_key="s", session_token="t")  # noqa: S106 - made up


def test_round_trip() -> None:
    """What is written is read again, here and in a child, until it is removed; it is in no folder and can't be changed."""
    place = write_secrets(SECRETS)
    assert secrets_from(place, {}) == SECRETS
    path = Path(place.partition("#")[0])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_nlink == 0
    with pytest.raises(OSError, match="not permitted"):
        path.write_bytes(b"{}")
    code = f"from storage_consumer.config.private_files import secrets_from; print(secrets_from({place!r}, {{}}) is not None)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
    remove_secrets(place)
    remove_secrets(place)
    assert held_secrets(place) is None


def test_nothing_is_left_of_it() -> None:
    """However the process ends, it takes the file with it."""
    code = (
        "from storage_consumer.config.private_files import write_secrets; "
        "from storage_consumer.config.settings import Secrets; import os; print(write_secrets(Secrets()), flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    place = done.stdout.strip()
    assert place.startswith("/proc/")
    assert held_secrets(place) is None


def test_another_file_of_that_number() -> None:
    """On another machine the same path may lead to anything: what has not the very name is neither read nor closed."""
    first, second = write_secrets(SECRETS), write_secrets(Secrets())
    stranger = first.partition("#")[0] + "#" + second.partition("#")[2]
    assert held_secrets(stranger) is None
    remove_secrets(stranger)
    assert held_secrets(first) == SECRETS
    for place in (first, second):
        remove_secrets(place)


@pytest.mark.root
def test_no_other_user_reads_it() -> None:
    """Another user of the machine gets no secrets, and no error that would end a task of theirs."""
    place = write_secrets(SECRETS)
    assert as_nobody(lambda: held_secrets(place) is None)
    remove_secrets(place)


@pytest.mark.root
def test_where_there_is_no_such_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without files in memory it lies in the driver's own folder, and only this user can read it."""
    monkeypatch.delattr(os, "memfd_create")
    place = write_secrets(SECRETS)
    assert Path(place).stat().st_mode & 0o777 == 0o600
    assert Path(place).parent.stat().st_mode & 0o777 == 0o700
    assert secrets_from(place, {}) == SECRETS
    assert as_nobody(lambda: held_secrets(place) is None)
    remove_secrets(place)
    remove_secrets(place)
    assert held_secrets(place) is None


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
    assert found.names == ("password", "access_key", "secret_access_key")
    assert secrets_from("", environ | {PASSWORD_VARIABLE: "y"}).password == "y"  # noqa: S105 - made up
    with pytest.raises(ConfigError, match="cannot be read"):
        secrets_from("", {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": str(tmp_path / "none")})
