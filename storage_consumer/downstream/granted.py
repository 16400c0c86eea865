"""Which privileges an account has, from the lines of SHOW GRANTS. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_LINE = re.compile(r"(?P<verb>GRANT|REVOKE) (?P<rights>.+?) ON (?:TABLE )?(?P<place>\S.*?\.(?:\*|`(?:[^`]|``)*`|\S+)) (?:TO|FROM) ", re.DOTALL)  # fmt: skip
_ALL = frozenset(("ALL", "ALL PRIVILEGES"))


@dataclass(frozen=True, slots=True)
class _Grant:
    """One line: rights on a database, or on all of them."""

    rights: frozenset[str]
    schema: re.Pattern[str] | None
    """None for all databases."""
    is_revoked: bool

    def gives(self, right: str) -> bool:
        return right in self.rights or bool(_ALL & self.rights)


class Granted:
    """The privileges of an account on databases as a whole; those on single tables or columns are left out."""

    def __init__(self, lines: Iterable[str], *, literal_names: bool = False) -> None:
        """Read the lines. `literal_names`: ``_`` and ``%`` in a database's name stand for themselves (MySQL's partial_revokes)."""
        self._grants = [grant for line in lines if (grant := _grant(line, literal=literal_names))]

    def missing(self, rights: Collection[str], schema: str = "") -> tuple[str, ...]:
        """Return those of `rights` that are missing on a database; without one, on the server as a whole."""
        return tuple(right for right in rights if not self._has(right, schema))

    def _has(self, right: str, schema: str) -> bool:
        there = [grant for grant in self._grants if _covers(grant, schema) and grant.gives(right)]
        if any(grant.is_revoked for grant in there):
            # A partial revoke takes back what is granted on all databases, and nothing else.
            return any(not grant.is_revoked and grant.schema for grant in there)
        return bool(there)


def _covers(grant: _Grant, schema: str) -> bool:
    return grant.schema is None or bool(schema and grant.schema.fullmatch(schema))


def _grant(line: str, *, literal: bool) -> _Grant | None:
    found = _LINE.match(line)
    if found is None:
        return None
    place = found["place"].strip()
    if not place.endswith(".*"):
        return None
    schema = place.removesuffix(".*")
    return _Grant(
        rights=frozenset(part.strip().upper() for part in found["rights"].split(",")),
        schema=None if schema == "*" else _pattern(schema.strip("`'\"").replace("``", "`"), literal=literal),
        is_revoked=found["verb"] == "REVOKE",
    )


def _pattern(schema: str, *, literal: bool) -> re.Pattern[str]:
    """Return which names a database in a grant stands for; a backslash takes the meaning from ``_`` and ``%``."""
    if literal:
        return re.compile(re.escape(schema), re.IGNORECASE)
    parts = re.findall(r"\\.|.", schema, re.DOTALL)
    wild = {"_": ".", "%": ".*"}
    text = "".join(wild.get(part) or re.escape(part[1:] if len(part) > 1 else part) for part in parts)
    return re.compile(text, re.IGNORECASE | re.DOTALL)
