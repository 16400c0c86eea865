"""A private S3 server that checks signatures and permissions, with one user who may write and one who may only read."""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import botocore.session

from tests.servers import free_port, running, wait_for

READ_ONLY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}],
}
READ_AND_WRITE = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3User:
    """Who asks."""

    access_key: str
    secret_access_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running S3 server. Requests that are not signed by one of its two users are refused."""

    endpoint: str
    writer: S3User
    reader: S3User
    """May list and get, nothing else."""

    def client(self, user: S3User) -> Any:
        """A botocore client of one user."""
        return _client(self.endpoint, "s3", user)

    def upload(self, folder: Path, bucket: str, prefix: str = "") -> int:
        """Put all files of `folder` into `bucket`, which is made if it is missing; the number of files."""
        client = self.client(self.writer)
        if bucket not in {entry["Name"] for entry in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=bucket)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in files:
            key = f"{prefix}/{path.relative_to(folder).as_posix()}".lstrip("/")
            client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
        return len(files)

    def uri(self, bucket: str, prefix: str, user: S3User, **parameters: str) -> str:
        """What ``--upstream-uri`` takes, with the user's keys in it."""
        known = {"endpoint": self.endpoint, "access-key": user.access_key, "secret-access-key": user.secret_access_key}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in {**known, **parameters}.items())
        return f"s3://{bucket}/{prefix}?{query}"


def _client(endpoint: str, service: str, user: S3User) -> Any:
    return botocore.session.Session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=user.access_key,
        aws_secret_access_key=user.secret_access_key,
    )


def _new_user(endpoint: str, name: str, policy: dict[str, Any]) -> S3User:
    iam = _client(endpoint, "iam", S3User(access_key="setting-up", secret_access_key="unchecked"))  # noqa: S106 - before checks begin
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return S3User(access_key=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"])


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with both users; from the moment it is handed out, every request is checked."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        log = Path(folder) / "log"
        with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], log) as process:
            wait_for(process, port, log)
            writer = _new_user(endpoint, "writer", READ_AND_WRITE)
            reader = _new_user(endpoint, "reader", READ_ONLY)
            checks = f"{endpoint}/moto-api/reset-auth"
            start = urllib.request.Request(checks, data=b"0", headers={"Content-Type": "text/plain"}, method="POST")  # noqa: S310 - own server
            urllib.request.urlopen(start).close()  # noqa: S310 - own server
            yield S3Server(endpoint=endpoint, writer=writer, reader=reader)
