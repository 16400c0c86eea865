"""The two URIs: what is taken, what is refused, and that no secret is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.uris import (
    DOWNSTREAM_PARAMETERS,
    STORE_PARAMETERS,
    UPSTREAM_PARAMETERS,
    mask_uri,
    parse_downstream,
    parse_upstream,
)
from storage_consumer.errors import ConfigError


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mysql://root:geheim@h:3306/", "mysql://root:***@h:3306/"),
        ("mysql://root@h:3306/", "mysql://root@h:3306/"),
        ("mysql://root:a@b@h/", "mysql://root:***@h/"),
        ("mysql://root:a/b@h/", "mysql://root:***@h/"),
        ("mysql://root:a?b#c@h/", "mysql://root:***@h/"),
        ("mysql://:pw@h/", "mysql://:***@h/"),
        (
            "s3://b/p?access-key=AK&secret-access-key=S/+=&region=r",
            "s3://b/p?access-key=***&secret-access-key=***&region=r",
        ),
        (
            "s3://b/p?session_token=t&sas-token=u&account-key=v",
            "s3://b/p?session_token=***&sas-token=***&account-key=***",
        ),
        ("s3://b/p?Secret%2DAccess%2DKey=t", "s3://b/p?Secret%2DAccess%2DKey=***"),
        ("s3://b/p?endpoint=http://u:p@h:9000", "s3://b/p?endpoint=***"),
        ("s3://b/p?endpoint=http%3A%2F%2Fu%3Ap%40h", "s3://b/p?endpoint=***"),
        (
            "azure://c/p?account-name=a&sas-token=sv=2022&ss=b&sig=SECRET%3D&endpoint=https://h",
            "azure://c/p?account-name=a&sas-token=***&***&***&endpoint=https://h",
        ),
        ("azure://c/p?sv=2022&sig=SECRET", "azure://c/p?sv=2022&sig=***"),
        ("s3://b/p?secret-access-key=a&SECRET&region=r#SECRET", "s3://b/p?secret-access-key=***&***&region=r#***"),
        ("mysql://h/?ssl-key=/etc/k.pem", "mysql://h/?ssl-key=/etc/k.pem"),
        ("file:///a:b/c@d", "file:///a:b/c@d"),
        ("no uri", "no uri"),
    ],
)
def test_masked_uris_show_everything_but_secrets(uri: str, masked: str) -> None:
    """Passwords, keys and tokens become ``***``, however they are spelt or left unencoded; the rest stays (S2)."""
    assert mask_uri(uri) == masked


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("azure://c/p?account-name=a&sas-token=sv=2022&ss=b&sig=SECRET", "percent-encode the token"),
        ("azure://c/p?account-name=a&sas-token=sv=2022&SECRET", "percent-encode the token"),
        ("s3://b/p?access-key=k&secret-access-key=a&SECRET=&region=r", "`secret-access-key`.*percent-encode"),
        ("s3://b/p?access-key=k&secret-access-key=a#SECRET", "`#`"),
    ],
)
def test_secrets_that_are_not_percent_encoded_are_not_shown(uri: str, message: str) -> None:
    """A secret that holds a `&` is hidden whole, and the error says how to write it."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse_upstream(uri)
    assert "SECRET" not in str(caught.value)


@given(st.text(max_size=60))
def test_masking_takes_any_text(text: str) -> None:
    """Masking never fails, and masking twice changes nothing."""
    assert mask_uri(mask_uri(text)) == mask_uri(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30))
def test_no_password_is_shown_by_an_error(password: str) -> None:
    """Whatever the password, encoded or not, an error about its URI does not show it (S3)."""
    secret = f"ZZ{password}ZZ"
    for text in (f"mysql://root:{secret}@h/db", f"oracle://root:{secret}@h:1/?x=y"):
        with pytest.raises(ConfigError) as caught:
            parse_downstream(text)
        assert secret not in str(caught.value)
        assert "ZZ" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///dir", "/dir"),
        ("file:///dir/", "/dir"),
        ("file://localhost/a//b/../c?protocol=csv", "/a/c"),
        ("file:///with%20space/%3F", "/with space/?"),
    ],
)
def test_directories_are_taken(text: str, path: str) -> None:
    """A directory is decoded, normalised, and has no slash at its end."""
    assert parse_upstream(text).path == path


@pytest.mark.parametrize(
    ("text", "path"), [("s3://b", ""), ("s3://b/", ""), ("s3://b/p/q//", "/p/q"), ("S3://b/%20", "/ ")]
)
def test_buckets_are_taken(text: str, path: str) -> None:
    """A bucket may have a prefix; slashes around it don't matter."""
    uri = parse_upstream(text)
    assert (uri.scheme, uri.host, uri.path) == ("s3", "b", path)


