"""What a copy of a table must hold, what the last one held, and proof that no change is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.model import folder_of, physical_ms, tso_of
from storage_consumer.plan.finished_files import FileSequences
from storage_consumer.plan.table_files import TableFiles
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import begins_in_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What a copy of a table has to hold, and what the last one held."""

    copy_from: int = 0
    """A copy as of this TSO or later holds what no file does; 0 if nothing is known to be missing.
    """
    absent: Mapping[str, int] = field(default_factory=dict)
    """Sequence → highest number (inclusive) listed or missed, for sequences that lack one."""
    copied_at: int = 0
    """TSO of the last copy, 0 for none."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """Sequence → number (inclusive) up to which absent files are in that copy: no wait for them."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """Sequence → highest number of the files that were there, unread, when the bucket was last
    listed with unread ones.

    One that is finished by now is not missed.
    """
    listed_at: int = 0
    """TSO of when the last of them came: a copy as of then or later holds all their rows."""

    def is_of_note(self, sequences: FileSequences) -> bool:
        """Return whether a start must know it of a table that may not be in the bucket."""
        return bool(
            self.copy_from or self.absent or self.copied_at or self.passed or self.missed(sequences)
        )

    def missed(self, sequences: FileSequences) -> dict[str, int]:
        """Return listed files, by sequence and number, that are now neither listed nor finished."""
        found = {name: sequences.missed(name, number) for name, number in self.listed.items()}
        return {name: number for name, number in found.items() if number}

    def renewed(self, at: int) -> Copies:
        """Return what is known after a copy as of TSO `at`: files listed after it are needed."""
        passed = {**self.passed, **self.absent}
        # Some listed files may have come after the copy, unknown which: all stay needed.
        if at < self.listed_at:
            return Copies(copied_at=at, passed=passed, listed=self.listed, listed_at=self.listed_at)
        more = {
            sequence: max(number, passed.get(sequence, 0))
            for sequence, number in self.listed.items()
        }
        return Copies(copied_at=at, passed={**passed, **more})


class CopyLedger:
    """What a copy of one table has to hold, as its files come, go and are missed."""

    def __init__(self, files: TableFiles, sequences: FileSequences, copies: Copies) -> None:
        """Begin with what an earlier run stored. `sequences`: those of the whole bucket."""
        self._files = files
        self._sequences = sequences
        self._known = copies
        self._changed = False

    @property
    def known(self) -> Copies:
        """What is known now."""
        return self._known

    def to_store(self) -> Copies | None:
        """Return what to store; None if there is nothing."""
        known = self._known
        return known if known.copy_from or known.copied_at or known.listed_at else None

    # what the last copy held

    @property
    def copied_at(self) -> int:
        """TSO of the last copy, 0 for none."""
        return self._known.copied_at

    def hold(self, version: int) -> None:
        """Note that the last copy holds the effect of a statement of this version."""
        self._known = replace(self._known, copied_at=max(self.copied_at, version))

    def pass_over(self) -> None:
        """Stop waiting for files whose rows the last copy holds."""
        known = self._known
        self._files.pass_over(known.passed)
        for sequence, upto in known.passed.items():
            # What was listed since then is needed.
            if sequence not in known.listed:
                self._sequences[sequence].let_go(upto)

    def hand_on(self, version: int, *, recreated: bool) -> None:
        """Note that a statement gave the name to a table whose copy holds this one's content.

        A table that was created again under the name (`recreated`) keeps what is known of it: what
        it lacks. `copied_at` is right before the statement that took the name away: others of its
        version may lead to this table.
        """
        known = self._known
        lacks = {sequence: last for sequence, _, last in self.gaps()} | dict(known.absent)
        # Older versions hold rows of the table that had the name until then: they are in its copy,
        # under the new name.
        passed = {
            sequence: last
            for sequence, last in lacks.items()
            if self._files.is_before(sequence, version)
        }
        absent = {
            sequence: last for sequence, last in known.absent.items() if sequence not in passed
        }
        self._known = Copies(
            copy_from=known.copy_from if recreated or absent else 0,
            absent=absent,
            copied_at=version - 1,
            passed=passed,
            listed={
                s: last for s, last in known.listed.items() if not self._files.is_before(s, version)
            },
            listed_at=known.listed_at,
        )
        self.pass_over()

    # what the next one has to hold

    def need(self, at: int) -> None:
        """Note that rows are missing which a copy as of TSO `at` holds."""
        self._known = replace(self._known, copy_from=max(self._known.copy_from, at))

    def miss(self, files: Iterable[tuple[str, int, int]], now: int) -> bool:
        """Note a missing file with sequence and highest number; return whether it is news.

        `now` is a TSO.
        """
        absent = self._known.absent
        # Up to the highest number that a copy must hold anyway, one more changes nothing.
        new = {
            sequence: last for sequence, number, last in files if absent.get(sequence, 0) < number
        }
        if new:
            self._known = replace(self._known, absent={**absent, **new})
            self.need(now)
        return bool(new)

    def note_change(self) -> None:
        """Note that a file was rewritten before it was read."""
        self._changed = True

    def note_listed(self, there: Mapping[str, int], now: int) -> bool:
        """Note the unread files `there`, for a later run to miss; return whether to store it.

        What was noted before and has been read since needs no note any more; what is missing keeps
        its own. `now`: a TSO.
        """
        listed, changed, self._changed = self._known.listed, self._changed, False
        if not (there or listed):
            return False
        missed = self._known.missed(self._sequences)
        upto = dict(there)
        for sequence, number in missed.items():
            upto[sequence] = max(number, there.get(sequence, 0))
        grown = any(listed.get(sequence, 0) < number for sequence, number in upto.items())
        # A file that was rewritten, before it was read or since, may hold rows which a copy as of
        # the former time lacks.
        is_news = (
            grown
            or bool(there and changed)
            or any(self._sequences[name].rewritten for name in there)
        )
        if is_news or upto != listed:
            self._known = replace(
                self._known, listed=upto, listed_at=now if is_news else self._known.listed_at
            )
        return is_news

    def forget(self) -> bool:
        """Stop waiting for gone files whose rows others hold; return whether there were any."""
        known = self._known
        for sequence, upto in known.listed.items():
            self._sequences[sequence].let_go(upto)
        self._known = replace(
            known, listed={}, absent={}, copy_from=0 if known.absent else known.copy_from
        )
        return self._known != known

    # what is missing

    def gaps(self) -> list[tuple[str, int, int]]:
        """Return what is missing, in the form that `TableVersionConsumer.gaps` yields."""
        return [
            *self._files.gaps(),
            *(
                (sequence, number, number)
                for sequence, number in self._known.missed(self._sequences).items()
            ),
        ]

    def first_missing(self, storage_checkpoint: int) -> str:
        """Return which file is missing that the storage checkpoint covers, or an empty text."""
        missed = self._files.not_there(self._known.absent)
        # What has come since is no longer missed.
        absent = {sequence: upto for sequence, _, upto in missed}
        if absent != self._known.absent:
            self._known = replace(self._known, absent=absent)
        for sequence, reached, _ in missed:
            return f"file number {reached + 1} in {folder_of(sequence)}"
        # Only then what an earlier run had seen and not read.
        for sequence, number in self._known.missed(self._sequences).items():
            return f"file number {number} in {folder_of(sequence)}"
        # The last copy holds all rows of a version if another structure had followed by then.
        copied = self._files.versions.telling
        for version in self._files.open_versions():
            number, table_dir = version.version, version.table_dir
            lacks = (
                version.definition is None
                and version.pending
                and not copied.has_within(number + 1, self.copied_at)
            )
            if lacks and number <= storage_checkpoint:
                return (
                    f"the schema file of {table_dir}/{number} ({table_dir}/meta/schema_{number}_*.json; if the changefeed did not "
                    "write that folder, move it out of the bucket)"
                )
            if gap := version.gap():
                return gap
        return ""


_AHEAD_MS = 10 * 60 * 1000
"""How far the source's clock, by which the TSO of a copy is made, may be ahead of another one."""
_NEW_FEED = "a new changefeed at the copy, `cdc cli changefeed create --start-ts={low}`, with a prefix of its own"


