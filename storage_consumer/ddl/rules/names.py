"""What TiDB words or names in its own way. Each rule returns edits of the statement's text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.ddl.rules.indexes import is_about_index
from storage_consumer.ddl.statement import Targeted, everywhere
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import folded_name
from storage_consumer.sql.statement import INDEX_WORDS, Edit
from storage_consumer.sql.tokens import Token, find_words, has_words, quote

_NAME_LENGTH = 64

validation = everywhere("{WITH|WITHOUT} VALIDATION")

# foreign keys


def foreign_key_names(statement: Targeted) -> Iterator[Edit]:
    """Give each foreign key a name that no other table's key has, and that still contains TiDB's name for it."""
    there, found = statement.there, statement.tokens
    numbers = [int(key.rpartition("_")[2]) for key in there.foreign_keys if key.rpartition("_")[2].isdecimal()]
    # TiDB counts all foreign keys of a table, and names an unnamed one by its number. The names show how far it has come.
    number = max([len(there.foreign_keys), *numbers])
    for first, last in statement.parts:
        at = find_words(found[:last], "FOREIGN", "KEY", start=first)
        if at < 0 or at + 2 >= last or found[first].upper == "DROP":
            named = foreign_key_dropped(found[first:last])
            real = "" if named is None else name_there(named.name, statement)
            if named is not None and real not in ("", folded_name(named.name)):
                yield named.start, named.end, quote(real)
            continue
        number += 1
        own = found[at - 1]
        # A name of its own stays unless another table of the database has it.
        if at > first + 1 and found[at - 2].upper == "CONSTRAINT":
            if folded_name(own.name) in there.other_foreign_keys:
                yield own.start, own.end, quote(_with_table(statement, own.name))
            continue
        index = "" if found[at + 2].text == "(" else found[at + 2].name
        name = _with_table(statement, index or f"fk_{number}")
        start = own.start if at > first and own.upper == "CONSTRAINT" else found[at].start
        yield start, found[at].start, f"CONSTRAINT {quote(name)} "


def foreign_key_dropped(part: Sequence[Token]) -> Token | None:
    """Return the name in DROP FOREIGN KEY, None for any other part."""
    return part[-1] if has_words(part[:3], "DROP", "FOREIGN", "KEY") else None


def name_there(name: str, statement: Targeted) -> str:
    """Return a foreign key's folded name on the target, or "" if it does not exist.

    Its prefix is the table's name at the time the key was created. If several keys may be meant, return the name as it was given. The
    target does not know that one, and a refusal is better than dropping the wrong key.
    """
    keys, own = statement.there.foreign_keys, folded_name(name)
    exact = next((key for key in (own, folded_name(_with_table(statement, name))) if key in keys), "")
    alike = [key for key in keys if key.endswith(f"_{own}")]
    return exact or (own if len(alike) > 1 else "".join(alike))


def _with_table(statement: Targeted, name: str) -> str:
    return f"{statement.table[: max(1, _NAME_LENGTH - 1 - len(name))]}_{name}"[:_NAME_LENGTH]


# conditions


def conditions(statement: Targeted) -> Iterator[Edit]:
    """Take IF EXISTS and IF NOT EXISTS off parts of ALTER TABLE and off indexes: the source knew that the condition holds."""
    if is_about_index(statement) or statement.head == ("ALTER", "TABLE"):
        yield from (statement.edit(*at) for at in statement.find("IF [NOT] EXISTS", depth=0))


def table_is_new(statement: Targeted) -> Iterator[Edit]:
    """Take IF NOT EXISTS off CREATE TABLE: the source created the table, so one that exists here is another."""
    found = statement.tokens
    if has_words(found[:5], "CREATE", "TABLE", "IF", "NOT", "EXISTS") and len(found) > 5:  # noqa: PLR2004 - and a name
        yield found[2].start, found[5].start, ""


def condition_fails(part: Sequence[Token], there: PartNames | None) -> bool:
    """Return whether a part of ALTER TABLE has IF [NOT] EXISTS, and the target shows that the source had nothing to do."""
    at = max(find_words(part, "IF", "EXISTS"), find_words(part, "IF", "NOT", "EXISTS"))  # not the function IF()
    if there is None or not 0 < at < len(part) - 1 or part[0].upper not in ("ADD", "DROP", "MODIFY", "CHANGE"):
        return False
    # What the target has stands for what the source had: their structures are equal right before the statement.
    wanted = part[at + 1].upper != "NOT"
    named = at + (2 if wanted else 3)
    words = {token.upper for token in part[:at]}
    # Of these the target's names are not read, so the condition counts as met.
    if named >= len(part) or words & {"PARTITION", "CONSTRAINT"}:
        return False
    names = there.foreign_keys if "FOREIGN" in words else there.indexes if words & {*INDEX_WORDS} else there.columns
    return (folded_name(part[named].name) in names) != wanted
