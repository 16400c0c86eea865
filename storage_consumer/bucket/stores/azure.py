"""Azure Blob Storage, through adlfs and the client that it creates.

Azure cannot begin a listing at a name. So a container that does not fit on one page is walked
folder by folder where something may be left out. Several folders are listed concurrently, and
closed directories are not entered.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from storage_consumer.bucket.paths import folder_above, left_out
from storage_consumer.bucket.stores.object_store import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    Page,
    Part,
    ReadInParts,
    StoreErrors,
)
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.model import StoredObject

_AT_ONCE = 8
"""Number of concurrent calls."""
_CALL = {"retry_total": 0, "connection_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT}
"""Arguments of each call; the client's retries are off: they begin with a 15 s pause."""
_REFUSED = 401, 403
_ARCHIVED = {"BlobArchived", "BlobBeingRehydrated"}
_ABSENT = 404
_BEHIND_THE_END = 416
_NO_ACCOUNT = "no storage account is named: give account-name in the upstream URI, or set AZURE_STORAGE_ACCOUNT in the environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownBlobs:
    """What may be left out, and where it lies."""

    closed: frozenset[str]
    after: Mapping[str, str]
    parents: frozenset[str]
    """The directories that directly contain closed ones."""
    above: frozenset[str]
    """All directories above closed ones, including the root as the empty text."""

    def fresh(self, page: Page) -> tuple[StoredObject, ...]:
        """Return the page's objects without those that may be left out."""
        return tuple(
            stored
            for stored in page.objects
            if not folder_above(stored.path, self.closed) and not left_out(stored.path, self.after)
        )


class AzureErrors(StoreErrors):
    """What the errors of adlfs and the Azure SDK mean."""

    cloud = "Azure"

    def translated(self, error: Exception, path: str) -> Exception:
        """Return what a driver's error means to the caller."""
        status, kind = getattr(error, "status_code", None), getattr(error, "error_code", None)
        code = str(getattr(kind, "value", kind) or status or type(error).__name__)
        if status == _ABSENT:
            if path and code != "ContainerNotFound":
                return self.absent(path)
            return self.no_bucket(
                code, "check the container's name, the account and the endpoint in the upstream URI"
            )
        if code in _ARCHIVED:
            container, _, name = self.where(path).partition("://")[2].partition("/")
            named = f"--container-name {shlex.quote(container)} --name {shlex.quote(name)}"
            return self.archived(path, code, f"az storage blob set-tier --tier Hot {named}")
        if status in _REFUSED:
            return self.refused(
                path,
                code,
                "check the key or token, and that it may list and read blobs (Storage Blob Data Reader)",
            )
        # The store itself gave no answer.
        name = type(error).__name__
        if name in {"ClientAuthenticationError", "CredentialUnavailableError"}:
            return ConfigError(
                f"no credentials for {self.where(path)} ({name}): give account-key or sas-token in the upstream URI, or set "
                "them where Azure's tools look (AZURE_STORAGE_KEY, AZURE_CLIENT_ID with AZURE_TENANT_ID and "
                "AZURE_CLIENT_SECRET, az login, the machine's identity)"
            )
        # An answer that the SDK cannot read: of a listing, or of an object, which names its range.
        if name == "DeserializationError" or "Content-Range" in str(error):
            return self.no_object(path, "Content-Range") if path else self.no_listing()
        if isinstance(error, ValueError):
            return ConfigError(
                f"{self.where(path)} can't be requested ({code}): check account, endpoint and keys"
            )
        return self.unavailable(error, code, path)


