"""Where credentials for Azure and Google come from, and that the least rights suffice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.bucket.stores import azure, gcs, open_storage
from storage_consumer.bucket.stores.azure import AzureStorage
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError
from tests.contract.rigs import AzureRig, listed
from tests.harness.azure_server import ACCOUNT, KEY
from tests.harness.sts_server import BUCKET, ROLE, StsServer, sts_server

UPSTREAM = Upstream(scheme="azure", root="c/p", account_name="acc", protocol="csv")
ASSUMED = Upstream(scheme="s3", root=f"{BUCKET}/pre", role_arn=ROLE, external_id="x-1", protocol="csv")
GCS = Upstream(scheme="gcs", root="b/p", protocol="csv")


@pytest.mark.server
def test_list_and_read_suffice(container: AzureRig) -> None:
    """A token that may only list and read does; one that may not list, or not read, is a ConfigError without it."""
    container.put("a", b"abc")
    assert (list(listed(container.storage)), container.storage.read("a")) == (["a"], b"abc")
    for rights, call in (("r", AzureStorage.check), ("l", lambda storage: storage.read("a"))):
        secrets = Secrets(sas_token=container.server.token(container.name, rights))
        with pytest.raises(ConfigError, match="refused") as raised:
            call(AzureStorage(container.upstream, secrets))
        assert secrets.sas_token not in str(raised.value)


@pytest.mark.server
def test_keys_of_the_account(container: AzureRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account's key does, from the URI or from where TiCDC and Azure's tools look; a wrong one is a ConfigError."""
    AzureStorage(container.upstream, Secrets(account_key=KEY)).check()
    with pytest.raises(ConfigError, match="refused") as raised:
        AzureStorage(container.upstream, Secrets(account_key="d3Jvbmc=")).check()
    assert "d3Jvbmc=" not in str(raised.value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    AzureStorage(replace(container.upstream, account_name=""), Secrets()).check()


@pytest.mark.parametrize(
    ("upstream", "secrets", "environ", "options"),
    [
        (
            UPSTREAM,
            Secrets(account_key="k="),
            {"AZURE_STORAGE_SAS_TOKEN": "other"},
            {"connection_string": "BlobEndpoint=https://acc.blob.core.windows.net;AccountName=acc;AccountKey=k="},
        ),
        (
            replace(UPSTREAM, endpoint="https://acc.blob.core.chinacloudapi.cn"),
            Secrets(sas_token="?sv=1&sig=x"),  # noqa: S106 - made up
            {"AZURE_STORAGE_KEY": "other"},
            {
                "connection_string": "BlobEndpoint=https://acc.blob.core.chinacloudapi.cn;SharedAccessSignature=sv=1&sig=x"
            },
        ),
        (
            replace(UPSTREAM, account_name=""),
            Secrets(),
            {"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://h;AccountName=n;AccountKey=k"},
            {"connection_string": "BlobEndpoint=https://h;AccountName=n;AccountKey=k"},
        ),
        (UPSTREAM, Secrets(), {}, {"account_name": "acc", "account_host": "acc.blob.core.windows.net"}),
    ],
)
def test_what_azure_is_opened_with(
    upstream: Upstream, secrets: Secrets, environ: dict[str, str], options: dict[str, Any]
) -> None:
    """What the URI tells comes first, then the environment, then Azure's default chain; never anonymously."""
    given = azure.driver_options(upstream, secrets, environ)
    assert given == options | {"anon": False, "use_listings_cache": False, "skip_instance_cache": True}


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        (replace(UPSTREAM, account_name=""), "AZURE_STORAGE_ACCOUNT"),
        (replace(UPSTREAM, endpoint="http://h/acc"), "without TLS no login is sent"),
    ],
)
def test_what_azure_is_not_opened_with(upstream: Upstream, message: str) -> None:
    """Without an account, or with a login over plain HTTP, a ConfigError says what is missing."""
    with pytest.raises(ConfigError, match=message):
        azure.driver_options(upstream, Secrets(), {})


