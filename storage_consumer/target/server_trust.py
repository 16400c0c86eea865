"""Who answers: TLS, the server's certificates, and login methods by which it gets the password."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pymysql import _auth
from pymysql.protocol import MysqlPacket

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError

_NO_TLS = 2026
"""The driver's number for a server that offers no TLS although it was asked for."""
_CERTIFICATE = re.compile(
    r"(?s)-----BEGIN (?:X509 )?CERTIFICATE-----.+?-----END (?:X509 )?CERTIFICATE-----"
)
_OTHER_NAME = frozenset((62, 64))
"""OpenSSL's verdicts on a valid certificate of another host name or address."""
_OF_ALERTS = ("CERTIFICATE", "UNKNOWN_CA")
"""Parts of the alerts by which a server refuses its client's certificate."""


def tls_options(downstream: Downstream) -> dict[str, Any]:
    """Return PyMySQL's options; raise `ConfigError` for an unusable certificate or key.

    The files are read again for each connection, so that renewed ones count without a restart.
    """
    mode = downstream.tls
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred":
        # Without options PyMySQL uses TLS where the server offers it, and verifies nothing.
        return {}
    # Files of one's own are read each time; the machine's are shared by all connections.
    own = downstream.ssl_ca or downstream.ssl_cert
    return {"ssl": _context(downstream) if own else _of_this_machine(mode)}


@cache
def _of_this_machine(mode: str) -> ssl.SSLContext:
    """Return one context with this machine's trusted certificates; reading them takes 20 ms."""
    return _verifying(ssl.create_default_context(), mode)


def _context(downstream: Downstream) -> ssl.SSLContext:
    def refuse() -> NoReturn:
        # Instead of asking at a terminal that may not exist.
        raise ConfigError(
            "--ssl-key: the key is protected by a passphrase, and this program cannot ask for it; decrypt the file"
        )

    file = downstream.ssl_ca
    try:
        if downstream.ssl_ca_text:
            context = ssl.create_default_context(cadata=downstream.ssl_ca_text)
        else:
            certificates(file)
            context = ssl.create_default_context(cafile=file or None)
        file = downstream.ssl_cert
        if file:
            context.load_cert_chain(file, downstream.ssl_key, password=refuse)
    except OSError as error:
        # An SSLError is an OSError too: it may be about the CA or about our own certificate.
        which = (
            f"--ssl-cert {file}, --ssl-key {downstream.ssl_key}"
            if file == downstream.ssl_cert
            else f"--ssl-ca {file}"
        )
        raise ConfigError(f"{which}: cannot be used for TLS: {error}") from None
    return _verifying(context, downstream.tls)


def certificates(file: str) -> str:
    """Return a CA file's certificates as PEM, "" for no file; raise `ConfigError` without any."""
    try:
        # As latin-1 any byte is a character: text between certificates may have any encoding.
        found = _CERTIFICATE.findall(Path(file).read_text(encoding="latin-1")) if file else []
    except OSError as error:
        raise ConfigError(f"--ssl-ca {file}: cannot be used for TLS: {error}") from None
    if file and not found:
        raise ConfigError(f"--ssl-ca {file}: it holds no certificate in PEM form")
    return "\n".join(found)


def _verifying(context: ssl.SSLContext, mode: str) -> ssl.SSLContext:
    """Verify what `mode` asks for; MySQL's own certificates fail Python's strict check."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # In this order: Python refuses CERT_NONE while host names are checked.
    context.check_hostname = mode == "verify-identity"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    return context


def tls_refusal(fault: BaseException, downstream: Downstream) -> ConfigError | None:
    """Return a failed handshake's error; None if TLS is not at fault or a retry may succeed."""
    where = f"cannot connect to the target {downstream.address} with TLS"
    if fault.args[:1] == (_NO_TLS,):
        return ConfigError(
            f"{where}: the server does not offer it. Enable it there, or connect without it (--ssl-mode disabled)"
        )
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(f"{where}: {cause.verify_message}. {_remedy(cause, downstream)}")
        if isinstance(cause, ssl.SSLError) and any(
            part in str(cause).upper() for part in _OF_ALERTS
        ):
            return ConfigError(
                f"{where}: the server refuses our certificate ({cause}); see --ssl-cert and --ssl-key"
            )
        # The error before the driver's own. PyMySQL keeps the socket's error in this attribute.
        cause = getattr(cause, "original_exception", None) or cause.__context__
    return None


