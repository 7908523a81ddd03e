"""Key and value columns as bytes, for `Producer.send_arrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.columns import plain
from fletchlog.serde.outcome import Reasons, arrow, check_objects, rows_of

if TYPE_CHECKING:
    from fletchlog.serde.outcome import Serializer


def serialize(data: Any, *, key: Serializer | None = None, value: Serializer | None = None) -> Any:
    """Replaces the columns `key` and `value` by their bytes: what `deserialize` reads with the same serializers.

    Args:
        data: A `pyarrow.RecordBatch` or `pyarrow.Table`, a frame of pandas or polars, or anything else with `__arrow_c_stream__`
            or `__arrow_c_array__`.
        key: Serializer of the keys; None leaves the column as it is.
        value: Serializer of the values; None leaves the column as it is.

    Returns:
        The same rows and columns in the same order: a RecordBatch for a RecordBatch, else a Table. For `send_arrow` select the columns that it takes.

    Raises:
        fletchlog.errors.InvalidArgumentError: No serializer, a column that is missing, of a type that cannot be encoded, or with a value that
            cannot; nothing was made.
        ImportError: pyarrow, or what a serializer needs, is missing.
    """
    pa = arrow()
    wanted = {name: serializer for name, serializer in (("key", key), ("value", value)) if serializer is not None}
    if not wanted:
        raise InvalidArgumentError("nothing to encode: give a serializer as key=, value= or both")
    check_objects(wanted, "encode")
    rows = rows_of(data)
    for name, serializer in wanted.items():
        if name not in rows.schema.names:
            raise InvalidArgumentError(f"there is no column {name!r} to encode; the columns are {', '.join(rows.schema.names)}")
        column = rows.column(name)
        chunks = [column] if isinstance(column, pa.Array) else column.chunks
        made = pa.chunked_array(_encode(name, chunks, serializer), pa.binary())
        whole = pa.concat_arrays(made.chunks) if isinstance(rows, pa.RecordBatch) else made
        rows = rows.set_column(rows.schema.get_field_index(name), name, whole)
    return rows


def _encode(name: str, chunks: list[Any], serializer: Serializer) -> list[Any]:
    made: list[Any] = []
    before = 0
    for chunk in chunks:
        reasons: Reasons
        try:
            part, reasons = serializer.encode(plain(chunk))
        except arrow().ArrowException as error:
            raise InvalidArgumentError(f"the column {name!r} is {chunk.type}, which {type(serializer).__name__} cannot encode: {error}") from None
        if reasons:
            row = min(reasons)
            raise InvalidArgumentError(f"the {name} of row {before + row} cannot be encoded: {reasons[row]}")
        made.append(part)
        before += len(chunk)
    return made
