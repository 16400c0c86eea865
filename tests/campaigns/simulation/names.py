"""Names of the source's databases and tables."""

from __future__ import annotations

from storage_consumer.sql.tokens import quote

Name = tuple[str, str]
"""Database and table."""
COLLIDING = ("storage_consumer", "Storage_Consumer", "mysql", "SYS")
"""Databases whose names the target keeps for itself: nothing of them may come there."""


def sql(name: Name) -> str:
    """A qualified name."""
    return f"{quote(name[0])}.{quote(name[1])}"


def is_colliding(place: str) -> bool:
    """Whether a table, or a path in the bucket, is of a database whose name the target keeps for itself."""
    return place.partition("/")[0].partition(".")[0] in COLLIDING
