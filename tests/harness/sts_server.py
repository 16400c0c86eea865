"""A private server of S3 and STS, moto's, which checks who asks and what that one may do."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import botocore.session

from tests.harness.servers import Child, free_port

ROLE = "arn:aws:iam::123456789012:role/reader"
BUCKET = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StsServer:
    """A running server with a bucket that only the role may read, and a user who may only assume the role."""

    endpoint: str
    access_key: str
    secret_access_key: str


def _client(service: str, endpoint: str) -> Any:
    return botocore.session.Session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="first",
        aws_secret_access_key="first",  # noqa: S106 - of a server that lives seconds
    )


def _allowing(*actions: str) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]})


@contextmanager
def sts_server() -> Iterator[StsServer]:
    """The server, and from then on every request is judged."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="sts-") as folder:
        command = [sys.executable, "-m", "moto.server", "-p", str(port)]
        with closing(Child(command=command, log=Path(folder) / "log", port=port)) as child:
            child.start()
            s3, iam = _client("s3", endpoint), _client("iam", endpoint)
            s3.create_bucket(Bucket=BUCKET)
            s3.put_object(Bucket=BUCKET, Key="pre/metadata", Body=b"{}")
            iam.create_role(RoleName="reader", AssumeRolePolicyDocument=_allowing("sts:AssumeRole"))
            iam.put_role_policy(
                RoleName="reader", PolicyName="read", PolicyDocument=_allowing("s3:ListBucket", "s3:GetObject")
            )
            iam.create_user(UserName="asking")
            iam.put_user_policy(UserName="asking", PolicyName="assume", PolicyDocument=_allowing("sts:AssumeRole"))
            keys = iam.create_access_key(UserName="asking")["AccessKey"]
            # From here on every request is judged.
            switch = Request(f"{endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"})  # noqa: S310 - our own server
            with urlopen(switch, timeout=10):  # noqa: S310 - likewise
                pass
            yield StsServer(
                endpoint=endpoint, access_key=keys["AccessKeyId"], secret_access_key=keys["SecretAccessKey"]
            )
