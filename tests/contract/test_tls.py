"""TLS to the target, with certificates of a CA that lives as long as the tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.config.load import load_target
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.target.connection import connect
from storage_consumer.target.server_trust import certificates
from tests.harness import servers
from tests.harness.certificates import Authority, Signed
from tests.harness.servers import DatabaseServer, Jail

pytestmark = pytest.mark.server
UNKNOWN = "unable to get local issuer|self-signed certificate in certificate chain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A server with TLS whose certificate can be changed while it runs."""

    server: DatabaseServer
    authority: Authority
    served: Callable[[Signed], None]
    """Has the server show another certificate from now on."""


@contextmanager
def secured(kind: str, folder: Path) -> Iterator[Secured]:
    """A server of that kind with the certificates of a CA of its own; user ``strict`` needs one of the client's."""
    authority = Authority(folder / "ca", "authority")
    live = folder / "live"
    live.mkdir()
    shutil.copy(authority.file, live / "ca.pem")
    _put(live, authority.sign("server"))
    reload = "FLUSH SSL" if kind == "mariadb" else "ALTER INSTANCE RELOAD TLS"
    with _shown(kind, live) as inside:
        options = [f"--ssl-ca={inside}/ca.pem", f"--ssl-cert={inside}/cert.pem", f"--ssl-key={inside}/key.pem"]
        with servers.SERVERS[kind](options=options) as server:
            server.query("CREATE USER strict@'%' REQUIRE X509")

            def serve(signed: Signed) -> None:
                _put(live, signed)
                if kind != "mariadb":
                    for file in live.iterdir():
                        Jail().copy(file, inside)
                server.query(reload)

            yield Secured(server=server, authority=authority, served=serve)


def _put(live: Path, signed: Signed) -> None:
    shutil.copy(signed.certificate, live / "cert.pem")
    shutil.copy(signed.key, live / "key.pem")


