"""What executors get and what they must have, without Spark."""

from __future__ import annotations

import io
import socket
import zipfile
from pathlib import Path

import pytest

import storage_consumer
from storage_consumer.config.private_files import remove_secrets, write_secrets
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable, TargetBusy
from storage_consumer.spark.executors import at_executor, meaning_of, opened, zipped

NOWHERE = "/no/such/file"


def test_package_as_zip() -> None:
    """The zip holds every module of the package, and is the same for the same modules, so that it is shipped once."""
    home = Path(storage_consumer.__file__).parent
    content = zipped(home)
    assert content == zipped(home)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
    assert names == {path.relative_to(home.parent).as_posix() for path in home.rglob("*.py")}


def failing(path: str, told: tuple[str, ...]) -> None:
    """A task of an executor, in which something goes wrong."""
    with at_executor(path, told) as secrets:
        raise TargetBusy(f"locked, {secrets.password}")


def test_secrets_of_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on another machine says on which, and which of the driver's secrets its environment lacks."""
    monkeypatch.setenv("STORAGE_CONSUMER_DOWNSTREAM_PASSWORD", "x")
    with pytest.raises(TargetBusy) as caught:
        failing(NOWHERE, ("password", "secret_access_key"))
    said = str(caught.value)
    assert said.startswith(f"locked, x (executor on {socket.gethostname()}; ")
    assert "lacks AWS_SECRET_ACCESS_KEY" in said
    assert "PASSWORD" not in said


def test_missing_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver has a password and the executor none, nothing is tried without one."""
    monkeypatch.delenv("STORAGE_CONSUMER_DOWNSTREAM_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="lacks STORAGE_CONSUMER_DOWNSTREAM_PASSWORD"):
        failing(NOWHERE, ("password",))
    with at_executor(NOWHERE, ()) as secrets:
        assert secrets == Secrets()


def test_errors_on_the_drivers_machine() -> None:
    """Where the driver's file of secrets is, an error stays as it is."""
    path = write_secrets(Secrets(password="x"))  # noqa: S106 - made up
    with pytest.raises(TargetBusy, match=r"^locked, x$"):
        failing(path, ("password",))
    remove_secrets(path)


def test_folder_that_is_not_mounted(tmp_path: Path) -> None:
    """A bucket that is a folder has to be on each machine; files of one that is not there have not vanished."""
    with pytest.raises(StorageUnavailable, match="mounted at the same place on all executors"):
        opened(Upstream(scheme="file", root=str(tmp_path / "none"), protocol="csv"), Secrets())
    opened(Upstream(scheme="file", root=str(tmp_path), protocol="csv"), Secrets()).check()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  File x\nModuleNotFoundError: No module named 'msgspec'\n", "executors lack the Python module msgspec. "),
        (
            "Error while finding module specification for 'pyspark.daemon' (ModuleNotFoundError: No module named 'pyspark')",
            "executors lack the Python module pyspark. ",
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory',
            "executors have no program ./environment/bin/python. ",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run",
            "executors run Python 3.9, the driver runs 3.11. ",
        ),
    ],
)
def test_what_executors_lack(text: str, said: str) -> None:
    """A Python that is missing, another one, or one without the packages is told as such, with the remedy."""
    found = meaning_of(RuntimeError(text))
    assert isinstance(found, ConfigError)
    assert str(found).startswith(said)
    assert "PYSPARK_PYTHON" in str(found)


def test_other_failures() -> None:
    """Any other failure is not taken for that."""
    assert "PYSPARK_PYTHON" not in str(meaning_of(RuntimeError("ValueError: no module")))
