"""Who gets the password: a server that asks for it in every way there is, and real ones."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from storage_consumer.config.load import load_target
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.target.connection import connect
from storage_consumer.target.server_trust import unverified
from storage_consumer.target.transaction import FencedConnection
from tests.contract.state_rigs import fenced_spec
from tests.contract.test_rogue_server import OK, WITH_TLS, greeting_of
from tests.harness import servers
from tests.harness.certificates import Authority
from tests.harness.elsewhere import ADDRESS, elsewhere
from tests.harness.packets import receive, send
from tests.harness.program import ROOT, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, ts

PASSWORD = "geheim-9"  # noqa: S105 - of the tests
_SALT = b"c" * 20
FULL = b"\x01\x04"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PUBLIC = _KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a server asks for the password."""

    greeting: bytes = b"caching_sha2_password"
    switch: bytes = b""
    """The way that it switches to; empty: it does not."""
    then: bytes = b""
    """What it says when the challenge was answered."""


class Asking:
    """A server that asks one client for its password."""

    def __init__(self, way: Way, host: str, context: ssl.SSLContext | None) -> None:
        """`context`: with which it does TLS, if at all."""
        self._way, self._context = way, context
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self.listener.getsockname()[1]
        self.learned = ""
        """The password."""
        self._seen: list[bytes] = []
        self._salt = b"a" * 8 + b"b" * 12

    def serve(self) -> None:
        """Answer one client."""
        client, _ = self.listener.accept()
        with client, suppress(OSError):
            client.settimeout(10)
            self._client: Any = client
            capabilities = WITH_TLS if self._context else WITH_TLS & ~0x0800
            self._send(0, greeting_of(capabilities=capabilities, plugin=self._way.greeting))
            number, _ = self._packet()
            if self._context:
                with self._context.wrap_socket(client, server_side=True) as self._client:
                    self._serve_login(*self._packet())
            else:
                self._serve_login(number, b"")

    def _serve_login(self, number: int, _login: bytes) -> None:
        number = self._ask(number)
        while True:
            self._send(number + 1, OK)
            number, _ = self._packet()

    def _ask(self, number: int) -> int:
        way, switch = self._way, self._way.switch
        if way.greeting == b"sha256_password" and way.greeting not in self._seen[-1]:
            switch = way.greeting  # the client began in another way
        elif way.greeting == b"sha256_password":
            number, _ = self._key_is_asked_for(number, self._context is None)
        if switch:
            self._salt = _SALT
            self._send(number + 1, b"\xfe" + switch + b"\0" + _SALT + b"\0")
            number, answer = self._packet()
            number, _ = self._key_is_asked_for(number, switch == b"sha256_password" and answer == b"\x01")
        if way.then:
            self._send(number + 1, way.then)
            number, answer = self._packet()
            number, _ = self._key_is_asked_for(number, answer == b"\x02")
        return number

    def _key_is_asked_for(self, number: int, asked: bool) -> tuple[int, bytes]:  # noqa: FBT001 - a helper of the line above
        if not asked:
            return number, b""
        self._send(number + 1, b"\x01" + _PUBLIC)
        return self._packet()

    def look(self) -> None:
        """Learn the password out of all that came."""
        for packet in self._seen:
            if PASSWORD.encode() in packet:
                self.learned = PASSWORD
            with suppress(ValueError, UnsupportedAlgorithm):
                mask = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303 - the protocol's
                text = _KEY.decrypt(packet, mask)
                self.learned = bytes(a ^ self._salt[i % 20] for i, a in enumerate(text)).rstrip(b"\0").decode("latin1")

    def _send(self, number: int, content: bytes) -> None:
        send(self._client, number, content)

    def _packet(self) -> tuple[int, bytes]:
        number, content = receive(self._client)
        self._seen.append(content)
        return number, content


@dataclass
class Asked:
    """What became of a client of an `Asking`."""

    learned: str = ""
    error: StorageConsumerError | None = None


def asked(way: Way, target: Downstream, *, host: str = ADDRESS, context: ssl.SSLContext | None = None) -> Asked:
    """Connect to a server that asks in this way."""
    server, found = Asking(way, host, context), Asked()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        connect(replace(target, host=host, port=server.port, connect_timeout=5), PASSWORD).close()
    except StorageConsumerError as error:
        found.error = error
    server.listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    server.listener.close()
    server.look()
    found.learned = server.learned
    return found


