"""What Spark's UI says about a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer import telemetry
from storage_consumer.rows.spec import LONGEST, JobFile, job_title
from tests.unit.building import data_file


def _files(count: int, size: int) -> list[JobFile]:
    file = data_file("d/a", 1, 1)
    file = replace(file, stored=replace(file.stored, size=size))
    return [JobFile(table=0, file=file, rank=rank, newest=False) for rank in range(count)]


def test_a_job_names_round_wave_and_tables() -> None:
    """The first tables are named, all are counted."""
    assert job_title(12, 1, ["shop.orders"], _files(1, 100)) == "round 12, wave 1: 1 file, 100 B, 1 table: shop.orders"
    tables = [f"shop.t{number}" for number in range(7)]
    assert job_title(3, 2, tables, _files(2000, 1 << 20)) == (
        "round 3, wave 2: 2,000 files, 2.0 GiB, 7 tables: shop.t0, shop.t1, shop.t2, shop.t3, shop.t4"
    )


@pytest.mark.parametrize(
    "tables", [["é" * 64 + "." + "x" * 64] * 3, [f"{'s' * 60}.{'t' * 30}{n}" for n in range(10_000)]]
)
def test_long_names_are_cut(tables: list[str]) -> None:
    """However long and many the names are, the text is short, and says how many tables there are."""
    title = job_title(1_000_000, 1_000, tables, _files(3, 1 << 33))
    assert len(title) == LONGEST
    assert f" {len(tables):,} tables: " in title


def test_a_name_is_no_tag_and_shows_no_secret() -> None:
    """Spark's UI takes some tags for links; control characters are escaped, registered secrets blanked."""
    telemetry.register_secret("opensesame")
    try:
        title = job_title(1, 1, ['d.<a href="/kill">', "d.a\nb", "d.opensesame"], _files(1, 1))
    finally:
        telemetry.forget_secrets()
    assert title.endswith('d.(a href="/kill"), d.a\\u000ab, d.***')
