"""What the Spark job does without Spark."""

from __future__ import annotations

import gc

from storage_consumer.spark.pipeline import shorten_collection


def test_modules_are_not_searched_for_cycles() -> None:
    """What was loaded before a task is searched no more, what was loaded since the last one included; and nothing else is kept out.

    Asked of single objects: how many there are in all changes at any moment, as others come to an end.
    """

    def searched(loaded: list[int]) -> bool:
        return any(one is loaded for one in gc.get_objects())

    shorten_collection.cache_clear()
    early: list[int] = []
    try:
        assert searched(early)
        shorten_collection(7)
        late: list[int] = []
        shorten_collection(7)
        assert (searched(early), searched(late)) == (False, True)
        shorten_collection(8)
        assert (searched(early), searched(late)) == (False, False)
    finally:
        gc.unfreeze()
        shorten_collection.cache_clear()