WAYS = {
    "full authentication": Way(then=FULL),
    "full authentication, with more behind it": Way(then=FULL + b"\0junk"),
    "switch, then full authentication": Way(
        greeting=b"mysql_native_password", switch=b"caching_sha2_password", then=FULL
    ),
    "sha256_password": Way(greeting=b"sha256_password"),
    "switch to sha256_password": Way(switch=b"sha256_password"),
    "switch to clear text": Way(switch=b"mysql_clear_password"),
    "clear text from the beginning": Way(greeting=b"mysql_clear_password", switch=b"mysql_clear_password"),
    "dialog": Way(switch=b"dialog"),
    "the broken old way": Way(switch=b"mysql_old_password"),
}
CLEAR = [name for name in WAYS if "clear" in name or name == "dialog"]
OLD = "the broken old way"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of servers."""
    return Authority(tmp_path_factory.mktemp("ca"), "authority")


def serving(authority: Authority, host: str = ADDRESS) -> ssl.SSLContext:
    """TLS of a server with a certificate for that host."""
    signed, context = authority.sign("asking", host=host), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    return context


MODES = {
    "disabled": ("disabled", False),
    "preferred, no TLS": ("preferred", False),
    "preferred, TLS": ("preferred", True),
    "required": ("required", True),
}
"""``ssl-mode``, and whether the server does TLS."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WAYS)
def test_nobody_verified_it(authority: Authority, name: str, mode: str) -> None:
    """A server that nobody verified never gets the password, neither as it is nor under its own key; the error says what to do."""
    ssl_mode, does_tls = MODES[mode]
    context = serving(authority) if does_tls else None
    found = elsewhere(lambda: asked(WAYS[name], Downstream(ssl_mode=ssl_mode), context=context))
    assert found.learned == ""
    assert isinstance(found.error, ConfigError)
    if name != OLD:
        assert all(text in str(found.error) for text in ("--ssl-ca", "--ssl-mode", "--allow-unverified-server"))


@pytest.mark.parametrize("name", WAYS)
def test_verified(authority: Authority, tmp_path: Path, name: str) -> None:
    """One that TLS verifies gets it as it asks, but by the way that tells it to everyone; one with another CA's certificate gets nothing."""
    target = Downstream(ssl=True, ssl_mode="verify-identity", ssl_ca=str(authority.file))
    found = elsewhere(lambda: asked(WAYS[name], target, context=serving(authority)))
    assert (found.learned == PASSWORD) == (name not in (OLD, "dialog"))  # that one asks by a prompt first
    other = replace(target, ssl_ca=str(Authority(tmp_path, "another").file))
    found = elsewhere(lambda: asked(WAYS[name], other, context=serving(authority)))
    assert found.learned == ""
    assert isinstance(found.error, ConfigError)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WAYS)
def test_allowed(authority: Authority, name: str, mode: str) -> None:
    """--allow-unverified-server lets it have the password; in clear text over TLS only."""
    ssl_mode, does_tls = MODES[mode]
    target = Downstream(ssl_mode=ssl_mode, allow_unverified_server=True)
    found = elsewhere(lambda: asked(WAYS[name], target, context=serving(authority) if does_tls else None))
    clear_without_tls = name in CLEAR and not does_tls
    assert (found.learned == PASSWORD) == (name not in (OLD, "dialog") and not clear_without_tls)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback(host: str) -> None:
    """This machine's own loopback is trusted as a socket is, by its address; in clear text it gets nothing."""
    target = Downstream(ssl_mode="disabled")
    assert asked(WAYS["full authentication"], target, host=host).learned == PASSWORD
    assert asked(WAYS["switch to sha256_password"], target, host=host).learned == PASSWORD
    assert not asked(WAYS["switch to clear text"], target, host=host).learned


# real servers


def _gets_nothing(target: Downstream) -> None:
    """Neither from the driver nor from a task."""
    task = FencedConnection(fenced_spec(target), PASSWORD, 0)
    attempts: list[Callable[[], object]] = [lambda: connect(target, PASSWORD), task.live]
    for attempt in attempts:
        with pytest.raises(ConfigError, match=r"itself.*--ssl-ca.*--ssl-mode.*--allow-unverified-server"):
            attempt()