def unverified(downstream: Downstream) -> str:
    """Return what `--allow-unverified-server` gives up, for the log, or "" without that option."""
    if not downstream.allow_unverified_server:
        return ""
    return (
        f"--allow-unverified-server: whoever answers at {downstream.address} gets the password of {downstream.user}, and nothing "
        "shows that it is the right server; --ssl-ca and --ssl-mode verify-identity would"
    )


def _remedy(cause: ssl.SSLCertVerificationError, downstream: Downstream) -> str:
    if cause.verify_code in _OTHER_NAME:
        return (
            "Name the target in --downstream-uri as its certificate does, or do not check which server of the CA "
            "answers (--ssl-mode verify-ca)"
        )
    ca = downstream.ssl_ca or "the CAs that this machine trusts"
    return (
        f"The certificate was checked against {ca}: name the right CA with --ssl-ca, or renew the certificate; "
        "--ssl-mode required encrypts without checking who answers"
    )


_CLEAR_TEXT = frozenset((b"mysql_clear_password", b"dialog"))
"""Login methods that send the password as it is, with or without TLS."""
_BROKEN = b"mysql_old_password"
"""A challenge whose answer reveals the password."""
REVEALING = _CLEAR_TEXT | {b"sha256_password", _BROKEN}
"""Methods that always reveal the password: as it is, or under the server's own key."""
_CACHING = b"caching_sha2_password"
_SHORT_WAY_DONE = b"\x01\x03"
"""The server's word that the challenge was enough; anything else asks for the password."""


class Trust:
    """What is known about the server that answers."""

    def __init__(self, downstream: Downstream, opened: socket.socket) -> None:
        """Take the settings and `opened`, a socket that is connected to the server."""
        self._socket = bool(downstream.unix_socket)
        self.is_local = self._socket or _is_loopback(opened)
        """Whether the other end is this very machine."""
        self._allowed = downstream.allow_unverified_server
        self._address = downstream.address

    def begins(self, way: str, connection: Any) -> str:
        """Return the first login method if `way` is proposed: its first packet hides the password.

        A server that insists on its own method asks for it then.
        """
        # Else a server would get the password in the first packet just by proposing such a method.
        plain = (
            way.encode() in REVEALING
            and connection.password
            and not self._may_have(way.encode(), connection)
        )
        return _CACHING.decode() if plain else way

    def refuse(self, way: bytes, connection: Any) -> None:
        """Raise `ConfigError` unless this method may reveal the password."""
        if not connection.password or self._may_have(way, connection):
            return
        if way == _BROKEN:
            raise ConfigError(
                f"the target {self._address} asks for the password with mysql_old_password, which reveals it to "
                "anyone on the network: give the account another login method (ALTER USER … IDENTIFIED …)"
            )
        clear = way in _CLEAR_TEXT
        how = (
            f"in clear text ({way.decode()})"
            if clear
            else f"itself ({way.decode()}, full authentication)"
        )
        condition = "over TLS" if clear else "if nobody else can answer in its place"
        raise ConfigError(
            f"the target {self._address} asks for the password {how}, but nothing has verified that it is the right "
            "server, so the password is not sent. Have it verified: --ssl-ca FILE with the CA of its certificate, "
            f"and --ssl-mode verify-identity or verify-ca. Or, {condition}, give --allow-unverified-server"
        )

    def _may_have(self, way: bytes, connection: Any) -> bool:
        if way == _BROKEN:
            return False
        if way in _CLEAR_TEXT:
            # Whoever listens reads the password, so the other end must be proven, or at least TLS
            # must keep listeners out.
            return self._socket or connection.verifies or (self._allowed and connection.encrypts)
        # Only the server can read the password here: it suffices that nobody else can have
        # answered.
        return self.is_local or connection.verifies or self._allowed


def _is_loopback(opened: socket.socket) -> bool:
    """Return whether the other end is this machine; a name such as localhost proves nothing."""
    try:
        # An IPv6 address may end in `%` and an interface, which is no part of it.
        address = ipaddress.ip_address(str(opened.getpeername()[0]).partition("%")[0])
    except (OSError, ValueError):
        return False
    # An IPv4 address may come in the form of an IPv6 one, such as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class CachingSha2:
    """caching_sha2_password: the fast path for all, the full exchange only with trusted servers."""

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
        # The server accepted, refused, or asks for another method: the driver handles all of these.
        if not packet.is_extra_auth_data():
            return packet
        data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call] # likewise
        # From here on the driver would reveal the password.
        if not data.startswith(_SHORT_WAY_DONE):
            connection.trust.refuse(_CACHING, connection)
        return _auth.caching_sha2_password_auth(connection, packet)


WAYS: dict[str, Callable[[Any], Any]] = {_CACHING.decode(): CachingSha2}
"""Login methods, as the driver takes them."""
