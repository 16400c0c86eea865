"""The benchmark's tables: which columns they have, by what rows are told apart, and how the server sums them up."""

from __future__ import annotations

from dataclasses import dataclass

DATABASE = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column in the words of all who need it."""

    name: str
    sql: str
    """Type and attributes in CREATE TABLE."""
    schema: tuple[tuple[str, str], ...]
    """Attributes in a schema file, the name left out."""
    java: int
    """Type code in canal-json."""
    plain: str = "{}"
    """How the server writes a value as text, for checksums; the name goes into the braces."""

    @property
    def mysql(self) -> str:
        """Type name in canal-json."""
        return dict(self.schema)["ColumnType"].lower()

    @property
    def text(self) -> str:
        """SQL of a value as text."""
        return self.plain.format(f"`{self.name}`")

    @property
    def definition(self) -> str:
        """The line of CREATE TABLE."""
        return f"`{self.name}` {self.sql}"


_ID = Column(
    name="id",
    sql="BIGINT NOT NULL",
    schema=(("ColumnType", "BIGINT"), ("ColumnPrecision", "20"), ("ColumnNullable", "false")),
    java=-5,
)
_CODE = Column(
    name="code",
    sql="VARCHAR(32) NOT NULL",
    schema=(("ColumnType", "VARCHAR"), ("ColumnPrecision", "32"), ("ColumnNullable", "false")),
    java=12,
)
_REST = (
    Column(
        name="amount",
        sql="DECIMAL(12,2)",
        schema=(("ColumnType", "DECIMAL"), ("ColumnPrecision", "12"), ("ColumnScale", "2")),
        java=3,
    ),
    Column(name="name", sql="VARCHAR(64)", schema=(("ColumnType", "VARCHAR"), ("ColumnPrecision", "64")), java=12),
    Column(
        name="note",
        sql="TEXT",
        schema=(("ColumnType", "TEXT"), ("ColumnPrecision", "65535")),
        java=-1,
        plain="IFNULL({}, '\\\\N')",
    ),
    Column(name="created", sql="DATETIME", schema=(("ColumnType", "DATETIME"),), java=93),
    Column(name="doc", sql="JSON", schema=(("ColumnType", "JSON"),), java=12),
    Column(
        name="payload",
        sql="BLOB",
        schema=(("ColumnType", "BLOB"), ("ColumnPrecision", "65535")),
        java=2004,
        plain="HEX({})",
    ),
    Column(name="weight", sql="DOUBLE", schema=(("ColumnType", "DOUBLE"), ("ColumnPrecision", "22")), java=8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table's structure: an id, perhaps a code, then groups of seven columns of all sorts."""

    groups: int = 1
    keyed: bool = True
    """The id is the primary key; otherwise it is a column like any other, and several rows may be equal."""
    coded: bool = False
    """It has a second unique key."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in their order."""
        head = (_ID, _CODE) if self.coded else (_ID,)
        return (*head, *(_renamed(column, group) for group in range(self.groups) for column in _REST))

    @property
    def keys(self) -> tuple[str, ...]:
        """The lines of CREATE TABLE that follow the columns."""
        unique = ("UNIQUE KEY `code` (`code`)",) if self.coded else ()
        return (("PRIMARY KEY (`id`)",) if self.keyed else ()) + unique

    @property
    def sql(self) -> str:
        """What stands in the brackets of CREATE TABLE."""
        return ", ".join((*(column.definition for column in self.columns), *self.keys))

    @property
    def checksum(self) -> str:
        """SQL of one row's checksum."""
        return f"CRC32(CONCAT_WS('|', {', '.join(column.text for column in self.columns)}))"

    @property
    def schema_columns(self) -> tuple[dict[str, str], ...]:
        """As a schema file lists them; it marks no other key than the primary one."""
        key = {"ColumnIsPk": "true"} if self.keyed else {}
        return tuple(
            {"ColumnName": column.name, **dict(column.schema), **(key if column is _ID else {})}
            for column in self.columns
        )


def _renamed(column: Column, group: int) -> Column:
    name = f"{column.name}_{group}" if group else column.name
    return Column(name=name, sql=column.sql, schema=column.schema, java=column.java, plain=column.plain)


PLAIN = Shape()
SHAPES = {
    "unique": Shape(coded=True),
    "keyless": Shape(keyed=False),
    "wide": Shape(groups=17),
}
"""By profile, where that is not `PLAIN`."""


def shape_of(profile: str) -> Shape:
    """The structure of a profile's tables."""
    return SHAPES.get(profile, PLAIN)
