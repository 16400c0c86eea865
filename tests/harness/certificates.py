"""A certificate authority for tests, made when a test asks for it, and certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA that signs what it is told to."""

    def __init__(self, folder: Path, name: str) -> None:
        """Its files go into `folder`."""
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        folder.mkdir(parents=True, exist_ok=True)
        built = _builder(self._name, self._name, self._key.public_key(), days=9)
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, host: str = "localhost", days: int = 9, passphrase: bytes = b"") -> Signed:
        """A certificate for a host name or address, for `days` from now (negative: it expired then).

        `name`: of both files, which an earlier certificate of that name loses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        names = x509.SubjectAlternativeName([_alternative(host)])
        built = _builder(_name(name), self._name, key.public_key(), days=days).add_extension(names, critical=False)
        signed = Signed(certificate=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        signed.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        signed.key.write_bytes(key.private_bytes(encoding, form, lock))
        return signed


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    end = dt.datetime.now(dt.UTC) + days * _DAY
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return built.serial_number(x509.random_serial_number()).not_valid_before(end - 100 * _DAY).not_valid_after(end)
