"""The one place where the data source touches the engine: a directory opened for reading, cached per process.

Spark's Python workers are forked and reused: a broker stays open from task to task, is never used in a child of the process that
opened it, and is opened anew when the directory was replaced.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from fletchlog.spark.offsets import Partition

# Measured with 10-byte values: flat from 8k rows up; Rust also cuts at about 8 MiB.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Span:
    """Offsets that a partition has: `start` to `end`, exclusive."""

    start: int
    end: int


class Directory:
    """Topics, offsets and records of a directory that another process may be writing to."""

    def __init__(self, broker: Any, isolation_level: str) -> None:
        self._broker = broker
        self._isolation_level = isolation_level

    def topics(self) -> list[str]:
        """Topic names, without Kafka's internal ones."""
        return list(self._broker.topics())

    def partitions(self, topic: str) -> list[int]:
        """Partition numbers; none if there is no such topic."""
        return sorted(self._describe(topic))

    def spans(self, partitions: Iterable[Partition]) -> dict[Partition, Span]:
        """What each partition holds for the isolation level; partitions that do not exist are left out."""
        wanted = sorted(partitions)
        known = {topic: self._describe(topic) for topic in {topic for topic, _ in wanted}}
        return {tp: known[tp[0]][tp[1]] for tp in wanted if tp[1] in known[tp[0]]}

    def offsets_for_times(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """First offset at or after a time (ms), `None` if there is none."""
        import fletchlog as fl

        asked = {fl.TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()}
        with fl.Consumer(self._broker, {"isolation.level": self._isolation_level}) as consumer:
            answers = consumer.offsets_for_times(asked)
        return {(tp.topic, tp.partition): None if found is None else found.offset for tp, found in answers.items()}

    def scan(self, tp: Partition, start: int, end: int, *, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Records of a range as batches of these columns."""
        scan = self._broker.scan(
            tp[0],
            partition=tp[1],
            start_offset=start,
            end_offset=end,
            batch_rows=BATCH_ROWS,
            columns=columns,
            isolation_level=self._isolation_level,
        )
        return iter(scan)

    def _describe(self, topic: str) -> dict[int, Span]:
        import fletchlog as fl

        try:
            description = self._broker.describe_topic(topic)
        except fl.errors.UnknownTopicOrPartitionError:
            return {}
        committed = self._isolation_level == "read_committed"
        return {part.partition: Span(part.log_start_offset, part.last_stable_offset if committed else part.high_watermark) for part in description.partitions}


_brokers: dict[tuple[int, str, int, int], Any] = {}


def open_directory(path: str, isolation_level: str) -> Directory:
    """The directory, opened once per process.

    Raises:
        fletchlog.errors.KafkaError: Missing or foreign directory.
    """
    import fletchlog as fl

    try:
        status = Path(path).stat()
    except OSError:
        status = None
    key = (os.getpid(), path, status.st_dev, status.st_ino) if status is not None else None
    broker = _brokers.get(key) if key is not None else None
    if broker is None:
        broker = fl.Broker(path, read_only=True)
        for old in [old for old in _brokers if old[0] != os.getpid() or old[1] == path]:
            del _brokers[old]
        if key is not None:
            _brokers[key] = broker
    return Directory(broker, isolation_level)
