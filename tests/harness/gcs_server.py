"""A private emulator of Google Cloud Storage, which knows no users; as a program it is the emulator itself.

The emulator shows a bucket on one page, whatever is asked. Pages and where they begin are added here, as Google describes
them: names in the order of their bytes, ``startOffset`` included, ``maxResults`` per page, objects and folders together. So is the
generation of what is downloaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.harness.servers import free_port, running, wait_for

_ROOT = Path(__file__).resolve().parents[2]
_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsServer:
    """A running emulator."""

    endpoint: str

    def make_bucket(self, bucket: str) -> None:
        """Make a bucket."""
        self._ask("POST", "/storage/v1/b?project=tests", json.dumps({"name": bucket}).encode())

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Write an object."""
        head = json.dumps({"name": name})
        body = (
            b"--cut\r\nContent-Type: application/json\r\n\r\n" + head.encode() + b"\r\n--cut\r\n"
            b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--cut--\r\n"
        )
        self._ask(
            "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart", body, "multipart/related; boundary=cut"
        )

    def delete(self, bucket: str, name: str) -> None:
        """Remove an object."""
        self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")

    def upload(self, folder: Path, bucket: str, prefix: str) -> None:
        """Put all files of `folder` into a bucket."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(bucket, f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def _ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> None:
        request = urllib.request.Request(self.endpoint + path, body, {"Content-Type": kind}, method=method)  # noqa: S310 - a server of ours
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - likewise
            answer.read()


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """An emulator without any bucket."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="gcs-") as folder:
        log = Path(folder) / "log"
        with running(
            ["env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", "tests.harness.gcs_server", str(port)], log
        ) as process:
            wait_for(process, port, log)
            yield GcsServer(endpoint=f"http://127.0.0.1:{port}")


class _Caught:
    """Stands in for a response, to look at the emulator's answer before it is sent."""

    def __init__(self) -> None:
        self.status: Any = HTTPStatus.OK
        self.answer: dict[str, Any] | None = None

    def json(self, answer: dict[str, Any]) -> None:
        """Keep the answer."""
        self.answer = answer


def _list_in_pages(request: Any, response: Any, storage: Any, *_: Any) -> None:
    """The emulator's listing, cut into the page that was asked for."""
    from gcp_storage_emulator.handlers import objects  # noqa: PLC0415 - of the program only

    caught = _Caught()
    objects.ls(request, caught, storage)
    response.status = caught.status
    if caught.answer is None:
        return
    first, token, most = (
        request.query.get(name, [default])[0]
        for name, default in (("startOffset", ""), ("pageToken", ""), ("maxResults", str(_MOST)))
    )
    entries = [(item["name"], item) for item in caught.answer["items"]]
    entries += [(name, None) for name in caught.answer["prefixes"] or ()]
    entries = sorted((entry for entry in entries if entry[0] >= first and entry[0] > token), key=lambda entry: entry[0])
    page, rest = entries[: min(int(most), _MOST)], entries[min(int(most), _MOST) :]
    answer: dict[str, Any] = {"kind": "storage#objects", "items": [item for _, item in page if item]}
    answer["prefixes"] = [name for name, item in page if not item]
    if rest:
        answer["nextPageToken"] = page[-1][0]
    response.json(answer)


def _download(request: Any, response: Any, storage: Any, *_: Any) -> None:
    """The emulator's download, with the generation that Google tells of what it gives."""
    from gcp_storage_emulator.handlers import objects  # noqa: PLC0415 - of the program only

    objects.whole_download(request, response, storage)
    if response.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
        found = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
        response["X-Goog-Generation"] = str(found["generation"])


def main(port: int) -> None:
    """Run the emulator until the process is ended."""
    from gcp_storage_emulator import server  # noqa: PLC0415 - of the program only
    from gcp_storage_emulator.handlers import objects  # noqa: PLC0415 - likewise

    objects.whole_download, objects.download = objects.download, _download
    for _, methods in server.HANDLERS:
        if methods.get("GET") is objects.ls:
            methods["GET"] = _list_in_pages
    emulator = server.create_server("127.0.0.1", port, in_memory=True)
    emulator.start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(int(sys.argv[1]))
