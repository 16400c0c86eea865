"""Which servers may have the password, and which login methods would give it to them.

A method that answers a challenge (mysql_native_password, client_ed25519, the fast path of caching_sha2_password) does not reveal the
password, whoever asks; an eavesdropper can test guesses on the answer, no more. The other methods do reveal it. Some send it as it is,
some under a key that the server itself sends, as caching_sha2_password does if the server does not remember the account, or claims so.
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
"""Login methods that send the password as it is, with or without TLS."""
_BROKEN = b"mysql_old_password"
"""A challenge whose answer reveals the password."""
_REVEALING = _CLEAR_TEXT | {b"sha256_password", _BROKEN}
"""Methods that always reveal the password; sha256_password sends it as it is over TLS, else under the server's own key."""
_CACHING = b"caching_sha2_password"
_SHORT_WAY_DONE = b"\x01\x03"
"""The server's word that the answer to its challenge was enough; anything else asks for the password."""


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
        """Whether nobody can eavesdrop on the connection."""
        ...


class Trust:
    """What is known about the server that answers."""

    def __init__(self, downstream: Downstream, opened: socket.socket) -> None:
        """Take the settings and `opened`, a socket that is connected to the server."""
        self._socket = bool(downstream.unix_socket)
        self.is_local = self._socket or _is_loopback(opened)
        """Whether the other end is this very machine."""
        self._allowed = downstream.allow_unverified_server
        self._address = downstream.address

    def check(self, way: bytes, connection: Client) -> None:
        """Raise `ConfigError` if this method reveals the password to a server that must not have it."""
        if way in _REVEALING:
            self.refuse(way, connection)

    def begins(self, way: str, connection: Client) -> str:
        """Return the method to begin with if the server proposes `way`: one whose first packet does not reveal the password.

        A server that insists on its own method asks for it then.
        """
        # Otherwise a server could have the password in the very first packet, just by proposing such a method.
        plain = way.encode() in _REVEALING and connection.password and not self._may_have(way.encode(), connection)
        return _CACHING.decode() if plain else way

    def refuse(self, way: bytes, connection: Client) -> None:
        """Raise `ConfigError` unless this method may reveal the password."""
        if not connection.password or self._may_have(way, connection):
            return
        if way == _BROKEN:
            raise ConfigError(
                f"the target {self._address} asks for the password with mysql_old_password, which reveals it to "
                "anyone on the network: give the account another login method (ALTER USER … IDENTIFIED …)"
            )
        clear = way in _CLEAR_TEXT
        how = f"in clear text ({way.decode()})" if clear else f"itself ({way.decode()}, full authentication)"
        condition = "over TLS" if clear else "if nobody else can answer in its place"
        raise ConfigError(
            f"the target {self._address} asks for the password {how}, but nothing has verified that it is the right "
            "server, so the password is not sent. Have it verified: --ssl-ca FILE with the CA of its certificate, "
            f"and --ssl-mode verify-identity or verify-ca. Or, {condition}, give --allow-unverified-server"
        )

    def _may_have(self, way: bytes, connection: Client) -> bool:
        if way == _BROKEN:
            return False
        if way in _CLEAR_TEXT:
            # Whoever listens reads the password, so the other end must be proven, or at least TLS must keep listeners out.
            return self._socket or connection.verifies or (self._allowed and connection.encrypts)
        # Only the server itself can read the password here, so it is enough that nobody else can have answered.
        return self.is_local or connection.verifies or self._allowed


def _is_loopback(opened: socket.socket) -> bool:
    """Return whether the other end is this very machine; a name such as localhost proves nothing."""
    try:
        # An IPv6 address may end in `%` and an interface, which is no part of it.
        address = ipaddress.ip_address(str(opened.getpeername()[0]).partition("%")[0])
    except (OSError, ValueError):
        return False
    # An IPv4 address may come in the form of an IPv6 one, such as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class CachingSha2:
    """caching_sha2_password: the fast path for every server, the full exchange only for those that may have the password."""

    def __init__(self, connection: Any) -> None:
        """Take the `Connection` that logs in, as the driver passes it."""
        self._connection = connection

    def authenticate(self, packet: MysqlPacket) -> Any:
        """Answer the server's questions; return its next packet."""
        connection = self._connection
        if not connection.password:
            return _auth.caching_sha2_password_auth(connection, packet)
        if packet.is_auth_switch_request():
            # The new challenge ends with a NUL that is not part of it.
            connection.salt = packet.read_all().removesuffix(b"\0")  # type: ignore[no-untyped-call] # of the driver
            answer = _auth.scramble_caching_sha2(connection.password, connection.salt)
            connection.write_packet(answer)
            packet = connection._read_packet()  # noqa: SLF001 - of the driver
        # The server has accepted, refused, or asks for another method: all of these are the driver's to handle.
        if not packet.is_extra_auth_data():
            return packet
        data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call] # likewise
        # From here on the driver would reveal the password.
        if not data.startswith(_SHORT_WAY_DONE):
            connection.trust.refuse(_CACHING, connection)
        return _auth.caching_sha2_password_auth(connection, packet)


WAYS: dict[str, Callable[[Any], Any]] = {_CACHING.decode(): CachingSha2}
"""Login methods, as the driver takes them."""
