"""The lines of the table: what each measures, against what, and its goal on two cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.benchmarks.backlogs import (
    Backlog,
    against_load_data,
    against_mixed,
    many_tables,
    measured,
)
from tests.benchmarks.cold import measure_cold
from tests.benchmarks.exports import loaded
from tests.benchmarks.feeds import measure_feeds, measure_read_changes
from tests.benchmarks.idle import measure_idle
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.results import Result
from tests.benchmarks.rounds import measure_rounds

WIDER = 15
"""So many times the columns of an ordinary table has a wide one, and so many times fewer events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What can be asked for by name."""

    about: str
    measure: Callable[[str, Bench, Asked], Sequence[Result]]
    """Called with its name."""


def _backlog(about: str, prepare: Callable[[Bench, Asked], Backlog]) -> Line:
    return Line(about=about, measure=lambda name, bench, asked: [measured(name, prepare(bench, asked), asked)])


def _loaded(about: str, protocol: str, profile: str, goal: float) -> Line:
    """A backlog beside LOAD DATA of the rows that are left in the end."""
    return _backlog(about, lambda bench, asked: against_load_data(bench, asked.order(protocol, profile), goal))


def _copied(about: str, form: str, goal: float) -> Line:
    """An export of the final rows beside LOAD DATA of them."""
    return _backlog(about, lambda bench, asked: loaded(bench, asked.order("csv", "insert"), form, goal))


LINES: dict[str, Line] = {
    "canal-json": _loaded(
        "mixed changes in canal-json, against LOAD DATA over two connections", "canal-json", "mixed", 0.5
    ),
    "csv": _loaded("the same in CSV", "csv", "mixed", 0.7),
    "insert": _loaded("inserts only, CSV, against the same", "csv", "insert", 0.8),
    "dump-csv": _copied("loading an export in CSV, against LOAD DATA of the same rows", "csv", 0.6),
    "dump-sql": _copied("the same in SQL", "sql", 0.45),
    "unique": _loaded(
        "a second unique key whose values move between rows, CSV, against LOAD DATA into the same table",
        "csv",
        "unique",
        0.4,
    ),
    "keyless": _loaded(
        "a table without a key: inserts, some updates and deletes, CSV, against LOAD DATA", "csv", "keyless", 0.3
    ),
    "wide": _backlog(
        "120 columns, a fifteenth of the events, CSV, values a second against those of line csv",
        lambda bench, asked: against_mixed(
            bench, replace(asked.order("csv", "wide"), events=asked.events // WIDER), 0.5
        ),
    ),
    "tables": Line(
        about="many tables, CSV, against the same; and their CREATE TABLE against one connection that runs them",
        measure=many_tables,
    ),
    "tiny": _backlog(
        "many tiny files of one table, CSV, against one of usual files",
        lambda bench, asked: against_mixed(
            bench, replace(asked.order("csv", "mixed"), file_events=max(1, asked.events // asked.files)), 0.5
        ),
    ),
    "rounds": Line(
        about="small rounds of a running consumer: 10 rows, 200 rows, 200 tables, beside a bare Spark job",
        measure=measure_rounds,
    ),
    "idle": Line(
        about="idle rounds while stored files grow, in a folder and in S3, against the fewest", measure=measure_idle
    ),
    "feed": Line(
        about='a batch of format("ticdc") beside Spark\'s own readers of the same files, and changes() beside it',
        measure=measure_feeds,
    ),
    "read-changes": Line(
        about="read_changes without a JVM, beside Arrow's own readers on all cores", measure=measure_read_changes
    ),
    "cold": Line(about="from the command's start to the first row, beside Spark's own start", measure=measure_cold),
}
"""By name."""
