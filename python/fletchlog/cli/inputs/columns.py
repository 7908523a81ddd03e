"""Files of columns: Parquet and Arrow."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs.files import Rejoined
from fletchlog.cli.inputs.rows import as_bytes, from_row
from fletchlog.cli.records import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from fletchlog.cli.inputs import Input
    from fletchlog.cli.records import Columns, Record

# rows that are read at once
_ROWS = 20_000


def read_parquet(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    """Rows, some at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        read = pq.ParquetFile(file if file.seekable() else io.BytesIO(file.read()))
        yield from _from_columns(read.schema_arrow, read.iter_batches(_ROWS), source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not a Parquet file that can be read: {error}") from None


def read_arrow(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    """Rows of a file or a stream, batch by batch."""
    import pyarrow as pa

    head = file.read(6)
    data: Any = io.BufferedReader(Rejoined(head, file))
    try:
        if head == b"ARROW1":
            reader: Any = pa.ipc.open_file(io.BytesIO(data.read()) if not file.seekable() else file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            # batch by batch: the writer of a pipe may take its time
            reader = batches = pa.ipc.open_stream(data)
        yield from _from_columns(reader.schema, batches, source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not an Arrow file or stream that can be read: {error}") from None


def _from_columns(schema: pa.Schema, batches: Iterable[Any], source: Input) -> Iterator[Record | Columns]:
    source.has(schema.names, source.where)
    fit = records.are_records(schema, source.kinds)
    as_records = source.takes_records(fit)
    if as_records and not fit:
        raise CommandError(f"{source.where}: no records as `fletchlog consume` writes them; its columns are {', '.join(schema.names)}")
    convert: Callable[[Any], Any] = _rows_of_columns
    if as_records:
        convert = partial(records.from_columns, partitions=source.partitions, typed=source.kinds)
    elif source.kinds:
        convert = partial(_typed_columns, source=source)
    before = 0
    for batch in batches:
        for start, part, wrong in parts(batch, convert):
            number = before + start + 1
            if wrong is not None:
                raise CommandError(f"{source.place(number)}: {wrong}")
            if as_records or source.kinds:
                yield part, number
            else:
                for ahead, row in enumerate(part):
                    yield from_row(row, None, number + ahead, source)
        before += batch.num_rows


def parts(batch: Any, convert: Callable[[Any], Any]) -> Iterator[tuple[int, Any, Exception | None]]:
    """What is made of a batch, with the row at which each part begins; ends with why a row cannot be converted, if there is such a row.

    Rows that can be converted one by one may be too large for one part.
    """
    import pyarrow as pa

    wrong = (pa.ArrowException, OverflowError, ValueError)
    begin = 0
    while begin < batch.num_rows:
        good, bad, part = 0, batch.num_rows - begin, None
        # all of them at first
        tried = bad
        while good < bad:
            try:
                part = convert(batch.slice(begin, tried))
                good = tried
            except wrong as error:
                reason, bad = error, tried - 1
            tried = (good + bad + 1) // 2
        if good == 0:
            yield begin, None, reason
            return
        yield begin, part, None
        begin += good


def _typed_columns(batch: Any, source: Input) -> Any:
    """Records whose keys or values are encoded afterwards: columns as they are, and the whole row as a struct."""
    import pyarrow as pa

    batch.validate(full=True)
    made: dict[str, Any] = {}
    for name, field in (("key", source.key), ("value", source.value)):
        if name == "key" and field is None:
            continue
        column = batch.column(field) if field is not None else pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        # what has no format is text or bytes, or JSON
        made[name] = column if name in source.kinds else pa.array([as_bytes(item) for item in column.to_pylist()], pa.binary())
    if source.timestamp is not None:
        made["timestamp"] = pa.array([milliseconds(item, source.where) for item in batch.column(source.timestamp).to_pylist()], pa.int64())
    return pa.table(made)


def _rows_of_columns(batch: Any) -> list[dict[str, Any]]:
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows
