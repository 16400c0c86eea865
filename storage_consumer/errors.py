"""The error tree. Each class answers one question: what may the caller do?

StorageConsumerError
├── ConfigError            stop before anything is touched (exit code 2)
├── LeaseLost              another process is or became the writer (exit code 3)
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
    └── NotReplicable
"""

from __future__ import annotations


class StorageConsumerError(Exception):
    """Something went wrong in storage_consumer."""

    def __init__(self, message: str = "") -> None:
        """Use the first line of the class docstring where no message is given."""
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


class ConfigError(StorageConsumerError):
    """The settings or arguments are wrong; nothing was touched."""


class LeaseLost(StorageConsumerError):
    """Another process holds the lease on this target state."""


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


class TargetBusy(TargetUnavailable):
    """Others hold a lock that a statement needs; the statement did not take effect."""


class TableError(StorageConsumerError):
    """This table cannot go on as things are; the other tables can."""


class MalformedSchemaFile(TableError):
    """A schema file cannot be read as one."""


class UndecodableRow(TableError):
    """A row of a data file does not parse.

    `at_end` is True when the row is the last one of its file, where a file that is still being written may be torn.
    """

    def __init__(self, message: str, *, at_end: bool = False) -> None:
        """`message` names the file, the row, the byte offset and an excerpt."""
        super().__init__(message)
        self.at_end = at_end

    def __reduce__(self) -> tuple[object, ...]:
        """Keep `at_end` when the error travels between processes."""
        return (_undecodable, (str(self), self.at_end))


def _undecodable(message: str, at_end: bool) -> UndecodableRow:  # noqa: FBT001 - called by pickle only
    return UndecodableRow(message, at_end=at_end)


class FilesMissing(TableError):
    """A data file is missing from its numbered sequence, or vanished before it was read."""


class DdlFailed(TableError):
    """The target refused a DDL, or an interrupted DDL cannot be settled without help."""


class RowRefused(TableError):
    """The target refused a value of a row.

    `line` is the row as it was to be written, by which the one who ordered its writing finds the place it came from.
    """

    def __init__(self, message: str = "", *, line: bytes = b"") -> None:
        """`message` names the table, the row's key and the server's answer."""
        super().__init__(message)
        self.line = line


class NotReplicable(TableError):
    """The files do not say enough to apply this change rightly."""
