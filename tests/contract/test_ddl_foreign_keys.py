"""A statement that a foreign key holds up, when the process is killed at each of the steps around it."""

from __future__ import annotations

from typing import Any

import pytest

from storage_consumer.errors import DdlFailed
from storage_consumer.plan.journal_entry import DONE, PLANNED, STARTED, DdlAnswer
from tests.contract.test_ddl_runner import ALTER, Rig, rig
from tests.harness.servers import KINDS

__all__ = ["rig"]
pytestmark = pytest.mark.server
_INDEXES = (
    "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = 'shop' AND table_name = 'b'"
)
_KEYS = "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = 'shop'"


class Killed(BaseException):
    """The process is gone."""


def held_up(rig: Rig) -> None:
    """A child ``b`` whose key needs the unique index ``u`` of its parent, without which no row can be made."""
    rig.server.query("CREATE TABLE shop.p (id INT PRIMARY KEY, x INT, UNIQUE u (x))")
    rig.server.query(
        "CREATE TABLE shop.b (id INT PRIMARY KEY, name INT, INDEX i (name), CONSTRAINT k FOREIGN KEY (name) REFERENCES shop.p (x))"
    )


@pytest.mark.parametrize(
    ("sent", "before", "where"),
    [(1, True, STARTED), (2, True, PLANNED), (2, False, PLANNED), (3, True, STARTED), (3, False, STARTED)],
)
@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_killed_at_each_step(rig: Rig, monkeypatch: pytest.MonkeyPatch, sent: int, where: str, *, before: bool) -> None:
    """The statement, the drop of the key, the statement again: killed right before or after any, it takes effect once in the end."""
    held_up(rig)
    step = rig.step("ALTER TABLE `b` MODIFY COLUMN `name` BIGINT, ADD INDEX `j`(`id`)", ALTER, "shop.b")
    execute, calls = rig.database.execute_ddl, []

    def until(*args: Any) -> DdlAnswer:
        calls.append(args[0])
        if len(calls) == sent and before:
            raise Killed
        answer = execute(*args)
        if len(calls) == sent:
            raise Killed
        return answer

    monkeypatch.setattr(rig.database, "execute_ddl", until)
    with pytest.raises(Killed):
        rig.run(step)
    monkeypatch.setattr(rig.database, "execute_ddl", execute)
    assert rig.journalled(step) == where
    note = rig.run(step)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    assert "foreign key in the way: k of shop.b" in note
    assert {str(name) for (name,) in rig.server.query(_INDEXES)} == {"PRIMARY", "i", "j"}
    assert rig.server.query(_KEYS) == ()


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_refused_for_another_reason(rig: Rig) -> None:
    """No key goes where the target's answer is about something else, and the answer is the one to the whole statement."""
    held_up(rig)
    with pytest.raises(DdlFailed, match="error 1060"):
        rig.run(rig.step("ALTER TABLE `b` ADD COLUMN `name` INT", ALTER, "shop.b"))
    step = rig.step(
        "ALTER TABLE `b` ADD CONSTRAINT `l` FOREIGN KEY (`name`) REFERENCES `p`(`x`), ADD COLUMN `name` INT",
        ALTER,
        "shop.b",
    )
    with pytest.raises(DdlFailed, match=r"error 1060.* FOREIGN KEY"):
        rig.run(step)
    assert rig.server.query(_KEYS) == (("k",),)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_key_that_another_statement_removes_meanwhile(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's statement drops the key between the refusal and the look at the keys: the statement is tried again."""
    held_up(rig)
    keys_of, execute, calls = rig.database.foreign_keys, rig.database.execute_ddl, []

    def once_gone(*args: Any) -> Any:
        rig.server.query("ALTER TABLE shop.b DROP FOREIGN KEY k")
        monkeypatch.setattr(rig.database, "foreign_keys", keys_of)
        return keys_of(*args)

    def refused(text: str, *rest: Any) -> DdlAnswer:
        calls.append(text)
        return execute(text, *rest)

    monkeypatch.setattr(rig.database, "foreign_keys", once_gone)
    monkeypatch.setattr(rig.database, "execute_ddl", refused)
    step = rig.step("ALTER TABLE `b` MODIFY COLUMN `name` BIGINT", ALTER, "shop.b")
    note = rig.run(step)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    assert "tried again after" in note
    assert len(calls) == 2


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_refused_for_a_key_that_is_not_there(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once more, and no more."""
    held_up(rig)
    monkeypatch.setattr(rig.database, "foreign_keys", lambda _: ((), {}))
    with pytest.raises(DdlFailed):
        rig.run(rig.step("ALTER TABLE `b` MODIFY COLUMN `name` BIGINT", ALTER, "shop.b"))
    assert rig.server.query(_KEYS) == (("k",),)
