"""The page "Undo a mistake" from the accident to a target that has everything but the mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
EVERYTHING = "SELECT id, name FROM shop.{} ORDER BY id"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """shop.orders with 100 rows at tick 2. At tick 5 half of them are deleted by mistake, and shop.other gets a row; both change later; up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("shop.orders", "shop.other")
    found.rows("shop.orders", 1, *(row("shop.orders", 2, str(key), '"paid"') for key in range(100)))
    gone = (row("shop.orders", 5, str(key), '"paid"', operation="D") for key in range(50))
    after = (row("shop.orders", 6, str(key), '"sent"', operation="U") for key in range(40, 60))
    found.rows("shop.orders", 2, *gone, *after, row("shop.orders", 7, "3", '"again"'))
    found.rows("shop.other", 1, row("shop.other", 5, "1", '"kept"'), row("shop.other", 7, "2", '"kept"'))
    found.metadata(ts(9))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_everything_but_the_mistake(
    request: pytest.FixtureRequest, bucket: SmallBucket, tmp_path: Path, kind: str
) -> None:
    """The transaction is found, the target looked at right before it, and then it has all else; `status` says so after any restart."""
    server: DatabaseServer = request.getfixturevalue(kind)
    arguments = run_arguments(bucket, server)
    reading = arguments[:3]
    found = command("changes", *reading, "--table", "shop.orders", "--from", str(ts(3)))
    deletes = [each for line in found.stdout.splitlines() if (each := json.loads(line))["type"] == "delete"]
    (mistake,) = {each["commit_ts"] for each in deletes}
    assert mistake == ts(5)
    with program([*arguments, "--until", str(mistake - 1)], tmp_path / "before") as running:
        assert running.end() == 0
    assert server.query("SELECT COUNT(*), MIN(name), MAX(name) FROM shop.orders") == ((100, "paid", "paid"),)
    rule = f"shop.orders:{mistake}"
    rest = command("changes", *reading, "--table", "shop.orders", "--from", str(ts(3)), "--skip-commit-ts", rule)
    assert len(rest.stdout.splitlines()) == 21
    assert f"--skip-commit-ts {mistake}: 50 changes left out" in rest.stderr
    with program([*arguments, "--once", "--skip-commit-ts", rule], tmp_path / "without") as running:
        finished = running.wait_for("round_finished")
        assert finished["skipped"] == {"row: left out by --skip-commit-ts": 50}
        assert running.end() == 0
    names = {key: "sent" if 40 <= key < 60 else "again" if key == 3 else "paid" for key in range(100)}
    assert dict(server.query(EVERYTHING.format("orders"))) == names
    assert dict(server.query(EVERYTHING.format("other"))) == {1: "kept", 2: "kept"}
    # Nothing of it changes without the option, nor by a program that has it still.
    for more in ([], ["--skip-commit-ts", rule]):
        with program([*arguments, "--once", *more], tmp_path / f"again{len(more)}") as running:
            assert running.end() == 0
        assert dict(server.query(EVERYTHING.format("orders"))) == names
    shown = command("status", "--batch", server=server).stdout
    assert "50 rows of shop.orders" in shown
    document = json.loads(command("status", "--batch", "--json", server=server).stdout)
    assert [(each["table"], each["commit_ts"]["ts"], each["rows"]) for each in document["rows_left_out"]] == [
        ("shop.orders", mistake, 50)
    ]
    # Of another transaction the target has the rows.
    late = command("run", *arguments, "--once", "--skip-commit-ts", str(ts(7)))
    assert late.returncode == 2
    assert "too late to leave it out of shop.orders, shop.other" in late.stderr
