"""A target in memory for histories of renames: it knows partitions, and notes what takes effect twice."""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from dataclasses import replace

from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import DdlAnswer
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.target import _NAME, MemoryTarget, _Refused
from tests.property.renaming_source import BORDER


class Differs(AssertionError):
    """The target is not as the model says; the message holds what is different."""


class RenamingTarget(MemoryTarget):
    """A twin that knows partitions by a border between ids, and notes whether a statement takes effect twice."""

    def __init__(self, records: TargetRecords, ran: Counter[tuple[str, int]]) -> None:
        """`ran`: text and version of the statements that took effect, over all processes."""
        super().__init__(records)
        self._ran = ran
        self._session = ""
        exchange = rf"{_NAME.format('a')} EXCHANGE PARTITION `?p(?P<part>\d)`? WITH TABLE {_NAME.format('b')}"
        self._statements = (
            (r"DROP DATABASE `?(?P<a>\w+)`?", self._drop_database),
            (rf"RENAME TABLE {_NAME.format('a')} TO {_NAME.format('b')}", self._renamed),
            (rf"ALTER TABLE {_NAME.format('a')} RENAME (?:AS |TO )?{_NAME.format('b')}", self._renamed),
            (rf"ALTER TABLE {exchange}", self._exchange),
            *self._statements,
        )

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement; `Differs` if it ran before and changes anything again."""
        self._session = schema
        again = self._ran[statement, version] > 0
        before = deepcopy((self._records.structures, self._records.rows)) if again else None
        partless = re.sub(r" PARTITION BY .*", "", statement)
        partless = re.sub(r", PRIMARY KEY \(`id`\)", "", partless.replace("`id` INT NOT NULL", "`id` INT PRIMARY KEY"))
        answer = super().execute_ddl(partless, schema, version, ignorable)
        self._ran[statement, version] += not answer.ignored
        if again and not answer.ignored and before != (self._records.structures, self._records.rows):
            message = f"took effect twice: {statement}"
            raise Differs(message)
        return answer

    def _drop_database(self, name: TableName, _: re.Match[str]) -> None:
        self._records.databases.discard(name.table)
        for found in [n for n in self._records.structures if n.schema == name.folded().table]:
            del self._records.structures[found]
            self._records.rows.pop(found, None)

    def _renamed(self, name: TableName, found: re.Match[str]) -> None:
        new = TableName(schema=found["b_schema"] or self._session, table=found["b"])
        if name.folded() not in self._records.structures:
            raise _Refused(1146, f"no table {name}")
        if new.folded() in self._records.structures:
            raise _Refused(1050, f"{new} exists")
        if new.schema not in self._records.databases:
            raise _Refused(1049, f"no database {new.schema}")
        table, rows = self._records.structures.pop(name.folded()), self._records.rows.pop(name.folded(), [])
        self._records.structures[new.folded()] = replace(table, name=new)
        self._records.rows[new.folded()] = rows

    def _exchange(self, name: TableName, found: re.Match[str]) -> None:
        other = TableName(schema=found["b_schema"] or self._session, table=found["b"]).folded()
        rows, whole = self._records.rows, name.folded()
        inside = [row for row in rows.get(whole, []) if (int(str(row["id"])) >= BORDER) == (found["part"] == "1")]
        rows[whole], rows[other] = (
            [row for row in rows.get(whole, []) if row not in inside] + rows.get(other, []),
            inside,
        )
