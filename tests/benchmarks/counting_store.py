"""An S3 server that holds a bucket of `StoredDays` and counts what it is asked; as a program it is the server itself.

It answers what a reader asks: pages of a listing, and objects. ``POST /days/N`` and ``POST /tick`` let the bucket grow and
its checkpoint move on; ``POST /counts`` tells the requests since the last time, by what they asked for.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.benchmarks.bucket import START_TS, metadata, schema_files
from tests.benchmarks.shapes import PLAIN
from tests.benchmarks.stored_days import StoredDays
from tests.harness.servers import free_port, running, wait_for

BUCKET = "bench"
_ROOT = Path(__file__).resolve().parents[2]
_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingStore:
    """A running server."""

    endpoint: str

    @property
    def uri(self) -> str:
        """What ``--upstream-uri`` takes."""
        return f"s3://{BUCKET}/feed?endpoint={self.endpoint}&access-key=K&secret-access-key=S&region=us-east-1&protocol=csv"

    def set_days(self, days: int) -> None:
        """Let the bucket hold so many days."""
        self._post(f"days/{days}")

    def tick(self) -> None:
        """Let the checkpoint move on."""
        self._post("tick")

    def counts(self) -> Counter[str]:
        """Requests since the last call: ``list`` and ``get``."""
        return Counter(json.loads(self._post("counts")))

    def _post(self, path: str) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/{path}", b"", method="POST")  # noqa: S310 - a server of ours
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - likewise
            content: bytes = answer.read()
            return content


@contextmanager
def counting_store(stored: StoredDays) -> Iterator[CountingStore]:
    """A server without any day."""
    port = free_port()
    command = [
        "env",
        f"PYTHONPATH={_ROOT}",
        sys.executable,
        "-m",
        "tests.benchmarks.counting_store",
        str(port),
        str(stored.per_day),
        str(stored.seed),
    ]
    with tempfile.TemporaryDirectory(prefix="store-") as folder:
        log = Path(folder) / "log"
        with running(command, log) as process:
            wait_for(process, port, log)
            yield CountingStore(endpoint=f"http://127.0.0.1:{port}")


@dataclass(slots=True)
class _Held:
    """What the bucket holds."""

    stored: StoredDays
    days: int = 0
    ticks: int = 0
    fixed: dict[str, bytes] = field(default_factory=dict)
    """Schema files by key."""
    keys: list[str] = field(default_factory=list)
    """All keys in order, below the prefix ``feed/``."""
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.fixed = dict(schema_files(START_TS, self.stored.tables, PLAIN))
        self.grow(0)

    def grow(self, days: int) -> None:
        added = [path for day in range(self.days, days) for path in self.stored.paths(day)]
        self.days = max(self.days, days)
        self.keys = sorted({*self.keys, *added, *self.fixed, "metadata"})

    def content(self, key: str) -> bytes:
        if key == "metadata":
            return metadata(self.stored.checkpoint(self.days, self.ticks)).encode()
        return self.fixed.get(key) or self.stored.content(key)

    def page(self, prefix: str, after: str, delimiter: str, most: int) -> tuple[list[str], list[str], str]:
        """Keys, common prefixes, and the last of both if more follows."""
        keys: list[str] = []
        folders: list[str] = []
        last = ""
        place = max(bisect_left(self.keys, prefix), bisect_right(self.keys, after) if after else 0)
        while place < len(self.keys) and self.keys[place].startswith(prefix):
            if len(keys) + len(folders) == most:
                return keys, folders, last
            key = self.keys[place]
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                keys.append(last := key)
                place += 1
            else:
                place = bisect_left(self.keys, key[:end] + chr(ord(delimiter) + 1))
                if key[: end + 1] != after:
                    folders.append(last := key[: end + 1])
        return keys, folders, ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: _Held

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        _, bucket, *rest = url.path.split("/", 2)
        key = unquote("".join(rest))
        self.held.counts["list" if not key else "get"] += 1
        if not key:
            self._answer(_listing(self.held, query).encode(), "application/xml")
        elif key.removeprefix("feed/") in self.held.fixed or _is_held(self.held, key.removeprefix("feed/")):
            self._answer(self.held.content(key.removeprefix("feed/")), "application/octet-stream")
        else:
            self.send_error(404, bucket)

    def do_POST(self) -> None:
        what, _, number = self.path.strip("/").partition("/")
        answer = b""
        if what == "days":
            self.held.grow(int(number))
        elif what == "tick":
            self.held.ticks += 1
        else:
            answer = json.dumps(self.held.counts).encode()
            self.held.counts.clear()
        self._answer(answer, "application/json")

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{_tag(content)}"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as its parent calls it
        """Say nothing."""


def _is_held(held: _Held, key: str) -> bool:
    place = bisect_left(held.keys, key)
    return place < len(held.keys) and held.keys[place] == key


def _tag(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()


def _listing(held: _Held, query: dict[str, str]) -> str:
    """A page as ListObjectsV2 gives it."""
    after = query.get("continuation-token") or query.get("start-after", "")
    prefix = query.get("prefix", "").removeprefix("feed/")
    most = min(_MOST, int(query.get("max-keys", _MOST)))
    keys, folders, last = held.page(prefix, after.removeprefix("feed/"), query.get("delimiter", ""), most)
    more = f"<NextContinuationToken>feed/{escape(last)}</NextContinuationToken>" if last else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><IsTruncated>{str(bool(last)).lower()}</IsTruncated><MaxKeys>{most}</MaxKeys>{more}"
        f"<KeyCount>{len(keys) + len(folders)}</KeyCount>{''.join(_entry(held, key) for key in keys)}"
        f"{''.join(f'<CommonPrefixes><Prefix>feed/{escape(each)}</Prefix></CommonPrefixes>' for each in folders)}"
        "</ListBucketResult>"
    )


def _entry(held: _Held, key: str) -> str:
    content = held.content(key)
    return (
        f"<Contents><Key>feed/{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"{_tag(content)}"</ETag><Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>'
    )


if __name__ == "__main__":
    _Handler.held = _Held(StoredDays(per_day=int(sys.argv[2]), seed=int(sys.argv[3])))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
