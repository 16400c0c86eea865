"""Tiers: which tests a newcomer runs, and which only the whole suite does.

The quick tier needs the virtual environment, Java and MariaDB, and takes a few minutes. It leaves out what asks for any other server
or a browser, what starts Spark or the program, and what is marked ``slow``; what is marked ``quick`` is in it all the same, as a sample of the rest.
A tier of its own holds what asks for a MariaDB of the contract tests, and runs it on a newer one.
"""

from __future__ import annotations

import os

import pytest

IS_ROOT = os.geteuid() == 0
QUICK, ALL, NEWER_MARIADB = "quick", "all", "newer-mariadb"
_OTHER_SERVERS = frozenset({"mysql", "newer_mariadb", "tidb", "s3", "gcs", "azure", "browser"})
"""Names of fixtures, and of parameters that choose one of them."""
_SLOW = ("slow", "spark", "acceptance")


def can_run(item: pytest.Item) -> bool:
    """Return whether this user may do what a test does."""
    return IS_ROOT or item.get_closest_marker("root") is None


def holds(tier: str, item: pytest.Item) -> bool:
    """Return whether a test belongs to a tier."""
    if tier == NEWER_MARIADB:
        asked = _asked_for(item)
        return "contract" in item.path.parts and "mariadb" in asked and "browser" not in asked
    return tier == ALL or _is_quick(item)


def _is_quick(item: pytest.Item) -> bool:
    if item.get_closest_marker("quick"):
        return True
    if any(item.get_closest_marker(name) for name in _SLOW):
        return False
    return _OTHER_SERVERS.isdisjoint(_asked_for(item))


def _asked_for(item: pytest.Item) -> set[str]:
    """Return the names of all fixtures that a test uses, and its parameters that are texts or rows of texts."""
    chosen = getattr(item, "callspec", None)
    values = () if chosen is None else chosen.params.values()
    several = [value if isinstance(value, (tuple, list)) else (value,) for value in values]
    return {*getattr(item, "fixturenames", ()), *(each for row in several for each in row if isinstance(each, str))}
