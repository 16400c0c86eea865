"""``run --on-halt``: the command of the page, curl, hears of what happens to the real program."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from tests.acceptance.test_ddl_verbs import REFUSED, WIDER
from tests.harness.hook_server import HookServer, hook_server
from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
PRIVATE = "/services/T000/B000/verysecrettoken"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A table with a statement that the target refuses, and one that goes on."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    found.rows("d.b", 1, row("d.b", 2, "1", '"b"'))
    found.schema("d.a", ts(4), REFUSED, 5, WIDER)
    found.metadata(ts(6))
    return found


@pytest.fixture
def server() -> Iterator[HookServer]:
    """A web address that takes documents."""
    with hook_server() as found:
        yield found


def _told(documents: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["event"], each.get("table", "")) for each in documents]


def test_halt_recovery_and_restart(
    mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path, server: HookServer
) -> None:
    """The command hears of each halt with the commands that mend it, of the recovery, and once again after a restart."""
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms", "--on-halt", server.command(PRIVATE)]
    server.answers.append(404)
    with program(arguments, tmp_path / "first") as running:
        (failed,) = [running.wait_for("alert_failed")]
        assert (failed["hook"], failed["alert"]) == ("curl", "table_halted")
        assert "it ended with 22: curl: (22) The requested URL returned error: 404" in failed["error"]
        (document,) = server.got
        assert (document["event"], document["table"], document["count"]) == ("table_halted", "d.a", 1)
        assert document["error"] == running.events("table_halted")[0]["error"]
        assert "error 1054" in document["error"]
        assert (document["checkpoint"], document["downstream"]) == (ts(4), f"127.0.0.1:{mariadb.port}")
        assert document["next_step"].startswith("Make the target's table fit, then start again or run ")
        assert command("table", "pause", "--table", "d.b", server=mariadb).returncode == 0
        running.wait_for("round_finished", paused=["d.b"])
        running.signal(SIGTERM)
        assert running.end() == 4
    with program(arguments, tmp_path / "second") as running:
        wait_until("the restart", lambda: len(server.got) == 2)
        assert _told(server.got[1:]) == [("table_halted", "d.a")]
        skip = next(each for each in server.got[1]["commands"] if " skip " in each)
        assert command(*shlex.split(skip)[1:]).returncode == 0
        wait_until("the recovery", lambda: len(server.got) == 3)
        assert (_told(server.got[2:]), server.got[2]["halted"]) == ([("table_resumed", "d.a")], 0)
        assert command("table", "resume", "--table", "d.b", server=mariadb).returncode == 0
        wait_until("the end of the pause", lambda: len(server.got) == 4)
        assert (_told(server.got[3:]), server.got[3]["halted"]) == ([("table_resumed", "d.b")], 0)
    assert "verysecrettoken" not in (tmp_path / "first").read_text() + (tmp_path / "second").read_text()
    assert len(server.got) == 4


def test_failure_and_take_over(
    mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path, server: HookServer
) -> None:
    """A standby that takes over says from whom; a program that fails says why before it is gone, also where settings are at fault."""
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms"]
    hook = ["--on-halt", server.command(PRIVATE)]
    with ExitStack() as stack:
        one = stack.enter_context(program(arguments, tmp_path / "one"))
        one.wait_for("lease_acquired")
        two = stack.enter_context(program([*arguments, *hook], tmp_path / "two"))
        two.wait_for("lease_waiting")
        one.wait_for("round_finished")
        one.kill()
        two.wait_for("lease_acquired")
        wait_until("the take-over", lambda: len(server.got) >= 2)
        assert _told(server.got) == [("took_over", ""), ("table_halted", "d.a")]
        assert f"pid {one.process.pid}," in server.got[0]["former"]
        mariadb.query("DROP DATABASE storage_consumer")
        assert two.end() == 1
    failed = server.got[-1]
    assert (failed["event"], failed["exit_code"]) == ("failed", 1)
    assert "the state schema storage_consumer was dropped" in failed["error"]
    server.got.clear()
    broken = [*arguments, *hook, "--once", "--upstream-uri", f"file://{tmp_path}/nowhere?protocol=csv"]
    with program(broken, tmp_path / "three") as running:
        code = running.end()
    assert [(each["event"], each["exit_code"]) for each in server.got] == [("failed", code)]


def test_a_command_that_is_not_there(mariadb: DatabaseServer, bucket: SmallBucket) -> None:
    """It is a wrong setting, which is found before anything begins."""
    missing = command("run", *run_arguments(bucket, mariadb), "--on-halt", "/no/such/script")
    assert (missing.returncode, "/no/such/script is not there" in missing.stderr) == (2, True)
    assert mariadb.databases() == ()
