"""``storage-consumer init`` as a process of its own, and `run` with what it wrote."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.acceptance.test_inspect import SHOP, start
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.acceptance]
URI = "mysql://root:hidden%40word@127.0.0.1:3306/?ssl-mode=preferred"


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """The recorded shop after its last cut."""
    SHOP.materialise(SHOP.cuts[-1], tmp_path / "bucket")
    return (tmp_path / "bucket").as_uri()


def test_the_file_is_private_and_never_lost(bucket: str, tmp_path: Path) -> None:
    """It has mode 0600 and no password; an existing file stays as it is unless --force is given."""
    file = tmp_path / "it.toml"
    words = ["init", "--upstream-uri", bucket, "--downstream-uri", URI, "--tz", "UTC", "--output", str(file)]
    done = start(*words)
    text = file.read_text(encoding="utf-8")
    assert (done.returncode, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600), done.stderr
    assert 'downstream-uri = "mysql://root@127.0.0.1:3306/?ssl-mode=preferred"' in text
    assert "hidden" not in text + done.stdout + done.stderr
    file.write_text("mine", encoding="utf-8")
    again = start(*words)
    assert (again.returncode, "--force" in again.stderr, file.read_text(encoding="utf-8")) == (2, True, "mine")
    assert (start(*words, "--force").returncode, file.read_text(encoding="utf-8")) == (0, text)


def test_what_is_missing_does_not_count(bucket: str, tmp_path: Path) -> None:
    """Without --tz the file names it in a comment, and the exit code is 2; so it is without a target."""
    file = tmp_path / "it.toml"
    done = start("init", "--upstream-uri", bucket, "--output", str(file))
    assert (done.returncode, "missing: --tz" in done.stdout) == (2, True)
    assert '# tz = "<ZONE>"' in file.read_text(encoding="utf-8")
    done = start("init", "--upstream-uri", bucket, "--tz", "UTC", "--output", str(tmp_path / "other.toml"))
    assert (done.returncode, "missing: --downstream-uri" in done.stdout) == (2, True)


@pytest.mark.server
@pytest.mark.spark
def test_run_takes_the_file(bucket: str, tmp_path: Path, mariadb: DatabaseServer) -> None:
    """`run --once` with the file alone copies the bucket."""
    file = tmp_path / "it.toml"
    target = f"mysql://root@127.0.0.1:{mariadb.port}/"
    words = ["--upstream-uri", bucket, "--downstream-uri", target, "--tz", "UTC", "--output", str(file)]
    assert start("init", *words).returncode == 0
    done = start("run", "--config", str(file), "--once")
    assert done.returncode == 0, done.stderr
    assert mariadb.query("SELECT COUNT(*) > 0 FROM shop.products") == ((1,),)


@pytest.mark.server
def test_what_the_target_lacks_is_in_the_file(bucket: str, tmp_path: Path, mariadb: DatabaseServer) -> None:
    """What `doctor` finds about the target stands at the end, as comments with the statements; the file can be used as it is."""
    file = tmp_path / "it.toml"
    mariadb.query("CREATE USER plain@'%'")
    target = f"mysql://plain@127.0.0.1:{mariadb.port}/"
    done = start("init", "--upstream-uri", bucket, "--downstream-uri", target, "--tz", "UTC", "--output", str(file))
    assert (done.returncode, "the target: fail: target-rights" in done.stdout) == (0, True), done.stderr
    text = file.read_text(encoding="utf-8")
    grants = [line.removeprefix("# doctor: ") for line in text.splitlines() if line.startswith("# doctor: GRANT ")]
    for grant in grants:
        mariadb.query(grant.rstrip(";"))
    assert len(grants) > 1
    assert start("doctor", "--config", str(file), "--only", "target,state").returncode == 0


@pytest.mark.server
def test_an_account_with_a_password(bucket: str, tmp_path: Path, mariadb: DatabaseServer) -> None:
    """The ways to the target that `run` takes are taken, used for the look at it, and kept in the file."""
    file, secret = tmp_path / "it.toml", tmp_path / "password"
    secret.write_text("s3cret", encoding="utf-8")
    mariadb.query("CREATE USER app@'%' IDENTIFIED BY 's3cret'")
    mariadb.query("GRANT ALL ON *.* TO app@'%'")
    target = ["--downstream-uri", f"mysql://app@127.0.0.1:{mariadb.port}/", "--downstream-password-file", str(secret)]
    more = ["--ssl-mode", "disabled", "--allow-unverified-server", "--connect-timeout", "5s"]
    done = start("init", "--upstream-uri", bucket, *target, *more, "--tz", "UTC", "--output", str(file))
    assert (done.returncode, "the target: fail" in done.stdout) == (0, False), done.stdout + done.stderr
    text = file.read_text(encoding="utf-8")
    assert f'downstream-password-file = "{secret}"' in text
    assert "s3cret" not in text
    done = start("doctor", "--config", str(file), "--only", "target,state", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
