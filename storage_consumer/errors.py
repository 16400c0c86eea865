"""The error tree. Each class answers one question: what may the caller do?

StorageConsumerError
├── ConfigError            stop before anything is touched (exit code 2)
│   └── ExportRefused      this export cannot be loaded; another one can
│       └── ExportUnfinished   the same one later, if it is still being written
├── NoMetadata             no bucket of TiCDC's, or none yet; nothing was touched (exit code 5)
├── NotTheWriter           leave the target to another process (exit code 3)
│   ├── LeaseHeld          another process is the writer; nothing was touched
│   └── LeaseLost          another process became the writer
├── StateGone              the state schema was dropped or put back while running (exit code 1)
├── Abandoned              the running job was called off; the next start repeats it
├── TransientError         try again with back-off; after the limit the run ends (exit code 1)
│   ├── SparkUnavailable
│   ├── StorageUnavailable
│   └── TargetUnavailable
│       └── TargetBusy     nothing took effect
└── TableError             stop this table, the others go on (exit code 4 at the end)
    ├── MalformedSchemaFile
    ├── UndecodableRow
    ├── FilesMissing
    ├── DdlFailed
    ├── RowRefused
    ├── StatementRefused
    └── NotReplicable
"""

from __future__ import annotations

from collections.abc import Sequence


class StorageConsumerError(Exception):
    """Something went wrong in storage_consumer."""

    def __init__(self, message: str = "") -> None:
        """Use the first line of the class docstring if no message is given."""
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class ConfigError(StorageConsumerError):
    """The settings or arguments are wrong; nothing was touched."""


class ExportRefused(ConfigError):
    """An export cannot be loaded: unfinished, cut, or not of Dumpling or mydumper."""


class ExportUnfinished(ExportRefused):
    """An export is still being written, or it failed: nothing in its folder tells which."""


class NoMetadata(StorageConsumerError):
    """The bucket has no ``metadata``: another folder, or a changefeed that has not begun."""


class NotTheWriter(StorageConsumerError):
    """Another process is the writer of this target state."""


class LeaseHeld(NotTheWriter):
    """Another process holds the lease on this target state; this one never had it."""


class LeaseLost(NotTheWriter):
    """Another process took the lease that this one had."""


class StateGone(StorageConsumerError):
    """The state schema, or a part of it, was dropped or put back while the program ran."""


class BatchRefused(StorageConsumerError):
    """A batch of a subscription cannot be got, acknowledged or rolled back now."""


class Abandoned(StorageConsumerError):
    """The running job was called off before it was finished; the next start repeats it."""


class TransientError(StorageConsumerError):
    """Something outside did not answer; the same call may succeed later."""


class StorageUnavailable(TransientError):
    """The storage did not answer as it should."""


class SparkUnavailable(TransientError):
    """Spark lost a process in the middle of a job."""


class TargetUnavailable(TransientError):
    """The target database did not answer as it should."""


class SnapshotLost(TransientError):
    """A snapshot of the source or the target can be read no longer; another one has to be taken."""


class TargetBusy(TargetUnavailable):
    """Others hold a lock that a statement needs; the statement did not take effect."""


class TableError(StorageConsumerError):
    """This table cannot go on as things are; the other tables can."""


class MalformedSchemaFile(TableError):
    """A schema file cannot be read as one."""


class UndecodableRow(TableError):
    """A row of a data file does not parse.

    `at_end` is True when the row is the last one of its file, which may be torn while the file is
    still being written. `commit_ts` is the row's, None where it cannot be read.
    """

    def __init__(self, message: str, *, at_end: bool = False, commit_ts: int | None = None) -> None:
        """Store the row's place; `message` has the file, row, byte offset and an excerpt."""
        super().__init__(message)
        self.at_end = at_end
        self.commit_ts = commit_ts

    def __reduce__(self) -> tuple[object, ...]:
        """Keep what is known of the row when the error travels between processes."""
        return (_undecodable, (str(self), self.at_end, self.commit_ts))


def _undecodable(message: str, at_end: bool, commit_ts: int | None) -> UndecodableRow:  # noqa: FBT001 - called by pickle only
    return UndecodableRow(message, at_end=at_end, commit_ts=commit_ts)


class FilesMissing(TableError):
    """A data file is missing in its sequence, vanished before it was read, or is archived."""


class DdlFailed(TableError):
    """The target refused a DDL, or an interrupted DDL cannot be resolved without help.

    `remedy` is the next step for the operator, unless that is to make the target's table fit.
    `left_out`: it is about a view, which has no rows, so that nothing waits for it, and the journal
    has noted that it is not there. `of_foreign_key` is True if the answer is about a foreign key of
    the target.
    """

    def __init__(
        self,
        message: str = "",
        *,
        remedy: str = "",
        left_out: bool = False,
        of_foreign_key: bool = False,
    ) -> None:
        """Store the rest; `message` names the table, the statement and the server's answer."""
        super().__init__(message)
        self.remedy = remedy
        self.left_out = left_out
        self.of_foreign_key = of_foreign_key


class RowRefused(TableError):
    """The target refused a value of a row.

    `line` is the row as it was to be written. The caller looks it up to find the file and row that
    it came from. `content_error` is the server's error number if it refused a row to be written for
    what the row holds; 0 for everything else.
    """

    def __init__(self, message: str = "", *, line: bytes = b"", content_error: int = 0) -> None:
        """Store line and number; `message` has table, row's key and the server's answer."""
        super().__init__(message)
        self.line = line
        self.content_error = content_error


class StatementRefused(TableError):
    """A schema file's statement may not run: TiCDC stores none like it for this table."""


class NotReplicable(TableError):
    """The files do not say enough to apply this change rightly.

    `ways`: what helps, as pairs: when, and the words of a command up to the flags that lead to the
    target.
    """

    def __init__(self, message: str = "", *, ways: Sequence[tuple[str, str]] = ()) -> None:
        """Store the ways on; `message` names the table and what is missing."""
        super().__init__(message)
        self.ways = tuple(ways)
