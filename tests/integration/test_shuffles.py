"""A few recorded buckets delivered in other ways; ``python -m tests.campaigns.shuffles`` does so a thousand times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.shuffles import Done, of_seed
from tests.harness.corpora import FIXTURES, available, chosen
from tests.harness.replay import NotEqual
from tests.harness.servers import DatabaseServer
from tests.harness.shuffling import VARIANTS, Shuffled

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
CORPORA = chosen(available(FIXTURES), variants=tuple(VARIANTS.split(",")))


@pytest.mark.parametrize("seed", range(900, 906))
def test_equal_however_it_comes(seed: int, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Files cut, repeated, delayed and told otherwise make the same target at every cut (C10)."""
    done = Done()
    of_seed(seed, CORPORA, mariadb, tmp_path, done)
    assert (done.shuffles, done.counts.files > 0) == (1, True)


def test_row_that_is_missing_is_found(mariadb: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison fails where a shuffle loses a file."""
    whole = Shuffled.objects
    shop = chosen(CORPORA, workloads=("shop",), variants=("csv",))
    monkeypatch.setattr(
        Shuffled, "objects", lambda self: [one for one in whole(self) if not one.path.endswith("01.csv")]
    )
    with pytest.raises(NotEqual, match="is not at the target"):
        of_seed(1, shop, mariadb, tmp_path, Done())
