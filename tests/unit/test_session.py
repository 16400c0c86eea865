"""Which settings of Spark are ours to make."""

from __future__ import annotations

from pathlib import Path

from storage_consumer.spark.session import told_in_defaults


def test_what_the_operator_told(tmp_path: Path) -> None:
    """Every way to write a line of ``spark-defaults.conf`` counts as told; a comment does not."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.log.level INFO\nspark.driver.memory   4g\n  spark.ui.enabled=true\nspark.port.maxRetries: 3\n\n"
    )
    told = told_in_defaults({"SPARK_CONF_DIR": str(tmp_path)})
    assert {"spark.driver.memory", "spark.ui.enabled", "spark.port.maxRetries"} <= told
    assert "spark.log.level" not in told


def test_folder_of_sparks_home(tmp_path: Path) -> None:
    """Without a folder of its own, that below Spark's home counts; without either nothing was told."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 4g\n")
    assert told_in_defaults({"SPARK_HOME": str(tmp_path)}) == {"spark.driver.memory"}
    assert told_in_defaults({}) == frozenset()
