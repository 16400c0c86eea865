"""The table of forms by servers, which is kept beside this module: ``form, MariaDB, MySQL, TiDB``, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from storage_consumer.errors import TableError
from storage_consumer.model import TableDefinition
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.target.ddl.translate import action_for, refuse_what_may_not_run
from tests.campaigns.grammar import recording
from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.forms import ALL
from tests.campaigns.grammar.playing import EXECUTED, Found, definition_of
from tests.campaigns.grammar.reasons import reason_of
from tests.campaigns.grammar.source import Source

PATH = Path(__file__).with_name("outcomes.tsv")
PLAYED = ("mariadb", "mysql")
"""Servers on which forms are played; a TiDB takes what TiDB took."""
SERVERS = (*PLAYED, "tidb")
_EVERY = 20
"""How many of the forms that run as they are go untested by the short round, for one that is tested."""
Line = tuple[str, str, str]
"""Outcome on each server."""


def taken() -> list[tuple[Form, Source]]:
    """The forms that TiDB takes and does something for, with what it made of them: TiCDC writes no other."""
    known = recording.read()
    return [(form, known[form.name]) for form in ALL if known[form.name].job]


def chosen(forms: Sequence[tuple[Form, Source]], golden: Mapping[str, Line], server: str) -> list[tuple[Form, Source]]:
    """A part of the forms that has every outcome but the plain one, and some of those that run as they are.

    Of many forms with one outcome in one group a few are enough.
    """
    found, seen = [], dict[tuple[str, str], int]()
    for form, source in forms:
        outcome = golden[form.name][SERVERS.index(server)]
        seen[form.group, outcome] = number = seen.get((form.group, outcome), -1) + 1
        found += [(form, source)] if number % _EVERY == 0 else []
    return found


def shown(found: Found) -> str:
    """The outcome as the table has it: halts with the reason's name."""
    return _with_reason(found.outcome) if "halts: " in found.outcome else found.outcome


def _with_reason(outcome: str) -> str:
    before, _, halt = outcome.partition("halts: ")
    return before + reason_of(halt)


def on_tidb(form: Form, source: Source) -> str:
    """What becomes of a form on a TiDB target, which runs what the source ran but for what is not replicated; up to the first halt."""
    outcomes: list[str] = []
    for number, text in enumerate(form.statements, len(form.before)):
        outcomes.append(_on_tidb(definition_of(text, number, source.moments[number])))
        if outcomes[-1].startswith("halts"):
            break
    return "; ".join(outcomes)


def _on_tidb(definition: TableDefinition) -> str:
    step = DdlStep(table_dir="d", table_key=key_of(definition.name), definition=definition)
    try:
        if definition.ddl_type:
            refuse_what_may_not_run(step, "tidb")
        action = action_for(definition, "tidb", "utf8mb4_bin")
    except TableError as fault:
        return reason_of(str(fault))
    if not action.statement:
        return f"left out: {', '.join(action.notes)}"
    return (
        f"rewritten: {', '.join(note for note in action.notes if note in DIFFERENCES)}"
        if action.statement != definition.query.strip()
        else EXECUTED
    )


def text() -> str:
    """The table that is kept, as text."""
    return PATH.read_text(encoding="utf-8")


def read() -> dict[str, Line]:
    """The table that is kept."""
    found: dict[str, Line] = {}
    for line in text().splitlines()[1:]:
        _, name, mariadb, mysql, tidb = line.split("\t")
        found[name] = (mariadb, mysql, tidb)
    return found


def lines(forms: Iterable[Form], outcomes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The table as text."""
    yield "\t".join(("group", "form", *SERVERS))
    for form in forms:
        yield "\t".join((form.group, form.name, *(outcomes[server][form.name] for server in SERVERS)))
