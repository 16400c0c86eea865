"""TLS to the target: the driver's options for each ``ssl-mode``, and what a failed handshake means.

Whoever asks for TLS gets a verified server or an error. Nothing falls back to a plain connection, and a server goes
unverified only where that was asked for by name.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError

_NO_TLS = 2026
"""The driver's number for a server that offers no TLS although it was asked for."""
_CERTIFICATE = re.compile(r"(?s)-----BEGIN (?:X509 )?CERTIFICATE-----.+?-----END (?:X509 )?CERTIFICATE-----")
_OTHER_NAME = frozenset((62, 64))
"""OpenSSL's verdicts on a valid certificate of another host name or address."""
_OF_ALERTS = ("CERTIFICATE", "UNKNOWN_CA")
"""Parts of the alerts by which a server refuses its client's certificate."""


def driver_options(downstream: Downstream) -> dict[str, Any]:
    """Return the options for PyMySQL; raise `ConfigError` for a certificate or key that cannot be used.

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
    """Return one context for all connections, with the certificates that this machine trusts: reading these takes 20 ms."""
    return _verifying(ssl.create_default_context(), mode)


def _context(downstream: Downstream) -> ssl.SSLContext:
    file = downstream.ssl_ca
    try:
        if downstream.ssl_ca_text:
            context = ssl.create_default_context(cadata=downstream.ssl_ca_text)
        else:
            certificates(file)
            context = ssl.create_default_context(cafile=file or None)
        file = downstream.ssl_cert
        if file:
            context.load_cert_chain(file, downstream.ssl_key, password=_no_passphrase)
    except OSError as error:
        # An SSLError is an OSError too: it may be about the CA or about our own certificate.
        which = (
            f"--ssl-cert {file}, --ssl-key {downstream.ssl_key}" if file == downstream.ssl_cert else f"--ssl-ca {file}"
        )
        raise ConfigError(f"{which}: cannot be used for TLS: {error}") from None
    return _verifying(context, downstream.tls)


def certificates(file: str) -> str:
    """Return the certificates of a CA file in PEM form, "" for no file; raise `ConfigError` if it has none or cannot be read."""
    try:
        # As latin-1 any byte is a character: what is between the certificates may have any encoding.
        found = _CERTIFICATE.findall(Path(file).read_text(encoding="latin-1")) if file else []
    except OSError as error:
        raise ConfigError(f"--ssl-ca {file}: cannot be used for TLS: {error}") from None
    if file and not found:
        raise ConfigError(f"--ssl-ca {file}: it holds no certificate in PEM form")
    return "\n".join(found)


def _no_passphrase() -> NoReturn:
    """Raise instead of asking at a terminal that may not exist."""
    raise ConfigError(
        "--ssl-key: the key is protected by a passphrase, and this program cannot ask for it; decrypt the file"
    )


def _verifying(context: ssl.SSLContext, mode: str) -> ssl.SSLContext:
    """Return the context, set to verify what `mode` asks for. MySQL's own certificates fail Python's strict check."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # In this order: Python refuses CERT_NONE while host names are checked.
    context.check_hostname = mode == "verify-identity"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    return context


def refusal(fault: BaseException, downstream: Downstream) -> ConfigError | None:
    """Return what a failed handshake means, or None if TLS is not the reason or the next try may succeed."""
    where = f"cannot connect to the target {downstream.address} with TLS"
    if fault.args[:1] == (_NO_TLS,):
        return ConfigError(
            f"{where}: the server does not offer it. Enable it there, or connect without it (--ssl-mode disabled)"
        )
    for cause in _causes(fault):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(f"{where}: {cause.verify_message}. {_remedy(cause, downstream)}")
        if isinstance(cause, ssl.SSLError) and any(part in str(cause).upper() for part in _OF_ALERTS):
            return ConfigError(f"{where}: the server refuses our certificate ({cause}); see --ssl-cert and --ssl-key")
    return None


def unverified(downstream: Downstream) -> str:
    """Return what `--allow-unverified-server` gives up, for the log, or "" without that option."""
    if not downstream.allow_unverified_server:
        return ""
    return (
        f"--allow-unverified-server: whoever answers at {downstream.address} gets the password of {downstream.user}, and nothing "
        "shows that it is the right server; --ssl-ca and --ssl-mode verify-identity would"
    )


def _causes(fault: BaseException | None) -> Iterator[BaseException]:
    """Yield the fault and those that the driver met before it."""
    while fault is not None:
        yield fault
        # PyMySQL keeps the error of the socket in this attribute of its own.
        fault = getattr(fault, "original_exception", None) or fault.__context__


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
