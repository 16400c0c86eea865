"""What is particular to S3: errors, how many calls a listing takes, downloads."""

from __future__ import annotations

import os
import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from storage_consumer.bucket.stores import open_storage
from storage_consumer.bucket.stores.s3 import S3Storage
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from tests.contract.rigs import S3Rig, listed
from tests.harness.certificates import Authority
from tests.harness.faulty_proxy import FaultyProxy

V1, V2 = 449000000000000001, 449000000000000002


@pytest.mark.server
@pytest.mark.parametrize("change", [{"access_key": "AKIAWRONGWRONG"}, {"secret_access_key": "very-wrong-secret"}])
def test_wrong_keys(bucket: S3Rig, change: dict[str, str]) -> None:
    """Keys that the server refuses are a ConfigError that says so without showing them."""
    keys = {"access_key": bucket.secrets.access_key, "secret_access_key": bucket.secrets.secret_access_key} | change
    storage = open_storage(bucket.upstream, Secrets(**keys))
    for call in (storage.check, lambda: storage.read("metadata"), lambda: listed(storage)):
        with pytest.raises(ConfigError, match="refused") as raised:
            call()
        assert not any(value in str(raised.value) for value in keys.values())


@pytest.mark.server
def test_no_keys(bucket: S3Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys anywhere the storage is not asked anonymously: a ConfigError says where keys are looked for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        open_storage(bucket.upstream, Secrets()).check()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.secrets.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.secrets.secret_access_key)
    open_storage(bucket.upstream, Secrets()).check()


@pytest.mark.server
def test_one_request_for_an_object(bucket: S3Rig) -> None:
    """An object is read with one request for its whole content, in blocks as well (P18)."""
    bucket.put("a", b"x" * 1_000_000)
    for blocks in (1 << 30, 10_000):
        before = bucket.storage.requests
        assert sum(map(len, bucket.storage.blocks("a", blocks))) == 1_000_000
        assert bucket.storage.requests - before == 1


