"""The one place where the data source touches the engine: a directory opened for reading, cached per process.

Spark's Python workers are forked and reused: a broker stays open from task to task, is never used in a child of the process that
opened it, and is opened anew when the directory was replaced.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog._whole import described_whole
from fletchlog.ledger import TOPIC as LEDGER_TOPIC
from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from fletchlog.admin import TopicDescription
    from fletchlog.types import TopicPartition

# Measured with 10-byte values: flat from 8k rows up; Rust also cuts at about 2 MiB.
BATCH_ROWS = 65_536
# Of a directory: who has to see it.
_READERS = "the driver and every executor have to see under the same path"
# How long offsets are waited for before it is found out whether the partitions exist.
_SPANS_MS = 2_000


@dataclass(frozen=True)
class Span:
    """Offsets that a partition has: `start` to `end`, exclusive."""

    start: int
    end: int


class Topics:
    """What a directory and a cluster have in common: topics, partitions, and the offsets in them."""

    def __init__(self, admin: Any, isolation_level: str) -> None:
        self._admin = admin
        self._isolation_level = isolation_level

    def topics(self) -> list[str]:
        """Topic names, without Kafka's internal ones and the ledger of copies and sinks."""
        return [topic for topic in self._admin.topics() if topic != LEDGER_TOPIC]

    def partitions(self, topic: str) -> list[int]:
        """TopicPartition numbers; none if there is no such topic."""
        return sorted(self._describe(topic))

    def spans(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        """What each partition holds for the isolation level; partitions that do not exist are left out. Others of the topic are not looked at."""
        import fletchlog as fl

        wanted = sorted(partitions)
        try:
            with self._asking() as consumer:
                starts, ends = (ask(wanted, _SPANS_MS) for ask in (consumer.beginning_offsets, consumer.end_offsets))
        except fl.errors.KafkaTimeoutError:  # a consumer waits for a partition that does not exist
            known = {topic: self._describe(topic) for topic in {topic for topic, _ in wanted}}
            # a cluster may know a partition and not its offsets, which are -1 then
            return {tp: known[tp[0]][tp[1]] for tp in wanted if tp[1] in known[tp[0]] and min(known[tp[0]][tp[1]].start, known[tp[0]][tp[1]].end) >= 0}
        return {tp: Span(start, ends[tp]) for tp, start in starts.items()}

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """First offset at or after a time (ms), `None` if there is none."""
        with self._asking() as consumer:
            answers = consumer.offsets_for_times(timestamps)
        return {tp: None if found is None else found.offset for tp, found in answers.items()}

    def _scan(self, source: Any, tp: TopicPartition, start: int, end: int, **more: Any) -> Iterator[pa.RecordBatch]:
        return iter(
            source.scan(tp[0], partition=tp[1], start_offset=start, end_offset=end, batch_rows=BATCH_ROWS, isolation_level=self._isolation_level, **more)
        )

    def _asking(self) -> AbstractContextManager[Any]:
        """A consumer with the isolation level, for questions about offsets."""
        raise NotImplementedError

    def _described(self, topic: str) -> TopicDescription:
        """The topic. An offset that cannot be read is an error, or is -1 if it may be known later."""
        raise NotImplementedError

    def _describe(self, topic: str) -> dict[int, Span]:
        import fletchlog as fl

        try:
            description = self._described(topic)
        except fl.errors.UnknownTopicOrPartitionError:
            return {}
        committed = self._isolation_level == "read_committed"
        return {part.partition: Span(part.log_start_offset, part.last_stable_offset if committed else part.high_watermark) for part in description.partitions}


class Directory(Topics):
    """Topics, offsets and records of a directory that another process may be writing to."""

    def _asking(self) -> AbstractContextManager[Any]:
        import fletchlog as fl

        return fl.Consumer(self._admin, {"isolation.level": self._isolation_level})

    def _described(self, topic: str) -> TopicDescription:
        return described_whole(self._admin, topic)

    def segments(self, tp: TopicPartition) -> list[tuple[int, int]]:
        """Base offset and bytes of each segment."""
        return list(self._admin._segments(*tp))  # noqa: SLF001 - of this package

    def scan(self, tp: TopicPartition, start: int, end: int, *, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Records of a range as batches of these columns."""
        return self._scan(self._admin, tp, start, end, columns=columns, threads=1)  # Spark runs a task a core


_brokers: dict[tuple[Any, ...], Any] = {}


def open_directory(path: str, isolation_level: str) -> Directory:
    """The directory, opened once per process.

    Raises:
        OptionError: There is nothing at the path.
        fletchlog.errors.KafkaError: A foreign directory.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise OptionError(f"option path: {path} cannot be read on this machine: {error.strerror}; it names the directory of a log, which {_READERS}") from None
    if Path(path).is_dir() and not any(Path(path).iterdir()):
        raise OptionError(f"option path: {path} is empty; it names the directory of a log, which {_READERS}")
    return Directory(_broker(path, (os.getpid(), path, status.st_dev, status.st_ino), None), isolation_level)


def open_store(path: str, options: Mapping[str, str], isolation_level: str, *, anew: bool) -> Directory:
    """A place on an object store, opened once per process.

    Args:
        path: Its URI.
        options: Keyword arguments of pyarrow's file system.
        isolation_level: Which records are visible.
        anew: A broker of a store does not see what changes: open another one.

    Raises:
        fletchlog.errors.KafkaError: As `Broker` raises it.
    """
    key = (os.getpid(), path, *sorted(options.items()))
    if anew:
        drop(_brokers, lambda held: held == key)
    return Directory(_broker(path, key, options), isolation_level)


def _broker(path: str, key: tuple[Any, ...], options: Mapping[str, str] | None) -> Any:
    import fletchlog as fl

    if key not in _brokers:
        drop(_brokers, lambda held: held[0] != os.getpid() or held[1] == path)
        _brokers[key] = fl.Broker(path, read_only=True, storage_options=options)
    return _brokers[key]


def drop(held: dict[tuple[Any, ...], Any], which: Callable[[tuple[Any, ...]], bool]) -> None:
    """Closes what this process has opened; what its parent has opened is the parent's to close."""
    for key in [key for key in held if which(key)]:
        opened = held.pop(key)
        if key[0] == os.getpid():
            opened.close()
