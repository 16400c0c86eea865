"""The workload that is applied under each fault: three cuts, four tables, four statements between rows, and what is right at the end.

A keyed table, one with a second unique key whose values are swapped, and a keyless one with equal rows; a column is added, the
keyless table is truncated, the one with two keys renamed. A statement that ran twice, a row that was lost or doubled shows.
"""

from __future__ import annotations

from tests.harness.comparing import STATE_SCHEMA
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts

CUTS = 3
CHECKPOINTS = (ts(9), ts(19), ts(29))
"""Of each cut."""
MANY = 300
"""Rows of the keyed table."""
WIDE = 10
"""Rows of the one whose rows are long, unless told otherwise."""
_HEAP = (column("a", "INT"), column("v", "VARCHAR", ColumnPrecision="20"))
_PAIR = (column("id", "INT", key=True), column("code", "VARCHAR", ColumnPrecision="20"))
_WIDER = (*ID_NAME, column("more", "VARCHAR", ColumnPrecision="20"))
_LONG = (column("id", "INT", key=True), column("name", "VARCHAR", ColumnPrecision="1000"))
Rows = list[tuple[object, ...]]


def show(bucket: SmallBucket, cut: int, wide: int = WIDE) -> None:
    """Add what TiCDC has written by a cut (from 0) to the bucket; ``metadata`` last. `wide`: rows of a kilobyte in the second."""
    (_first, _second, _third)[cut](bucket)
    if cut == 1:
        query = "CREATE TABLE `wide` (id INT PRIMARY KEY, name VARCHAR(1000))"
        bucket.schema("d.wide", ts(11), query, CREATE_TABLE, _LONG)
        rows = (row("d.wide", 12, str(number), f'"{_long(number)}"') for number in range(wide))
        bucket.rows("d.wide", 1, *rows, version=ts(11))
    bucket.metadata(CHECKPOINTS[cut])


def _first(bucket: SmallBucket) -> None:
    bucket.create("d.t")
    bucket.schema("d.u", ts(1), "CREATE TABLE `u` (id INT PRIMARY KEY, code VARCHAR(20) UNIQUE)", CREATE_TABLE, _PAIR)
    bucket.schema("d.heap", ts(1), "CREATE TABLE `heap` (a INT, v VARCHAR(20))", CREATE_TABLE, _HEAP)
    bucket.rows("d.t", 1, *(row("d.t", 5, str(number), f'"n{number}"') for number in range(1, MANY + 1)))
    bucket.rows("d.u", 1, *(row("d.u", 5, str(number), f'"{code}"') for number, code in enumerate("abc", 1)))
    bucket.rows("d.heap", 1, *(row("d.heap", 6, *one) for one in (("7", '"same"'), ("7", '"same"'), ("8", '"other"'))))


def _second(bucket: SmallBucket) -> None:
    bucket.rows(
        *("d.t", 2),
        *(row("d.t", 12, "1", '"changed"', operation="U"), row("d.t", 12, "2", '"n2"', operation="D")),
        row("d.t", 13, "1001", '"late"'),
    )
    bucket.schema("d.t", ts(14), "ALTER TABLE `t` ADD COLUMN `more` VARCHAR(20) DEFAULT 'x'", 5, _WIDER)
    bucket.rows(
        *("d.t", 1),
        *(row("d.t", 15, "3", '"n3"', '"y"', operation="U"), row("d.t", 16, "1002", '"wide"', r"\N")),
        version=ts(14),
    )
    bucket.rows(
        *("d.u", 2),
        *(row("d.u", 12, "1", '"b"', operation="U"), row("d.u", 12, "2", '"a"', operation="U")),
        row("d.u", 15, "3", '"c"', operation="D"),
    )
    bucket.rows("d.heap", 2, row("d.heap", 13, "7", '"same"', operation="D"), row("d.heap", 13, "9", '"nine"'))


def _third(bucket: SmallBucket) -> None:
    bucket.rows("d.heap", 3, row("d.heap", 21, "10", '"gone"'))
    bucket.schema("d.heap", ts(22), "TRUNCATE TABLE `heap`", 11, _HEAP)
    bucket.rows("d.heap", 1, *(row("d.heap", 24, "1", '"new"') for _ in range(2)), version=ts(22))
    bucket.schema("d.v", ts(23), "RENAME TABLE `d`.`u` TO `d`.`v`", 14, _PAIR)
    bucket.rows(
        *("d.v", 1),
        *(row("d.v", 25, "3", '"a"'), row("d.v", 25, "2", '"c"', operation="U")),
        version=ts(23),
    )
    bucket.rows("d.t", 2, row("d.t", 25, "3", '"n3"', '"y"', operation="D"), version=ts(14))


def _long(number: int) -> str:
    """A text of about a kilobyte that does not compress well."""
    return "".join(f"{number * 7919 + part * 104729:08x}"[-8:] for part in range(120))


def truth(wide: int = WIDE) -> dict[str, Rows]:
    """Table → its rows after the last cut."""
    kept: Rows = [(number, f"n{number}", "x") for number in range(4, MANY + 1)]
    return {
        "t": [(1, "changed", "x"), *kept, (1001, "late", "x"), (1002, "wide", None)],
        "v": [(1, "b"), (2, "c"), (3, "a")],
        "heap": [(1, "new"), (1, "new")],
        "wide": [(number, _long(number)) for number in range(wide)],
    }


def differences(server: DatabaseServer, wide: int = WIDE) -> list[str]:
    """Where target and state are not as they have to be after the last cut."""
    found = {name: sorted(server.query(f"SELECT * FROM d.{name}")) for name in _tables(server)}
    right = truth(wide)
    wrong = [f"d.{name}: {_shown(found.get(name), rows)}" for name, rows in right.items() if found.get(name) != rows]
    wrong += [f"d.{name} is there" for name in sorted(found.keys() - right.keys())]
    ((checkpoint,),) = server.query(f"SELECT checkpoint_running FROM {STATE_SCHEMA}.feed")
    if checkpoint != CHECKPOINTS[-1]:
        wrong.append(f"the checkpoint is {checkpoint}, not {CHECKPOINTS[-1]}")
    for table, state, error in server.query(f"SELECT table_name, state, error FROM {STATE_SCHEMA}.table_progress"):
        if state not in ("running", "dropped"):
            wrong.append(f"{table} is {state}: {error}")
    return wrong


def _tables(server: DatabaseServer) -> list[str]:
    return [name for (name,) in server.query("SHOW TABLES FROM d")] if "d" in server.databases() else []


def _shown(found: Rows | None, right: Rows) -> str:
    """What is missing and what is too much."""
    if found is None:
        return "is missing"
    there, wanted = [*found], [*right]
    for one in right:
        if one in there:
            there.remove(one)
            wanted.remove(one)
    return f"lost {wanted[:5]}, too much {there[:5]}"[:500]
