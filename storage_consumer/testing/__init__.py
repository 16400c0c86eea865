"""In-memory twins of the outside world, for tests of this program and of programs around it.

Takes: the Protocols of `ports` and `storage`. Gives: implementations that keep their records across restarts.
Touches the outside: no.

This package is public and installed with the program. The names in `__all__` are public; import them from here:

* `FakeClock`: a clock that moves only when a test moves it.
* `MemoryStorage`: a bucket.
* `MemoryPipeline`: a job, run in this thread in place of Spark.
* `MemoryWriter`: a target that takes rows, without state or fence.
* `TargetRecords`: everything that a target keeps; it outlives the objects below, as a server outlives its clients.
* `MemoryState`, `MemoryTarget` and `FencedWriter`: the state schema, the structure and the rows of those records.

The modules of this package are not public: they may change in any release.
"""

from __future__ import annotations

from storage_consumer.testing.records import TargetRecords
from storage_consumer.testing.state import MemoryState
from storage_consumer.testing.storage import FakeClock, MemoryPipeline, MemoryStorage, MemoryWriter
from storage_consumer.testing.target import MemoryTarget
from storage_consumer.testing.writer import FencedWriter

__all__ = [
    "FakeClock",
    "FencedWriter",
    "MemoryPipeline",
    "MemoryState",
    "MemoryStorage",
    "MemoryTarget",
    "MemoryWriter",
    "TargetRecords",
]
