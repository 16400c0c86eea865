"""Entries as canal's protobuf has them: begin and end of a commit, rows with columns, statements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from storage_consumer.changes.rendering import (
    NEVER_SIGNED,
    PROMOTED,
    SQL_CODES,
    VARCHAR_CODE,
    flat_reader,
)
from storage_consumer.changes.window import Change, FeedStatement, Structure
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.kernels.arrays import INSERT, UPDATE
from storage_consumer.model import TableColumn, TableDefinition, TableName, physical_ms
from storage_consumer.sql.parse import parsed
from storage_consumer.subscribe.entries import Entry
from storage_consumer.subscribe.wire import MESSAGES

FILE = "ticdc"
"""What a client sees as the name of the binlog; the offset in it is the commit-ts."""
_BEGIN, _ROWS, _END = 1, 2, 3
_MYSQL = 2
_INSERT, _UPDATE, _DELETE, _QUERY = 1, 2, 3, 7
_OPERATIONS = {INSERT: _INSERT, UPDATE: _UPDATE}
_STATEMENTS = {
    ("CREATE", "TABLE"): 4,
    ("ALTER", "TABLE"): 5,
    ("DROP", "TABLE"): 6,
    ("TRUNCATE", ""): 8,
    ("RENAME", "TABLE"): 9,
    ("CREATE", "INDEX"): 10,
    ("CREATE", "UNIQUE"): 10,
    ("DROP", "INDEX"): 11,
}
"""First words of a statement → canal's type of event; all others are queries."""
_SIZED = frozenset(("CHAR", "VARCHAR", "BINARY", "VARBINARY", "BIT"))
_FRACTIONS = frozenset(("DATETIME", "TIMESTAMP", "TIME"))


def statement_type(definition: TableDefinition) -> int:
    """Return canal's type of event for a statement."""
    first, second = (*parsed(definition).head, "", "")[:2]
    return _STATEMENTS.get((first, "" if first == "TRUNCATE" else second), _QUERY)


def type_text(column: TableColumn) -> str:
    """Return a column's type as canal has it: ``varchar(30)``, ``bigint unsigned``."""
    text = column.type.lower()
    if column.elements:
        members = (member.replace("'", "''") for member in column.elements)
        text += "(" + ",".join(f"'{member}'" for member in members) + ")"
    elif column.type in _SIZED and column.precision is not None:
        text += f"({column.precision})"
    elif column.type in _FRACTIONS and column.scale:
        text += f"({column.scale})"
    elif column.type == "DECIMAL":
        text += f"({column.precision or 10},{column.scale or 0})"
    return f"{text} unsigned" if column.unsigned and column.type not in NEVER_SIGNED else text