def test_a_plus_in_a_parameter_stays_a_plus() -> None:
    """AWS keys hold ``+`` and ``/`` and are pasted unencoded, as TiCDC takes them."""
    uri = parse_upstream("s3://b/p?access-key=A+B&secret-access-key=c/d+e%2Bf=")
    assert uri.parameters == {"access-key": "A+B", "secret-access-key": "c/d+e+f="}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/data/bucket", "a URI is expected, like file:///dir"),
        ("file://dir/sub", "three slashes"),
        ("file:///", "no directory is named"),
        ("s3:///p", "no bucket is named"),
        ("s3://key:word@b/p", "only the bucket's name"),
        ("hdfs://b/p", "hdfs:// is not a storage that can be read; give file:///dir, s3://bucket/prefix"),
        ("s33://b/p", "did you mean `s3`"),
        ("kafka://b/p", "is not a storage"),
        ("s3://b/p?protocl=csv", "unknown parameter `protocl`; did you mean `protocol`?"),
        ("s3://b/p?protocol", "unknown parameter `(without a `=`)`"),
        ("s3://b/p?protocol=csv&protocol=canal-json", "given twice"),
        ("s3://b/p?access-key=a", "`access-key` comes without its partner"),
        ("s3://b/p?secret-access-key=a", "`secret-access-key` comes without its partner"),
        ("s3://b/p?external-id=x", "`external-id` comes without `role-arn`"),
        ("oss://b/p?region=r&role-arn=acs:ram::1:role/x", "`role-arn` is a role of AWS"),
        ("oss://b/p", "give the bucket's region or endpoint: region=ap-southeast-1"),
        ("s3://b/p?endpoint=minio:9000", "`endpoint` is written as http://"),
        ("s3://b/p?endpoint=http://u:p@minio:9000", "no user or password"),
        ("s3://b/p#q", "%23"),
        ("s3://[b/p", "well-formed"),
    ],
)
def test_what_is_no_bucket_is_refused_with_the_remedy(text: str, message: str) -> None:
    """Each mistake in the bucket's URI has a message that says what is wrong and how it is written."""
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse_upstream(text)
    assert str(caught.value).startswith("--upstream-uri ")


def test_targets_are_taken_apart() -> None:
    """User and password are percent-decoded; IPv6 hosts and ports are understood."""
    uri = parse_downstream("tidb+ssl://app%40x:p%2Fw%3A%25@[::1]:4001/?time-zone=UTC")
    assert (uri.scheme, uri.ssl, uri.host, uri.port) == ("tidb", True, "::1", 4001)
    assert (uri.user, uri.password) == ("app@x", "p/w:%")


def test_an_empty_password_is_not_a_missing_one() -> None:
    """``user:@host`` gives an empty password, ``user@host`` none."""
    assert parse_downstream("mysql://root:@h/").password == ""
    assert parse_downstream("mysql://root@h/").password is None


def test_a_socket_needs_no_host() -> None:
    """A server on the same machine may be reached by its socket alone."""
    assert parse_downstream("mariadb://root@/?unix-socket=/run/db.sock").parameters["unix-socket"] == "/run/db.sock"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:3306", "a URI is expected, like mysql://user@host:3306/"),
        ("mysql://h/db", "no database belongs here"),
        ("mysql://root:pa/ss@h/", "write / as %2F"),
        ("mysql://root@/", "no host is named"),
        ("mysql://h:99999/", "the port is not a number"),
        ("mysq://h/", "did you mean `mysql`"),
        ("mysql+tls://h/", "mysql+tls:// is not a target"),
        ("mysql://h/?unix-socket=run/db.sock", "absolute path"),
        ("mysql://h/?worker-cnt=3", "did you mean `worker-count`?"),
        ("mysql://h/?dry-run=true", "`dry-run` is not supported"),
    ],
)
def test_what_is_no_target_is_refused_with_the_remedy(text: str, message: str) -> None:
    """Each mistake in the target's URI has a message that says what is wrong and how it is written."""
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse_downstream(text)
    assert "pa/ss" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(UPSTREAM_PARAMETERS.difference(*STORE_PARAMETERS.values())))
def test_each_parameter_of_a_sink_uri_is_taken(name: str) -> None:
    """TiCDC's storage parameters can be pasted."""
    assert parse_upstream(f"s3://b/p?{name}=1").parameters == {name: "1"}


@pytest.mark.parametrize("name", sorted(DOWNSTREAM_PARAMETERS - {"dry-run", "unix-socket"}))
def test_each_parameter_of_a_mysql_sink_uri_is_taken(name: str) -> None:
    """TiCDC's MySQL sink parameters, and ours, can be given."""
    assert parse_downstream(f"mysql://h/?{name}=1").parameters == {name: "1"}


def test_a_uri_does_not_show_its_password_by_repr() -> None:
    """The repr is the masked URI."""
    assert repr(parse_downstream("mysql://root:geheim@h/")) == "Uri(mysql://root:***@h/)"
