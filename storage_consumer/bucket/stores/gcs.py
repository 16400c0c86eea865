"""Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

from storage_consumer.bucket.stores.object_store import (
    READ_TIMEOUT,
    OrderedBucket,
    Page,
    Part,
    ReadInParts,
    StoreErrors,
)
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.model import StoredObject

_FIELDS = "kind,nextPageToken,prefixes,items(name,size,generation,timeCreated)"
_LISTING = "storage#objects"
"""The kind of an answer that is a page of a listing."""
_REFUSED = 401, 403
_ABSENT = 404
_BEHIND_THE_END = 416
_RIGHTS = "check the credentials, and that they may storage.objects.list and storage.objects.get (roles/storage.objectViewer)"


class GcsErrors(StoreErrors):
    """What the errors of gcsfs and Google's libraries mean."""

    cloud = "Google Cloud Storage"

    def translated(self, error: Exception, path: str) -> Exception:
        """Return what a driver's error means to the caller."""
        # gcsfs turns some answers into Python's own errors, which have no code.
        code = str(getattr(error, "code", None) or type(error).__name__)
        if isinstance(error, FileNotFoundError) or code == str(_ABSENT):
            if path:
                return self.absent(path)
            return self.no_bucket(
                str(_ABSENT), "check the bucket's name and the endpoint in the upstream URI"
            )
        if str(error).startswith("Forbidden") or code in map(str, _REFUSED):
            return self.refused(path, "403" if isinstance(error, OSError) else code, _RIGHTS)
        name = type(error).__name__
        if name in {"DefaultCredentialsError", "MalformedError"} or (
            name == "RefreshError" and not getattr(error, "retryable", False)
        ):
            return ConfigError(
                f"no credentials for {self.where(path)} ({name}): give credentials-file in the upstream URI, or set them "
                "where Google's tools look (GOOGLE_APPLICATION_CREDENTIALS, gcloud's default login, the instance's account)"
            )
        if isinstance(error, json.JSONDecodeError):
            return self.no_listing()
        if isinstance(error, ValueError):
            return ConfigError(
                f"{self.where(path)} can't be requested ({code}): check the bucket's name, the endpoint and the "
                "credentials"
            )
        return self.unavailable(error, code, path)


class GcsStorage(ReadInParts, OrderedBucket):
    """A bucket in Google Cloud Storage."""

    errors_of = GcsErrors

    def _page(
        self,
        folder: str,
        *,
        delimited: bool = False,
        after: str = "",
        token: str = "",
        limit: int = 0,
    ) -> Page:
        where = {
            "prefix": self._within(folder) or None,
            "delimiter": "/" if delimited else None,
            # GCS begins at this very name, so the page may repeat it.
            "startOffset": self._absolute(after) if after else None,
            "pageToken": token or None,
            "maxResults": str(limit or self.page_size),
            "fields": _FIELDS,
        }
        answer = self._ask(
            "",
            lambda driver: driver._call("GET", "b/{}/o", self._bucket, json_out=True, **where),  # noqa: SLF001 - its public methods list without an offset
        )
        # Something other than a store may answer, which must not look like an empty bucket.
        if not isinstance(answer, dict) or answer.get("kind") != _LISTING:
            raise self._errors.no_listing()
        return Page(
            objects=tuple(
                StoredObject(
                    path=self._relative(entry["name"]),
                    size=int(entry["size"]),
                    tag=str(entry["generation"]),
                    modified=datetime.fromisoformat(at).timestamp()
                    if (at := entry.get("timeCreated"))
                    else 0.0,
                )
                for entry in answer.get("items") or ()
            ),
            folders=tuple(
                self._relative(name).removesuffix("/") for name in answer.get("prefixes") or ()
            ),
            token=answer.get("nextPageToken", ""),
        )

    def _part(self, path: str, offset: int, length: int) -> Part:
        where, span = self._absolute(path), {"Range": f"bytes={offset}-{offset + length - 1}"}

        async def ask(driver: Any) -> Any:
            try:
                return await driver._call(  # noqa: SLF001 - its public methods do not return the generation
                    "GET", "b/{}/o/{}", self._bucket, where, headers=span, alt="media"
                )
            except Exception as error:  # an empty object has no valid range
                if getattr(error, "code", 0) != _BEHIND_THE_END:
                    raise
                return {}, b""

        headers, content = self._ask(path, ask)
        # The answer for a range beyond the end of an empty object has no headers here.
        if headers and not headers.get("X-Goog-Generation"):
            raise self._errors.no_object(path, "X-Goog-Generation")
        # An answer with the whole object has no range: then its length is the size.
        total = headers.get("Content-Range", "").rpartition("/")[2]
        return Part(
            content=content,
            # Each write gives an object a new generation, also one with equal content.
            tag=headers.get("X-Goog-Generation", ""),
            size=int(total) if total.isdecimal() else len(content),
        )

    def _open(self) -> Any:
        from gcsfs.core import GCSFileSystem  # noqa: PLC0415 - optional

        # gcsfs logs a traceback for each error before it raises it.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        return GCSFileSystem(**driver_options(self._upstream, self._secrets))


def driver_options(upstream: Upstream, secrets: Secrets) -> dict[str, Any]:
    """Return gcsfs's options; without TLS, as at an emulator, no credentials are sent."""
    token: Any = (
        json.loads(secrets.gcs_credentials) if secrets.gcs_credentials else "google_default"
    )
    return {
        "token": "anon" if upstream.endpoint.startswith("http://") else token,
        "access": "read_only",
        "endpoint_url": upstream.endpoint or None,
        "requests_timeout": 2 * READ_TIMEOUT,
        "use_listings_cache": False,
        "skip_instance_cache": True,
    }
