"""In which order the statements of a bucket took effect, and which of them led to a table's structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from storage_consumer.errors import NotReplicable
from storage_consumer.model import NameAt, TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.plan.barriers import MAKES_TABLE
from storage_consumer.plan.renames import inferred, lost_rename
from storage_consumer.plan.unqualified_names import Namesake, homes, of_any_database
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.real_names import with_homes
from storage_consumer.sql.statement import copied_table

_There = dict[TableName, tuple[TableColumn, ...]]
"""The tables that there are, by their folded names, with their columns; without any where they are not known."""


def in_running_order(known: Iterable[TableDefinition]) -> list[TableDefinition]:
    """Return all definitions by version; those of one version so that each rename finds its new name free, as where names are swapped.

    A rename of such a swap that no file holds is among them (see `plan.renames.lost_rename`).
    """
    there: _There = {}
    ordered: list[TableDefinition] = []
    by_path = sorted(known, key=lambda each: (each.version, each.path))
    for _, group in groupby(by_path, key=lambda each: each.version):
        ordered += _ordered(list(group), there)
    return ordered


def with_databases(ordered: Sequence[TableDefinition]) -> tuple[list[TableDefinition], dict[str, str]]:
    """Return definitions in running order with the databases of the names that statements leave open, and path → why one stays open.

    What the bucket shows of each database's tables at that time decides, by the rules of `homes`.
    """
    versions = defaultdict[TableName, list[TableDefinition]](list)
    for each in ordered:
        versions[parsed(each).subject.folded()].append(each)
    # What no statement made was there before the bucket begins.
    there: _There = {name: () for name, found in versions.items() if found[0].ddl_type not in MAKES_TABLE}
    located, unclear = list[TableDefinition](), dict[str, str]()
    for each in ordered:
        namesakes = {name: list(_namesakes(name, each.version, there, versions)) for name in of_any_database(each)}
        try:
            definition = with_homes(each, {}, homes(each, namesakes))
        except NotReplicable as fault:
            definition, unclear[each.path] = each, str(fault)
        located.append(definition)
        _take_effect(definition, there)
    return located, unclear


def _namesakes(
    name: NameAt, version: int, there: _There, versions: Mapping[TableName, Sequence[TableDefinition]]
) -> Iterator[Namesake]:
    """Yield the tables that a name may mean right before a version. `versions`: folded name → its definitions."""
    for folded, columns in there.items():
        if folded.table == folded_name(name.table):
            known = versions[folded]
            following = next((each for each in known if each.version > version), None)
            stays = following is not None and following.ddl_type not in MAKES_TABLE
            yield Namesake(name=parsed(known[0]).subject, columns=columns, stays=stays)


def lineage(definition: TableDefinition, known: Sequence[TableDefinition]) -> list[TableDefinition]:
    """Return what was read of a table up to one of its versions, under the names that it had. `known`: all, in running order.

    A table that was made LIKE another one has the past of that, as of then.
    """
    past: dict[TableName | None, list[TableDefinition]] = defaultdict(list)
    gone = set[TableName | None]()
    for each in known:
        if each.version > definition.version:
            break
        renamed, subject = parsed(each).renamed, parsed(each).subject.folded()
        if renamed is not None and renamed[0] != renamed[1]:
            former = past.pop(renamed[0], [])
            # A table that was dropped is not the one that is renamed, of which the bucket shows nothing then.
            past[renamed[1]] = [] if renamed[0] in gone else former
        if parsed(each).head[:1] == ("DROP",):
            gone |= {subject} if subject.table else {name for name in past if name and name.schema == subject.schema}
        else:
            gone.discard(subject)
        if copied_table(each.query) is not None:
            past[subject] = list(past.get(_copied(each), ()))
        past[subject].append(each)
    return past[definition.name.folded()]


def _copied(definition: TableDefinition) -> TableName | None:
    """Return the table that a statement copies; None where its database is that of a session, which nothing tells."""
    schema, table = copied_table(definition.query) or ("", "")
    created = next(iter(parsed(definition).names), None)
    if not schema and created is not None and created.schema:
        return None
    return TableName(schema=schema or definition.name.schema, table=table).folded()


def _ordered(group: list[TableDefinition], there: _There) -> list[TableDefinition]:
    """Return the definitions of one version in their order. `there`: the tables that there are before them, and then after them."""
    waiting, ordered = list(group), list[TableDefinition]()
    while waiting:
        taken = next((each for each in waiting if _is_free(each, there)), None)
        # At most one per statement, so that the loop ends whatever the names are.
        if taken is None and len(ordered) + len(waiting) < 2 * len(group):
            pairs = [pair for each in waiting if (pair := parsed(each).renamed) is not None]
            # One alone makes no cycle: the bucket does not show that the table of its new name is gone.
            if lost := lost_rename(pairs, there.keys()) if len(pairs) > 1 else None:
                taken = inferred(lost, waiting)
                waiting.append(taken)
        taken = taken or _last_of_chain(waiting)
        waiting.remove(taken)
        ordered.append(taken)
        _take_effect(taken, there)
    return ordered


def _is_free(definition: TableDefinition, there: _There) -> bool:
    renamed = parsed(definition).renamed
    return renamed is None or renamed[1] not in there or renamed[0] == renamed[1]


def _last_of_chain(waiting: list[TableDefinition]) -> TableDefinition:
    """Return a rename to a name that no other one frees: the bucket does not show that its table is gone."""
    pairs = [(each, parsed(each).renamed) for each in waiting]
    old = {pair[0] for _, pair in pairs if pair is not None}
    return next((each for each, pair in pairs if pair is not None and pair[1] not in old), waiting[0])


def _take_effect(definition: TableDefinition, there: _There) -> None:
    """Note which tables there are after a statement, or a structure."""
    ddl, own = parsed(definition), definition.name.folded()
    if not own.table:
        for name in [name for name in there if name.schema == own.schema and ddl.head[:1] == ("DROP",)]:
            del there[name]
        return
    before = () if ddl.renamed is None else there.pop(ddl.renamed[0], ())
    if ddl.head[:1] == ("DROP",) and ddl.head[1:] != ("INDEX",):
        there.pop(own, None)
    else:
        subject = ddl.subject.folded()
        there[subject] = definition.columns or there.get(subject, before)
