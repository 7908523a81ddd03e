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
from fletchlog.spark.typed import is_part

if TYPE_CHECKING:
    import pyarrow as pa

    from fletchlog.spark.typed import Typed

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


def kafka_schema(*, include_headers: bool, typed: tuple[Typed, ...] = ()) -> StructType:
    """All columns, with headers when asked for."""
    return StructType([StructField(name, kind) for name, kind in columns_of(typed).items() if include_headers or name != HEADERS])


def columns_of(typed: tuple[Typed, ...]) -> dict[str, DataType]:
    """All columns with their types, where some are decoded; what could not be decoded is at the end."""
    made = {name: kind for one in typed for name, kind in one.columns().items()}
    return {name: made.get(name, kind) for name, kind in COLUMNS.items()} | made


def check_projection(schema: StructType, typed: tuple[Typed, ...] = ()) -> tuple[str, ...]:
    """Columns of ours behind the fields of `schema`, in its order. A decoded column may be asked for with fewer fields.

    Raises:
        OptionError: A column that does not exist or has another type.
    """
    known = columns_of(typed)
    decoded = {one.column for one in typed}
    by_lower = {name.lower(): name for name in known}
    columns = []
    for field in schema.fields:
        name = by_lower.get(field.name.lower())
        if name is None:
            raise OptionError(f"schema: there is no column {field.name}; columns are {', '.join(known)}")
        if not (is_part(field.dataType, known[name]) if name in decoded else field.dataType.simpleString() == known[name].simpleString()):
            raise OptionError(
                f"schema: column {field.name} is {known[name].simpleString()}, not {field.dataType.simpleString()}; "
                "read it with its own type and cast it afterwards"
            )
        columns.append(name)
    if not columns:
        raise OptionError(f"schema: no column asked for; columns are {', '.join(known)}")
    return tuple(columns)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark demands for `schema`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
