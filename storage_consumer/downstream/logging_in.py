"""Which servers may have the password, and in which ways of logging in they would get it.

A way that answers a challenge (mysql_native_password, client_ed25519, the short way of caching_sha2_password) does not tell the
password, whoever asks; one who listens can try guesses on the answer, no more. The other ways do: some send it as it is, or under
a key that the server itself sends, as caching_sha2_password does whenever the server does not remember the account, or claims so.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Protocol

from pymysql import _auth
from pymysql.protocol import MysqlPacket

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError

_CLEAR_TEXT = frozenset((b"mysql_clear_password", b"dialog"))
"""Ways to log in that send the password as it is, over TLS or not."""
_BROKEN = b"mysql_old_password"
"""A challenge whose answer tells the password."""
_TELLING = _CLEAR_TEXT | {b"sha256_password", _BROKEN}
"""Ways that tell the password in any case; sha256_password sends it as it is over TLS, else under the server's own key."""
_CACHING = b"caching_sha2_password"
_SHORT_WAY_DONE = b"\x01\x03"
"""What the server says where the answer to its challenge was enough; anything else asks for the password."""


class Client(Protocol):
    """What is asked of a connection that logs in."""

    password: bytes
    salt: bytes
    trust: Trust

    @property
    def verifies(self) -> bool:
        """Whether the server has proven that it is the one that was asked for."""
        ...

    @property
    def encrypts(self) -> bool:
        """Whether nobody on the way can read along."""
        ...


class Trust:
    """What is known about the one who answers."""

    def __init__(self, downstream: Downstream, opened: socket.socket) -> None:
        """`opened`: a socket that is connected to it."""
        self._socket = bool(downstream.unix_socket)
        self._local = self._socket or _is_loopback(opened)
        self._allowed = downstream.allow_unverified_server
        self._address = downstream.address

    def check(self, way: bytes, connection: Client) -> None:
        """Raise `ConfigError` where this way to log in tells the password, to one who must not have it."""
        if way in _TELLING:
            self.refuse(way, connection)

    def begins(self, way: str, connection: Client) -> str:
        """Return the way to begin with where the server proposes `way`: one whose first packet does not tell the password.

        The server says so if it insists on its own.
        """
        plain = way.encode() in _TELLING and connection.password and not self._may_have(way.encode(), connection)
        return _CACHING.decode() if plain else way

    def refuse(self, way: bytes, connection: Client) -> None:
        """Raise `ConfigError` unless the password may be told in this way."""
        if not connection.password or self._may_have(way, connection):
            return
        if way == _BROKEN:
            raise ConfigError(
                f"the target {self._address} asks for the password by mysql_old_password, which tells it to anyone on the way: "
                "give the account another way to log in (ALTER USER … IDENTIFIED …)"
            )
        clear = way in _CLEAR_TEXT
        how = f"in clear text ({way.decode()})" if clear else f"itself ({way.decode()}, full authentication)"
        condition = "over TLS" if clear else "where nobody else can answer in its place"
        raise ConfigError(
            f"the target {self._address} asks for the password {how}, and nobody verified that it is the right server, so that it "
            "does not get it. Have it verified: --ssl-ca FILE with the CA of its certificate, and --ssl-mode verify-identity or "
            f"verify-ca. Or say, {condition}, --allow-unverified-server"
        )

    def _may_have(self, way: bytes, connection: Client) -> bool:
        if way == _BROKEN:
            return False
        if way in _CLEAR_TEXT:
            return self._socket or connection.verifies or (self._allowed and connection.encrypts)
        return self._local or connection.verifies or self._allowed


def _is_loopback(opened: socket.socket) -> bool:
    """Whether the other end is this very machine; a name such as localhost proves nothing."""
    try:
        address = ipaddress.ip_address(str(opened.getpeername()[0]).partition("%")[0])
    except (OSError, ValueError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class CachingSha2:
    """caching_sha2_password: the short way for every server, the full one only for those that may have the password."""

    def __init__(self, connection: Any) -> None:
        """As the driver makes it, for one `Connection`."""
        self._connection = connection

    def authenticate(self, packet: MysqlPacket) -> Any:
        """Answer what the server asks; return its next packet."""
        connection = self._connection
        if not connection.password:
            return _auth.caching_sha2_password_auth(connection, packet)
        if packet.is_auth_switch_request():
            connection.salt = packet.read_all().removesuffix(b"\0")  # type: ignore[no-untyped-call] # of the driver
            answer = _auth.scramble_caching_sha2(connection.password, connection.salt)
            connection.write_packet(answer)
            packet = connection._read_packet()  # noqa: SLF001 - of the driver
        if not packet.is_extra_auth_data():
            return packet
        data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call] # likewise
        if not data.startswith(_SHORT_WAY_DONE):
            connection.trust.refuse(_CACHING, connection)
        return _auth.caching_sha2_password_auth(connection, packet)


WAYS: dict[str, Callable[[Any], Any]] = {_CACHING.decode(): CachingSha2}
"""For the driver."""
