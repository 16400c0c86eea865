"""CREATE VIEW: its head, and a SELECT that only reads."""

from __future__ import annotations

from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.comments import Refusal
from storage_consumer.gate.functions import VIEW_FUNCTIONS
from storage_consumer.gate.words import SELECT
from storage_consumer.model import TableName


def created_view(cursor: Cursor) -> TableName:
    """Check what follows CREATE in CREATE VIEW; return the view's name.

    A DEFINER other than the account that runs the statement would lend the view that account's rights. Raises `Refusal`.
    """
    cursor.take("OR", "REPLACE")
    if cursor.take("ALGORITHM", "="):
        cursor.word()
    if cursor.take("DEFINER", "=") and not cursor.take("CURRENT_USER"):
        raise Refusal("it gives the view the rights of an account other than the one that runs it (DEFINER)")
    if cursor.upper() == "(" and cursor.upper(1) == ")":
        cursor.at += 2
    if cursor.take("SQL", "SECURITY") and not (cursor.take("DEFINER") or cursor.take("INVOKER")):
        raise cursor.refusal()
    cursor.need("VIEW")
    cursor.existence()
    name = cursor.name()
    if cursor.upper() == "(":
        cursor.check(*cursor.group(), Vocabulary(ground=1, words=frozenset()))
    cursor.need("AS")
    cursor.listed |= {at for at in range(cursor.at, len(cursor.found)) if _is_common_table(cursor, at)}
    words = Vocabulary(ground=-1, words=SELECT, inside=SELECT, functions=VIEW_FUNCTIONS)
    cursor.check(cursor.at, len(cursor.found), words)
    cursor.at = len(cursor.found)
    return name


def _is_common_table(cursor: Cursor, at: int) -> bool:
    """Return whether a name with a list of columns is a common table's; any other name that is called is a function of some database."""
    found, end = cursor.found, cursor.ends.get(at + 1, -1)
    if found[at].kind != "quoted" or end < 0 or found[at - 1].upper not in ("WITH", "RECURSIVE", ","):
        return False
    are_names = all(found[place].kind == "quoted" or found[place].text == "," for place in range(at + 2, end))
    return are_names and [token.upper for token in found[end + 1 : end + 3]] == ["AS", "("]
