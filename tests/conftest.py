"""Fixtures that all tests share: private servers, started once and only when asked for, and emptied before each use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from storage_consumer.telemetry import forget_secrets
from tests.harness import servers
from tests.harness.azure_server import AzureServer, azure_server
from tests.harness.class_archive import use_class_archive
from tests.harness.gcs_server import GcsServer, gcs_server
from tests.harness.local_spark import local_spark
from tests.harness.s3_server import S3Server, s3_server
from tests.harness.tiers import ALL, IS_ROOT, NEWER_MARIADB, QUICK, can_run, holds

# How long an example takes says something about the machine, and about what it compiles for the first time.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--tier``: how much is run; ``--write-situations``: whether pages are written."""
    parser.addoption(
        "--tier",
        choices=(QUICK, ALL, NEWER_MARIADB),
        default=ALL,
        help="quick: a few minutes, without other servers than MariaDB; newer-mariadb: the contract tests, on a newer MariaDB",
    )
    parser.addoption(
        "--write-situations",
        action="store_true",
        help="write the blocks of docs/operations/situations anew rather than compare them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have the servers of a tier."""
    if config.getoption("--tier") == NEWER_MARIADB:
        os.environ[servers.MARIADB_IS_NEWER] = "1"


def pytest_report_header() -> str:
    """Say what is left out on behalf of who runs the tests."""
    return "" if IS_ROOT else "not root: the tests that act as another user of the machine are deselected"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier does not hold or this user may not do, and say how many tests that are."""
    kept = [item for item in items if can_run(item) and holds(config.getoption("--tier"), item)]
    if left_out := set(items) - set(kept):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have JVMs that start fast, where many do."""
    is_run = session.config.getoption("--tier") != QUICK and not session.config.option.collectonly
    if is_run and any(item.get_closest_marker("spark") for item in session.items):
        use_class_archive()


@pytest.fixture(autouse=True)
def _no_secrets() -> Iterator[None]:
    """Forget the secrets of a test: the next one may say a word that was a password there."""
    yield
    forget_secrets()


@pytest.fixture(scope="session")
def _mariadb() -> Iterator[servers.DatabaseServer]:
    with servers.mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def _mariadb_without_infile() -> Iterator[servers.DatabaseServer]:
    with servers.mariadb(local_infile=False) as server:
        yield server


@pytest.fixture(scope="session")
def _newer_mariadb() -> Iterator[servers.DatabaseServer]:
    with servers.mariadb(newer=True) as server:
        yield server


@pytest.fixture(scope="session")
def _mysql() -> Iterator[servers.DatabaseServer]:
    with servers.mysql() as server:
        yield server


@pytest.fixture(scope="session")
def _tidb() -> Iterator[servers.DatabaseServer]:
    with servers.tidb() as server:
        yield server


@pytest.fixture
def mariadb(_mariadb: servers.DatabaseServer) -> servers.DatabaseServer:
    """A MariaDB server without any database."""
    _mariadb.clear()
    return _mariadb


@pytest.fixture
def mariadb_without_infile(_mariadb_without_infile: servers.DatabaseServer) -> servers.DatabaseServer:
    """A MariaDB server that refuses LOAD DATA LOCAL, without any database."""
    _mariadb_without_infile.clear()
    return _mariadb_without_infile


@pytest.fixture
def newer_mariadb(_newer_mariadb: servers.DatabaseServer) -> servers.DatabaseServer:
    """A MariaDB server of a newer series, without any database."""
    _newer_mariadb.clear()
    return _newer_mariadb


@pytest.fixture
def mysql(_mysql: servers.DatabaseServer) -> servers.DatabaseServer:
    """A MySQL server without any database."""
    _mysql.clear()
    return _mysql


@pytest.fixture
def tidb(_tidb: servers.DatabaseServer) -> servers.DatabaseServer:
    """A TiDB server without any database; only for tests of `servers.KINDS`, which leave it out where there is none."""
    _tidb.clear()
    return _tidb


@pytest.fixture(params=servers.KINDS)
def server(request: pytest.FixtureRequest) -> servers.DatabaseServer:
    """Each kind of server in turn, without any database."""
    found: servers.DatabaseServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server that checks credentials; each test uses a bucket of its own name."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """An emulator of Google Cloud Storage; each test uses a bucket of its own name."""
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    """An emulator of Azure Blob Storage that checks keys and tokens; each test uses a container of its own name."""
    with azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests, since a process can have only one; each `Consumer` finds it active."""
    with local_spark() as session:
        yield session
