"""Whole columns by the readers and writers of the engine, without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.columns import cast, refuse_other_fields
from fletchlog.serde.outcome import OneByOne, Reasons, T, arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from fletchlog._core import Table, ValueReader, ValueWriter

Paths = tuple[tuple[str, ...], ...]
"""Fields, each the names on the way to it."""


def paths(fields: Iterable[str | Sequence[str]]) -> Paths:
    """Fields as they are given: a text has a dot between names."""
    return tuple(tuple(one.split(".") if isinstance(one, str) else one) for one in fields)


def schema_of(arrow_type: pa.DataType) -> pa.Schema:
    """A schema of one column, as the engine takes types."""
    return arrow().schema([arrow().field("v", arrow_type)])


def batch_of(column: pa.Array) -> pa.RecordBatch:
    """A record batch of one column, as the engine takes columns."""
    return arrow().record_batch([column], ["v"])


def column_of(result: tuple[Table, list[tuple[int, str]]]) -> tuple[pa.Array, Reasons]:
    """The column that the engine has made, and the reasons of rows that are null in it."""
    table, reasons = result
    return arrow().record_batch(table).column(0), dict(reasons)


def decoded(reader: ValueReader, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
    """A column of bytes, by a reader of the engine."""
    return column_of(reader.decode(batch_of(column)))


def type_of(reader: ValueReader) -> pa.DataType:
    """Arrow type of what a reader of the engine reads.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is nested deeper than Arrow's C interface allows.
    """
    try:
        return arrow().schema(reader).field(0).type
    except arrow().ArrowInvalid as error:
        raise InvalidArgumentError(f"the type is nested too deep: {error}") from None


def encoded(writer: ValueWriter, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
    """A column to bytes, by a writer of the engine: cast to the type that it writes, if it has another one.

    Raises:
        fletchlog.errors.InvalidArgumentError, pyarrow.ArrowException: No column of its type can be written.
    """
    pa = arrow()
    reasons: Reasons = {}
    target = pa.schema(_Schema(writer.column_type(batch_of(column)))).field(0).type
    if column.type != target:
        refuse_other_fields(column.type, target)
        column = cast(column, target, reasons)
    made, why = column_of(writer.encode(batch_of(column)))
    return made, why | reasons


class ByEngine(OneByOne[T]):
    """Values that the engine reads with the `value_reader` of the class, and writes with its `value_writer`."""

    def decode(self: Any, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        return decoded(self.value_reader, column)

    def encode(self: Any, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        return encoded(self.value_writer, column)


class _Schema:
    """What pyarrow makes a schema of."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule
