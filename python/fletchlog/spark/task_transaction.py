"""Writing into a cluster in parallel: each task in a transaction of its own, option `transactionPerTask`.

A task writes its rows and, in the same transaction, the number of the batch as an offset of a group of its own, with a fingerprint of the
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


class Fingerprint:
    """Of the rows of a task: their number, the first and the last. Batches of Arrow do not count."""

    def __init__(self) -> None:
        self._rows = 0
        self._first: Any = None
        self._last: Any = None

    def over(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, which it looks at as they pass."""
        for batch in rows:
            if batch.num_rows:
                if not self._rows:
                    self._first = batch.slice(0, 1).to_pylist()
                self._last = batch.slice(batch.num_rows - 1, 1).to_pylist()
                self._rows += batch.num_rows
            yield batch

    def text(self) -> str:
        """To be kept with the number of the batch."""
        return f"{self._rows} {hashlib.blake2b(repr((self._first, self._last)).encode(), digest_size=8).hexdigest()}"


def write_once(
    producer: Any, consumer: Any, ledger: tuple[str, int], place: tuple[str, int], rows: Iterable[pa.RecordBatch], send: Callable[[pa.RecordBatch], None]
) -> bool:
    """Sends rows in one transaction of the producer, with the number of the batch; `ledger` is the group's name and that number.

    Args:
        producer: Has the transactional id of the task, and nothing open.
        consumer: Of the group.
        ledger: The group's name, and the number.
        place: Topic and partition of the group's offset.
        rows: What the task has.
        send: Sends a batch of them.

    Returns:
        False if the group has this number, or a later one.

    Raises:
        BatchChangedError: The group has this number, for other rows.
        fletchlog.errors.ProducerFencedError: Another attempt of the task has begun.
    """
    import fletchlog as fl

    group, number = ledger
    producer.init_transactions()
    done = consumer.committed(place)
    seen = Fingerprint()
    if done is not None and done.offset > number:
        for _ in seen.over(rows):
            pass
        if done.offset == number + 1 and done.metadata != seen.text():
            raise BatchChangedError(
                f"group {group}: batch {number} has been written with other rows ({done.metadata}, now {seen.text()}): a batch that is repeated must be cut "
                "into the same tasks. Restart with the same partitions, or without transactionPerTask"
            )
        return False
    with producer.transaction():
        for batch in seen.over(rows):
            send(batch)
        producer.send_offsets_to_transaction({place: fl.types.OffsetAndMetadata(number + 1, seen.text())}, fl.ConsumerGroupMetadata("", -1, group))
    return True
