"""What a machine of a Spark cluster has that is not the driver's: a Python with the packages that are needed, but not this one.

Each place is a folder outside of what is hidden from the cluster's processes, which see nothing of the repository, of the
driver's own folder, or of the caches of this user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pyspark
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.harness.program import ROOT

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
