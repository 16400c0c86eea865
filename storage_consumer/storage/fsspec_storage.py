"""The real storages, opened from settings and secrets; the only module that knows fsspec and s3fs."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageConsumerError, StorageUnavailable
from storage_consumer.model import StoredObject
from storage_consumer.storage.local_storage import LocalStorage
from storage_consumer.storage.paths import left_out, sequence_of
from storage_consumer.storage.reader import Storage

_CONNECT_TIMEOUT = 10
_READ_TIMEOUT = 60
"""Seconds."""
_DOWNLOADS = 5
"""So often one object is asked for before a broken connection is an error."""
_REFUSED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_WRONG = {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "301", "AuthorizationHeaderMalformed"}
_ABSENT = {"NoSuchKey", "404"}


def open_storage(upstream: Upstream, secrets: Secrets) -> Storage:
    """The storage that `upstream` names. Cheap, and nothing is asked of the storage yet."""
    if upstream.scheme == "file":
        return LocalStorage(upstream.root)
    return S3Storage(upstream, secrets)


class S3Storage:
    """Everything below one prefix of a bucket.

    It never caches what the bucket holds. Each process that uses it makes its own connections, so it survives a fork; it does
    not pickle, since it knows the secrets: build it in the worker.
    """

    page_size = 1000
    """Keys per page of a listing; S3 gives no more than this."""

    def __init__(self, upstream: Upstream, secrets: Secrets) -> None:
        """For the bucket and prefix of `upstream`; without keys in `secrets`, AWS's usual places are asked for them."""
        self._upstream = upstream
        self._secrets = secrets
        self._bucket, _, prefix = upstream.root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._file_systems: dict[int, Any] = {}
        self.requests = 0
        """Calls to the server so far, without repetitions after errors."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("an S3Storage knows secrets and does not pickle: call open_storage in the worker")

    def check(self) -> None:
        """Raise `ConfigError` when the bucket does not exist or may not be listed."""
        self._call("list_objects_v2", "", Prefix=self._prefix, MaxKeys=1)

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """All objects in key order, except below `closed` and up to the names in `after`.

        Pages go through the keys in order; where a page ends inside what may be left out, the next one starts behind it. So
        the number of calls follows what is open, not what is stored.
        """
        ordered = sorted(closed)
        last = ""
        where: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", "", Prefix=self._prefix, MaxKeys=self.page_size, **where)
            for entry in page.get("Contents", ()):
                path = entry["Key"].removeprefix(self._prefix)
                # Some servers take StartAfter to include the key itself.
                if path > last and not _closed_above(path, closed) and not _up_to_mark(path, after):
                    yield StoredObject(path=path, size=entry["Size"], tag=entry["ETag"].strip('"'))
                last = max(last, path)
            if not page.get("IsTruncated"):
                return
            if skipped := self._skip(last, ordered, closed, after):
                last, where = skipped, {"StartAfter": self._prefix + skipped}
            else:
                where = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, path: str) -> bytes:
        """The whole content of an object."""
        return b"".join(self.blocks(path, 1 << 20))

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """The content of an object in pieces of up to `size` bytes, streamed from one request.

        A download that breaks off is begun again, as long as the object is still the same; what was given is not given twice.
        """
        sent, tag = 0, ""
        for attempt in range(1, _DOWNLOADS + 1):
            answer = self._call("get_object", path, Key=self._prefix + path)
            if tag not in {"", answer["ETag"]}:
                raise StorageUnavailable(f"{self._where(path)} was replaced while it was read")
            tag = answer["ETag"]
            try:
                for block in self._body(answer["Body"], size, skip=sent):
                    sent += len(block)
                    yield block
            except Exception as error:  # noqa: BLE001 - s3fs lets those of its HTTP library through
                if attempt == _DOWNLOADS:
                    raise self._translated(error, path) from None
            else:
                return

    def _body(self, body: Any, size: int, *, skip: int) -> Iterator[bytes]:
        """An answer's pieces behind its first `skip` bytes; aiobotocore raises where it ends before all was received."""
        try:
            while block := self._wait_for(body.read, size):
                fresh = block[skip:]
                skip -= len(block) - len(fresh)
                if fresh:
                    yield fresh
        finally:
            self._file_system().loop.call_soon_threadsafe(body.close)

    def _skip(self, last: str, ordered: list[str], closed: frozenset[str], after: Mapping[str, str]) -> str:
        """The path behind which to go on, if `last` lies in what may be left out; else empty."""
        if directory := _closed_above(last, closed):
            parent = directory.rpartition("/")[0]
            place = bisect_right(ordered, directory)
            has_sibling = place < len(ordered) and ordered[place].rpartition("/")[0] == parent
            return _behind(self._last_closed(parent, directory, closed) if has_sibling else directory)
        return _up_to_mark(last, after)

    def _last_closed(self, parent: str, directory: str, closed: frozenset[str]) -> str:
        """The last of the closed directories that follow one another in `parent` from `directory` on.

        The server says what lies between them: nothing unknown is jumped over.
        """
        prefix = f"{self._prefix}{parent}/" if parent else self._prefix
        while True:
            page = self._call(
                "list_objects_v2",
                "",
                Prefix=prefix,
                Delimiter="/",
                StartAfter=self._prefix + _behind(directory),
            )
            names = [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
            names += [entry["Key"] for entry in page.get("Contents", ())]
            before = directory
            for name in sorted(names):
                if (path := name.removeprefix(self._prefix).removesuffix("/")) not in closed:
                    return directory
                directory = path
            if not page.get("IsTruncated") or directory == before:
                return directory

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        self.requests += 1
        try:
            return self._file_system().call_s3(method, Bucket=self._bucket, **arguments)
        except StorageConsumerError:
            raise
        except Exception as error:  # noqa: BLE001 - s3fs lets those of its HTTP library through
            raise self._translated(error, path) from None

    def _wait_for(self, function: Any, *arguments: Any) -> Any:
        from fsspec.asyn import sync  # noqa: PLC0415 - see _file_system

        return sync(self._file_system().loop, function, *arguments, timeout=2 * _READ_TIMEOUT)

    def _file_system(self) -> Any:
        """This process's s3fs; one that came through a fork has no running event loop."""
        if os.getpid() not in self._file_systems:
            from s3fs import S3FileSystem  # noqa: PLC0415 - takes a second, which users of file:// need not wait

            upstream, secrets = self._upstream, self._secrets
            self._file_systems[os.getpid()] = S3FileSystem(
                anon=False,
                key=secrets.access_key or None,
                secret=secrets.secret_access_key or None,
                token=secrets.session_token or None,
                endpoint_url=upstream.endpoint or None,
                client_kwargs={"region_name": upstream.region} if upstream.region else {},
                config_kwargs={
                    "connect_timeout": _CONNECT_TIMEOUT,
                    "read_timeout": _READ_TIMEOUT,
                    "retries": {"mode": "standard", "max_attempts": 2},
                    "s3": {"addressing_style": "path" if upstream.force_path_style else "virtual"},
                },
                use_listings_cache=False,
                skip_instance_cache=True,
            )
        return self._file_systems[os.getpid()]

    def _translated(self, error: Exception, path: str) -> Exception:
        """What `error`, met at `path`, means to the caller; without any secret."""
        cause = error.__cause__ or error
        code = str(getattr(cause, "response", {}).get("Error", {}).get("Code", type(cause).__name__))
        where = self._where(path)
        if code in _ABSENT:
            return FileNotFoundError(f"{where} does not exist")
        if code in _REFUSED:
            return ConfigError(
                f"access to {where} is refused ({code}): check the access key, and that it may s3:ListBucket and "
                "s3:GetObject"
            )
        if code in _WRONG:
            return ConfigError(
                f"there is no bucket for {where} at {self._upstream.endpoint or 'AWS'} ({code}): check the bucket's "
                "name, the endpoint and the region in the upstream URI"
            )
        if code in {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"}:
            return ConfigError(
                f"no credentials for {where} ({code}): give access-key and secret-access-key in the upstream URI, or set "
                "them where AWS's tools look (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, the instance's role)"
            )
        if code in {"ParamValidationError", "InvalidEndpointError", "NoRegionError"} or isinstance(error, ValueError):
            return ConfigError(
                f"{where} can't be asked for ({code}): check the bucket's name, the endpoint, the region"
            )
        return StorageUnavailable(f"{where} did not answer as it should ({code}): {self._redacted(str(error))}")

    def _where(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"

    def _redacted(self, text: str) -> str:
        secrets = self._secrets
        for secret in filter(None, (secrets.access_key, secrets.secret_access_key, secrets.session_token)):
            text = text.replace(secret, "…")
        return text


def _closed_above(path: str, closed: frozenset[str]) -> str:
    """The closed directory that `path` lies in, or empty."""
    end = path.find("/")
    while end >= 0:
        if path[:end] in closed:
            return path[:end]
        end = path.find("/", end + 1)
    return ""


def _up_to_mark(path: str, after: Mapping[str, str]) -> str:
    """The last path of its sequence that may be left out, if `path` may be; else empty."""
    folder, _, _ = path.rpartition("/")
    return f"{folder}/{after[sequence_of(path)]}" if folder and left_out(path, after) else ""


def _behind(directory: str) -> str:
    """The smallest text that sorts behind all paths in `directory`: the character after the slash is the zero."""
    return f"{directory}0"
