"""The stores: which URI leads to which, and what becomes of TiCDC's parameters of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage_consumer.config.commands import uri_of
from storage_consumer.config.load import Loaded, export_origin, load
from storage_consumer.config.uris import SCHEMES, STORE_PARAMETERS, parse_upstream
from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import redact

KEY = "c2VjcmV0+/8="
GOOD = {
    "access-key": "AK&secret-access-key=SK",
    "secret-access-key": "SK&access-key=AK",
    "endpoint": "https://h:1",
    "account-name": "abc",
    "account-key": KEY,
    "encryption-key": "k" * 32,
    "role-arn": "arn:aws:iam::1:role/r",
    "external-id": "x&role-arn=arn:aws:iam::1:role/r",
}
"""Values where not every text is one."""


def loaded(uri: str) -> Loaded:
    """The settings that a bucket's URI gives."""
    return load({"upstream_uri": uri, "downstream_uri": "mysql://u@h:3306/", "protocol": "csv"}, {})


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("s3://b/p/", "s3://b/p"),
        ("gs://b/p", "gcs://b/p"),
        ("gcs://b/p", "gcs://b/p"),
        ("GS://b", "gcs://b"),
        ("azblob://b/p/q", "azure://b/p/q"),
        ("azure://b/p/q", "azure://b/p/q"),
        ("azure://acc.blob.core.windows.net/b/p/q/", "azure://b/p/q"),
        ("azure://acc.blob.core.windows.net/b", "azure://b"),
        ("oss://b/p?region=ap-southeast-1", "s3://b/p"),
    ],
)
def test_a_bucket_is_the_same_by_each_of_its_schemes(uri: str, identity: str) -> None:
    """State that was made with one of a store's schemes fits the others."""
    assert loaded(uri).config.upstream.identity == identity


@pytest.mark.parametrize(
    ("scheme", "name"),
    [(scheme, name) for scheme, store in SCHEMES.items() for name in sorted(STORE_PARAMETERS[store])],
)
def test_each_parameter_of_a_store_is_taken(scheme: str, name: str) -> None:
    """What TiCDC takes in the URI of a store can be pasted."""
    more = "&region=true" if scheme == "oss" else ""
    assert name in parse_upstream(f"{scheme}://b/p?{name}={GOOD.get(name, 'true')}{more}").parameters


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("gcs://b/p?account-key=k", "`account-key` is a parameter of azure, not of gcs"),
        ("azure://b/p?region=r", "`region` is a parameter of s3, not of azure"),
        ("file:///d?endpoint=http://h", "`endpoint` is a parameter of s3 and gcs and azure, not of file"),
        ("azure:///p", "no bucket is named; give azure://bucket/prefix"),
        ("azure://account.blob.core.windows.net@b/p", "only the bucket's name"),
        ("azure://b/p?account-name=a/b", "the storage account's name alone"),
        ("azure://b/p?account-key=a b", "no `+` became a space"),
        ("azure://b/p?account-key=abc", "no `=` was lost"),
        ("azure://b/p?encryption-key=short", "`encryption-key` is not a key as Azure issues it"),
        ("azure://b/p?sas-token=sv=1;x", "`sas-token` contains a `;`"),
        ("azure://b/p?endpoint=account.blob.core.windows.net", "`endpoint` is written as https://host:port"),
        ("gcs://b/p?endpoint=https://h/other/path", "`endpoint` is written as https://host:port"),
        ("gcs://b/p?credentials-file=/no/such/file", "/no/such/file cannot be read: No such file"),
    ],
)
def test_what_does_not_fit_a_store_is_refused(uri: str, message: str) -> None:
    """The error names the parameter and the remedy, and shows no secret."""
    with pytest.raises(ConfigError) as raised:
        loaded(uri)
    assert message in str(raised.value)


def test_a_bucket_in_google_is_understood(tmp_path: Path) -> None:
    """The endpoint goes into the settings without its path, the content of the credentials file into the secrets."""
    file = tmp_path / "key.json"
    content = {"type": "service_account", "private_key": "-----BEGIN", "client_email": "x@y"}
    file.write_text(json.dumps(content), encoding="utf-8")
    found = loaded(f"gs://b/p?credentials-file={file}&endpoint=https://h:4443/storage/v1/&predefined-acl=private")
    assert found.config.upstream.endpoint == "https://h:4443"
    assert json.loads(found.secrets.gcs_credentials) == content
    assert "-----BEGIN" in found.secrets.texts()
    assert not any("BEGIN" in text or str(file) in text for text in (repr(found.config), repr(found.secrets)))


