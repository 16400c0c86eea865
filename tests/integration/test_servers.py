"""The servers that other tests stand on are what they claim to be."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from tests.harness import servers
from tests.harness.s3_server import S3Server, S3User

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.mark.parametrize("kind", [*servers.KINDS, servers.NEWER_MARIADB])
def test_a_server_is_what_it_is_called(kind: str, request: pytest.FixtureRequest) -> None:
    """It is of its kind, empty, with LOAD DATA LOCAL on, and answers on its socket too."""
    server: servers.DatabaseServer = request.getfixturevalue(kind)
    said = [name for name in ("MariaDB", "TiDB") if name in server.version]
    assert said == {"mariadb": ["MariaDB"], "mysql": [], "tidb": ["TiDB"]}[server.kind]
    assert kind != servers.NEWER_MARIADB or int(server.version.partition(".")[0]) >= 11
    assert kind != "mysql" or int(server.version.partition(".")[0]) >= 9
    assert server.query("SELECT @@local_infile") == ((1,),)
    assert server.databases() == ()
    assert server.socket.is_socket()


@pytest.mark.parametrize("kind", servers.KINDS)
def test_a_server_can_learn_a_zone(kind: str, request: pytest.FixtureRequest) -> None:
    """After that, sessions may be in a zone by its name."""
    server: servers.DatabaseServer = request.getfixturevalue(kind)
    servers.learn_zone(server, "Asia/Shanghai")
    assert server.query(
        "SELECT CONVERT_TZ('2024-01-01 00:00:00', 'Asia/Shanghai', '+00:00') = '2023-12-31 16:00:00'"
    ) == ((1,),)


def test_local_infile_can_be_off(mariadb_without_infile: servers.DatabaseServer) -> None:
    """One MariaDB refuses LOAD DATA LOCAL."""
    assert mariadb_without_infile.query("SELECT @@local_infile") == ((0,),)


def test_a_server_ends_with_its_block() -> None:
    """After the block nothing listens on its port, and its data is gone."""
    with servers.mariadb() as server:
        assert server.query("SELECT 1") == ((1,),)
    assert not server.socket.parent.exists()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", server.port), 1):
        pass


def test_a_server_that_cannot_start_says_why() -> None:
    """The error holds the server's own words."""
    with (
        pytest.raises(servers.ServerDidNotStart, match="no-such-option"),
        servers.mariadb(options=["--no-such-option"]),
    ):
        pass


def test_s3_reads_for_the_reader(s3: S3Server, tmp_path: Path) -> None:
    """Who may only read can list and get what the writer put."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"content")
    assert s3.upload(tmp_path, "for-reading", "prefix") == 1
    client = s3.client(s3.reader)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket="for-reading")["Contents"]] == [
        "prefix/folder/file"
    ]
    assert client.get_object(Bucket="for-reading", Key="prefix/folder/file")["Body"].read() == b"content"


@pytest.mark.parametrize(
    ("request_name", "arguments"),
    [
        ("put_object", {"Key": "new", "Body": b""}),
        ("delete_object", {"Key": "file"}),
        ("copy_object", {"Key": "copy", "CopySource": "not-writable/file"}),
    ],
)
def test_s3_refuses_writes_of_the_reader(
    s3: S3Server, tmp_path: Path, request_name: str, arguments: dict[str, Any]
) -> None:
    """Who may only read can neither write, nor copy, nor delete."""
    (tmp_path / "file").write_bytes(b"content")
    s3.upload(tmp_path, "not-writable")
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        getattr(s3.client(s3.reader), request_name)(Bucket="not-writable", **arguments)


def test_s3_checks_signatures(s3: S3Server, tmp_path: Path) -> None:
    """A known name with a wrong key is refused."""
    s3.upload(tmp_path, "for-signatures")
    impostor = S3User(access_key=s3.reader.access_key, secret_access_key="wrong")  # noqa: S106 - wrong on purpose
    with pytest.raises(botocore.exceptions.ClientError, match="SignatureDoesNotMatch"):
        s3.client(impostor).list_objects_v2(Bucket="for-signatures")
