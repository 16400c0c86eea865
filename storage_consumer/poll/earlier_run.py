"""What an earlier run knew of files, compared with the first listings of this run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from storage_consumer.model import StoredObject, folder_of
from storage_consumer.plan.finished_files import Finished, Verdict, digest_of
from storage_consumer.storage.paths import with_all_above


@dataclass(slots=True)
class Earlier:
    """The files that an earlier run finished, and what to do with those for which it left no digest.

    A state of an older version holds no digests. Such files are read again, for nothing shows whether they are unchanged. The
    exception is the directories that TiCDC had left for good when that run looked last. Which ones these are is known only
    when a listing has ended: so the files are passed over first, and then the directories that may have grown are `reopened`
    and listed once more.
    """

    finished: Mapping[str, Finished]
    """Sequence (see `DataFile.sequence`) → how far it was finished."""
    checkpoint: int
    """The highest checkpoint-ts that it read before it listed files."""
    rereads: bool
    """Whether a file without a digest may be read again. It may not where rows carry no commit-ts: they would be applied again over
    later ones. Then the file counts as it is listed now.
    """
    unsure: Counter[str] = field(default_factory=Counter)
    """Folder → number of its files that are passed over for now."""
    _decided: bool = False

    def judge(self, sequence: str, number: int, stored: StoredObject) -> Verdict:
        """Return what a file listed for the first time is; `UNSURE`: it counts as it is listed now."""
        known = self.finished.get(sequence)
        verdict = Verdict.NEW if known is None else known.judge(number, digest_of(stored))
        if verdict is not Verdict.UNSURE or not self.rereads:
            return verdict
        # Its folder was listed once more since, because TiCDC may have written there: so the file is read.
        if self._decided:
            return Verdict.NEW
        # Passed over until the end of the listing shows whether its folder was closed.
        self.unsure[folder_of(sequence)] += 1
        return Verdict.UNCHANGED

    def was_unseen(self, sequence: str, number: int) -> bool:
        """Return whether a rewritten file may have been rewritten, unseen, while rows beyond it were applied."""
        known = self.finished.get(sequence)
        return known is not None and known.was_unseen(number)

    def reopened(self, closed: Collection[str]) -> dict[str, int]:
        """Return folder → number of files passed over, for the folders to list again; `closed`: the directories closed at that time."""
        self._decided = True
        unsure, self.unsure = self.unsure, Counter()
        return {
            folder: count
            for folder, count in unsure.items()
            if not any(above in closed for above in with_all_above(folder))
        }
