"""A private S3 server, Ceph's object gateway on a file of its own, with a user who may write and one who may only read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import botocore.session

from tests.harness.servers import Child, Jail, ServerDidNotStart, free_port, run

ADMIN_SECONDS = 20
READ_ONLY = ("s3:GetObject", "s3:ListBucket")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3User:
    """Who asks."""

    access_key: str
    secret_access_key: str


WRITER = S3User(access_key="WRITER", secret_access_key="secret/of+the writer")  # noqa: S106 - of a server that lives seconds
READER = S3User(access_key="READER", secret_access_key="secret/of+the reader")  # noqa: S106 - of a server that lives seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running S3 server. Signatures are checked, and what each user may do."""

    endpoint: str
    child: Child = field(compare=False)
    """Its process."""
    writer: S3User = WRITER
    """Owns all buckets."""
    reader: S3User = READER
    """May list and get, nothing else."""

    def client(self, user: S3User) -> Any:
        """A botocore client of one user."""
        return botocore.session.Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=user.access_key,
            aws_secret_access_key=user.secret_access_key,
        )

    def upload(self, folder: Path, bucket: str, prefix: str = "") -> int:
        """Put all files of `folder` into `bucket`, which is made if it is missing; the number of files."""
        client = self.client(self.writer)
        if bucket not in {entry["Name"] for entry in client.list_buckets().get("Buckets", ())}:
            client.create_bucket(Bucket=bucket)
            client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(_policy(bucket)))
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


def _policy(bucket: str) -> dict[str, Any]:
    """The owner lets the reader in, to read."""
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    who = {"AWS": ["arn:aws:iam:::user/reader"]}
    statement = {"Effect": "Allow", "Principal": who, "Action": list(READ_ONLY), "Resource": resources}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _settings(inside: str, port: int) -> str:
    """The gateway on an SQLite file instead of a cluster."""
    return f"""[global]
mon host = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
[client.rgw]
rgw backend store = dbstore
rgw config store = dbstore
dbstore db dir = {inside}
dbstore db name prefix = data
dbstore config uri = file://{inside}/config.db
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {inside}
log file = {inside}/log
run dir = {inside}
admin socket =
"""


def _add_user(command: list[str], name: str, user: S3User) -> None:
    """Add a user. The program may hang after its work is done, when it has printed the user; then it is ended."""
    keys = ["--access-key", user.access_key, "--secret-key", user.secret_access_key]
    try:
        run([*command, "user", "create", "--uid", name, "--display-name", name, *keys], seconds=ADMIN_SECONDS)
    except ServerDidNotStart as error:
        if f'"access_key": "{user.access_key}"' not in str(error):
            raise


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with both users and no bucket."""
    jail, port = Jail(), free_port()
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        home, log = Path(folder) / "home", Path(folder) / "log"
        home.mkdir()
        with jail.home(home, port) as inside:
            (home / "ceph.conf").write_text(_settings(inside, port), encoding="utf-8")
            jail.copy(home / "ceph.conf", inside)
            options = ["-c", f"{inside}/ceph.conf", "-n", "client.rgw", "--no-mon-config"]
            admin = [*jail.command, "radosgw-admin", *options]
            # Before the server starts: two processes that open the data file together may wait for each other.
            _add_user(admin, "writer", WRITER)
            _add_user(admin, "reader", READER)
            command = [*jail.command, "radosgw", *options, "-d"]
            with closing(Child(command=command, log=log, port=port)) as child:
                child.start()
                yield S3Server(endpoint=f"http://127.0.0.1:{port}", child=child)
