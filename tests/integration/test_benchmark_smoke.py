"""The benchmark fills every line of its table and checks its results; what it measures is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import storage_consumer
from tests.benchmarks.bucket import Order, write_bucket
from tests.benchmarks.changes import PROFILES
from tests.benchmarks.limit import WrongResult, check
from tests.benchmarks.lines import LINES
from tests.benchmarks.sampling import DRIVER_STAGES, WORKER_STAGES
from tests.harness.servers import DatabaseServer

SMALL = (
    *("--events", "3000", "--runs", "1", "--tables", "3", "--files", "20", "--cycles", "1"),
    *("--stored", "20,40", "--stored-remote", "20,40", "--breakdown"),
)

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.spark]


@pytest.mark.timeout(400)
def test_benchmark_measures_every_line(tmp_path: Path) -> None:
    """Small backlogs of all sorts, small and idle rounds and a cold start end as they should, with figures for each line.

    In a process of its own: what workers do shows only where they are started for it.
    """
    figures = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "all", *SMALL, "--json", str(figures)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    found = json.loads(figures.read_text(encoding="utf-8"))
    results = {result["name"]: result for result in found["results"]}
    assert done.returncode == 0, done.stdout
    assert {name.partition(":")[0] for name in results} == {*LINES, "memory"}
    assert all(name in done.stdout for name in results)
    assert set(found["versions"]) == {"mariadb"}
    for name in set(LINES) & set(results):
        (run,) = results[name]["runs"]
        assert run["ratio"] > 0
        assert min(run["peak_memory"].values()) > 0
    stages = {stage for result in results.values() for stage in result["cpu_seconds_by_stage"]}
    # A stage may be over, for so few rows, within less time than two samples are apart.
    assert {"write (server)", "shuffle (JVM)"} <= stages
    assert stages & set(WORKER_STAGES.values())
    assert stages & set(DRIVER_STAGES.values())


@pytest.mark.parametrize("stages", [WORKER_STAGES, DRIVER_STAGES])
def test_stages_are_those_of_the_package(stages: Mapping[str, str]) -> None:
    """Each part of the package that is counted for a stage exists; the time of one that was renamed would count as Spark's."""
    package = Path(storage_consumer.__file__).parent
    assert [name for name in stages if not ((package / name).is_dir() or (package / f"{name}.py").is_file())] == []


@pytest.mark.parametrize("protocol", ["canal-json", "csv"])
@pytest.mark.parametrize("profile", PROFILES)
def test_same_seed_writes_same_bucket(profile: str, protocol: str, tmp_path: Path) -> None:
    """A bucket and its final state follow from the order alone."""
    order = Order(events=1500, protocol=protocol, profile=profile, tables=2)

    first, second = (write_bucket(order, tmp_path / name) for name in ("first", "second"))

    contents = [
        {path.relative_to(b.root): path.read_bytes() for path in b.root.rglob("*") if path.is_file()}
        for b in (first, second)
    ]
    assert contents[0] == contents[1]
    assert [(t.rows, t.checksum) for t in first.final] == [(t.rows, t.checksum) for t in second.final]


def test_check_refuses_another_state(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A database that lacks the final rows is no result."""
    order = Order(events=10, protocol="csv", profile="insert")
    bucket = write_bucket(order, tmp_path)
    mariadb.query("CREATE DATABASE bench")
    mariadb.query(f"CREATE TABLE bench.t0001 ({order.shape.sql})")

    with pytest.raises(WrongResult, match="has 0 rows"):
        check(bucket.final, mariadb, order.shape.checksum)
