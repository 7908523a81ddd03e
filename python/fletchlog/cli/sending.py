"""Sends what `fletchlog produce` reads: many records at a time, and no record waits for the others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from fletchlog._rows import refused
from fletchlog.cli.common import CommandError
from fletchlog.cli.interrupts import held
from fletchlog.cli.records import Record, headers_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import fletchlog as fl
    from fletchlog.cli.encoding import Encoder
    from fletchlog.cli.records import Columns

# Records that are sent together at most: large enough that Python's share of the time is small, small enough for a moving progress bar.
_COUNT = 20_000
_BYTES = 16 << 20
_SECONDS = 1.0
_LOOKS = 50


class Sender:
    """Records on their way to a topic. Leaving its block sends what is in hand, also after Ctrl-C or an error of the input.

    Attributes:
        read: Records that were taken.
        count: Records that are in the topic.
    """

    def __init__(
        self, producer: fl.Producer, topic: str, place: Callable[[int], str], on_progress: Callable[[int], None], encoder: Encoder | None = None
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._place = place
        self._on_progress = on_progress
        self._encoder = encoder
        # an input gives either the one or the other
        self._records: list[Record] = []
        self._columns: list[Columns] = []
        self._rows = 0
        self._bytes = 0
        self._since = 0.0
        self._at_work = False
        self.read = 0
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        # what a failed or interrupted hand-over has left is the producer's
        if not self._at_work:
            with held():
                self.send()

    def add(self, item: Record | Columns) -> None:
        """Takes a record, or a table of them with the number of its first row.

        Raises:
            CommandError: The producer does not take a record; those before it are in the topic.
            fletchlog.errors.KafkaError: It cannot be written.
        """
        if not self._rows:
            self._since = time.monotonic()
        if isinstance(item, Record):
            self._records.append(item)
            rows, size = 1, len(item.key or b"") + len(item.value or b"")
            # the clock costs as much as all the rest
            looks = len(self._records) % _LOOKS == 0
        else:
            self._columns.append(item)
            rows, size = item[0].num_rows, item[0].nbytes
            looks = True
        self._rows += rows
        self._bytes += size
        self.read += rows
        if self._bytes >= _BYTES or self._rows >= _COUNT or (looks and time.monotonic() - self._since >= _SECONDS):
            self.send()

    def send(self) -> None:
        """Sends what is in hand, and waits until it is in the topic.

        Raises:
            CommandError: As for `add`.
            fletchlog.errors.KafkaError: As for `add`.
        """
        records, columns = self._records, self._columns
        number: Callable[[int], int]
        if records:
            table, number = _table(records), lambda row: records[row].number
        elif columns:
            import pyarrow as pa

            # in one piece, else each becomes a batch of the log; the rows of an input follow each other
            table, number = pa.concat_tables([table for table, _ in columns]).combine_chunks(), lambda row: columns[0][1] + row
        else:
            return
        # from here on they are the producer's, also after Ctrl-C
        self._at_work = True
        self._records, self._columns, self._rows, self._bytes = [], [], 0, 0
        wrong = None
        if self._encoder is not None:
            table, wrong = self._encoder.encoded(table)
        self._hand_over(table, number)
        if wrong is not None:
            raise CommandError(f"{self._place(number(wrong[0]))}: {wrong[1]}")

    def _hand_over(self, table: Any, number: Callable[[int], int]) -> None:
        from fletchlog.errors import InvalidArgumentError, RecordTooLargeError

        try:
            self._producer.send_arrow(self._topic, table)
        except (InvalidArgumentError, RecordTooLargeError) as error:
            found = refused(error)
            if found is None:
                raise
            row, reason = found
            self._producer.flush()
            self.count += row
            raise CommandError(f"{self._place(number(row))}: {reason}") from None
        # report a record that fails before the rest is read
        self._producer.flush()
        self._at_work = False
        self.count += table.num_rows
        self._on_progress(table.num_rows)


def _table(records: list[Record]) -> Any:
    import pyarrow as pa

    keys, values, times, headers, partitions, _ = zip(*records, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    for name, found, kind in (("timestamp", times, pa.int64()), ("headers", headers, headers_type()), ("partition", partitions, pa.int32())):
        if found.count(None) < len(found):
            columns[name] = pa.array(found, kind)
    return pa.table(columns)
