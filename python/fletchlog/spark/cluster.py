"""The data source over a Kafka cluster: what `directory.Directory` is for files. Planning and reading have connections of their own."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from fletchlog.spark.directory import Directory, Topics, open_directory, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from fletchlog.admin import TopicDescription
    from fletchlog.spark.options import SourceOptions
    from fletchlog.types import TopicPartition


class ClusterLog(Topics):
    """Topics, offsets and records of a cluster. For one thread."""

    def __init__(self, options: SourceOptions) -> None:
        import fletchlog as fl

        super().__init__(fl.Cluster(options.source, options.client), options.isolation_level)
        self._consumer = fl.Consumer(options.source, dict(options.client) | {"auto.offset.reset": "none", "enable.auto.commit": "false"})
        # of its own: how long a task waits for records has another option
        self._records = fl.Cluster(options.source, {**options.client, "default.api.timeout.ms": str(options.poll_timeout_ms)})

    def _asking(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext(self._consumer)

    def _described(self, topic: str) -> TopicDescription:
        described: TopicDescription = self._admin.describe_topic(topic)
        return described

    def scan(self, tp: TopicPartition, start: int, end: int, *, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Records of a range as batches of these columns.

        Raises:
            fletchlog.errors.OffsetOutOfRangeError: Retention took records of the range meanwhile.
            fletchlog.errors.UnknownTopicOrPartitionError: The topic was deleted and made again meanwhile.
            fletchlog.errors.KafkaTimeoutError: The broker gave nothing for `kafkaConsumer.pollTimeoutMs`.
        """
        return self._scan(self._records, tp, start, end, columns=columns)


_clusters: dict[tuple[Any, ...], ClusterLog] = {}


def open_log(options: SourceOptions, *, anew: bool = False) -> Directory | ClusterLog:
    """The directory or the cluster that the options name, opened once per process. `anew`: see what an object store has now.

    Raises:
        fletchlog.errors.KafkaError: A missing or foreign directory, or properties that no client takes.
    """
    if options.path is not None and options.store is not None:
        return open_store(options.path, options.store, options.isolation_level, anew=anew)
    if options.path is not None:
        return open_directory(options.path, options.isolation_level)
    key = (os.getpid(), options.source, options.isolation_level, options.poll_timeout_ms, *sorted(options.client.items()))
    if key not in _clusters:
        for old in [old for old in _clusters if old[0] != os.getpid()]:
            del _clusters[old]  # the connections are its parent's, which closes them
        _clusters[key] = ClusterLog(options)
    return _clusters[key]