@contextmanager
def _shown(kind: str, live: Path) -> Iterator[str]:
    """The folder as the server sees it; MySQL sees a copy."""
    if kind == "mariadb":
        yield str(live)
        return
    with Jail().home(live, servers.free_port()) as inside:
        yield inside


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def tls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Each server that can be given certificates, in turn."""
    with secured(request.param, tmp_path_factory.mktemp("tls")) as found:
        yield found


def cipher(server: DatabaseServer, *, host: str = "localhost", scheme: str = "mysql", **options: Any) -> str:
    """What encrypts a connection that is made with these options; empty: nothing. Raises `ConfigError`."""
    uri = f"{scheme}://{options.pop('user', 'root')}@{host}:{server.port}/"
    target = load_target({"downstream_uri": uri, **options}, {})
    with connect(target.settings, target.password) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        return str(cursor.fetchall()[0][1])


def test_the_right_server(tls: Secured) -> None:
    """A server is taken whose certificate the CA signed for the host of the URI; every mode that may be said works."""
    ca = str(tls.authority.file)
    tls.served(tls.authority.sign("server"))
    assert cipher(tls.server, ssl_ca=ca)
    assert cipher(tls.server, ssl_ca=ca, ssl_mode="VERIFY_IDENTITY")
    assert cipher(tls.server, ssl_ca=ca, ssl_mode="verify-ca", host="127.0.0.1")
    assert cipher(tls.server, ssl_mode="required", host="127.0.0.1")
    assert cipher(tls.server, scheme="mysql+ssl", ssl_mode="required")
    assert cipher(tls.server)
    assert not cipher(tls.server, ssl_mode="disabled")


@pytest.mark.parametrize(
    ("host", "options", "reason", "way_on"),
    [
        ("localhost", {"host": "127.0.0.1"}, "IP address mismatch", "--ssl-mode verify-ca"),
        ("db.example.com", {}, "Hostname mismatch", "--ssl-mode verify-ca"),
        ("localhost", {"ssl_ca": "another"}, UNKNOWN, "--ssl-ca"),
        ("localhost", {"ssl_ca": ""}, UNKNOWN, "--ssl-ca"),
    ],
    ids=["address", "host", "CA", "no CA"],
)
def test_the_wrong_server(
    tls: Secured, tmp_path: Path, host: str, options: dict[str, str], reason: str, way_on: str
) -> None:
    """Without --ssl-mode a server that is not the right one is refused immediately, with the reason and the way on (S5)."""
    tls.served(tls.authority.sign("server", host=host))
    given = {"ssl_ca": str(tls.authority.file), "scheme": "mysql+ssl", **options}
    if given["ssl_ca"] == "another":
        given["ssl_ca"] = str(Authority(tmp_path, "another").file)
    with pytest.raises(ConfigError, match=reason) as caught:
        cipher(tls.server, **given)
    assert way_on in str(caught.value)


@pytest.mark.parametrize("tls", ["mariadb"], indirect=True)  # MySQL itself serves no certificate that has expired
def test_expired(tls: Secured) -> None:
    """A certificate that has expired is refused by every mode that verifies one."""
    tls.served(tls.authority.sign("server", days=-1))
    for mode in (None, "verify-ca"):
        with pytest.raises(ConfigError, match=r"certificate has expired.*renew the certificate"):
            cipher(tls.server, ssl_ca=str(tls.authority.file), ssl_mode=mode)


@pytest.fixture(scope="module")
def plain() -> Iterator[DatabaseServer]:
    """A server without TLS, which newer ones have by default."""
    with servers.mariadb(options=["--skip-ssl"]) as server:
        yield server


@pytest.mark.parametrize("how", ["mysql+ssl", "ssl_ca", "required", "verify-ca"])
def test_server_without_tls(plain: DatabaseServer, tmp_path: Path, how: str) -> None:
    """Who asked for TLS gets no plain connection, however TLS was asked for."""
    options: dict[str, Any] = {
        "mysql+ssl": {"scheme": "mysql+ssl"},
        "ssl_ca": {"ssl_ca": Authority(tmp_path, "ca").file},
    }
    assert not cipher(plain)
    with pytest.raises(ConfigError, match="the server does not offer it"):
        cipher(plain, **options.get(how, {"ssl_mode": how}))


def test_client_certificate(tls: Secured, tmp_path: Path) -> None:
    """A server that wants a certificate gets it; a missing, foreign or locked one is an error that says so, never a question."""
    tls.served(tls.authority.sign("server"))
    own, ca = tls.authority.sign("client"), str(tls.authority.file)
    assert cipher(tls.server, user="strict", ssl_ca=ca, ssl_cert=own.certificate, ssl_key=own.key)
    with pytest.raises(ConfigError, match="check user, password"):
        cipher(tls.server, user="strict", ssl_ca=ca)
    foreign = Authority(tmp_path, "another").sign("client")
    with pytest.raises(StorageConsumerError, match=r"--ssl-cert|check user, password|SSLEOFError"):  # some just hang up
        cipher(tls.server, user="strict", ssl_ca=ca, ssl_cert=foreign.certificate, ssl_key=foreign.key)
    locked = tls.authority.sign("locked", passphrase=b"geheim")
    with pytest.raises(ConfigError, match="passphrase"):
        cipher(tls.server, ssl_ca=ca, ssl_cert=locked.certificate, ssl_key=locked.key)
    for broken in ({"ssl_ca": own.key}, {"ssl_ca": ca, "ssl_cert": own.certificate, "ssl_key": foreign.key}):
        with pytest.raises(ConfigError, match=r"cannot be used for TLS|holds no certificate"):
            cipher(tls.server, **broken)


def test_ca_that_has_travelled(tls: Secured, tmp_path: Path) -> None:
    """On a machine that lacks the CA's file its content, which the driver sent, verifies the server as the file does."""
    tls.served(tls.authority.sign("server"))
    for authority, right in ((tls.authority, True), (Authority(tmp_path, "another"), False)):
        uri = f"mysql://root@localhost:{tls.server.port}/"
        target = load_target({"downstream_uri": uri, "ssl_ca": str(authority.file)}, {})
        (commented := tmp_path / "commented.pem").write_text(f"Zertifikat für Tests\n{authority.file.read_text()}")
        sent = replace(target.settings, ssl_ca=str(tmp_path / "gone"), ssl_ca_text=certificates(str(commented)))
        if right:
            connect(sent, target.password).close()
        else:
            with pytest.raises(ConfigError, match=UNKNOWN):
                connect(sent, target.password)
