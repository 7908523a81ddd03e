"""Writing into a cluster in parallel: each task in a transaction of its own, option `transactionPerTask`.

A task writes its rows and, in the same transaction, the number of the batch as a record of the ledger, with a fingerprint of the
rows. An attempt that comes again, or late, finds the number and writes nothing; one that runs at the same time is fenced by Kafka. So a task's rows
are there once. The batch as a whole is not atomic, and a batch that is repeated has to be cut into the same tasks: the fingerprint finds it if not.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fletchlog.spark.errors import BatchChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from fletchlog.spark.written import Written


class Fingerprint:
    """Of all rows of a task, in their order. It is the same however Arrow cuts, slices or types them, with any release of pyarrow.

    Of each column three streams of bytes are hashed: a byte a row, 0 for null; of texts, bytes and lists their lengths, as 64 bits; and
    what is not null, texts and bytes without anything between them, numbers in little-endian order. A list's elements are a column below it.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._hashes: dict[str, Any] = {}

    def over(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, which it looks at as they pass."""
        for batch in rows:
            if batch.num_rows:
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    self._add(name.lower(), column)
                self._rows += batch.num_rows
            yield batch

    def text(self) -> str:
        """To be kept with the number of the batch."""
        whole = hashlib.blake2b(digest_size=16)
        for name in sorted(self._hashes):
            whole.update(f"{name} {self._hashes[name].hexdigest()}\n".encode())
        return f"{self._rows} {whole.hexdigest()}"

    def _add(self, name: str, column: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type
        self._hash(f"{name} valid", pc.is_valid(column).cast(pa.uint8()))
        if pa.types.is_struct(kind):
            for index, below in enumerate(column.flatten()):
                self._add(f"{name}.{kind.field(index).name}", below)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._hash(f"{name} length", pc.list_value_length(column).fill_null(0).cast(pa.int64()))
            self._add(f"{name}[]", pc.list_flatten(column))
        elif not pa.types.is_primitive(kind):
            values = column.cast(pa.large_binary()).drop_null()
            self._hash(f"{name} length", pc.binary_length(values))
            _, offsets, data = values.buffers()
            if len(values):
                ends = memoryview(offsets).cast("q")
                self._hashes_of(f"{name} data").update(memoryview(data)[ends[values.offset] : ends[values.offset + len(values)]])
        else:
            if pa.types.is_timestamp(kind):
                column = column.cast(pa.timestamp("us", kind.tz))
            self._hash(f"{name} data", column.drop_null())

    def _hash(self, name: str, numbers: pa.Array) -> None:
        """Numbers without nulls."""
        size = numbers.type.bit_width // 8
        data = numbers.buffers()[1]
        if len(numbers):
            self._hashes_of(name).update(memoryview(data)[numbers.offset * size : (numbers.offset + len(numbers)) * size])

    def _hashes_of(self, name: str) -> Any:
        if name not in self._hashes:
            self._hashes[name] = hashlib.blake2b(digest_size=16)
        return self._hashes[name]


def write_once(
    producer: Any, written: Written, number: int, rows: Iterable[pa.RecordBatch], send: Callable[[pa.RecordBatch, Callable[[str], None] | None], None]
) -> bool:
    """Sends rows in one transaction of the producer, with the number of the batch.

    Args:
        producer: Has the transactional id of the task, and nothing open.
        written: The task's entry in the ledger.
        number: Of the batch.
        rows: What the task has.
        send: Sends a batch of them, after it has called what it is given, if anything, with each topic.

    Returns:
        False if this batch, or a later one, has been written.

    Raises:
        BatchChangedError: It has been written with other rows.
        LedgerMissingError: The ledger does not know the query, and a topic has records.
        fletchlog.errors.ProducerFencedError: Another attempt of the task has begun.
    """
    written.begin(producer)
    last = written.last()
    seen = Fingerprint()
    if last is not None and last["batch"] >= number:
        for _ in seen.over(rows):
            pass
        if last["batch"] == number and last.get("rows") != seen.text():
            raise BatchChangedError(
                f"{last['name']}: batch {number} has been written with other rows ({last.get('rows')}, now {seen.text()}): a batch that is repeated must be "
                "cut into the same tasks. Restart with the same partitions, or without transactionPerTask"
            )
        return False
    look = written.looks_at(number) if last is None else None
    with producer.transaction():
        for batch in seen.over(rows):
            send(batch, look)
        written.write(producer, number, seen.text())
    return True
