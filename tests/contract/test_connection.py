"""A connection to the target."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import connect
from tests.servers import DatabaseServer

pytestmark = pytest.mark.server


def test_certificates_are_read_once(mariadb: DatabaseServer) -> None:
    """Connections for which nobody asked for TLS share what TLS needs: to read it for each takes longer than to connect."""
    opened = [connect(Downstream(port=mariadb.port), "") for _ in range(2)]
    first, second = (connection._create_ssl_ctx({}) for connection in opened)
    assert first is second
    for connection in opened:
        connection.close()
