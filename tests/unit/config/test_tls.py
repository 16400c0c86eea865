"""What the settings say of TLS to the target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from storage_consumer.config.load import load_target
from storage_consumer.config.settings import SSL_MODES, Downstream
from storage_consumer.errors import ConfigError

TARGET = "mysql://h:1/"


def loaded(options: Mapping[str, object]) -> Downstream:
    """The target by these options."""
    return load_target({"downstream_uri": TARGET, **options}, {}).settings


def test_certificates_switch_tls_on(tmp_path: Path) -> None:
    """A CA, or a certificate with its key, means TLS; a certificate without key is refused."""
    file = tmp_path / "x.pem"
    file.touch()
    downstream = loaded({"ssl_ca": file})
    assert (downstream.ssl, downstream.ssl_ca) == (True, str(file))
    assert loaded({"downstream_uri": f"{TARGET}?ssl-cert={file}&ssl-key={file}"}).ssl
    assert loaded({"downstream_uri": "mysql+ssl://h:1/"}).ssl
    with pytest.raises(ConfigError, match="given together"):
        loaded({"ssl_cert": file})
    with pytest.raises(ConfigError, match="contradicts"):
        loaded({"ssl_ca": file, "ssl_mode": "disabled"})
    with pytest.raises(ConfigError, match="verifies nothing"):
        loaded({"ssl_ca": file, "ssl_mode": "required"})


@pytest.mark.parametrize(
    ("uri", "mode", "expected"),
    [
        ("mysql://h:1/", None, "preferred"),
        ("mysql+ssl://h:1/", None, "verify-identity"),
        ("mysql+ssl://h:1/?ssl-mode=VERIFY_CA", None, "verify-ca"),
        ("mysql://h:1/", "required", "required"),
        ("mysql://h:1/", "disabled", "disabled"),
        ("mysql+ssl://h:1/", "disabled", "contradicts"),
        ("mysql+ssl://h:1/", "preferred", "contradicts"),
        ("mysql://h:1/", "verify", "one of disabled, preferred"),
    ],
)
def test_how_far_tls_goes(uri: str, mode: str | None, expected: str) -> None:
    """Who asks for TLS gets the strictest, and less only by saying so; what contradicts itself is refused."""
    given = {"downstream_uri": uri, "ssl_mode": mode}
    if expected in SSL_MODES:
        downstream = loaded(given)
        assert (downstream.tls, downstream.ssl) == (expected, expected not in ("disabled", "preferred"))
    else:
        with pytest.raises(ConfigError, match=expected):
            loaded(given)
