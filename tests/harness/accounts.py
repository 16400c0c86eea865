"""A user of the target that needs a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.servers import DatabaseServer


@contextmanager
def protected(server: DatabaseServer, password: str) -> Iterator[DatabaseServer]:
    """The server, with a user ``app`` who may do all and has this password, until the block ends."""
    server.query(f"CREATE USER app@'%' IDENTIFIED BY '{password}'")
    server.query("GRANT ALL ON *.* TO app@'%'")
    yield server
    server.query("DROP USER app@'%'")
