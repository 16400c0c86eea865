"""DROP of what the target does not have: an error, or nothing to do, by what the bucket and the journal say."""

from __future__ import annotations

import pytest

from storage_consumer.errors import DdlFailed
from storage_consumer.target.journal import DONE, SKIPPED
from tests.contract.test_ddl_runner import CREATE, DROP, DROP_VIEW, Rig, rig
from tests.servers import KINDS

__all__ = ["rig"]
pytestmark = pytest.mark.server
DROP_DATABASE = 2


def test_drop_of_a_view_never_seen(rig: Rig) -> None:
    """A DROP of a view that the bucket never showed is done where the target lacks it too; of a known one it is refused."""
    step = rig.step("DROP VIEW `shop`.`v`", DROP_VIEW, "shop.v")
    assert "shop.v" in rig.run(step, seen=False)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    with pytest.raises(DdlFailed, match=r"error (1051|4092)"):
        rig.run(rig.step("DROP VIEW `shop`.`v`", DROP_VIEW, "shop.v"))


def test_drop_of_a_table_never_seen(rig: Rig) -> None:
    """A DROP of a table that the bucket never showed is done where the target lacks it too; of a known one it is refused."""
    step = rig.step("DROP TABLE `ghost`", DROP, "shop.ghost")
    assert "1051" in rig.run(step, seen=False)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    with pytest.raises(DdlFailed, match="error 1051"):
        rig.run(rig.step("DROP TABLE `ghost`", DROP, "shop.ghost"), seen=True)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("made", "dropped", "kind", "name"),
    [
        ("CREATE VIEW `v` AS SELECT 1", "DROP VIEW `shop`.`v`", DROP_VIEW, "shop.v"),
        ("CREATE TABLE `t` (`id` INT)", "DROP TABLE `t`", DROP, "shop.t"),
        ("CREATE DATABASE `other`", "DROP DATABASE `other`", DROP_DATABASE, "other"),
    ],
)
def test_drop_of_what_was_not_made(rig: Rig, made: str, dropped: str, kind: int, name: str) -> None:
    """Where the journal says that the CREATE was skipped, its DROP has nothing to do; where it ran, the DROP is refused."""
    maker = rig.step(made, CREATE, name)
    rig.state.journal(maker, SKIPPED, note="the filter")
    step = rig.step(dropped, kind, name)
    assert "nothing to do, since what made it was not run" in rig.run(step, made_by=maker)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    rig.state.journal(maker, DONE)
    with pytest.raises(DdlFailed, match=r"error (1008|1051|4092)"):
        rig.run(rig.step(dropped, kind, name), made_by=maker)