def _bytes(text: str) -> bytes:
    """Return a value as it is sent; what is no Unicode comes as U+FFFD, as from canal."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


class _Cells:
    """Fills the columns of a row's image, which are made once for many rows."""

    def __init__(self, structure: Structure, protocol: Protocol) -> None:
        """Describe the columns of a structure."""
        self._readers = [flat_reader(column, protocol) for column in structure.columns]
        self._promoted = {
            place: (SQL_CODES[column.type], *PROMOTED[column.type])
            for place, column in enumerate(structure.columns)
            if column.unsigned and column.type in PROMOTED
        }
        columns = [
            MESSAGES["Column"](
                index=place,
                sqlType=SQL_CODES.get(column.type, VARCHAR_CODE),
                name=column.name,
                isKey=place in structure.key,
                updated=False,
                isNull=False,
                mysqlType=type_text(column),
            )
            for place, column in enumerate(structure.columns)
        ]
        row = MESSAGES["RowData"]
        self._rows = {
            _INSERT: row(afterColumns=columns),
            _UPDATE: row(beforeColumns=columns, afterColumns=columns),
            _DELETE: row(beforeColumns=columns),
        }

    def row(self, change: Change) -> bytes:
        """Return a change's row data."""
        kind = _OPERATIONS.get(change.operation, _DELETE)
        row, old = self._rows[kind], change.old
        if kind == _DELETE:
            given = change.given()
            self._fill(row.beforeColumns, change.values, [False] * len(change.values))
            if len(given) < len(change.values):
                key = [row.beforeColumns[place] for place in given]
                row = MESSAGES["RowData"](beforeColumns=key)
        elif kind == _UPDATE and old is not None:
            self._fill(row.beforeColumns, old, [False] * len(old))
            changed = [new != before for new, before in zip(change.values, old, strict=True)]
            self._fill(row.afterColumns, change.values, changed)
        else:
            # An update whose file has no old values may have changed each column.
            row = self._rows[_INSERT]
            self._fill(row.afterColumns, change.values, [True] * len(change.values))
        data: bytes = row.SerializeToString()
        return data

    def _fill(self, cells: Any, texts: Sequence[str | None], updated: Sequence[bool]) -> None:
        for cell, text, read, changed in zip(cells, texts, self._readers, updated, strict=True):
            cell.updated = changed
            if text is None:
                cell.isNull = True
                cell.ClearField("value")
            else:
                cell.isNull = False
                cell.value = _bytes(read(text))
        for place, (code, most, above) in self._promoted.items():
            text = texts[place]
            cells[place].sqlType = above if text is not None and int(text) > most else code


class EntryPackets:
    """Turns a client's entries into those of canal's protocol, serialized."""

    def __init__(self) -> None:
        """Know no columns yet."""
        self._cells = lru_cache(maxsize=256)(_Cells)

    def __call__(self, entry: Entry) -> tuple[bytes, int]:
        """Return an entry as it is sent, and its bytes."""
        found = self._packed(entry)
        return found, len(found)

    def _packed(self, entry: Entry) -> bytes:
        if entry.changes:
            return _rows(entry.changes, self._cells(entry.changes[0].structure, entry.protocol))
        if entry.statement is not None:
            return _statement(entry.statement)
        is_end = entry.kind == "end"
        body = MESSAGES["TransactionEnd" if is_end else "TransactionBegin"](
            transactionId=str(entry.commit_ts)
        )
        kind = _END if is_end else _BEGIN
        return _entry(kind, entry.commit_ts, body, schemaName="", tableName="")


def _rows(changes: Sequence[Change], cells: _Cells) -> bytes:
    kind, structure = _OPERATIONS.get(changes[0].operation, _DELETE), changes[0].structure
    rows = map(cells.row, changes)
    body = MESSAGES["RowChange"](
        tableId=structure.version, eventType=kind, isDdl=False, rowDatas=rows
    )
    count = MESSAGES["Pair"](key="rowsCount", value=str(len(changes)))
    return _entry(_ROWS, changes[0].commit_ts, body, props=[count], **_head(structure.table, kind))


def _statement(event: FeedStatement) -> bytes:
    name, kind = event.definition.name, statement_type(event.definition)
    sql = _bytes(event.definition.query).decode()
    body = MESSAGES["RowChange"](eventType=kind, isDdl=True, sql=sql, ddlSchemaName=name.schema)
    return _entry(_ROWS, event.commit_ts, body, **_head(name, kind))


def _head(name: TableName, kind: int) -> dict[str, object]:
    return {"schemaName": name.schema, "tableName": name.table, "eventType": kind}


def _entry(kind: int, commit_ts: int, body: Any, **head: object) -> bytes:
    stored: bytes = body.SerializeToString()
    header = MESSAGES["Header"](
        version=1,
        logfileName=FILE,
        logfileOffset=commit_ts,
        serverenCode="UTF-8",
        executeTime=physical_ms(commit_ts),
        sourceType=_MYSQL,
        eventLength=len(stored),
        gtid=str(commit_ts),
        **head,
    )
    entry: bytes = MESSAGES["Entry"](
        header=header, entryType=kind, storeValue=stored
    ).SerializeToString()
    return entry
