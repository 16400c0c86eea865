"""The columns of the source, as Spark and as Arrow have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from storage_consumer.errors import ConfigError
from storage_consumer.frames.pieces import META, RESCUED
from storage_consumer.kernels.arrays import DELETE

SEQUENCE = pa.field(
    "_sequence",
    pa.struct(
        [
            pa.field("version", pa.int64(), nullable=False),
            pa.field("kind", pa.int8(), nullable=False),
            pa.field("place", pa.string(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
        ]
    ),
    nullable=False,
)
"""Position of a change among all of its table: by commit-ts, deletes before upserts before statements, then by file and row."""
KEYS = "ticdc.keys"
"""Where the metadata of column ``_table_version`` has the columns of the primary key: JSON pairs of the first table version and their names."""
COLUMNS = "ticdc.columns"
"""Where it has the names of all of the table's columns, as JSON."""
DOCUMENTS = (
    pa.field("database", pa.string()),
    pa.field("table", pa.string()),
    pa.field("before", pa.string()),
    pa.field("after", pa.string()),
    pa.field("statement", pa.string()),
)
"""The columns of a feed of all tables."""
RESERVED = frozenset((*(field.name for field in META), SEQUENCE.name, RESCUED))
"""Names of the columns that the source adds, or may add."""
_PLAIN: dict[pa.DataType, DataType] = {
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def whole_schema(own: Iterable[pa.Field]) -> pa.Schema:
    """Return the table's columns, or those in their place, followed by what is known of each change."""
    return pa.schema([*own, *META, SEQUENCE])


def spark_schema(schema: pa.Schema, keys: str = "", columns: Iterable[str] = ()) -> StructType:
    """Return the same as Spark has it. `keys`, `columns`: what stands at `KEYS` and, as JSON, at `COLUMNS`."""
    noted = {"_table_version": {KEYS: keys, COLUMNS: json.dumps(sorted(columns))}} if keys else {}
    return StructType([_spark_field(field, noted.get(field.name)) for field in schema])


def _spark_field(field: pa.Field, metadata: dict[str, str] | None = None) -> StructField:
    return StructField(field.name, _spark_type(field.type), field.nullable, metadata)


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_struct(kind):
        return StructType([_spark_field(kind.field(n)) for n in range(kind.num_fields)])
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _PLAIN[kind]


def chosen(schema: pa.Schema, asked: StructType) -> pa.Schema:
    """Return the columns that Spark asks for, in its order; raise `ConfigError` for a type that is not the column's."""
    fields = []
    for wanted in asked.fields:
        place = schema.get_field_index(wanted.name)
        if place < 0:
            raise ConfigError(f"the schema names column {wanted.name}, but there are: {', '.join(schema.names)}")
        field = schema.field(place)
        if _spark_type(field.type) != wanted.dataType:
            kind, given = _spark_type(field.type).simpleString(), wanted.dataType.simpleString()
            raise ConfigError(
                f"the schema has column {wanted.name} as {given}, and its values are {kind}: ask for that, and cast it"
            )
        # Whoever gives a schema may leave the nulls open.
        fields.append(field.with_nullable(wanted.nullable))
    return pa.schema(fields)


def own_fields(schema: pa.Schema) -> tuple[pa.Field, ...]:
    """Return those columns of a schema that are the table's own."""
    own = own_columns(schema.names)
    return tuple(field for field in schema if field.name in own)


def own_columns(names: Iterable[str]) -> list[str]:
    """Return those names that are the table's own columns."""
    return [name for name in names if name not in RESERVED]


def sequence(arrays: Sequence[pa.Array], operations: NDArray[np.int8]) -> pa.Array:
    """Return `SEQUENCE` of changes. `arrays`: those of `META`; `operations`: of each change."""
    kinds = pa.array((operations > DELETE).astype(np.int8))
    _, versions, _, _, files, numbers = arrays
    return pa.StructArray.from_arrays(
        [versions, kinds, files, numbers], fields=[SEQUENCE.type.field(n) for n in range(SEQUENCE.type.num_fields)]
    )
