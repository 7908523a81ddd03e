"""Whole columns by the readers and writers of the engine, without a Python object a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.columns import cast
from fletchlog.serde.outcome import Reasons, arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from fletchlog._core import ValueReader, ValueWriter

Paths = tuple[tuple[str, ...], ...]
"""Fields, each the names on the way to it."""


def paths(fields: Iterable[str | Sequence[str]]) -> Paths:
    """Fields as they are given: a text has a dot between names."""
    return tuple(tuple(one.split(".") if isinstance(one, str) else one) for one in fields)


def decoded(reader: ValueReader, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
    """A column of bytes, by a reader of the engine."""
    pa = arrow()
    table, reasons = reader.decode(pa.record_batch([column], ["v"]))
    return pa.record_batch(table).column(0), dict(reasons)


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
    target = pa.schema(_Schema(writer.column_type(pa.record_batch([column], ["v"])))).field(0).type
    if column.type != target:
        column = cast(column, target, reasons)
    table, why = writer.encode(pa.record_batch([column], ["v"]))
    return pa.record_batch(table).column(0), dict(why) | reasons


class _Schema:
    """What pyarrow makes a schema of."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule
