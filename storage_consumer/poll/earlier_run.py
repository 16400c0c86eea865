"""What an earlier run knew of files, held against the first listings of this one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from storage_consumer.model import StoredObject
from storage_consumer.plan.finished_files import Finished, Verdict, digest_of
from storage_consumer.storage.paths import with_all_above


@dataclass(slots=True)
class Earlier:
    """The files that an earlier run finished, and what becomes of those of which it left no digest.

    A state of an older version holds none. Such files are read again, for nothing tells whether they are what they were: all
    but those of directories that TiCDC had left for good when that run looked last. Which these are is known when a listing
    has ended, so the files are passed over first; then the directories that may have grown are `reopened` and listed once more.
    """

    finished: Mapping[str, Finished]
    """Stream (see `DataFile.stream`) → how far it was finished."""
    checkpoint: int
    """The highest checkpoint-ts that it read before it listed files."""
    rereads: bool
    """Whether a file may be read again for want of a digest. Where rows do not say when they committed it may not: they would be
    applied again over later ones. So the file counts as it is listed now."""
    unsure: Counter[str] = field(default_factory=Counter)
    """Folder → how many files of it were passed over for now."""
    _decided: bool = False

    def judge(self, stream: str, number: int, stored: StoredObject) -> Verdict:
        """What a file that is listed for the first time is; `UNSURE`: it counts as it is listed now."""
        known = self.finished.get(stream)
        verdict = Verdict.NEW if known is None else known.judge(number, digest_of(stored))
        if verdict is not Verdict.UNSURE or not self.rereads:
            return verdict
        if self._decided:
            return Verdict.NEW
        self.unsure[stream.partition("|")[0]] += 1
        return Verdict.SETTLED

    def was_unseen(self, stream: str, number: int) -> bool:
        """Whether a file that is written anew may have been so, unseen, while rows beyond it were applied."""
        known = self.finished.get(stream)
        return known is not None and known.was_unseen(number)

    def reopened(self, closed: Collection[str]) -> dict[str, int]:
        """The folders that have to be listed once more, with their files passed over, given which directories were closed then."""
        self._decided = True
        unsure, self.unsure = self.unsure, Counter()
        return {
            folder: count
            for folder, count in unsure.items()
            if not any(above in closed for above in with_all_above(folder))
        }
