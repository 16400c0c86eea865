"""The benchmark runs and checks its results; what it measures is not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.bucket import Order, write_bucket
from tests.benchmarks.limit import WrongResult, check
from tests.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.mark.parametrize("protocol", ["canal-json", "csv"])
def test_benchmark_measures_and_writes_its_figures(protocol: str, tmp_path: Path) -> None:
    """A small cold run of two tables ends with the final state and a file of figures."""
    figures = tmp_path / "figures.json"

    code = main(["--events", "2000", "--tables", "2", "--protocol", protocol, "--cold", "--json", str(figures)])

    found = json.loads(figures.read_text(encoding="utf-8"))
    (run,) = found["runs"]
    assert code == 0
    assert found["order"]["events"] == 2000
    assert run["ratio_to_limit"] > 0
    assert min(run["peak_memory"].values()) > 0
    assert min(run["cpu_seconds"].values()) > 0


@pytest.mark.parametrize("profile", ["mixed", "insert", "hot"])
def test_same_seed_writes_same_bucket(profile: str, tmp_path: Path) -> None:
    """A bucket and its final state follow from the order alone."""
    order = Order(events=1500, protocol="csv", profile=profile, tables=2)

    first, second = (write_bucket(order, tmp_path / name) for name in ("first", "second"))

    contents = [
        {path.relative_to(b.root): path.read_bytes() for path in b.root.rglob("*") if path.is_file()}
        for b in (first, second)
    ]
    assert contents[0] == contents[1]
    assert [(t.rows, t.checksum) for t in first.final] == [(t.rows, t.checksum) for t in second.final]


def test_check_refuses_another_state(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A database that lacks the final rows is no result."""
    bucket = write_bucket(Order(events=10, protocol="csv", profile="insert"), tmp_path)
    mariadb.query("CREATE DATABASE bench")
    mariadb.query(
        "CREATE TABLE bench.t0001 (id INT, amount INT, name INT, note INT, created INT, doc INT, payload INT, weight INT)"
    )

    with pytest.raises(WrongResult, match="has 0 rows"):
        check(bucket.final, mariadb)