@pytest.mark.server
@pytest.mark.slow
def test_mysql_that_does_not_remember(tmp_path: Path) -> None:
    """A MySQL server that asks for full authentication, as after a restart, gets it as modes and place allow; whom it remembers needs no more."""

    def work() -> None:
        with servers.mysql(options=["--bind-address=*"]) as server:
            server.query(f"CREATE USER app@'%' IDENTIFIED WITH caching_sha2_password BY '{PASSWORD}'")
            authority = server.socket.parent / "ca.pem"
            there = Downstream(host=ADDRESS, port=server.port, user="app", connect_timeout=30)
            for mode in ("disabled", "preferred", "required"):
                _gets_nothing(replace(there, ssl_mode=mode))
            for target in (
                replace(there, ssl_mode="verify-ca", ssl_ca=str(authority)),
                replace(there, host="127.0.0.1", ssl_mode="disabled"),
                replace(there, host="127.0.0.1"),
                replace(there, unix_socket=str(server.socket)),
                replace(there, allow_unverified_server=True),
                replace(there, ssl_mode="disabled", allow_unverified_server=True),
            ):
                server.query("FLUSH PRIVILEGES")  # it forgets everyone
                connect(target, PASSWORD).close()
                connect(replace(there, ssl_mode="disabled"), PASSWORD).close()
            with pytest.raises(ConfigError, match="error 1045"):
                connect(replace(there, ssl_mode="verify-ca", ssl_ca=str(authority)), "wrong")

    elsewhere(work)


@pytest.mark.server
@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_challenge_is_enough(kind: str) -> None:
    """Where the answer to a challenge is enough, or there is no password, nothing has to be verified."""

    def work() -> None:
        with servers.SERVERS[kind](
            options=["--bind-address=*" if kind == "mysql" else "--bind-address=0.0.0.0"]
        ) as server:
            server.query("CREATE USER nobody@'%'")
            connect(Downstream(host=ADDRESS, port=server.port, user="nobody"), "").close()
            if kind == "mariadb":
                server.query(f"CREATE USER app@'%' IDENTIFIED BY '{PASSWORD}'")
                connect(Downstream(host=ADDRESS, port=server.port, user="app"), PASSWORD).close()

    elsewhere(work)


def test_ways_that_are_not_spoken() -> None:
    """An account that logs in by a way which this program, or this machine, does not know is a wrong setting that says so."""
    for way, words in {
        b"client_ed25519": "pip install pynacl",
        b"parsec": "parsec",
        b"auth_gssapi_client": "auth_gssapi_client",
        b"authentication_webauthn_client": "webauthn",
    }.items():
        error = asked(Way(switch=way), Downstream(), host="127.0.0.1").error
        assert isinstance(error, ConfigError)
        assert words in str(error)


@pytest.mark.server
def test_no_cryptography(mysql: DatabaseServer, tmp_path: Path) -> None:
    """Without the package that encrypts a password the program ends with code 2 and names it; no table halts for that."""
    mysql.query("DROP USER IF EXISTS keyed@'%'")
    mysql.query(f"CREATE USER keyed@'%' IDENTIFIED BY '{PASSWORD}'")
    (gone := tmp_path / "gone" / "cryptography").mkdir(parents=True)
    (gone / "__init__.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    uri = f"mysql://keyed@127.0.0.1:{mysql.port}/?ssl-mode=disabled"
    given = [
        "--upstream-uri",
        bucket.uri,
        "--downstream-uri",
        uri,
        "--config",
        str(tmp_path / "changefeed.toml"),
        "--once",
    ]
    environment = {"PYTHONPATH": f"{gone.parent}:{ROOT}", "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": PASSWORD}
    with program(given, tmp_path / "log", environment=environment) as running:
        assert running.end() == 2
        assert "pip install cryptography" in running.text()


def test_settings_that_contradict(authority: Authority) -> None:
    """The option is refused where TLS verifies the server, and says what it gives up where it counts."""
    for more in ({"ssl_ca": str(authority.file)}, {"ssl_mode": "verify-identity"}):
        with pytest.raises(ConfigError, match="allow-unverified-server"):
            load_target({"downstream_uri": "mysql://root@db/", "allow_unverified_server": True, **more}, {})
    target = load_target(
        {"downstream_uri": "mysql://root@db/?ssl-mode=required", "allow_unverified_server": True}, {}
    ).settings
    assert "--allow-unverified-server: whoever answers at db:3306 gets the password of root" in unverified(target)
    assert unverified(Downstream()) == ""
