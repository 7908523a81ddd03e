"""Arrow's types as Spark has them, and arrays between them.

Spark has no unsigned numbers, no half floats and no times in other units than microseconds. They become the next larger type that it has. Times of a day become
the integers that Arrow keeps them as, as in Spark's `from_avro`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.serde.columns import converted
from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

# the digits of a decimal of Spark's
_DIGITS = 38


def spark_type(arrow_type: pa.DataType, name: str) -> DataType:
    """The type of a column of Spark's; everything in it may be null.

    Raises:
        OptionError: Spark has no such type; it names the field.
    """
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(_sparkable(arrow_type, name))


def _sparkable(one: Any, name: str) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(one):
        return _sparkable(one.value_type, name)
    if types.is_struct(one):
        if one.num_fields == 0:
            raise OptionError(f"{name} has no fields, and Spark has no struct without fields")
        return pa.struct([pa.field(field.name, _sparkable(field.type, f"{name}.{field.name}")) for field in one])
    if types.is_map(one):
        return pa.map_(_sparkable(one.key_type, f"{name}.key"), _sparkable(one.item_type, f"{name}.value"))
    if any(is_list(one) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)):
        return pa.list_(_sparkable(one.value_type, f"{name}.element"))
    made = _scalar(one)
    if made is None:
        raise OptionError(f"{name} is {one}, which Spark does not have; leave it out with the option {name.partition('.')[0]}.fields, or by a reader_schema")
    return made


def _scalar(one: Any) -> Any:
    """A type that is not nested; None if Spark has none for it."""
    import pyarrow as pa

    types = pa.types
    fixed = {
        pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0), pa.float16(): pa.float32(),
        pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(), pa.binary_view(): pa.binary(),
    }  # fmt: skip
    if one in fixed:
        return fixed[one]
    if types.is_fixed_size_binary(one):
        return pa.binary()
    if types.is_time(one):
        return pa.int32() if types.is_time32(one) else pa.int64()
    if types.is_timestamp(one):
        return pa.timestamp("us", None if one.tz is None else "UTC")
    if types.is_duration(one):
        return pa.duration("us")
    if types.is_decimal(one):
        return pa.decimal128(one.precision, one.scale) if one.precision <= _DIGITS and 0 <= one.scale <= one.precision else None
    kept = (types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64, types.is_string, types.is_binary, types.is_date32)
    return one if any(is_one(one) for is_one in kept) else None


def selected(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as a type of Spark's: the fields that the type has, in its order."""
    import pyarrow as pa

    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = column.flatten()
        made = [selected(parts[names.index(field.name)], field.type) for field in kind]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=column.is_null())
    return converted(column, kind, _leaf)


def _leaf(part: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if part.type == kind:
        return part
    return pc.cast(part, options=pc.CastOptions(kind, allow_time_truncate=True)) if pa.types.is_temporal(kind) else part.cast(kind)


def aligned(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """The fields of structs in the order of another type: those that it has and the column lacks are null.

    Raises:
        ValueError: A field that the type does not have.
    """
    import pyarrow as pa

    if not pa.types.is_struct(kind) or not pa.types.is_struct(column.type):
        return column
    names = [field.name for field in column.type]
    unknown = [found for found in names if kind.get_field_index(found) < 0]
    if unknown:
        raise ValueError(f"{name} has no field {unknown[0]} there; fields are {', '.join(field.name for field in kind)}")
    parts = column.flatten()
    made = [
        aligned(parts[names.index(field.name)], field.type, f"{name}.{field.name}") if field.name in names else pa.nulls(len(column), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(made, names=[field.name for field in kind], mask=column.is_null())
