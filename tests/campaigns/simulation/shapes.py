"""The kinds of tables that histories have: their columns, keys, and values that meet often."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from storage_consumer.sql.tokens import quote
from tests.harness.small_bucket import column

NULL = "\\N"
"""How a row's values, which are texts, say NULL."""
Image = tuple[str, ...]
_WORDS = ("x", "y", NULL)
SPELLED = "TIME(3)"
"""What a column is in the target of which the source has fewer digits at times."""
_TIMES = ("01:00:00.000", "02:00:00.000", "03:00:00.000", "04:00:00.000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of table."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and definition of each column, as in a CREATE TABLE."""
    keys: tuple[int, ...]
    """Places of the columns that are unique, the one that tells rows apart first; none for a keyless table."""
    domains: tuple[tuple[str, ...], ...]
    """Values of each column."""
    nullable: bool = False
    """The first column is unique and may be NULL, which makes it no key."""
    alike: bool = False
    """The source finds equal what the target does, so that a key can change its spelling."""

    def is_torn(self, rows: Iterable[Image]) -> bool:
        """Whether the target finds two of these rows equal that the source tells apart."""
        found = [taken for row in rows for taken in taken_of(self, row, alike=True)]
        return len(found) != len(set(found))

    def is_respelled(self, rows: Iterable[Image]) -> bool:
        """Whether the source tells two keys of these rows apart that the target finds equal."""
        pairs = {
            (like, exact)
            for row in rows
            for like, exact in zip(taken_of(self, row, alike=True), taken_of(self, row, alike=False), strict=True)
        }
        return len(pairs) != len({like for like, _ in pairs})

    @property
    def is_spelled(self) -> bool:
        """Whether the files have a value of it in several spellings."""
        return any(kind.startswith(SPELLED) for _, kind in self.columns)


SHAPES = (
    Shape(
        name="keyed",
        columns=(("id", "INT PRIMARY KEY"), ("v", "VARCHAR(20)")),
        keys=(0,),
        domains=(("1", "2", "3", "4"), _WORDS),
    ),
    Shape(
        name="unique",
        columns=(("id", "INT PRIMARY KEY"), ("u", "INT UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(0, 1),
        domains=(("1", "2", "3", "4"), ("1", "2", "3", NULL), _WORDS),
    ),
    Shape(
        name="candidate",
        columns=(("u", "INT NOT NULL UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(0,),
        domains=(("1", "2", "3", "4"), _WORDS),
    ),
    Shape(
        name="nullable",
        columns=(("u", "INT UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(),
        domains=(("1", "2", "3", NULL), _WORDS),
        nullable=True,
    ),
    Shape(name="keyless", columns=(("n", "INT"), ("v", "VARCHAR(20)")), keys=(), domains=(("1", NULL), _WORDS)),
    Shape(
        name="spelled",
        columns=(("t", f"{SPELLED} PRIMARY KEY"), ("v", "VARCHAR(20)")),
        keys=(0,),
        domains=(_TIMES, _WORDS),
    ),
    Shape(
        name="spelled keyless",
        columns=(("t", SPELLED), ("v", "VARCHAR(20)")),
        keys=(),
        domains=((_TIMES[0], NULL), _WORDS),
    ),
)
_SPELLINGS = ("a", "A", "b", "a ")
_LAX = "VARCHAR(20) COLLATE utf8mb4_general_ci"
LAX_SHAPES = (
    *SHAPES,
    Shape(
        name="torn key",
        columns=(("k", f"{_LAX} PRIMARY KEY"), ("v", "VARCHAR(20)")),
        keys=(0,),
        domains=(_SPELLINGS, _WORDS),
    ),
    Shape(
        name="padded key",
        columns=(("k", "VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY"), ("v", "VARCHAR(20)")),
        keys=(0,),
        domains=(_SPELLINGS, _WORDS),
    ),
    Shape(
        name="torn unique",
        columns=(("id", "INT PRIMARY KEY"), ("u", f"{_LAX} UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(0, 1),
        domains=(("1", "2", "3", "4"), (*_SPELLINGS, NULL), _WORDS),
    ),
    Shape(
        name="torn key with another",
        columns=(("k", f"{_LAX} PRIMARY KEY"), ("u", "INT UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(0, 1),
        domains=(_SPELLINGS, ("1", "2", "3", NULL), _WORDS),
    ),
    Shape(
        name="torn nullable",
        columns=(("u", f"{_LAX} UNIQUE"), ("v", "VARCHAR(20)")),
        keys=(),
        domains=((*_SPELLINGS, NULL), _WORDS),
        nullable=True,
    ),
    *(
        Shape(
            name=f"alike key {number}",
            columns=(("k", f"{_LAX} PRIMARY KEY"), ("v", "VARCHAR(20)")),
            keys=(0,),
            domains=(_SPELLINGS, _WORDS),
            alike=True,
        )
        for number in range(2)
    ),
)
"""Also those with keys by which the target finds rows equal."""
WIDE_SHAPE = Shape(
    name="wide",
    columns=(("id", "INT PRIMARY KEY"), ("v", "VARCHAR(20)"), ("w", "VARCHAR(20)")),
    keys=(0,),
    domains=(("1", "2", "3", "4"), _WORDS, _WORDS),
)
"""One of which rows can lack either of two columns."""
BY_NAME = {shape.name: shape for shape in (*LAX_SHAPES, WIDE_SHAPE)}
EXTRA = "VARCHAR(20)"
"""What a column is that is added later."""


def create_body(shape: Shape) -> str:
    """What stands between the parentheses of a CREATE TABLE."""
    return ", ".join(f"{quote(name)} {kind}" for name, kind in shape.columns)


@lru_cache(maxsize=4096)
def schema_columns(shape: Shape, extras: Sequence[str], *, finer: bool) -> tuple[Mapping[str, Any], ...]:
    """As a schema file lists them. `finer`: times have fractions."""
    listed = []
    for name, kind in (*shape.columns, *((name, EXTRA) for name in extras)):
        more = {"ColumnPrecision": "20"} if kind == EXTRA else {}
        more |= {"ColumnNullable": "false"} if "NOT NULL" in kind else {}
        more |= {"ColumnScale": "3"} if finer and kind.startswith(SPELLED) else {}
        listed.append(column(name, kind.split("(")[0].split()[0], key="PRIMARY" in kind, **more))
    return tuple(listed)


def taken(shape: Shape, image: Image) -> Iterator[tuple[int, str]]:
    """Which places in unique indexes of the source a row takes."""
    return taken_of(shape, image, alike=shape.alike)


def taken_of(shape: Shape, image: Image, *, alike: bool) -> Iterator[tuple[int, str]]:
    """The same, of one that tells spellings apart, or (`alike`) as the target does."""
    places = (0,) if shape.nullable else shape.keys
    lax = [alike and "COLLATE" in kind for _, kind in shape.columns]
    ignores_case = [_LAX in kind for _, kind in shape.columns]
    for place in places:
        if image[place] != NULL:
            text = image[place].rstrip(" ") if lax[place] else image[place]
            yield place, text.casefold() if lax[place] and ignores_case[place] else text


def half_of(image: Image) -> int:
    """Which of two partitions, or of two dispatchers, a row is of: rows of one key are of the same."""
    return int(image[0][:2] in ("1", "3", "01", "03"))


def written(image: Image, *, finer: bool) -> Image:
    """A row as its files have it."""
    return image if finer else tuple(text.removesuffix(".000") for text in image)


@lru_cache(maxsize=50_000)
def csv_line(operation: str, name: tuple[str, str], ts: int, values: Image) -> str:
    """A row as it stands in a CSV file."""
    texts = [value if value == NULL or value.isdigit() else f'"{value}"' for value in values]
    return f'"{operation}","{name[1]}","{name[0]}",{ts},{",".join(texts)}\r\n'


def header_line(names: Iterable[str]) -> str:
    """The first line of a CSV file that names the columns of its rows."""
    return (
        ",".join([*(f"ticdc-meta${each}" for each in ("operation", "table", "schema", "commit-ts")), *names]) + "\r\n"
    )


_TYPES = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


def canal_line(
    operation: str, name: tuple[str, str], ts: int, columns: Sequence[str], images: tuple[Image, Image | None]
) -> str:
    """A row as it stands in a canal-json file; `images`: the row, and the one before an update."""
    data, old = (
        image and [dict(zip(columns, (None if v == NULL else v for v in image), strict=True))] for image in images
    )
    message = {
        "id": 0,
        "database": name[0],
        "table": name[1],
        "pkNames": None,
        "isDdl": False,
        "type": _TYPES[operation],
        "es": ts >> 18,
        "ts": ts >> 18,
        "sql": "",
        "sqlType": {},
        "mysqlType": {},
        "old": old,
        "data": data,
        "_tidb": {"commitTs": ts},
    }
    return json.dumps(message) + "\r\n"
