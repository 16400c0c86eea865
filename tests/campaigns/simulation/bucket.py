"""What the bucket shows of that which the sink has written, and when."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from storage_consumer.plan.finished_files import FileVerdict, Finished, digest_of
from tests.campaigns.simulation.judge import Judge
from tests.campaigns.simulation.names import is_colliding
from tests.campaigns.simulation.sink import RowBoundary, Sink, table_of
from tests.campaigns.simulation.twins import Differs, LaggingStorage, Records
from tests.harness.small_bucket import ts

_NUMBERED = re.compile(r"CDC(?:_\d+_)?(\d+)\.(?:csv|json)")

_FAR = ((1 << 64) - 1, 1 << 63, ts(400 * 86_400))
ABSURD = (
    *(f'{{"checkpoint-ts":{number}}}' for number in _FAR),
    '{"checkpoint-ts":-1}',
    '{"checkpoint-ts":4.7e17}',
    f'{{"checkpoint-ts":{"4" * 5000}}}',
    '{"checkpoint-ts":47060',
)
"""What ``metadata`` may hold once something went wrong."""


@dataclass(slots=True)
class Bucket:
    """Shows objects in parts; each of its acts takes what it needs from the dice."""

    sink: Sink
    judge: Judge
    tell: Callable[[str], None]
    """Takes one more line of the story."""
    storage: LaggingStorage = field(default_factory=LaggingStorage)
    told: int = 0
    """The checkpoint (a tick) in ``metadata``."""
    hid: bool = False
    """A file that can be missed has been hidden since the round began."""
    is_back: bool = False
    """Files that had expired are there again, which a running process may see with its next full listing only."""
    known: set[str] = field(default_factory=set)
    """Paths that a whole round of the writer has listed as they are."""
    is_early: bool = False
    """There is no changefeed yet."""
    _away: int = 0
    """How often something is shown until expired files are there again."""
    _shown: list[bool] = field(default_factory=list)

    def follow(self, dice: random.Random) -> None:
        """TiCDC takes some more of the log, and writes."""
        if not self.is_early:
            self.sink.follow(dice)

    def begin(self, tick: int) -> None:
        """There is a changefeed from now on, which begins at a tick."""
        self.is_early = False
        self.judge.begun_at = tick
        self.sink.begin(tick)
        self.tell(f"the changefeed begins at {tick}")

    def exchange(self, tick: int, dice: random.Random, *, begins_late: bool) -> None:
        """The prefix is emptied and given to another changefeed, which begins at a tick.

        `begins_late`: rows before it are lost, which only its files can show: they are there before anything is read.
        """
        self.storage.hidden = frozenset()
        for stored in list(self.storage.listing(frozenset(), {})):
            self.storage.delete(stored.path)
        self.storage.listed.clear()
        self._shown.clear()
        self.sink.begin_anew(tick)
        self.tell(f"the prefix is emptied and given to a changefeed that begins at {tick}")
        while (begins_late and not self.sink.writes) or dice.random() < 0.5:
            self.follow(dice)
        self.show_all()
        self.told = -1
        self.tell_checkpoint(tick)

    def fail_over(self, dice: random.Random) -> None:
        """TiCDC starts again from an earlier checkpoint."""
        self.sink.restart(dice, self.told)
        self.tell(f"TiCDC starts again from {self.sink.start}")

    def show(self, dice: random.Random) -> None:
        """Some more objects can be listed, in the order of each table, and ``metadata`` may tell another checkpoint."""
        writes = self.sink.writes
        self._shown += [False] * (len(writes) - len(self._shown))
        told = self._next_mark(dice)
        all_of = told.writes if told else 0
        held = set[str]()
        new = []
        for place, (path, _) in enumerate(writes):
            if self._shown[place]:
                continue
            if place >= all_of and (table_of(path) in held or dice.random() < 0.3):
                held.add(table_of(path))
                continue
            self._put(place)
            new.append(path)
        if told is not None:
            self.tell_checkpoint(told.tick)
        self._away -= 1
        if self._away <= 0:
            self._bring_back()
        self.hid |= bool(self.storage.expired)
        self.storage.hidden = frozenset(_between(new)) if dice.random() < 0.1 else frozenset()
        self.hid |= bool(self.storage.hidden)
        for path in self.storage.hidden:
            self.tell(f"    {path} is not listed yet")

    @property
    def is_whole(self) -> bool:
        """Whether everything that was written can be listed, so that no statement of the checkpoint told can be missing."""
        if self.judge.begun_anew and self.told < self.judge.told:
            return False  # another changefeed has not come to where the former one was
        return (
            len(self._shown) == len(self.sink.writes)
            and all(self._shown)
            and not (self.storage.hidden or self.storage.expired)
        )

    def show_all(self) -> None:
        """Everything that was written can be listed."""
        self._shown += [False] * (len(self.sink.writes) - len(self._shown))
        for place, shown in enumerate(self._shown):
            if not shown:
                self._put(place)
        self.storage.hidden = frozenset()
        self._bring_back()

    def _bring_back(self) -> None:
        self.is_back |= bool(self.storage.expired)
        self.storage.expired = frozenset()

    def expire(self, dice: random.Random) -> int:
        """Some of the newest data files that a writer has listed are there no more for a while; return how many."""
        shown = [path for path, _ in self.sink.writes if path in self.known and _NUMBERED.search(path)]
        gone = dice.sample(shown[-4:], k=min(len(shown), dice.randint(1, 2)))
        self.storage.expired = frozenset(gone)
        self._away = dice.randint(1, 3)
        self.hid |= bool(gone)
        for path in gone:
            self.tell(f"    {path} expires")
        return len(gone)

    def _put(self, place: int) -> None:
        path, content = self.sink.writes[place]
        self._shown[place] = True
        self.known.discard(path)
        self.storage.expired -= {path}  # what is written anew is there
        self.storage.put(path, content.encode())
        self.tell(f"    {path}{_query(content)}")

    def _next_mark(self, dice: random.Random) -> RowBoundary | None:
        """A checkpoint to tell: of the next ones, or one from before."""
        if not self.sink.marks:
            return None
        if dice.random() < 0.05:
            return dice.choice(self.sink.marks)
        later = [mark for mark in self.sink.marks if mark.tick >= self.told]
        return dice.choice(later[-6:]) if later else None

    def tell_checkpoint(self, tick: int) -> None:
        """Write ``metadata``."""
        if tick != self.told:
            self.tell(f"metadata tells {tick}")
        self.told = tick
        self.judge.told = max(self.judge.told, tick)
        self.storage.put("metadata", f'{{"checkpoint-ts":{ts(tick)}}}'.encode())

    def damage_metadata(self, dice: random.Random) -> None:
        """``metadata`` says what no changefeed can say, until the next checkpoint is told."""
        text = dice.choice(ABSURD)
        self.tell(f"metadata tells {text[:40]}")
        self.storage.put("metadata", text.encode())

    def all_is_finished(self, records: Records) -> int:
        """G4: every data file is finished as it is, by what is stored; raises `Differs` for one that is not.

        Returns how many there are of tables that the target has no place for, which stay as they are.
        """
        left = 0
        for listed in self.storage.listing(frozenset(), {}):
            folder, _, name = listed.path.rpartition("/")
            if found := _NUMBERED.fullmatch(name):
                if is_colliding(listed.path):
                    left += 1
                    continue
                dispatcher = name.split("_")[1] if "_" in name else ""
                stored = records.sequences.get(f"{folder}|{dispatcher}|{len(found[1])}", Finished())
                if stored.judge(int(found[1]), digest_of(listed)) is not FileVerdict.UNCHANGED:
                    raise Differs(f"{listed.path} was never finished")
        return left


def _query(content: str) -> str:
    """The statement in a schema file."""
    return ": " + content.partition('"Query": ')[2].partition('",\n')[0] if '"Query"' in content else ""


def _between(paths: Iterable[str]) -> list[str]:
    """Data files beyond which another one of the same directory and dispatcher has come, so that their lack can be seen."""
    last: dict[str, str] = {}
    found = []
    for path in paths:
        stem = path.rpartition("_" if "CDC_" in path else "C")[0]
        if _NUMBERED.fullmatch(path.rpartition("/")[2]):
            found += [last[stem]] if last.get(stem, path) < path else []
            last[stem] = max(path, last.get(stem, ""))
    return found[:1]
