"""Key and value columns of records, decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fletchlog.errors import InvalidArgumentError, RecordDeserializationError
from fletchlog.serde.columns import plain
from fletchlog.serde.outcome import Reasons, arrow, check_objects, rows_of
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from fletchlog.serde.outcome import Deserializer

    OnError = Literal["raise", "null", "collect"]

POLICIES = ("raise", "null", "collect")


def deserialize(data: Any, *, key: Deserializer | None = None, value: Deserializer | None = None, on_error: OnError = "raise", threads: int = 1) -> Any:
    """Replaces the columns `key` and `value` by what they mean.

    Args:
        data: `Records`, `Scan`, a `pyarrow.RecordBatch` or `pyarrow.Table`, a frame of pandas or polars, or anything else with `__arrow_c_stream__`
            or `__arrow_c_array__`. A scan is read
            whole; to bound memory, decode batch by batch: `for batch in scan: deserialize(batch, ...)`.
        key: Deserializer of the keys; None leaves them bytes.
        value: Deserializer of the values; None leaves them bytes.
        on_error: "raise"; "null": a value that cannot be decoded is null; "collect": that, and for each decoded column another one at
            the end, `key_error` or `value_error`: struct<reason: string, data: binary>, null where all was well.
        threads: How many chunks of a column are decoded at the same time: for `Avro` and `Confluent`, which decode without the GIL.

    Returns:
        The same rows and columns in the same order: a RecordBatch for a RecordBatch, else a Table.

    Raises:
        fletchlog.errors.RecordDeserializationError: Under "raise", for the first row that cannot be decoded, its key before its value.
        fletchlog.errors.InvalidArgumentError: No deserializer, another policy, no thread, a column that is missing or not binary.
        ImportError: pyarrow, or what a deserializer needs, is missing.
    """
    pa = arrow()
    wanted = {name: deserializer for name, deserializer in (("key", key), ("value", value)) if deserializer is not None}
    if not wanted:
        raise InvalidArgumentError("nothing to decode: give a deserializer as key=, value= or both")
    check_objects(wanted, "decode")
    if on_error not in POLICIES:
        raise InvalidArgumentError(f"on_error is {on_error!r}; expected one of {', '.join(POLICIES)}")
    if threads < 1:
        raise InvalidArgumentError(f"threads is {threads}; it is 1 or more")
    rows = rows_of(data)
    decoded: dict[str, Any] = {}
    reasons: dict[str, Reasons] = {}
    raw = {name: _binary_column(rows, name) for name in wanted}
    for name, deserializer in wanted.items():
        framed = _with_headers(rows, name, raw[name], deserializer)
        decoded[name], reasons[name] = _decode(framed, deserializer, threads)
    if on_error == "raise" and any(reasons.values()):
        raise _error(rows, raw, reasons)
    in_one = isinstance(rows, pa.RecordBatch)
    for name, column in decoded.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.concat_arrays(column.chunks) if in_one else column)
    if on_error == "collect":
        for name in wanted:
            rows = rows.append_column(f"{name}_error", _errors(raw[name], reasons[name], len(rows)))
    return rows


def _binary_column(rows: Any, name: str) -> pa.ChunkedArray:
    """A column as chunks of binary."""
    pa = arrow()
    if name not in rows.schema.names:
        raise InvalidArgumentError(f"there is no column {name!r} to decode; the columns are {', '.join(rows.schema.names)}")
    column = rows.column(name)
    types = pa.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not any(is_one(kind) for is_one in (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary, types.is_null)):
        raise InvalidArgumentError(f"the column {name!r} is {column.type}, not binary: was it decoded before?")
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    return pa.chunked_array([plain(chunk).cast(pa.binary()) for chunk in chunks], pa.binary())


def _with_headers(rows: Any, name: str, column: pa.ChunkedArray, deserializer: Deserializer) -> pa.ChunkedArray:
    """The column with what the headers of its records say of its values, for a deserializer that asks for them."""
    asks = getattr(deserializer, "with_headers", None)
    if asks is None or "headers" not in rows.schema.names:
        return column
    pa = arrow()
    headers = rows.column("headers")
    both = pa.table({"column": column, "headers": headers})
    return pa.chunked_array([asks(batch.column(0), batch.column(1), name) for batch in both.to_batches()], pa.binary())


def _decode(column: pa.ChunkedArray, deserializer: Deserializer, threads: int) -> tuple[pa.ChunkedArray, Reasons]:
    """Chunk by chunk; in one piece where the type depends on all values."""
    pa = arrow()
    chunks = column.chunks if deserializer.type is not None and column.num_chunks > 0 else [pa.concat_arrays([pa.array([], pa.binary()), *column.chunks])]
    parts: list[Any] = []
    reasons: Reasons = {}
    before = 0
    for chunk, (part, why) in zip(chunks, _decoded(chunks, deserializer, threads), strict=True):
        reasons.update({before + row: reason for row, reason in why.items()})
        parts.append(part)
        before += len(chunk)
    return pa.chunked_array(parts), reasons


def _decoded(chunks: list[Any], deserializer: Deserializer, threads: int) -> Iterator[tuple[pa.Array, Reasons]]:
    if threads == 1 or len(chunks) == 1:
        yield from map(deserializer.decode, chunks)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(chunks))) as pool:
        yield from pool.map(deserializer.decode, chunks)


def _errors(raw: pa.ChunkedArray, reasons: Reasons, rows: int) -> pa.Array:
    """The column of what went wrong."""
    pa = arrow()
    cells: list[dict[str, Any] | None] = [None] * rows
    for row, reason in reasons.items():
        cells[row] = {"reason": reason, "data": raw[row].as_py()}
    return pa.array(cells, pa.struct([("reason", pa.string()), ("data", pa.binary())]))


def _error(rows: Any, raw: dict[str, pa.ChunkedArray], reasons: dict[str, Reasons]) -> RecordDeserializationError:
    """The exception for the first row with a reason."""
    row, name = min((min(why), column) for column, why in reasons.items() if why)
    cells = {column: rows.column(column)[row].as_py() for column in ("topic", "partition", "offset") if column in rows.schema.names}
    known = "topic" in cells and "partition" in cells
    topic_partition = TopicPartition(cells["topic"], cells["partition"]) if known else None
    offset = cells.get("offset")
    where = f"{topic_partition} at offset {offset}" if topic_partition is not None and offset is not None else f"row {row}"
    return RecordDeserializationError(
        f"the {name} of {where} cannot be decoded: {reasons[name][row]}; fix the deserializer, or pass on_error='null' or 'collect' to go on",
        topic_partition=topic_partition,
        offset=offset,
        column=name,
        data=raw[name][row].as_py(),
    )
