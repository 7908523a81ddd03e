"""Columns of the source: those of Spark's kafka source, all nullable; a user-given schema is a projection.

Spark 4.3 compares the Arrow schema of the first batch exactly (names, order, types, nullability), and does no column pruning for
Python sources: fewer columns in `.schema(...)` are the only way to send less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS = "headers"
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def kafka_schema(*, include_headers: bool) -> StructType:
    """All columns, with headers when asked for."""
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if include_headers or name != HEADERS])


def check_projection(schema: StructType) -> tuple[str, ...]:
    """Columns of ours behind the fields of `schema`, in its order.

    Raises:
        OptionError: A column that does not exist or has another type.
    """
    by_lower = {name.lower(): name for name in COLUMNS}
    columns = []
    for field in schema.fields:
        name = by_lower.get(field.name.lower())
        if name is None:
            message = f"schema: there is no column {field.name}; columns are {', '.join(COLUMNS)}"
            raise OptionError(message)
        if field.dataType.simpleString() != COLUMNS[name].simpleString():
            message = (
                f"schema: column {field.name} is {COLUMNS[name].simpleString()}, not {field.dataType.simpleString()}; "
                "read it with its own type and cast it afterwards"
            )
            raise OptionError(message)
        columns.append(name)
    if not columns:
        message = f"schema: no column asked for; columns are {', '.join(COLUMNS)}"
        raise OptionError(message)
    return tuple(columns)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands for `schema`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
