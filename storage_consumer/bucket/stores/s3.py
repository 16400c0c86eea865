"""S3 and stores that speak its protocol, through s3fs."""

from __future__ import annotations

import asyncio
import shlex
import ssl
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from storage_consumer.bucket.stores.object_store import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    CredentialsExpired,
    OrderedBucket,
    Page,
    StoreErrors,
)
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from storage_consumer.model import StoredObject

_DOWNLOADS = 5
"""Number of requests for one object before a broken connection is an error."""
_PROBE = 1024
"""Bytes by which to test whether a store honours ranges."""
_EXACT: set[tuple[str, str]] = set()
"""Endpoints and buckets that are confirmed to honour ranges."""
_REFUSED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}
_EXPIRED = {"ExpiredToken", "TokenRefreshRequired"}
_SKEWED = {"RequestTimeTooSkewed", "RequestExpired"}
_WRONG = {
    "NoSuchBucket",
    "InvalidBucketName",
    "PermanentRedirect",
    "301",
    "AuthorizationHeaderMalformed",
}
_ABSENT = {"NoSuchKey", "404"}
_ARCHIVED = "InvalidObjectState"
_BEHIND_THE_END = {"InvalidRange", "416"}
_NO_KEYS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"}
_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason when a server answers a TLS greeting with something else."""
_NO_FILE = (FileNotFoundError, PermissionError, IsADirectoryError)
_UNASKABLE = {"ParamValidationError", "InvalidEndpointError", "NoRegionError"}


class S3Errors(StoreErrors):
    """What the errors of s3fs and botocore mean."""

    cloud = "AWS"

    def translated(self, error: Exception, path: str) -> Exception:
        """Return what a driver's error means to the caller."""
        # s3fs raises Python's own errors; the store's code is in what caused them.
        cause = error.__cause__ or error
        # it is None for a connection that broke off
        answer = getattr(cause, "response", None) or {}
        code = str(answer.get("Error", {}).get("Code", type(cause).__name__))
        if code in _ABSENT | _BEHIND_THE_END:
            return self.absent(path) if code in _ABSENT else self.unlisted(path)
        if code == _ARCHIVED:
            bucket, _, key = self.where(path).partition("://")[2].partition("/")
            # S3 refuses a number of days for the class whose objects return to where they were.
            request = (
                "{}"
                if answer["Error"].get("StorageClass", "") == "INTELLIGENT_TIERING"
                else "Days=7"
            )
            named = f"--bucket {shlex.quote(bucket)} --key {shlex.quote(key)} --restore-request {shlex.quote(request)}"
            where = (
                "" if self.server == self.cloud else f" --endpoint-url {shlex.quote(self.server)}"
            )
            return self.archived(path, code, f"aws s3api restore-object {named}{where}")
        if getattr(cause, "operation_name", "") == "AssumeRole" and code not in _EXPIRED:
            said = answer.get("Error", {}).get("Message", "")
            return ConfigError(
                f"the role for {self.where('')} cannot be assumed ({code}: {said}): check role-arn and external-id in the upstream URI, "
                "and that the role trusts these credentials"
            )
        if code in _EXPIRED:
            remedy = "renew the session token in the upstream URI, or what AWS's tools find, and start again"
            return CredentialsExpired(str(self.refused(path, code, remedy)))
        if code in _REFUSED:
            return self.refused(
                path, code, "check the access key, and that it may s3:ListBucket and s3:GetObject"
            )
        if code in _WRONG:
            return self.no_bucket(
                code, "check the bucket's name, the endpoint and the region in the upstream URI"
            )
        return self._unasked(error, path, code)

    def _unasked(self, error: Exception, path: str, code: str) -> Exception:
        """Return the error for a request to which the store itself gave no answer."""
        where = self.where(path)
        if mistrust := self._mistrust(error, code):
            return mistrust
        if code in _NO_KEYS:
            return ConfigError(
                f"no credentials for {where} ({code}): give access-key and secret-access-key in the upstream URI, or set "
                "them where AWS's tools look (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, the instance's role)"
            )
        if code in _UNASKABLE or isinstance(error, ValueError):
            return ConfigError(
                f"{where} can't be requested ({code}): check the bucket's name, the endpoint, the region"
            )
        if code in _SKEWED:
            return StorageUnavailable(
                f"{self.unavailable(error, code, path)} (set the clock of this machine)"
            )
        return self.unavailable(error, code, path)

    def _mistrust(self, error: Exception, code: str) -> ConfigError | None:
        """Return the error for an untrusted certificate or unreadable CA file; else None."""
        cause: BaseException | None = error
        while cause is not None:
            if getattr(cause, "reason", "") == _NO_TLS or _NO_TLS in str(cause):
                return ConfigError(
                    f"{self.server} does not speak TLS: write its endpoint as http://{self.server.partition('://')[2]}"
                )
            # the HTTP library's own error has none
            if verdict := str(getattr(cause, "verify_message", "")):
                return ConfigError(
                    f"the certificate of {self.server} is not trusted: {verdict}. Set AWS_CA_BUNDLE in the environment "
                    "(of a cluster's executors too) to a PEM file with the CA that signed it, and write the "
                    "endpoint's host as the certificate does"
                )
            if code == "HTTPClientError" and isinstance(cause, (*_NO_FILE, ssl.SSLError)):
                return ConfigError(
                    f"the CAs that should vouch for {self.server} cannot be read: {cause}. See AWS_CA_BUNDLE and "
                    "REQUESTS_CA_BUNDLE in the "
                    "environment, and ca_bundle in AWS's configuration: a file in PEM form"
                )
            cause = cause.__cause__ or cause.__context__
        return None