def test_secrets_of_the_environment_are_hidden_too(tmp_path: Path) -> None:
    """What the stores' own clients take from the environment counts, with signatures, account keys and private keys."""
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "service_account", "private_key": "-----BEGIN"}), encoding="utf-8")
    environ = {
        "AWS_SECRET_ACCESS_KEY": "aws1",
        "AWS_SESSION_TOKEN": "aws2",
        "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=ab%2B&se=2",
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=acc;AccountKey=abcd==;SharedAccessSignature=sv=2&sig=xyz",
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
        "AWS_REGION": "here",
    }
    found = load({"upstream_uri": "file:///d"}, environ, target=False)
    for secret in ("aws1", "aws2", "ab%2B", "ab+", "abcd==", "sv=2&sig=xyz", "xyz", "-----BEGIN"):
        assert redact(secret) == "***"
    assert redact("here") == "here"
    assert "aws1" not in repr(found)
    gone = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none")}
    load({"upstream_uri": "file:///d"}, gone, target=False)


def test_the_signature_of_a_token_is_hidden_alone() -> None:
    """A token's signature is a secret in whatever text it stands."""
    loaded("azure://c/p?account-name=a&sas-token=sv%3D1%26sig%3Dab%252B")
    assert [redact(each) for each in ("ab%2B", "ab+")] == ["***", "***"]


@pytest.mark.parametrize("content", ["", "[]", "{}", "\udcff"])
def test_a_file_that_holds_no_credentials_is_refused(tmp_path: Path, content: str) -> None:
    """A ConfigError names the file."""
    file = tmp_path / "key.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"credentials-file`: .*key\.json"):
        loaded(f"gcs://b/p?credentials-file={file}")


def test_a_container_in_azure_is_understood() -> None:
    """Account and endpoint go into the settings, keys and tokens into the secrets."""
    found = loaded(
        f"azblob://c/p?account-name=acc&account-key={KEY}&sas-token=%3Fsv%3D1%26sig%3Dab%252B&access-tier=Hot"
        f"&endpoint=http://127.0.0.1:10000/acc/&encryption-key={'k' * 32}&encryption-scope=s"
    )
    upstream, secrets = found.config.upstream, found.secrets
    assert (upstream.scheme, upstream.root) == ("azure", "c/p")
    assert (upstream.account_name, upstream.endpoint) == ("acc", "http://127.0.0.1:10000/acc")
    assert (secrets.account_key, secrets.sas_token, secrets.encryption_key) == (KEY, "?sv=1&sig=ab%2B", "k" * 32)
    assert not any(secret in repr(found.config) for secret in secrets.texts())


@pytest.mark.parametrize(
    ("parameters", "path_style"),
    [
        ("", True),
        ("provider=minio", True),
        ("provider=alibaba", False),
        ("use-accelerate-endpoint=true", False),
        ("provider=alibaba&force-path-style=true", True),
        ("force-path-style=false", False),
    ],
)
def test_where_the_bucket_stands(parameters: str, *, path_style: bool) -> None:
    """Providers that take the bucket in the host's name only get it there, unless the URI says otherwise."""
    assert loaded(f"s3://b/p?{parameters}").config.upstream.force_path_style == path_style


@pytest.mark.parametrize(
    ("query", "endpoint"),
    [
        ("region=ap-southeast-1", "https://oss-ap-southeast-1.aliyuncs.com"),
        ("region=oss-ap-southeast-1", "https://oss-ap-southeast-1.aliyuncs.com"),
        ("endpoint=https://oss-cn-hongkong-internal.aliyuncs.com", "https://oss-cn-hongkong-internal.aliyuncs.com"),
    ],
)
def test_alibabas_store_is_one_that_speaks_s3(query: str, endpoint: str) -> None:
    """Its server follows from the region, or is given; it takes the bucket's name only as part of the host's. The URI leads there again."""
    found = loaded(f"oss://b/p?{query}&access-key=a&secret-access-key=s").config.upstream
    assert (found.scheme, found.endpoint, found.force_path_style) == ("s3", endpoint, False)
    assert loaded(uri_of(found)).config.upstream == found


def test_an_account_as_host() -> None:
    """As TiDB Cloud writes a container of Azure, the account's server comes before it."""
    found = loaded("azure://acc.blob.core.chinacloudapi.cn/b/p").config.upstream
    assert (found.account_name, found.endpoint) == ("acc", "https://acc.blob.core.chinacloudapi.cn")


def test_a_role_is_part_of_the_place() -> None:
    """The role and its external id go into the settings and into printed commands; an export is read by the same role."""
    role = "role-arn=arn:aws:iam::1:role/r&external-id=a=b,c@d"
    found = loaded(f"s3://b/p?region=r&{role}").config.upstream
    assert (found.role_arn, found.external_id) == ("arn:aws:iam::1:role/r", "a=b,c@d")
    assert loaded(uri_of(found)).config.upstream == found
    for dump in ("s3://other/full", "s3://other/full?region=x"):
        assert export_origin(dump, found).role_arn == found.role_arn
    assert export_origin("s3://other/full?role-arn=arn:aws:iam::2:role/x", found).external_id == ""
    assert export_origin("gcs://other/full", found).role_arn == ""
