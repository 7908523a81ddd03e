"""The data source over a Kafka cluster: what `directory.Directory` is for files. Planning and reading have connections of their own."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from fletchlog.spark.directory import BATCH_ROWS, Directory, Span, open_directory
from fletchlog.spark.schema import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from fletchlog.spark.offsets import Partition
    from fletchlog.spark.options import SourceOptions

_STEP_MS = 200


class ClusterLog:
    """Topics, offsets and records of a cluster. For one thread."""

    def __init__(self, options: SourceOptions) -> None:
        import fletchlog as fl

        self._committed = options.isolation_level == "read_committed"
        self._poll_timeout_ms = options.poll_timeout_ms
        self._cluster = fl.Cluster(options.source, options.client)
        config = {"max.poll.records": str(BATCH_ROWS), **options.client, "auto.offset.reset": "none", "enable.auto.commit": "false"}
        self._consumer = fl.Consumer(options.source, config)

    def topics(self) -> list[str]:
        """Topic names, without Kafka's internal ones."""
        return self._cluster.topics()

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

        answers = self._consumer.offsets_for_times({fl.TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()})
        return {(tp.topic, tp.partition): None if found is None else found.offset for tp, found in answers.items()}

    def scan(self, tp: Partition, start: int, end: int, *, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Records of a range as batches of these columns.

        Raises:
            fletchlog.errors.OffsetOutOfRangeError: Retention took records of the range meanwhile.
            fletchlog.errors.KafkaTimeoutError: The broker gave nothing for `kafkaConsumer.pollTimeoutMs`.
        """
        import fletchlog as fl

        consumer, position = self._consumer, start
        consumer.assign([tp])
        consumer.seek(tp, start)
        deadline = time.monotonic() + self._poll_timeout_ms / 1000
        while position < end:
            records: Any = consumer.poll(_STEP_MS)
            before, position = position, consumer.position(tp)
            if len(records):
                table = (records.with_headers() if HEADERS in columns else records).to_pyarrow()
                if position > end:
                    table = table.filter(_below(table["offset"], end))
                yield from table.select(columns).to_batches(max_chunksize=BATCH_ROWS)
            if position > before:
                deadline = time.monotonic() + self._poll_timeout_ms / 1000
            elif time.monotonic() > deadline:
                message = f"no records of {tp[0]}-{tp[1]} from offset {position} on within {self._poll_timeout_ms} ms; {end} is the end of the range"
                raise fl.errors.KafkaTimeoutError(message)

    def _describe(self, topic: str) -> dict[int, Span]:
        import fletchlog as fl

        try:
            description = self._cluster.describe_topic(topic)
        except fl.errors.UnknownTopicOrPartitionError:
            return {}
        return {
            part.partition: Span(part.log_start_offset, part.last_stable_offset if self._committed else part.high_watermark) for part in description.partitions
        }


def _below(offsets: pa.ChunkedArray, end: int) -> Any:
    import pyarrow.compute as pc

    return pc.less(offsets, end)


_clusters: dict[tuple[Any, ...], ClusterLog] = {}


def open_log(options: SourceOptions) -> Directory | ClusterLog:
    """The directory or the cluster that the options name, opened once per process.

    Raises:
        fletchlog.errors.KafkaError: A missing or foreign directory, or properties that no client takes.
    """
    if options.path is not None:
        return open_directory(options.path, options.isolation_level)
    key = (os.getpid(), options.source, options.isolation_level, options.poll_timeout_ms, *sorted(options.client.items()))
    if key not in _clusters:
        for old in [old for old in _clusters if old[0] != os.getpid()]:
            del _clusters[old]
        _clusters[key] = ClusterLog(options)
    return _clusters[key]
