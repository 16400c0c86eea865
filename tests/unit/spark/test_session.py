"""Which settings of Spark are ours to make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

from storage_consumer.spark.spark_session import settings_in_defaults
from tests.harness.program import ROOT


def test_what_the_operator_configured(tmp_path: Path) -> None:
    """Every way to write a line of ``spark-defaults.conf`` counts; a comment does not."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.log.level INFO\nspark.driver.memory   4g\n  spark.ui.enabled=true\nspark.port.maxRetries: 3\n\n"
    )
    configured = settings_in_defaults({"SPARK_CONF_DIR": str(tmp_path)})
    assert {"spark.driver.memory", "spark.ui.enabled", "spark.port.maxRetries"} <= configured
    assert "spark.log.level" not in configured


def test_folder_of_sparks_home(tmp_path: Path) -> None:
    """Without a folder of its own, that below Spark's home counts; without either nothing is configured."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 4g\n")
    assert settings_in_defaults({"SPARK_HOME": str(tmp_path)}) == {"spark.driver.memory"}
    assert settings_in_defaults({}) == frozenset()


def test_no_java(tmp_path: Path) -> None:
    """Where there is no Java the program ends at once, and says what to install; it would not come by waiting."""
    code = (
        "from storage_consumer.spark.spark_session import open_session; from storage_consumer.config.settings import Tuning\n"
        "try: open_session(Tuning())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "env"):
        (tmp_path / "bin" / name).symlink_to(str(which(name)))
    environ = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    for missing in ({}, {"JAVA_HOME": str(tmp_path)}):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environ, **missing}, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(
            "ConfigError Spark needs Java 17 or newer: install it, or set JAVA_HOME to its folder"
        )
