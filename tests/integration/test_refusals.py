"""Random histories with rows that a real target refuses, held against a model.

Tables with different keys get inserts, updates, deletes, exchanges of unique values, TRUNCATE and ADD COLUMN. A column is too short in the
target for a while, which then refuses some rows. Consumers come and go, with a quarantine, without one, and with a small limit; some
end between what they wrote and what they noted. Operators retry rows, give them up, and have tables loaded anew from copies. After each
round, target and quarantine together must be what the source is: each key is either equal in the target, or in the quarantine in its
newest state.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from storage_consumer.checkpoint import journal
from storage_consumer.checkpoint.findings import StoredQuarantine, close_entries
from tests.campaigns.refusing.consumers import Consumers, Wrong
from tests.campaigns.refusing.history import History
from tests.campaigns.refusing.source import Diary, Source
from tests.harness.corpora import THOROUGH
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
_ALL = (1 << 63) - 1
PLANTS = {
    "not-superseded": (StoredQuarantine, "entries", lambda _: {}),
    "truncated-and-kept": (journal, "close_entries", lambda *_, **__: None),
    # A statement that the copy of a load holds is noted as done after the copy's rows were refused.
    "closed-with-the-copy": (journal, "close_entries", lambda *words, **_: close_entries(*words, upto=_ALL)),
}
"""Bugs: the place of a function, and what stands there instead."""


SEEDS = range(500, 550 if THOROUGH else 502)


def played(seed: int, server: DatabaseServer, folder: Path) -> dict[str, int]:
    """Play one history; return how often what happened, or raise `Wrong` with what did."""
    server.drop_all()
    chance, diary = random.Random(seed), Diary()  # noqa: S311 - repeatable, not secret
    bucket = SmallBucket(root=folder / f"{server.kind}-{seed}" / "bucket")
    consumers = Consumers(chance, server, bucket.uri, diary)
    try:
        History(Source(chance, bucket, diary), consumers, diary).play(8)
    except Wrong as error:
        error.add_note("\n".join(diary.lines[-40:]))
        raise
    finally:
        consumers.close()
    return diary.counts


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_equal_or_in_the_quarantine(seed: int, server: DatabaseServer, tmp_path: Path) -> None:
    """After each round, whoever crashed or retried or gave rows up before, target and quarantine together are the source."""
    assert played(seed, server, tmp_path)["in the quarantine"] > 0


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_planted_bug_is_found(plant: str, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The judge finds entries that newer rows do not take the place of, those that a TRUNCATE leaves, and those that it takes from a copy."""
    with patch.object(*PLANTS[plant]), pytest.raises(Wrong):
        list(map(partial(played, server=mariadb, folder=tmp_path), range(513, 518)))
