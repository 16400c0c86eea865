"""The demonstration that the quickstart runs on a server of its own, here on the tests' one: with the bucket alone, and with an export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.pages import ROOT
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
SHOP = FIXTURES / "shop" / "new" / "shop__csv"
EXPORTS = FIXTURES / "exports" / "handovers.txz"


def shown(mariadb: DatabaseServer, folder: Path, *more: str) -> str:
    """Run the demonstration, check that the shop is that of the source, and return what was printed."""
    words = ["--corpus", str(SHOP), "--work", str(folder), "--socket", str(mariadb.socket), *more]
    done = subprocess.run(
        [sys.executable, str(ROOT / "conf" / "demo.py"), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shop = Corpus(SHOP)
    assert not differences(mariadb, shop.golden(shop.cuts[-1]))
    return done.stdout


def test_the_bucket_alone(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Five steps arrive one after another."""
    told = shown(mariadb, tmp_path)
    assert [line[:6] for line in told.splitlines() if line.startswith("step ")] == [f"step {n}" for n in range(1, 6)]


def test_with_a_copy(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The export as of the second step is loaded, and the three steps behind it follow."""
    told = shown(mariadb, tmp_path, "--exports", str(EXPORTS))
    assert [line[:6] for line in told.splitlines() if line.startswith("step ")] == [f"step {n}" for n in range(2, 6)]
