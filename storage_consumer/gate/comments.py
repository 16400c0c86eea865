"""TiDB's own comments: what they may hold, so that no two servers read different table names in one text."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.sql.tokens import Token

_FEATURES = frozenset(
    (
        *("auto_rand", "auto_id_cache", "auto_rand_base", "clustered_index", "force_inc", "placement", "ttl"),
        *("resource_group", "global_index", "pre_split", "auto_presplit", "affinity", "region_split"),
        *("active_active", "softdelete"),
    )
)
"""Features by whose names TiDB decides which versions read a comment. A later TiDB may have more."""
_BEFORE_NAMES = frozenset(
    (
        *("TABLE", "VIEW", "DATABASE", "SCHEMA", "TO", "AS", "LIKE", "REFERENCES", "RENAME", "EXCHANGE", "ON"),
        *("FROM", "JOIN", "STRAIGHT_JOIN", "INTO", "SELECT", "WITH", "."),
    )
)
"""Words that may come right before the name of a table."""
_EXISTENCE = frozenset(("IF", "NOT", "EXISTS"))
"""Likewise, but TiDB writes these in comments too."""
_VIEWS = frozenset(("VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"))
"""Words that follow CREATE if it creates a view."""
_HEAD = 3
"""Fewest tokens of a statement that has named its table."""


class Refusal(Exception):
    """Why a text may not run, as the end of a sentence."""


class NotForHere(Refusal):
    """TiDB may well have such a statement; only this target is not to run it."""


FOREIGN_DEFINER = "it gives the view the rights of an account other than the one that runs it (DEFINER). Create it manually under an account of the target"


def refuse_unknown_features(listed: str | None) -> None:
    """Raise `NotForHere` for a comment with another feature; None: it names no feature, so every TiDB reads it."""
    for feature in () if listed is None else listed.split(","):
        if feature not in _FEATURES:
            raise NotForHere(
                f"it has a comment for TiDB's feature [{feature[:60]}], which this program does not know, nor whether it "
                "changes rows. If it does not, run the statement without that comment by `ddl replace`, else what does "
                "the same here"
            )


def refuse_names_in_comments(plain: Sequence[Token], opened: Sequence[Token]) -> None:
    """Raise `Refusal` if a comment of TiDB could name a table: each version opens the comments whose features it knows.

    `plain`: the tokens outside comments; `opened`: these and those in comments, each at its place in the text.
    """
    outside = {token.start for token in plain}
    if all(token.upper in _EXISTENCE for token in opened if token.start not in outside):
        return
    words = [token.upper for token in plain[:2]]
    if words[:1] not in (["CREATE"], ["ALTER"]) or (words[0] == "CREATE" and words[-1] in _VIEWS):
        raise Refusal("it has a TiDB comment, and TiDB writes none in statements of this kind")
    for at, token in enumerate(opened):
        # The digits of a number are none, on either side of its point.
        if token.start in outside or any(_is_decimal(opened, place) for place in (at - 1, at, at + 1)):
            continue
        around = [one.upper for one in (*opened[at - 1 : at], token, *opened[at + 1 : at + 2])]
        # Near the head, after a word that precedes names, or before a dot, a token may be part of a table's name.
        early = at < _HEAD or around[0] in _BEFORE_NAMES | _EXISTENCE or around[-1] == "."
        if (early and token.upper not in _EXISTENCE) or token.upper in _BEFORE_NAMES:
            raise Refusal(f"a TiDB comment in it could name a table: {token.text[:60]}")


def _is_decimal(found: Sequence[Token], at: int) -> bool:
    """Return whether a point lies between the digits of a number there."""
    sides = (*found[at - 1 : at], *found[at + 1 : at + 2]) if 0 < at < len(found) - 1 and found[at].text == "." else ()
    return bool(sides) and all(side.text.isascii() and side.text.isdigit() for side in sides)
