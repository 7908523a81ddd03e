"""Traces in files: an Arrow file keeps the rows and, in its metadata, the properties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError, SchemaError

if TYPE_CHECKING:
    from os import PathLike

    import pyarrow as pa

CONSUMER = "consumer"
PRODUCER = "producer"


def save_trace(trace: Any, path: str | PathLike[str]) -> None:
    """Writes `consumer.trace()` or `producer.trace()` as an Arrow file (Feather 2), properties included.

    Raises:
        fletchlog.errors.SchemaError: It is no trace.
        OSError: It cannot be written.
    """
    import pyarrow as pa

    from fletchlog.interop import to_pyarrow

    table = trace if hasattr(trace, "column_names") else to_pyarrow(trace)
    whose(table)
    # opened by Python, which knows every path
    with Path(path).open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def load_trace(path: str | PathLike[str]) -> pa.Table:
    """Reads what `save_trace` wrote.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Arrow file.
        fletchlog.errors.SchemaError: An Arrow file with something else in it.
        OSError: It cannot be read.
    """
    import pyarrow as pa

    try:
        with Path(path).open("rb") as source:
            table = pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"{path} is no saved trace ({error}); write one with fletchlog.explain.save_trace(consumer.trace(), path)") from None
    whose(table)
    return table


def whose(trace: pa.Table) -> str:
    """`consumer` or `producer`.

    Raises:
        fletchlog.errors.SchemaError: It is no trace.
    """
    kind: str = (trace.schema.metadata or {}).get(b"fletchlog.trace", b"").decode()
    if kind not in {CONSUMER, PRODUCER}:
        raise SchemaError("this table is no trace: its metadata lacks fletchlog.trace, which consumer.trace() and producer.trace() set")
    return kind