@pytest.mark.server
def test_download_that_breaks_off_goes_on(bucket: S3Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a download that broke off the rest is given, and it fails if the object was replaced meanwhile."""
    content = os.urandom(100_000)
    bucket.put("a", content)
    wait_for = bucket.storage._wait_for
    reads, cuts = 0, {4, 6}

    def breaking(function: Any, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads in cuts:
            raise ConnectionResetError("cut")
        return wait_for(function, *arguments)

    monkeypatch.setattr(bucket.storage, "_wait_for", breaking)
    assert b"".join(bucket.storage.blocks("a", 10_000)) == content
    blocks = bucket.storage.blocks("a", 10_000)
    first = next(blocks)
    bucket.put("a", os.urandom(100_000))
    # Counted anew: in how many pieces the first download came is up to the network.
    reads, cuts = 0, {1}
    with pytest.raises(StorageUnavailable, match="replaced"):
        b"".join(blocks)
    assert first == content[:10_000]


@pytest.mark.server
def test_expired_credentials_are_looked_up_once_more(bucket: S3Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store calls a token expired, it is looked for anew where AWS's tools look; one that is still refused is final."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONGWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "old")
    bucket.put("a", b"abc")
    with FaultyProxy(bucket.server.endpoint) as proxy:
        storage = S3Storage(replace(bucket.upstream, endpoint=proxy.endpoint), Secrets())
        with pytest.raises(ConfigError, match="InvalidAccessKeyId"):
            storage.check()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.secrets.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.secrets.secret_access_key)
        proxy.spoil("expired", faults=1)
        assert storage.read("a") == b"abc"
        proxy.spoil("expired")
        with pytest.raises(ConfigError, match=r"ExpiredToken\): .*renew") as raised:
            storage.check()
        assert type(raised.value) is ConfigError


@pytest.mark.server
def test_clocks_too_far_apart(bucket: S3Rig) -> None:
    """Where the store finds the time of a request wrong, the error says whose clock to look at; it is no matter of keys."""
    with FaultyProxy(bucket.server.endpoint) as proxy:
        storage = S3Storage(replace(bucket.upstream, endpoint=proxy.endpoint), bucket.secrets)
        proxy.spoil("skewed")
        with pytest.raises(StorageUnavailable, match=r"RequestTimeTooSkewed.* clock of this machine"):
            storage.check()


@pytest.mark.server
@pytest.mark.parametrize(
    ("host", "ca", "told"),
    [
        ("127.0.0.1", "authority", ""),
        ("127.0.0.1", "", "unable to get local issuer certificate"),
        ("127.0.0.1", "another", "unable to get local issuer certificate"),
        ("store.test", "authority", "IP address mismatch"),
    ],
    ids=["trusted", "no CA", "another CA", "another host"],
)
def test_certificates(
    bucket: S3Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, ca: str, told: str
) -> None:
    """A store is asked whose certificate a CA signed that the machine trusts or that AWS_CA_BUNDLE names; the error for others says so."""
    authorities = {name: Authority(tmp_path, name) for name in ("authority", "another")}
    signed = authorities["authority"].sign("store", host=host)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(signed.certificate, signed.key)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    if ca:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities[ca].file))
    bucket.put("a", b"abc")
    with FaultyProxy(bucket.server.endpoint, tls=tls) as proxy:
        storage = S3Storage(replace(bucket.upstream, endpoint=proxy.endpoint), bucket.secrets)
        if not told:
            storage.check()
            assert storage.read("a") == b"abc"
            return
        with pytest.raises(ConfigError, match=rf"{proxy.endpoint} .*{told}.* AWS_CA_BUNDLE") as raised:
            storage.check()
        assert bucket.secrets.access_key not in str(raised.value)


@pytest.mark.server
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_authority_that_is_no_file(
    bucket: S3Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    """AWS_CA_BUNDLE that names no file, or one without certificates, is a ConfigError that says so."""
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    storage = S3Storage(replace(bucket.upstream, endpoint="https://127.0.0.1:9"), bucket.secrets)
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE"):
        storage.check()


@pytest.mark.parametrize(
    ("scheme", "told"), [("http", "has no bucket.*check the endpoint"), ("https", "does not speak TLS.*http://127")]
)
def test_endpoint_that_is_no_store(scheme: str, told: str) -> None:
    """Where something else answers, or without TLS, the start ends with what to look at instead of trying again."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoStore) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"{scheme}://127.0.0.1:{server.server_port}"
        where = {"endpoint": endpoint, "region": "us-east-1", "force_path_style": True}
        upstream = Upstream(scheme="s3", root="bucket/p", protocol="csv", **where)  # type: ignore[arg-type] # as they are
        with pytest.raises(ConfigError, match=told):
            S3Storage(upstream, Secrets(access_key="a", secret_access_key="b")).check()  # noqa: S106 - nobody checks it
        server.shutdown()


class _NoStore(BaseHTTPRequestHandler):
    """A web server that has nothing."""

    def do_GET(self) -> None:
        """Nothing is there."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


class _Ranges(BaseHTTPRequestHandler):
    """A store of one object, of which it gives the range that is asked for."""

    content = b""
    heeds = True
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """The object, or the range of it."""
        asked = self.headers.get("Range", "") if self.heeds else ""
        self.asked.append(asked)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, size = int(first or 0), len(self.content)
        if start >= size:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            answer = b"<Error><Code>InvalidRange</Code></Error>"
        else:
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            answer = self.content[start : int(last) + 1 if last else size]
            self.send_header("ETag", f'"{zlib.crc32(self.content)}"')
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{start + len(answer) - 1}/{size}")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Storage]:
    """A bucket on such a store."""
    monkeypatch.setattr(_Ranges, "content", os.urandom(3_000_000))
    monkeypatch.setattr(_Ranges, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        upstream = Upstream(
            scheme="s3",
            root="b/p",
            protocol="csv",
            endpoint=f"http://127.0.0.1:{server.server_port}",
            region="r",
            force_path_style=True,
        )
        yield S3Storage(upstream, Secrets(access_key="k", secret_access_key="s"))  # noqa: S106 - made up
        server.shutdown()


@pytest.mark.parametrize("start", [0, 1, 1000, 1_500_000, 2_999_999])
def test_parts_of_an_object(ranges: S3Storage, start: int) -> None:
    """A part is one request for the bytes from where it begins; that ranges are heeded is seen once."""
    tag = str(zlib.crc32(_Ranges.content))
    for size in (1 << 20, 100_000):
        assert b"".join(ranges.blocks("a", size, start, tag)) == _Ranges.content[start:]
    probe = ["", "bytes=1-1023"] if start else []
    assert _Ranges.asked == [*probe, *[f"bytes={start}-" if start else ""] * 2]


@pytest.mark.parametrize(("size", "heeds"), [(500, True), (500, False), (3_000_000, False)])
def test_parts_where_ranges_cannot_be_relied_on(
    ranges: S3Storage, monkeypatch: pytest.MonkeyPatch, size: int, *, heeds: bool
) -> None:
    """A part of an object that is too short to show that ranges are heeded, or of a store that does not, is cut from the whole."""
    monkeypatch.setattr(_Ranges, "content", os.urandom(size))
    monkeypatch.setattr(_Ranges, "heeds", heeds)
    for start in (1, 484, size - 1):
        assert b"".join(ranges.blocks("a", 16, start)) == _Ranges.content[start:]


def test_part_of_a_replaced_object(ranges: S3Storage) -> None:
    """A part of another object than was listed is none, be it shorter than where the part begins."""
    for start, tag in ((1000, "other"), (0, "other"), (3_000_000, str(zlib.crc32(_Ranges.content)))):
        with pytest.raises(FileNotFoundError, match="not what was listed"):
            list(ranges.blocks("a", 100_000, start, tag))


def test_part_whose_download_breaks_off(ranges: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download from within an object that breaks off goes on where it was."""
    content, reads, wait_for = _Ranges.content, 0, ranges._wait_for
    tag = str(zlib.crc32(content))
    assert b"".join(ranges.blocks("a", 100_000, 1000, tag)) == content[1000:]

    def breaking(function: Any, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads in {4, 6}:
            raise ConnectionResetError("cut")
        return wait_for(function, *arguments)

    monkeypatch.setattr(ranges, "_wait_for", breaking)
    assert b"".join(ranges.blocks("a", 100_000, 1000, tag)) == content[1000:]
    assert reads > 6


@pytest.mark.server
def test_an_export_without_the_right_to_write(bucket: S3Rig) -> None:
    """Keys that may only read are told what they lack."""
    with pytest.raises(ConfigError, match="right to create objects"):
        S3Storage(bucket.upstream, bucket.secrets).put("metadata", b"x")
