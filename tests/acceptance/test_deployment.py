"""What conf/ runs on other machines, run on this one: the units as systemd reads them, and the compose file's program without containers."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.program import ROOT, program
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")
DOCKER = ROOT / "conf" / "docker"
UNITS = sorted((ROOT / "conf" / "systemd").glob("storage-consumer*"))
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "storage-consumer")
EXPOSURE = 20
"""Of `systemd-analyze security`, times ten: 0 is a service that can do nothing, 100 one that can do all."""


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with the program of this environment, since systemd looks whether it is there."""
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/storage-consumer/bin/storage-consumer", PROGRAM)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return sorted(tmp_path.glob("storage-consumer*"))


def test_systemd_takes_the_units(units: list[Path]) -> None:
    """Systemd finds nothing wrong with services, template and timer."""
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_are_confined(units: list[Path]) -> None:
    """Systemd rates the exposure of each service as low."""
    for unit in units:
        if unit.suffix == ".service":
            command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", str(unit)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-400:]


def test_replayed_as_compose_does(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """With the feed, the rights and the arguments of the compose file the target becomes equal to the recorded shop."""
    compose: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    mariadb.query("CREATE USER app@'%' IDENTIFIED BY 'wort'")
    for grant in (DOCKER / "grants.sql").read_text(encoding="utf-8").splitlines():
        if grant.startswith("GRANT"):
            mariadb.query(grant.rstrip(";"))
    (tmp_path / "bucket").mkdir()
    (tmp_path / "password").write_text("wort\n", encoding="utf-8")
    feed = [sys.executable, str(DOCKER / "feed.py"), "--corpus", str(SHOP.folder), "--bucket", str(tmp_path / "bucket")]
    here = {
        "file:///bucket": (tmp_path / "bucket").as_uri(),
        "/etc/storage-consumer": str(DOCKER),
        "@database:3306": f"@127.0.0.1:{mariadb.port}",
        "/run/secrets/database_password": str(tmp_path / "password"),
    }
    verb, *arguments = compose["services"]["consumer"]["command"]
    assert verb == "run"
    for there, place in here.items():
        assert there in " ".join(arguments)
        arguments = [word.replace(there, place) for word in arguments]
    with program([*arguments, "--flush-interval", "200ms"], tmp_path / "log") as running:
        # TiCDC has not begun to write when the containers start.
        running.wait_for("checkpoint_missing")
        subprocess.run([*feed, "--pause", "1"], check=True)
        running.wait_for("round_finished", checkpoint=SHOP.cuts[-1].checkpoint_ts)
    assert differences(mariadb, SHOP.golden(SHOP.cuts[-1])) == ()
