"""A DDL of a former owner: whoever may run statements next takes the lock away first."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import TargetUnavailable
from storage_consumer.target.database import TargetDatabase
from tests.harness.servers import DatabaseServer


def test_paused_owner_cannot_run_its_statement(server: DatabaseServer) -> None:
    """The connection of a former owner is ended before the next owner's first DDL, so its statement fails when it wakes."""
    server.query("CREATE DATABASE storage_consumer")
    former, following = (TargetDatabase(Downstream(port=server.port), "") for _ in range(2))
    former.fence_ddl()
    following.fence_ddl()
    with pytest.raises(TargetUnavailable):
        former.execute_ddl("CREATE DATABASE too_late", "", 1)
    assert following.execute_ddl("CREATE DATABASE in_time", "", 1).ignored == ""
    former.close()
    following.close()
    assert {"in_time", "too_late"} & set(server.databases()) == {"in_time"}


def test_the_same_owner_keeps_its_lock(server: DatabaseServer) -> None:
    """Asking again on the same connection ends nothing."""
    server.query("CREATE DATABASE storage_consumer")
    database = TargetDatabase(Downstream(port=server.port), "")
    database.fence_ddl()
    database.fence_ddl()
    assert database.execute_ddl("CREATE DATABASE d", "", 1).ignored == ""
    database.close()
