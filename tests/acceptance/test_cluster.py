"""The program on a Spark cluster of two workers to which nothing of the driver's machine is visible: no file, no Python, no variable."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from storage_consumer.plan.table_state import TableState
from storage_consumer.summary import RoundSummary, TableSummary
from tests.campaigns.faults import workload
from tests.campaigns.faults.processes import EXECUTORS, below, command_of, kill_executor
from tests.campaigns.faults.target import AT_ROWS
from tests.campaigns.faults.wire import Verdict, Wire
from tests.harness.accounts import protected
from tests.harness.corpora import FIXTURES, CorpusSource
from tests.harness.program import ROOT, Program, program
from tests.harness.replay import Replay
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.spark_cluster import Cluster, Machines, spark_cluster

_OF_SPARK = frozenset({"pyspark", "py4j"})
"""These are in Spark's own home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What is on a machine of the cluster."""

    folder: Path

    @property
    def python(self) -> Path:
        """With the packages."""
        return self.folder / "environment" / "bin" / "python"

    @property
    def bare_python(self) -> Path:
        """Without any package."""
        return self.folder / "bare" / "bin" / "python"

    def python_without(self, package: str) -> Path:
        """With all packages but one."""
        home = self.folder / f"without-{package}"
        shutil.copytree(
            self.folder / "environment",
            home,
            symlinks=True,
            ignore=shutil.ignore_patterns(package),
            copy_function=os.link,
        )
        return home / "bin" / "python"

    @property
    def spark(self) -> Path:
        """Spark's home; there inside `within` only."""
        return self.folder / "spark"

    def make(self) -> None:
        """Make the Pythons."""
        for name in ("environment", "bare"):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / name)], check=True)
        packages = next((self.folder / "environment").glob("lib/python*/site-packages"))
        for file, place in _files_of_dependencies():
            (packages / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, packages / place)
        self.spark.mkdir()

    def pack(self, file: Path) -> None:
        """The environment of `python` as one file, for machines that do not have it.

        Of a file that is not compressed Spark takes no links that lead out of it, as that of the Python does.
        """
        with tarfile.open(file, "w:gz", compresslevel=1) as archive:
            archive.add(self.folder / "environment", ".")

    def variables(self) -> dict[str, str]:
        """The environment of a process there: where programs are found, and nothing else of this process's."""
        return {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}

    def within(self, hidden: Sequence[Path]) -> list[str]:
        """What starts a command where the `hidden` folders are empty, as they are on a machine that is not the driver's."""
        mounts = [f'mount --bind "{Path(pyspark.__file__).parent}" "{self.spark}"']
        caches = Path.home() / ".cache" / "storage-consumer"
        elsewhere = [
            one for one in (caches, Path(sys.prefix), *hidden) if not one.is_relative_to(ROOT) and one.is_dir()
        ]
        mounts += [f'mount -t tmpfs none "{folder}"' for folder in (ROOT, *elsewhere)]
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *root, "--mount", "sh", "-ec", "\n".join([*mounts, 'cd / && exec "$@"']), "sh"]


def _files_of_dependencies() -> Iterator[tuple[Path, Path]]:
    """Every file of every package that the program needs, and its place below site-packages."""
    home = Path(sysconfig.get_path("purelib")).resolve()
    for package in _dependencies():
        for file in package.files or ():
            source = Path(str(file.locate())).resolve()
            if source.is_relative_to(home) and source.is_file():
                yield source, source.relative_to(home)


def _dependencies() -> list[Distribution]:
    """The packages that the program needs, directly or not, but for those of Spark."""
    found: dict[str, Distribution] = {}
    waiting: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if name in _OF_SPARK or name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        waiting += found[name].requires or ()
    return [*found.values()]


pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
PASSWORD = uuid.uuid4().hex
CORES = 3
"""Of each of the two workers."""
MOST = 4
"""Connections that may write, where that is tested."""
CSV = "[sink.csv]\ninclude-commit-ts = true\n"
LONG = 240.0
"""Seconds."""
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_COPIES = {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.1"}
_COPIES |= {"spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "200ms"}
"""Have Spark start a copy of every task that is a little slow."""
_EVERY_CORE = {"spark.cores.max": str(2 * CORES), "spark.locality.wait": "0s"}
_HELD = 6.0
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster, and beside it a machine from which the program is run."""

    cluster: Cluster
    image: Image
    driver: Path
    """Where the driver's files are; the cluster sees an empty folder there."""
    s3: S3Server

    def upload(self, folder: Path) -> str:
        """Put a bucket's files into S3; its name there."""
        name = f"bucket-{uuid.uuid4().hex}"
        self.s3.upload(folder, name, "prefix")
        return name

    def environment(self, python: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The driver's variables: which Python executors are to run, and what Spark is told."""
        defaults = self.driver / "conf" / "spark-defaults.conf"
        java = {
            "spark.driver.extraJavaOptions": _QUICK,
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.cores.max": "2",
        }
        defaults.write_text("".join(f"{name} {value}\n" for name, value in {**java, **(settings or {})}.items()))
        return {
            "PYSPARK_PYTHON": python,
            "SPARK_CONF_DIR": str(defaults.parent),
            "SPARK_LOCAL_DIRS": str(self.driver / "tmp"),
            "TMPDIR": str(self.driver / "tmp"),
            "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": PASSWORD,
        }

    def arguments(self, bucket: str, port: int, *more: str) -> list[str]:
        """What ``run`` takes for a bucket in S3 and a target at a port."""
        upstream = self.s3.uri(bucket, "prefix", self.s3.reader)
        return ["--upstream-uri", upstream, "--downstream-uri", f"mysql://app@127.0.0.1:{port}/", "--tz", "UTC", *more]

    def told(self, content: str) -> list[str]:
        """The option for a configuration file, which is the driver's alone."""
        (file := self.driver / "changefeed.toml").write_text(content, encoding="utf-8")
        return ["--config", str(file)]


@pytest.fixture(scope="module")
def site(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster's processes have the secrets in their environment, and a Python that lacks this package."""
    folder = tmp_path_factory.mktemp("site")
    image, driver = Image(folder=folder / "image"), folder / "driver"
    image.make()
    for name in ("conf", "tmp"):
        (driver / name).mkdir(parents=True)
    image.pack(driver / "environment.tar.gz")
    secrets = {
        "AWS_ACCESS_KEY_ID": s3.reader.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.reader.secret_access_key,
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": PASSWORD,
    }
    machines = Machines(
        cores=CORES,
        within=image.within([driver]),
        spark=image.spark,
        environment=image.variables() | secrets | {"SPARK_DAEMON_JAVA_OPTS": _QUICK},
    )
    with spark_cluster(folder / "cluster", machines) as cluster:
        yield Site(cluster=cluster, image=image, driver=driver, s3=s3)


@pytest.fixture
def target(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    """A target whose user has a password."""
    with protected(mariadb, PASSWORD) as server:
        yield server


def test_submitted(site: Site, target: DatabaseServer, tmp_path: Path) -> None:
    """``spark-submit --py-files`` on machines that have the packages: the target is as the source was, secondary unique keys too."""
    corpus = CorpusSource(path=FIXTURES / "keys" / "classic" / "keys__json.tar.xz").open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    archive = shutil.make_archive(str(site.driver / "storage_consumer"), "zip", ROOT, "storage_consumer")
    entry = shutil.copy(ROOT / "storage_consumer" / "__main__.py", site.driver / "entry.py")
    command = [*submitting(site), "--py-files", archive, str(entry)]
    arguments = site.arguments(site.upload(tmp_path / "bucket"), target.port, "--once")
    around = site.environment(str(site.image.python)) | {
        "PYSPARK_DRIVER_PYTHON": str(site.image.python),
        "PYTHONPATH": "",
    }
    arguments += site.told(corpus.changefeed_toml)
    with program(arguments, tmp_path / "log", environment=around, command=command) as running:
        assert running.end(LONG) in (0, 4), running.text()
    Replay(corpus=corpus, server=target, folder=tmp_path).check(corpus.cuts[-1], summary_of(running))
    assert running.events("executors_ready")


def summary_of(running: Program) -> RoundSummary:
    """What the program said of tables that halted, of which `Replay` decides whether they may."""
    names = TableSummary.__slots__
    halted = ({"state": TableState.HALTED} | event for event in running.events("table_halted"))
    tables = (TableSummary(**{name: event[name] for name in names if name in event}) for event in halted)
    return RoundSummary(tables=tuple(tables))


def submitting(site: Site) -> list[str]:
    """How ``spark-submit`` of the PySpark that is installed begins."""
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", site.cluster.master]


def test_shipped_environment(site: Site, target: DatabaseServer, tmp_path: Path) -> None:
    """``--spark-master`` with an archive for machines that lack the packages: nothing is lost or doubled when an executor is killed."""
    bucket, name = SmallBucket(root=tmp_path / "bucket"), f"bucket-{uuid.uuid4().hex}"
    around = site.environment(
        "./environment/bin/python", {"spark.archives": f"{site.driver / 'environment.tar.gz'}#environment"}
    )
    killed = list[int]()

    def show(cut: int) -> None:
        workload.show(bucket, cut)
        site.s3.upload(bucket.root, name, "prefix")

    def kill_once(command: str) -> Verdict:
        if re.match(AT_ROWS, command) and not killed:
            killed.append(kill_executor(site.cluster.workers[0]))
        return Verdict.PASS

    show(0)
    more = ["--spark-master", site.cluster.master, "--flush-interval", "200ms", "--partitions", "4", *site.told(CSV)]
    with (
        Wire(target.port) as wire,
        program(site.arguments(name, wire.port, *more), tmp_path / "log", environment=around) as running,
    ):
        running.wait_for("round_finished", checkpoint=workload.CHECKPOINTS[0])
        wire.watch = kill_once
        for cut in range(1, workload.CUTS):
            show(cut)
            running.wait_for("round_finished", checkpoint=workload.CHECKPOINTS[cut])
        told = [command_of(one) for pid in (running.process.pid, *site.cluster.workers) for one in below(pid, "")]
        running.signal(signal.SIGTERM)
        assert running.end(LONG) == 0, running.text()
    assert killed == [1]
    assert workload.differences(target) == []
    assert any(EXECUTORS in line for line in told)
    assert [line for line in told if PASSWORD in line or site.s3.reader.secret_access_key in line] == []


@pytest.mark.parametrize(("lacks", "named"), [("*", "msgspec|numpy|pymysql"), ("numba", "numba")])
def test_packages_missing(site: Site, target: DatabaseServer, tmp_path: Path, lacks: str, named: str) -> None:
    """Executors whose Python lacks packages, be it one that few rows do not need: the error says so before anything is replicated."""
    python = site.image.bare_python if lacks == "*" else site.image.python_without(lacks)
    small = SmallBucket(root=tmp_path / "bucket")
    small.create("d.a")
    small.rows("d.a", 1, row("d.a", 5, "1", '"x"'))
    small.metadata(ts(9))
    arguments = site.arguments(site.upload(small.root), target.port, "--once", "--spark-master", site.cluster.master)
    arguments += site.told(CSV)
    with program(arguments, tmp_path / "log", environment=site.environment(str(python))) as running:
        assert running.end(LONG) == 2, running.text()
    said = running.text()
    assert re.search(f"executors lack the Python module ({named})", said)
    assert "PYSPARK_PYTHON" in said
    assert "\tat " not in said
    assert "d" not in target.databases()


@dataclass(slots=True)
class Counted:
    """A watch that counts connections at the server: those of the driver when it opens a window, all when rows are written."""

    server: DatabaseServer
    of_driver: int = 0
    all: int = 0
    _until: float = 0.0

    def __call__(self, command: str) -> Verdict:
        """What is written first stands still for a while, so that all tasks come that may, and copies of those that are slow."""
        if re.match(r"UPDATE \S*slots\S* SET epoch", command):
            self.of_driver = max(self.of_driver, self._open())
        if re.match(AT_ROWS, command):
            self._until = self._until or time.monotonic() + _HELD
            while True:
                self.all = max(self.all, self._open())
                if time.monotonic() > self._until:
                    break
                time.sleep(0.1)
        return Verdict.PASS

    def _open(self) -> int:
        ((count,),) = self.server.query("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'")
        return int(count)


def test_connections(site: Site, target: DatabaseServer, tmp_path: Path) -> None:
    """Never more connections write than ``--worker-count``, on more cores than that, copies of slow tasks included."""
    small = SmallBucket(root=tmp_path / "bucket")
    small.create("d.a")
    small.rows("d.a", 1, *(row("d.a", 5, str(number * 64), '"x"') for number in range(200)))
    small.metadata(ts(9))
    arguments = ["--once", "--partitions", "10", "--worker-count", str(MOST)]
    arguments += site.told(CSV)
    entry = str(ROOT / "storage_consumer" / "__main__.py")
    around = site.environment(str(site.image.python), _COPIES | _EVERY_CORE) | {"PYSPARK_DRIVER_PYTHON": sys.executable}
    with Wire(target.port) as wire:
        wire.watch = counted = Counted(target)
        arguments = site.arguments(site.upload(small.root), wire.port, *arguments)
        with program(arguments, tmp_path / "log", environment=around, command=[*submitting(site), entry]) as running:
            assert running.end(LONG) == 0, running.text()
    assert target.query("SELECT COUNT(*), SUM(id) FROM d.a") == ((200, 64 * 199 * 100),)
    assert 2 * CORES > MOST
    assert MOST // 2 <= counted.all - counted.of_driver <= MOST
