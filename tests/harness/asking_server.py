"""A server that asks one client for its password, in any of the ways that there are."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import StorageConsumerError
from storage_consumer.target.connection import connect
from tests.contract.test_rogue_server import OK, WITH_TLS, greeting_of
from tests.harness.elsewhere import ADDRESS
from tests.harness.packets import receive, send

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
