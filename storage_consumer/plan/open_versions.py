"""The version directories of one table in which something is left to read, or to wait for. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.model import VersionKey
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.plan.table_versions import TableVersions


class OpenVersions:
    """The directories without a schema file and those with an open sequence: few, however many are known."""

    def __init__(self, *, tells_time: bool) -> None:
        """Begin without any. `tells_time`: see `TableFiles`."""
        self._tells_time = tells_time
        self._open = TableVersions()

    def put(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Look at a directory again: something was added to it."""
        self._open.put(key, version)

    def discard(self, key: VersionKey) -> None:
        """Look at a directory no more."""
        if key in self._open:
            self._open.remove(key)

    def all(self) -> list[TableVersionConsumer]:
        """Return them in order."""
        return self._among(list(self._open.numbers))

    def upto(self, target: int) -> list[TableVersionConsumer]:
        """Return those that may hold rows up to a target (inclusive), in order, and perhaps some others."""
        # Beyond the target a directory to which no statement led may hold some; see `may_hold_rows`.
        beyond = self._open.bare.since(target) if self._tells_time else []
        return self._among([*self._open.numbers.below(target), *beyond])

    def _among(self, numbers: Iterable[int]) -> list[TableVersionConsumer]:
        """Return those of some versions, in order."""
        found = []
        for number in numbers:
            for key, version in sorted(self._open.at(number).items(), key=lambda item: item[0]):
                # Versions leave here and return by `put`: a long history then costs nothing in each round.
                if version.definition is not None and not version.open_sequences():
                    self._open.remove(key)
                else:
                    found.append(version)
        return found
