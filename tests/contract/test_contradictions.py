"""A store in S3's language whose answers contradict one another: an error that is tried again, never a listing that lacks something."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Literal
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest

from storage_consumer.bucket.stores import open_storage
from storage_consumer.bucket.stores.azure import AzureStorage
from storage_consumer.bucket.stores.s3 import S3Storage
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from tests.contract.rigs import listed

NAMES = [f"s/t/CDC{number:06d}.csv" for number in range(1, 10)]
Answer = tuple[int, bytes]


def page(names: list[str], token: str = "", *, truncated: bool = False) -> Answer:
    """A page with these names; `token` continues it."""
    entries = "".join(f"<Contents><Key>p/{escape(n)}</Key><Size>1</Size><ETag>x</ETag></Contents>" for n in names)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    said = f"<IsTruncated>{str(bool(token) or truncated).lower()}</IsTruncated>"
    return 200, f"<ListBucketResult><Name>b</Name>{said}{more}{entries}</ListBucketResult>".encode()


class _Store(BaseHTTPRequestHandler):
    """Answers listings by a script: token → answer."""

    pages: ClassVar[dict[str, Answer]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """One page."""
        (token,) = parse_qs(urlsplit(self.path).query).get("continuation-token", [""])
        self.asked.append(token)
        status, content = self.pages[token]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., S3Storage]]:
    """Makes a bucket on a server that answers by a script."""
    monkeypatch.setattr(_Store, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def opened(**pages: Answer) -> S3Storage:
            monkeypatch.setattr(_Store, "pages", {name.removeprefix("first"): found for name, found in pages.items()})
            endpoint = f"http://127.0.0.1:{server.server_port}"
            upstream = Upstream(
                scheme="s3", root="b/p", protocol="csv", endpoint=endpoint, region="r", force_path_style=True
            )
            return S3Storage(upstream, Secrets(access_key="k", secret_access_key="s"))  # noqa: S106 - made up

        yield opened
        server.shutdown()


def test_pages_that_agree(store: Callable[..., S3Storage]) -> None:
    """Pages that follow on one another, also empty ones in between, are a listing."""
    storage = store(first=page(NAMES[:3], "a"), a=page([], "b"), b=page(NAMES[3:], ""))
    assert sorted(listed(storage)) == NAMES


@pytest.mark.parametrize(
    "pages",
    [
        {"first": page(NAMES[:3], "a"), "a": page(NAMES[3:6], "a")},
        {"first": page(NAMES[:3], "a"), "a": page(NAMES[3:6], "b"), "b": page(NAMES[3:6], "a")},
        {"first": page(NAMES[:3], "a"), "a": page([], "b"), "b": page([], "a")},
        {"first": page(NAMES[:3], "a"), "a": page(NAMES[2:], "")},
        {"first": page(NAMES[3:], "a"), "a": page(NAMES[:3], "")},
        {"first": page([NAMES[1], NAMES[0], *NAMES[2:]])},
        {"first": page(NAMES[:3], truncated=True)},
        {"first": page(NAMES[:3], "a"), "a": (200, b"<html><body>Sign in</body></html>")},
        {"first": page(NAMES[:3], "a"), "a": (200, b"")},
        {"first": page(NAMES[:3], "a"), "a": (200, b"<Error><Code>SlowDown</Code><Message>m</Message></Error>")},
        {"first": page(NAMES[:3], "a"), "a": (503, b"<Error><Code>SlowDown</Code><Message>m</Message></Error>")},
        {"first": page(NAMES[:3], "a"), "a": (200, page(NAMES[3:])[1][:-40])},
    ],
    ids=[
        *("a token that continues itself", "tokens in a circle", "empty pages in a circle", "a page that goes back"),
        *("pages in the wrong order", "names in the wrong order", "no token", "another page", "an empty answer"),
        *("an error that says 200", "an error", "half a page"),
    ],
)
def test_pages_that_contradict(pages: dict[str, Answer], store: Callable[..., S3Storage]) -> None:
    """What is no listing, or goes back, or has no end, is none: rows of files that it lacks would be taken for repeated ones later."""
    with pytest.raises(StorageUnavailable, match="s3://b/p"):
        listed(store(**pages))
    assert len(_Store.asked) < 20


def test_another_region(store: Callable[..., S3Storage]) -> None:
    """A bucket that has moved is named with what to look at."""
    content = b"<Error><Code>PermanentRedirect</Code><Message>m</Message><Endpoint>elsewhere</Endpoint></Error>"
    with pytest.raises(ConfigError, match="the endpoint and the region"):
        listed(store(first=page(NAMES[:3], "a"), a=(301, content)))


class _Page(BaseHTTPRequestHandler):
    """Answers everything with a page for people."""

    def do_GET(self) -> None:
        """The page."""
        content = b"<html><body>Please sign in</body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("scheme", ["s3", "gcs", "azure"])
def test_a_page_for_people(scheme: Literal["s3", "gcs", "azure"], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proxy puts in place of an answer is no listing and no content of an object: it is asked for again, and nobody's settings are wrong."""
    monkeypatch.setattr(AzureStorage, "pauses", ())
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        upstream = Upstream(
            scheme=scheme,
            root="b/p",
            protocol="csv",
            endpoint=f"http://127.0.0.1:{server.server_port}",
            region="r",
            account_name="a",
            force_path_style=True,
        )
        storage = open_storage(upstream, Secrets(access_key="k", secret_access_key="s", account_key="a2V5"))  # noqa: S106 - made up
        for asked in (lambda: listed(storage), lambda: storage.read("metadata"), lambda: [*storage.blocks("f", 9)]):
            with pytest.raises(StorageUnavailable, match=f"{scheme}://b/p/.* is no"):
                asked()
        server.shutdown()
