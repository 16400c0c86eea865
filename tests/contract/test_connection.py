"""A connection to the target."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from sqlalchemy.exc import SQLAlchemyError

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import connect
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server


def test_certificates_are_read_once(mariadb: DatabaseServer) -> None:
    """Connections for which nobody asked for TLS share what TLS needs: to read it for each takes longer than to connect."""
    opened = [connect(Downstream(port=mariadb.port), "") for _ in range(2)]
    first, second = (connection._create_ssl_ctx({}) for connection in opened)
    assert first is second
    for connection in opened:
        connection.close()


def test_zone_after_a_broken_connection(mariadb: DatabaseServer) -> None:
    """Each connection is in the writer's time zone, also the one that takes the place of one that broke (T4)."""
    state = StateStore(Downstream(port=mariadb.port, time_zone="+08:00"), "")
    numbers = set()
    for _ in range(3):
        with suppress(SQLAlchemyError), state.transactions.engine.connect() as connection:
            asked = connection.exec_driver_sql("SELECT @@session.time_zone, CONNECTION_ID(), @@global.time_zone")
            zone, number, usual = asked.one()
            numbers.add(number)
            connection.connection.driver_connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr] # a PyMySQL one
        assert (zone, usual == zone) == ("+08:00", False)
    assert len(numbers) == 3
    state.close()
