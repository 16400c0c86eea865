"""What a viewer chose: filter, order, page and time range, as they stand in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode

from storage_consumer.model import TableName
from storage_consumer.plan.table_state import TableState

Sort = Literal["state", "table", "checkpoint", "lag", "rows", "rate"]
SORTS: tuple[Sort, ...] = get_args(Sort)
RANGES = (1, 6, 24)
"""Hours that the plots can show."""
STATES = (
    *(TableState.HALTED, TableState.PAUSED, TableState.WAITING, TableState.LOADING, TableState.RUNNING),
    *(TableState.SKIPPED, TableState.EXCLUDED, TableState.DROPPED),
)
"""States by which tables are filtered, in their order on the page."""
_HOURS = 6
_LONGEST = 200
"""Characters of a search that are used."""
_MANY = 1_000_000
RELOAD = 10
"""Seconds between two loads of a page that reloads itself without JavaScript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The choice of a viewer."""

    state: str = ""
    """A member of `STATES`; empty for all but dropped tables."""
    q: str = ""
    """Part of a table's name."""
    sort: Sort = "state"
    desc: bool = False
    page: int = 1
    hours: int = _HOURS
    reload: bool = False
    """Whether a browser without JavaScript is to load the page again and again."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        """Return the choice in an address. Anything that is none counts as not given."""
        sort, state, hours = (parameters.get(name, "") for name in ("sort", "state", "hours"))
        return cls(
            state=state if state in STATES else "",
            q=parameters.get("q", "").strip()[:_LONGEST],
            sort=next((each for each in SORTS if each == sort), "state"),
            desc=parameters.get("desc") == "1",
            page=_number(parameters.get("page", "")),
            hours=int(hours) if hours in map(str, RANGES) else _HOURS,
            reload=parameters.get("reload") == "1",
        )

    def changed(self, **chosen: Any) -> Query:
        """Return another choice; it begins on its first page, unless that is what is chosen."""
        return replace(self, **{"page": 1, **chosen})

    def parameters(self) -> dict[str, str]:
        """Return name → value of what is not as it is by itself."""
        plain = Query()
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: str(int(value) if isinstance(value, bool) else value)
            for name, value in found.items()
            if value != getattr(plain, name)
        }

    def link(self, **chosen: Any) -> str:
        """Return the address of the same page with another choice."""
        return f"?{urlencode(self.changed(**chosen).parameters())}"


def table_path(name: TableName) -> str:
    """Return the path of a table's page, as a route below ``/`` takes it."""
    return f"tables/{quote(str(name), safe='')}"


def _number(text: str) -> int:
    return min(_MANY, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < len(str(_MANY)) else 1