class S3Storage(OrderedBucket):
    """A bucket in S3."""

    errors_of = S3Errors

    def _page(
        self,
        folder: str,
        *,
        delimited: bool = False,
        after: str = "",
        token: str = "",
        limit: int = 0,
    ) -> Page:
        where = {"Delimiter": "/"} if delimited else {}
        # A token goes on where its page ended, so no name is given beside it.
        where |= (
            {"ContinuationToken": token}
            if token
            else {"StartAfter": self._absolute(after)}
            if after
            else {}
        )
        size = limit or (1000 if delimited else self.page_size)
        answer = self._s3("list_objects_v2", "", Prefix=self._within(folder), MaxKeys=size, **where)
        # Something other than a store may answer, which must not look like an empty bucket.
        if "IsTruncated" not in answer or (
            answer["IsTruncated"] and not answer.get("NextContinuationToken")
        ):
            raise self._errors.no_listing()
        return Page(
            objects=tuple(
                StoredObject(
                    path=self._relative(entry["Key"]),
                    size=entry["Size"],
                    tag=entry["ETag"].strip('"'),
                    modified=entry["LastModified"].timestamp() if "LastModified" in entry else 0.0,
                )
                for entry in answer.get("Contents", ())
            ),
            folders=tuple(
                self._relative(entry["Prefix"]).removesuffix("/")
                for entry in answer.get("CommonPrefixes", ())
            ),
            token=answer["NextContinuationToken"] if answer["IsTruncated"] else "",
        )

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield pieces of up to `size` bytes, streamed from one request; see `Storage.blocks`.

        A download that breaks off is started again as long as the object is unchanged; bytes
        already yielded are not repeated.
        """
        # Of a gateway that does not heed ranges, or where a short object cannot show that it does,
        # the whole is read, and what lies before is dropped.
        begin = start if start and self._heeds_ranges(path) else 0
        sent, seen = start, tag
        where = {"Range": f"bytes={begin}-"} if begin else {}
        for attempt in range(1, _DOWNLOADS + 1):
            # Every attempt asks for the same range; `skip` drops what was yielded before the break.
            answer = self._s3("get_object", path, Key=self._absolute(path), **where)
            found = answer.get("ETag", "").strip('"')
            # Something other than a store may answer here as well.
            fault: Exception | None = None if found else self._errors.no_object(path, "ETag")
            if found and seen not in {"", found}:
                # The first answer shows that the listing is outdated; a later one, that the object
                # changed during the download.
                fault = self._errors.unlisted(path) if attempt == 1 else self._errors.replaced(path)
            if fault:
                self._close(answer["Body"])
                raise fault
            seen = found
            try:
                for block in self._body(answer["Body"], size, skip=sent - begin):
                    sent += len(block)
                    yield block
            except Exception as error:  # noqa: BLE001 - s3fs lets those of its HTTP library through
                # Broken off in the middle; the driver itself retries only until an answer begins.
                if attempt == _DOWNLOADS:
                    raise self._errors.translated(error, path) from None
            else:
                return

    def _close(self, body: Any) -> None:
        # The body belongs to the driver's event loop, which runs in another thread.
        self._driver().loop.call_soon_threadsafe(body.close)

    def _heeds_ranges(self, path: str) -> bool:
        """Return whether the store sends the requested bytes, as some gateways do not; ask once."""
        store = self._upstream.endpoint, self._bucket
        if store not in _EXACT:
            whole = self.read(path, _PROBE - 1)[:_PROBE]
            answer = self._s3(
                "get_object", path, Key=self._absolute(path), Range=f"bytes=1-{_PROBE - 1}"
            )
            # An object that is too short to compare proves nothing.
            if (
                b"".join(self._body(answer["Body"], _PROBE, skip=0)) != whole[1:]
                or len(whole) < _PROBE
            ):
                return False
            _EXACT.add(store)
        return True

    def _body(self, body: Any, size: int, *, skip: int) -> Iterator[bytes]:
        """Yield an answer's pieces after `skip` bytes; aiobotocore raises if it is incomplete."""
        try:
            while block := self._wait_for(body.read, size):
                # What an earlier request delivered is dropped, in whatever blocks it comes now.
                fresh = block[skip:]
                skip -= len(block) - len(fresh)
                if fresh:
                    yield fresh
        finally:
            self._close(body)

    def _s3(self, method: str, path: str, **arguments: Any) -> Any:
        # The public counterpart of this method waits without a timeout.
        return self._ask(
            path,
            lambda driver: driver._call_s3(method, Bucket=self._bucket, **arguments),  # noqa: SLF001 - see above
        )

    def _open(self) -> Any:
        from s3fs import S3FileSystem  # noqa: PLC0415 - takes a second, which users of file:// need not wait

        upstream, secrets = self._upstream, self._secrets
        keys = Secrets() if upstream.role_arn else secrets
        return S3FileSystem(
            anon=False,
            session=_with_role(upstream, secrets) if upstream.role_arn else None,
            key=keys.access_key or None,
            secret=keys.secret_access_key or None,
            token=keys.session_token or None,
            endpoint_url=upstream.endpoint or None,
            client_kwargs={"region_name": upstream.region} if upstream.region else {},
            config_kwargs={
                "connect_timeout": CONNECT_TIMEOUT,
                "read_timeout": READ_TIMEOUT,
                "retries": {"mode": "standard", "max_attempts": 2},
                "s3": {"addressing_style": "path" if upstream.force_path_style else "virtual"},
            },
            use_listings_cache=False,
            # Else fsspec would return the driver that exists, whose credentials may have expired.
            skip_instance_cache=True,
        )


