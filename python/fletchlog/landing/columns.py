"""The columns of a landed table: types that every format has, flattened values, days and hours, and how a schema may grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError, SchemaError
from fletchlog.interop import require
from fletchlog.serde.columns import mapped, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from fletchlog.types import Column

# Of a scan, in the order of the table.
RECORD: tuple[Column, ...] = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
# Columns by which a table is partitioned, made of the timestamp in UTC.
PARTITIONS: Mapping[str | None, tuple[str, ...]] = {None: (), "day": ("day",), "hour": ("day", "hour")}
_MOST_DIGITS = 38
_REMEDY = "give a reader schema with another type for it, such as string or long"


def portable(arrow_type: pa.DataType, column: str) -> pa.DataType:
    """The type of a column in a table, which Parquet, Delta and Iceberg have: small integers are int32, unsigned ones the next larger, times in microseconds.

    Raises:
        fletchlog.errors.SchemaError: There is none.
    """
    pa = require("pyarrow", "arrow")
    types = pa.types

    def part(one: Any, path: str) -> Any:
        if types.is_list(one) or types.is_large_list(one) or types.is_fixed_size_list(one) or types.is_list_view(one) or types.is_large_list_view(one):
            return pa.list_(pa.field("element", mapped(one.value_type, part, f"{path}/items")))
        if types.is_struct(one):
            if one.num_fields == 0:
                raise SchemaError(f"column {column}{path}: a struct without fields is in no table format; leave it out of the reader schema")
            return pa.struct([pa.field(each.name, mapped(each.type, part, f"{path}/{each.name}")) for each in one])
        if types.is_map(one):
            return pa.map_(mapped(one.key_type, part, f"{path}/key"), mapped(one.item_type, part, f"{path}/value"))
        return None if types.is_dictionary(one) else _leaf(one, f"{column}{path}")

    return mapped(arrow_type, part)


def _leaf(one: Any, place: str) -> pa.DataType:
    pa = require("pyarrow", "arrow")
    types = pa.types
    same = (types.is_boolean, types.is_int32, types.is_int64, types.is_float32, types.is_float64, types.is_string, types.is_binary, types.is_date32)
    if any(is_one(one) for is_one in same):
        return one
    for is_one, found in (
        (lambda t: types.is_int8(t) or types.is_int16(t) or types.is_uint8(t) or types.is_uint16(t), pa.int32()),
        (types.is_uint32, pa.int64()),
        (types.is_uint64, pa.decimal128(20, 0)),
        (types.is_float16, pa.float32()),
        (lambda t: types.is_large_string(t) or types.is_string_view(t), pa.string()),
        (lambda t: types.is_large_binary(t) or types.is_binary_view(t) or types.is_fixed_size_binary(t), pa.binary()),
        (types.is_date64, pa.date32()),
    ):
        if is_one(one):
            return found
    if types.is_timestamp(one):
        return pa.timestamp("us", "UTC" if one.tz else None)
    if types.is_decimal(one) and one.precision <= _MOST_DIGITS:
        return pa.decimal128(one.precision, one.scale)
    raise SchemaError(f"column {place}: Arrow's {one} is in no table format; {_REMEDY}")


def as_portable(column: Any, name: str) -> Any:
    """A column as its type in a table.

    Raises:
        fletchlog.errors.SchemaError: There is no such type, or a value is beyond it.
    """
    pa = require("pyarrow", "arrow")
    wanted = portable(column.type, name)
    if column.type == wanted:
        return column
    try:
        return plain(column).cast(wanted)
    except pa.ArrowException as error:
        raise SchemaError(f"column {name}: {column.type} does not fit into {wanted}: {error}; {_REMEDY}") from None


def flattened(batch: pa.RecordBatch, of: list[str]) -> pa.RecordBatch:
    """The fields of structs as columns: those of the value by their names, those of the key behind `key_`. A name that is taken gets `value_` in front.

    Raises:
        fletchlog.errors.SchemaError: A name is taken twice.
    """
    pa = require("pyarrow", "arrow")
    columns = {name: batch.column(name) for name in batch.schema.names if name not in of}
    # Delta, Spark and DuckDB do not tell Amount from amount
    taken = {one.casefold() for one in columns} | {"key", "value", "day", "hour"}
    for name in of:
        column = batch.column(name)
        if not pa.types.is_struct(column.type):
            columns[name] = column
            continue
        for field, part in zip(column.type, column.flatten(), strict=True):
            free = f"{name}_{field.name}" if name == "key" or field.name.casefold() in taken else field.name
            if free.casefold() in taken:
                raise SchemaError(f"flatten: two columns would have the name {free}; rename the field in the reader schema, or land it without flatten")
            columns[free] = part
            taken.add(free.casefold())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def with_partitions(rows: pa.Table, by: str | None) -> pa.Table:
    """The rows with the columns `day` (date) and `hour` (int32) in UTC that the table is partitioned by; null where a record has no timestamp."""
    pa, compute = require("pyarrow", "arrow"), require("pyarrow.compute", "arrow")
    for name in PARTITIONS[by]:
        time = rows["timestamp"]
        rows = rows.append_column(name, time.cast(pa.date32()) if name == "day" else compute.hour(time).cast(pa.int32()))
    return rows


def check_partition_by(by: Any) -> None:
    """Raises InvalidArgumentError for what no table is partitioned by."""
    if by not in PARTITIONS:
        raise InvalidArgumentError(f"partition_by is {by!r}; expected 'day', 'hour' or None")


def merged(table: pa.Schema | None, rows: pa.Schema, place: str) -> pa.Schema:
    """The schema of a table that has these rows too: new columns and fields are added, those that the rows lack stay and are null.

    Raises:
        fletchlog.errors.SchemaError: A column has another type.
    """
    pa = require("pyarrow", "arrow")
    plain_rows = pa.schema([pa.field(field.name, field.type) for field in rows])
    if table is None:
        return plain_rows
    return pa.schema(list(_merged(pa.struct(list(table)), pa.struct(list(plain_rows)), "", place)))


def _merged(old: Any, new: Any, column: str, place: str) -> Any:
    pa = require("pyarrow", "arrow")
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        known = {field.name: field for field in old}
        both = {field.name: field for field in new}
        inner = f"{column}/" if column else ""
        fields = [pa.field(name, _merged(field.type, both[name].type, inner + name, place) if name in both else field.type) for name, field in known.items()]
        return pa.struct([*fields, *(pa.field(name, field.type) for name, field in both.items() if name not in known)])
    if types.is_list(old) and types.is_list(new):
        return pa.list_(pa.field("element", _merged(old.value_type, new.value_type, f"{column}/items", place)))
    if types.is_map(old) and types.is_map(new):
        item = _merged(old.item_type, new.item_type, f"{column}/value", place)
        return pa.map_(_merged(old.key_type, new.key_type, f"{column}/key", place), item)
    if old != new:
        raise SchemaError(
            f"column {column} is {old} in the table {place} and {new} in the new rows; no format changes the type of rows that are there. Give a reader "
            f"schema in which it is {old}, give the field another name, or land into a new table"
        )
    return old


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the columns of a schema that `merged` returned; what they lack is null."""
    pa = require("pyarrow", "arrow")
    there = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns = []
    for field in schema:
        if (column := there.get(field.name)) is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)
