"""Which settings of Spark are ours to make."""

from __future__ import annotations

from pathlib import Path

from storage_consumer.spark.session import sorting, told_in_defaults


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


def test_what_tasks_hold_has_a_limit() -> None:
    """However many cores read, they hold no more together; a PySpark that knows no limit sorts nothing in memory."""
    limit = "spark.shuffle.spill.maxSizeInBytesForSpillThreshold"
    assert int(sorting("local[2]", "4.3.0")[limit]) == 4 * int(sorting("local[8,3]", "4.10.1.dev0")[limit]) == 64 << 20
    assert 0 < int(sorting("local[*]", "4.3.0")[limit]) <= 128 << 20
    assert sorting("local[2]", "4.2.1") == {}