class AzureStorage(ReadInParts):
    """A container in Azure Blob Storage."""

    page_size = 5000
    pauses = (1.0, 4.0)
    errors_of = AzureErrors

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """Yield objects not below `closed` nor up to `after`'s names; ``meta`` folders last."""
        parents = frozenset(directory.rpartition("/")[0] for directory in closed)
        above: set[str] = set()
        for parent in parents:
            # Up to the root, or to a directory that is known to be above: then so are all above it.
            folder = parent
            while folder not in above:
                above.add(folder)
                folder = folder.rpartition("/")[0]
        known = _KnownBlobs(closed=closed, after=after, parents=parents, above=frozenset(above))
        if "" not in known.above:
            for page in self._pages(""):
                yield from known.fresh(page)
            return
        folders = [""]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while folders:
                # A meta folder waits until all its siblings were listed: a data file shown is then
                # never without its schema file.
                waiting = [folder for folder in folders if _is_meta(folder)]
                wave = (
                    waiting
                    if len(waiting) == len(folders)
                    else [each for each in folders if not _is_meta(each)]
                )
                folders = waiting if wave is not waiting else []
                # A wave is complete before the next: no meta folder is listed while a sibling is.
                for objects, below in list(
                    pool.map(lambda folder: self._listed(folder, known), wave)
                ):
                    yield from objects
                    folders += below

    def _listed(self, folder: str, known: _KnownBlobs) -> tuple[list[StoredObject], list[str]]:
        """Return a folder's new objects, and the folders below it that are still to be listed."""
        # A folder that fits on one flat page needs no further call. A larger one is split only
        # above closed directories: elsewhere no directory can be skipped, and a flat listing needs
        # fewer calls.
        if folder not in known.parents:
            first = self._page(folder)
            pages = [first] if not first.token else []
            if first.token and folder not in known.above:
                pages = [first, *self._pages(folder, token=first.token)]
            if pages:
                return [stored for page in pages for stored in known.fresh(page)], []
        objects: list[StoredObject] = []
        folders: list[str] = []
        for page in self._pages(folder, delimited=True):
            objects += known.fresh(page)
            folders += [below for below in page.folders if below not in known.closed]
        return objects, folders

    def _pages(self, folder: str, *, delimited: bool = False, token: str = "") -> Iterator[Page]:
        """Yield a folder's pages, from `token` on; raise `StorageUnavailable` if tokens repeat."""
        seen = {token}
        while True:
            page = self._page(folder, delimited=delimited, token=token)
            yield page
            if not page.token:
                return
            token = page.token
            if token in seen:
                raise self._errors.contradiction(
                    "the pages of a listing lead back to an earlier one"
                )
            seen.add(token)

    def _page(
        self,
        folder: str,
        *,
        delimited: bool = False,
        after: str = "",
        token: str = "",
        limit: int = 0,
    ) -> Page:
        assert not after, "Azure can't begin at a name"

        async def ask(driver: Any) -> tuple[list[Any], str]:
            container = driver.service_client.get_container_client(self._bucket)
            how: dict[str, Any] = {
                "name_starts_with": self._within(folder),
                "results_per_page": limit or self.page_size,
            }
            found = (
                container.walk_blobs(**how, **_CALL)
                if delimited
                else container.list_blobs(**how, **_CALL)
            )
            # One page only: the caller decides whether there is a next one.
            pages = found.by_page(continuation_token=token or None)
            async for page in pages:
                return [entry async for entry in page], pages.continuation_token or ""
            return [], ""

        entries, rest = self._ask("", ask)
        return Page(
            objects=tuple(
                StoredObject(
                    path=self._relative(entry.name),
                    size=entry.size,
                    tag=entry.etag.strip('"'),
                    modified=entry.last_modified.timestamp() if entry.last_modified else 0.0,
                )
                for entry in entries
                # The listing mixes blobs with prefixes, which have no tag.
                if hasattr(entry, "etag")
            ),
            folders=tuple(
                self._relative(entry.name).removesuffix("/")
                for entry in entries
                if not hasattr(entry, "etag")
            ),
            token=rest,
        )

    def _part(self, path: str, offset: int, length: int) -> Part:
        how: dict[str, Any] = dict(_CALL)
        if key := self._secrets.encryption_key:
            from azure.storage.blob import CustomerProvidedEncryptionKey  # noqa: PLC0415 - optional, comes with adlfs

            digest = base64.b64encode(hashlib.sha256(key.encode()).digest()).decode()
            how["cpk"] = CustomerProvidedEncryptionKey(
                base64.b64encode(key.encode()).decode(), digest
            )

        async def ask(driver: Any) -> Part:
            blob = driver.service_client.get_blob_client(self._bucket, self._absolute(path))
            stream = await blob.download_blob(offset, length, max_concurrency=1, **how)
            content = await stream.readall()
            # The answer has the blob's size after the range; without a range all was sent.
            total = (stream.properties.content_range or "").rpartition("/")[2]
            return Part(
                content=content,
                tag=stream.properties.etag.strip('"'),
                size=int(total) if total else len(content),
            )

        async def ask_for_any(driver: Any) -> Part:
            try:
                return await ask(driver)
            except Exception as error:  # an empty object has no valid range
                if getattr(error, "status_code", 0) != _BEHIND_THE_END:
                    raise
                return Part(content=b"", tag="", size=0)

        found: Part = self._ask(path, ask_for_any)
        return found

    def _open(self) -> Any:
        from adlfs import AzureBlobFileSystem  # noqa: PLC0415 - optional

        return AzureBlobFileSystem(**driver_options(self._upstream, self._secrets, os.environ))


def driver_options(
    upstream: Upstream, secrets: Secrets, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return adlfs's options: the URI's keys, else the environment's, else the default chain."""
    options: dict[str, Any] = {
        "anon": False,
        "use_listings_cache": False,
        "skip_instance_cache": True,
    }
    given = secrets.account_key or secrets.sas_token
    if not given and not upstream.account_name and environ.get("AZURE_STORAGE_CONNECTION_STRING"):
        return options | {"connection_string": environ["AZURE_STORAGE_CONNECTION_STRING"]}
    account = upstream.account_name or _first(
        environ, "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"
    )
    if not account:
        raise ConfigError(_NO_ACCOUNT)
    # Azure's portal shows a SAS token with the question mark of a URL.
    key, sas = secrets.account_key, secrets.sas_token.removeprefix("?")
    if not given:
        key = _first(environ, "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
        sas = environ.get("AZURE_STORAGE_SAS_TOKEN", "").removeprefix("?")
    url = upstream.endpoint or f"https://{account}.blob.core.windows.net"
    if key:
        return options | {
            "connection_string": f"BlobEndpoint={url};AccountName={account};AccountKey={key}"
        }
    if sas:
        return options | {"connection_string": f"BlobEndpoint={url};SharedAccessSignature={sas}"}
    # A login sends a token, which without TLS anyone on the way could read and use.
    if url.startswith("http://"):
        raise ConfigError(
            f"{url}: without TLS no login is sent; give account-key or sas-token, or an https:// endpoint"
        )
    return options | {"account_name": account, "account_host": url.removeprefix("https://")}


def _first(environ: Mapping[str, str], *names: str) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _is_meta(folder: str) -> bool:
    return folder.rpartition("/")[2] == "meta"