@pytest.mark.parametrize(
    ("upstream", "secrets", "token", "endpoint"),
    [
        (GCS, Secrets(), "google_default", None),
        (GCS, Secrets(gcs_credentials='{"type": "x"}'), {"type": "x"}, None),
        (replace(GCS, endpoint="https://h"), Secrets(), "google_default", "https://h"),
        (replace(GCS, endpoint="http://h"), Secrets(gcs_credentials='{"type": "x"}'), "anon", "http://h"),
    ],
)
def test_what_google_is_opened_with(upstream: Upstream, secrets: Secrets, token: object, endpoint: str | None) -> None:
    """The credentials file of the URI, else Google's default chain, to read only; nothing over plain HTTP."""
    given = gcs.driver_options(upstream, secrets)
    assert (given["token"], given["endpoint_url"], given["access"]) == (token, endpoint, "read_only")


def test_no_credentials_for_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credentials file that is not there is a ConfigError that says where credentials are looked for."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
    with pytest.raises(ConfigError, match=r"no credentials.*GOOGLE_APPLICATION_CREDENTIALS"):
        open_storage(GCS, Secrets()).check()


@pytest.mark.parametrize(
    ("upstream", "package"),
    [(GCS, "gcsfs"), (UPSTREAM, "adlfs")],
)
def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, upstream: Upstream, package: str) -> None:
    """Opening costs nothing; the first question is a ConfigError that names what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    storage = open_storage(upstream, Secrets(account_key="azA="))
    with pytest.raises(ConfigError, match=f"pip install {package} "):
        storage.check()


@pytest.fixture(scope="module")
def sts() -> Iterator[StsServer]:
    """A server where only the role may read."""
    with sts_server() as server:
        yield server


def _of_nobody(monkeypatch: pytest.MonkeyPatch, server: StsServer, tmp_path: Path) -> Upstream:
    """Leave no keys in the environment, and return the bucket behind the role."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    return replace(ASSUMED, endpoint=server.endpoint)


@pytest.mark.server
@pytest.mark.parametrize("by", ["environment", "profile", "uri"])
def test_a_role_is_assumed(by: str, sts: StsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The keys of the environment, of a profile or of the URI assume the role, which may read what they may not."""
    upstream, secrets = _of_nobody(monkeypatch, sts, tmp_path), Secrets()
    keys = {"aws_access_key_id": sts.access_key, "aws_secret_access_key": sts.secret_access_key}
    if by == "environment":
        for name, value in keys.items():
            monkeypatch.setenv(name.upper(), value)
    elif by == "profile":
        (tmp_path / "keys").write_text("\n".join(["[default]", *(f"{name} = {value}" for name, value in keys.items())]))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    else:
        secrets = Secrets(access_key=sts.access_key, secret_access_key=sts.secret_access_key)
    storage = open_storage(upstream, secrets)
    storage.check()
    assert list(listed(storage)) == ["metadata"]
    assert storage.read("metadata") == b"{}"
    with pytest.raises(ConfigError, match=r"refused \(AccessDenied\)"):
        open_storage(
            replace(upstream, role_arn=""), Secrets(access_key=sts.access_key, secret_access_key=sts.secret_access_key)
        ).check()


@pytest.mark.server
def test_a_role_that_cannot_be_assumed(sts: StsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wrong keys, and none, are a ConfigError that names the role's parameters, or where keys are looked for."""
    upstream = _of_nobody(monkeypatch, sts, tmp_path)
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        open_storage(upstream, Secrets()).check()
    with pytest.raises(ConfigError, match=r"cannot be assumed .*check role-arn and external-id") as raised:
        open_storage(upstream, Secrets(access_key="AKIAWRONGWRONG", secret_access_key="hushhush")).check()  # noqa: S106 - made up
    assert "hushhush" not in str(raised.value)
