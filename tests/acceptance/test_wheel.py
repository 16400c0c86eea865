"""The wheel, installed into an environment of its own: what users get who install the package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.pages import blocks
from tests.harness.program import ROOT, program
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__json")
EXAMPLES = "storage_consumer/examples/"
FORMAT = "pyspark_ticdc.py"
MOVED = "storage_consumer/spark/source/pyspark_ticdc.py"
"""What Spark finds the data source by."""
OLDEST_SPARK = "4.0.*"
AS_DATA = """
import sys
import pyspark
from pyspark.sql import SparkSession

uri, config, out = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
options = {"table": "shop.orders", "config": config, "tz": "UTC"}
feed = spark.read.format("ticdc").options(**options).load(uri)
from storage_consumer.spark import changes, table_at

stream = spark.readStream.format("ticdc").options(**options).load(uri)
stream = stream.writeStream.format("parquet").option("checkpointLocation", out + "/checkpoint").trigger(availableNow=True)
stream.start(out + "/rows").awaitTermination()
counts = [feed.count(), spark.read.parquet(out + "/rows").count(), changes(feed).count()]
print(pyspark.__version__, *counts, table_at(spark, uri, "shop.orders", config=config, tz="UTC").count())
"""
"""A program of a user's that registers nothing."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder of the programs of an environment that holds the wheel and nothing else."""
    home = wheel.parent / "environment"
    venv.create(home)
    pip("--python", str(home / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel))
    return home / "bin"


def pip(*words: str) -> None:
    """Run pip to its end."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    subprocess.run(command, check=True, timeout=200)


def environment() -> dict[str, str]:
    """The environment in which dependencies are found where this process has them, and this checkout is not."""
    return {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}


def test_what_it_holds(wheel: Path) -> None:
    """The package with its types, its licence, Spark's settings and the examples of conf/, and nothing of the tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"storage_consumer", FORMAT}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "storage_consumer").rglob("*.py")}
    examples = {name.removeprefix(EXAMPLES) for name in names if name.startswith(EXAMPLES)}
    assert {name for name in names if name.endswith(".py") and not name.startswith(EXAMPLES)} == sources - {MOVED} | {
        FORMAT
    }
    assert {
        "consumer.toml",
        "docker/Dockerfile",
        "systemd/storage-consumer.service",
        "kubernetes/spark/driver.yaml",
        "prometheus/alerts.yml",
        "grafana/storage-consumer.json",
    } <= examples
    assert not any("testing" in name or "twins" in name for name in names)
    assert {name: (ROOT / "conf" / name).is_file() for name in examples} == dict.fromkeys(examples, True)
    assert "storage_consumer/py.typed" in names
    templates = {path.name for path in (ROOT / "storage_consumer" / "watch" / "templates").iterdir()}
    assert {f"storage_consumer/watch/templates/{name}" for name in templates} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    settings = {path.name for path in (ROOT / "storage_consumer" / "spark" / "conf").iterdir()}
    assert settings == {Path(name).name for name in names if name.startswith("storage_consumer/spark/conf/")}


def test_it_is_what_runs(installed: Path, tmp_path: Path) -> None:
    """The environment's Python imports the installed package."""
    code = "import storage_consumer; print(storage_consumer.__file__)"
    command = [str(installed / "python"), "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(installed.parent)


@pytest.mark.parametrize("extra", ["gcs", "azure", "dump", "dataframe"])
def test_extras_of_the_wheel(wheel: Path, extra: str) -> None:
    """Each extra that the pages name is one of the wheel, and pip finds what it needs."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", f"{wheel}[{extra}]"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr


def test_examples_are_found(installed: Path, tmp_path: Path) -> None:
    """The line of the pages prints the folder of the examples."""
    code = 'import storage_consumer as s; print(s.__path__[0] + "/examples")'
    command = [str(installed / "python"), "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert {"prometheus", "grafana", "docker"} <= {path.name for path in folder.iterdir()}


def test_types_are_seen(installed: Path, tmp_path: Path) -> None:
    """A program of a user's, in the strictest checks, finds the types of the installed package, and what is wrong with its calls."""
    examples = [block.text for block in blocks("python") if block.page == "docs/guide/python.md"]
    mistakes = [
        "from storage_consumer import Consumer\nConsumer(upstream_uri='file:///b').status(max_lag='5m')\n",
        "from storage_consumer import Status\ndef lag(status: Status) -> str: return status.lag\n",
        "from storage_consumer import Consumers\n",
    ]
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    words += ["--python-executable", str(installed / "python")]
    found = []
    for number, text in enumerate([*examples, *mistakes]):
        (tmp_path / f"program_{number}.py").write_text(text, encoding="utf-8")
        inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
        command = [*words, f"program_{number}.py"]
        done = subprocess.run(command, cwd=tmp_path, env=inherited, capture_output=True, text=True, check=False)
        found.append(done.stdout)
    assert [text.startswith("Success") for text in found] == [True] * len(examples) + [False] * len(mistakes), found
    assert "arg-type" in found[-3]
    assert "return-value" in found[-2]
    assert 'has no attribute "Consumers"' in found[-1]


def test_replayed(installed: Path, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The installed command makes a target equal to the source, Spark's workers and all."""
    last = SHOP.cuts[-1]
    SHOP.materialise(last, tmp_path / "bucket")
    words = ["--upstream-uri", SHOP.sink_uri(tmp_path / "bucket"), "--config", str(SHOP.write_config(tmp_path))]
    words += ["--downstream-uri", mariadb.uri, "--tz", "UTC", "--once"]
    command = [str(installed / "storage-consumer")]
    with program(words, tmp_path / "log", environment=environment(), command=command) as running:
        assert running.end() == 0, running.text()
    assert differences(mariadb, SHOP.golden(last)) == ()


@pytest.mark.parametrize("release", [OLDEST_SPARK, ""])
def test_spark_finds_the_format(release: str, installed: Path, tmp_path: Path) -> None:
    """In the oldest Spark that is supported and in the newest one: batches, a stream, changes, and a table as it was."""
    if release:
        pip("install", "--target", str(tmp_path / "old"), f"pyspark=={release}")
    last = SHOP.cuts[-1]
    SHOP.materialise(last, tmp_path / "bucket")
    (table,) = (each for each in SHOP.golden(last) if each.table == "orders")
    config = SHOP.write_config(tmp_path)
    python = str(installed / "python")
    found = environment()
    found |= {"PYTHONPATH": f"{tmp_path / 'old'}:{found['PYTHONPATH']}", "PYSPARK_PYTHON": python}
    command = [python, "-c", AS_DATA, SHOP.sink_uri(tmp_path / "bucket"), str(config), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    version, whole, streamed, once, rows = done.stdout.split()[-5:]
    assert version.startswith(release.removesuffix("*"))
    assert whole == streamed
    assert (int(once) <= int(whole), int(rows)) == (True, len(list(table.rows())))