def _with_role(upstream: Upstream, secrets: Secrets) -> Any:
    """Return a session with the keys of the bucket's role, which are renewed before they expire.

    The keys that assume it are the given ones, else those where AWS's tools look.
    """
    from aiobotocore.credentials import AioDeferredRefreshableCredentials  # noqa: PLC0415 - as above
    from aiobotocore.session import AioSession  # noqa: PLC0415 - as above
    from botocore.credentials import AssumeRoleCredentialFetcher  # noqa: PLC0415 - as above
    from botocore.exceptions import NoCredentialsError  # noqa: PLC0415 - as above
    from botocore.session import Session  # noqa: PLC0415 - as above

    source, session = Session(), AioSession()
    if secrets.access_key:
        source.set_credentials(
            secrets.access_key, secrets.secret_access_key, secrets.session_token or None
        )
    if (keys := source.get_credentials()) is None:
        raise NoCredentialsError
    region = upstream.region or source.get_config_variable("region") or "us-east-1"
    asked = {"RoleSessionName": "storage-consumer", "ExternalId": upstream.external_id}
    fetcher = AssumeRoleCredentialFetcher(
        partial(source.create_client, region_name=region),
        keys,
        upstream.role_arn,
        extra_args={name: value for name, value in asked.items() if value},
    )

    async def fetched() -> Any:
        return await asyncio.to_thread(fetcher.fetch_credentials)

    async def loaded() -> Any:
        return AioDeferredRefreshableCredentials(fetched, "assume-role")

    session.register_component("credential_provider", SimpleNamespace(load_credentials=loaded))
    return session
