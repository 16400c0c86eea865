"""DROP of what the target does not have: an error, or nothing to do, by what the bucket and the journal say."""

from __future__ import annotations

import re

import pytest

from storage_consumer.errors import DdlFailed
from storage_consumer.plan.journal_entry import DONE, SKIPPED
from tests.contract.test_ddl_runner import CREATE, DROP, DROP_VIEW, Rig, rig
from tests.harness.servers import KINDS

__all__ = ["rig"]
pytestmark = pytest.mark.server
DROP_DATABASE = 2


NEVER_SEEN = (DROP_VIEW, "VIEW", "shop.v"), (DROP, "TABLE", "shop.v"), (DROP_DATABASE, "DATABASE", "d")


@pytest.mark.parametrize(("kind", "what", "name"), NEVER_SEEN)
def test_drop_of_what_was_never_seen(rig: Rig, kind: int, what: str, name: str) -> None:
    """A DROP of what the bucket never showed is done where the target lacks it too.

    Of something known it is refused, unless that is a view.
    """
    step, error = rig.step(f"DROP {what} {name}", kind, name), r"error (1008|1051|4092)"
    assert re.search(error, rig.run(step, seen=False))
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    known = rig.step(step.definition.query, kind, name)
    if kind == DROP_VIEW:
        assert re.search(f"there is no such view: .*{error}", rig.run(known))
        return
    with pytest.raises(DdlFailed, match=error):
        rig.run(known)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("made", "dropped", "kind", "name"),
    [
        ("CREATE TABLE `t` (`id` INT)", "DROP TABLE `t`", DROP, "shop.t"),
        ("CREATE DATABASE `other`", "DROP DATABASE `other`", DROP_DATABASE, "other"),
    ],
)
def test_drop_of_what_was_not_made(rig: Rig, made: str, dropped: str, kind: int, name: str) -> None:
    """Where the journal says that the CREATE was skipped, its DROP has nothing to do; where it ran, the DROP is refused."""
    maker = rig.step(made, CREATE, name)
    rig.state.journal.record(maker, SKIPPED, note="the filter")
    step = rig.step(dropped, kind, name)
    assert "nothing to do, because the statement that creates it was not run" in rig.run(step, made_by=maker)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    rig.state.journal.record(maker, DONE)
    with pytest.raises(DdlFailed, match=r"error (1008|1051|4092)"):
        rig.run(rig.step(dropped, kind, name), made_by=maker)