def gap_proof(low: int, start_ts: int, first_storage_checkpoint: int) -> str:
    """Return what is missing after the copy, with both remedies; empty if nothing is.

    `low`: the TSO at or below which the copy holds every change. `start_ts`: the changefeed's
    start-ts, 0 if nobody gave it. `first_storage_checkpoint`: the checkpoint of ``metadata`` that
    this state saw first, 0 if it has seen none. A changefeed's checkpoint never lies before its
    start-ts, so a checkpoint at or before the copy is as good a proof. Files that only look old are
    none.
    """
    if start_ts:
        if begins_in_time(start_ts, low):
            return ""
        return (
            f"the changefeed's start-ts {shown_tso(start_ts)} is later than the copy {shown_tso(low)}: the changes between them are in neither. "
            f"Either take a new copy, which is then later than start-ts; or make {_NEW_FEED.format(low=low)}"
        )
    if first_storage_checkpoint and begins_in_time(first_storage_checkpoint, low):
        return ""
    seen = (
        f"the first checkpoint that was seen of it is {shown_tso(first_storage_checkpoint)}"
        if first_storage_checkpoint
        else "no checkpoint of it has been seen"
    )
    return (
        f"nothing proves that the changefeed began at or before the copy {shown_tso(low)}: its start-ts was not given, and {seen}. Either give "
        "its start-ts: --start-ts TSO (start_ts=TSO in Python), or --config with what `cdc cli changefeed query` prints; or take a new copy, which is then later "
        "than that checkpoint"
        + (
            ""
            if first_storage_checkpoint
            else ", once the bucket has `metadata` and this program has seen it"
        )
    )


def is_in_future(low: int, now_ms: float) -> bool:
    """Return whether a copy's TSO is in the future; `now_ms`: since 1970 by another clock."""
    return physical_ms(low) > now_ms + _AHEAD_MS


def refused_future(low: int, now: float, storage_checkpoint: int) -> str:
    """Return why a copy as of the future TSO `low` cannot be used, or ""; it would hide changes.

    `now`: seconds by our clock, which may be wrong; the source's clock has reached the checkpoint
    that the bucket reports.
    """
    latest = max(now * 1000, physical_ms(storage_checkpoint))
    if not is_in_future(low, latest):
        return ""
    return (
        f"the copy is as of {shown_tso(low)}, which is in the future: the clock of this machine shows {tso_time(tso_of(now))}, and the bucket's checkpoint is "
        f"{shown_tso(storage_checkpoint) if storage_checkpoint else 'not there yet'}. If the clock is wrong, set it and try again. If it is "
        "right, the `Pos` in the export's metadata is damaged: export again"
    )


def shown_tso(ts: int) -> str:
    """Return a TSO with its time, for a message."""
    return f"{ts} ({tso_time(ts)})"
