"""Writing from Spark, exactly once and in order.

Tasks stage their rows. The driver's commit is the only writer of the directory: it takes the directory's lock, opens one
transaction, appends what the tasks staged in the order of the DataFrame (by task, then by row), and commits the number of the batch
with it, as an offset of a consumer group: the ledger. A batch whose number the ledger has is skipped, so Spark may repeat a commit as
often as it likes. A commit that died leaves a transaction that the next commit aborts. Kafka: transactions (KIP-98), offsets in
them (KIP-447).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from fletchlog.spark.directory import open_directory
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import log
from fletchlog.spark.staging import Staged, clear, stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from fletchlog.spark.sink_options import SinkOptions

# One name for all queries: the lock of the directory lets only one commit run, and each ends what the last one left.
TRANSACTIONAL_ID = "fletchlog-spark"
# Its partition 0 carries the committed offsets of the ledger's groups. It never has a record.
LEDGER_TOPIC = "__fletchlog_spark_batches"
GROUP_PREFIX = "fletchlog-spark-"
_RETRY_LOCK_S = 0.05


class _Writer:
    """What batch and stream writers share. An object carries nothing from tasks to the commit but `run`, and of streams not even that."""

    def __init__(self, options: SinkOptions) -> None:
        check_topic(options)
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """One task: keeps its rows for the commit."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a writer's task runs in a worker of Spark")
        query = context.getLocalProperty("sql.streaming.queryId")
        number = context.getLocalProperty("streaming.sql.batchId")
        return stage(
            self._options,
            _checked(iterator, self._options),
            task=context.partitionId(),
            attempt=context.taskAttemptId(),
            run=query or self._run,
            batch=int(number) if query and number else None,
        )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: everything or nothing, in one transaction."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Appends what all tasks staged. With txnAppId, a txnVersion that is not above the last one is skipped."""
        append(self._options, _staged(messages), self._options.app, self._run)
        clear(self._options, self._run, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Removes what was staged; nothing of it is in the log."""
        clear(self._options, self._run, None)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch once, even if tasks are killed and repeated."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Appends one micro-batch in one transaction, with its number; skips one that is there."""
        staged = _staged(messages)
        for query in {item.run for item in staged}:  # one, or none if the batch has no task
            append(self._options, staged, (query, batchId), query)
            clear(self._options, query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Removes what was staged; nothing of it is in the log."""
        for query in {item.run for item in _staged(messages)}:
            clear(self._options, query, batchId)


def _staged(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return sorted((item for item in messages if isinstance(item, Staged)), key=lambda item: item.task)


def append(options: SinkOptions, staged: list[Staged], ledger: tuple[str, int] | None, run: str) -> bool:
    """Appends rows in one transaction; `ledger` is the name and the number of the batch, `run` the query or the write.

    Returns:
        False if there were no rows, or the ledger has this number.

    Raises:
        OptionError: A topic that does not exist.
        fletchlog.errors.DirectoryLockedError: Another process has the directory open for longer than `lockTimeout`.
        fletchlog.errors.KafkaError: The broker refused a row; nothing of the batch is visible to read_committed readers.
    """
    import fletchlog as fl

    if not any(item.data is not None or item.file is not None for item in staged):
        return False
    # A directory has one writer: each commit ends what the last one left. On a cluster others commit at the same time.
    transactional_id = TRANSACTIONAL_ID if options.path is not None else f"{GROUP_PREFIX}{ledger[0] if ledger is not None else run}"
    with _opened(options) as broker:
        peer = broker if options.path is not None else options.source
        with fl.Producer(peer, {**options.producer, "transactional.id": transactional_id}) as producer:
            producer.init_transactions()
            if ledger is None:
                with producer.transaction():
                    _send(producer, staged, options)
                return True
            return _append_once(broker, peer, producer, staged, options, ledger)


def _append_once(broker: Any, peer: Any, producer: Any, staged: list[Staged], options: SinkOptions, ledger: tuple[str, int]) -> bool:
    import fletchlog as fl

    name, number = ledger
    if LEDGER_TOPIC not in broker.topics():
        with contextlib.suppress(fl.errors.TopicAlreadyExistsError):
            broker.create_topic(LEDGER_TOPIC)
    group = GROUP_PREFIX + name
    with fl.Consumer(peer, {"group.id": group, "enable.auto.commit": "false"}) as consumer:
        done = consumer.committed((LEDGER_TOPIC, 0))
    if done is not None and done.offset > number:
        log.info("batch %d of %s is in %s: skipped", number, name, options.source)
        return False
    with producer.transaction():
        _send(producer, staged, options)
        producer.send_offsets_to_transaction({(LEDGER_TOPIC, 0): number + 1}, fl.ConsumerGroupMetadata("", -1, group))
    return True


def check_topic(options: SinkOptions) -> None:
    """Finds before the first task what would fail the commit.

    Raises:
        OptionError: The directory or the topic does not exist.
    """
    import fletchlog as fl

    if options.path is None:
        with fl.Cluster(options.source) as cluster:
            topics = cluster.topics()
    elif not Path(options.path).is_dir():
        raise OptionError(f"option path: there is no directory {options.path}; create the topic first, which makes it: fletchlog topics create")
    else:
        topics = open_directory(options.path, "read_uncommitted").topics()
    if options.topic is not None and options.topic not in topics:
        raise OptionError(f"topic {options.topic} does not exist in {options.source}; create it first: fletchlog topics create, or Broker.create_topic")


def _opened(options: SinkOptions) -> Any:
    """The directory, open for writing; waits while another process has it. Or the cluster."""
    import fletchlog as fl

    if options.path is None:
        return fl.Cluster(options.source)
    end = time.monotonic() + options.lock_timeout_ms / 1000
    reported = False
    while True:
        try:
            return fl.Broker(options.path)
        except fl.errors.DirectoryLockedError as error:
            if time.monotonic() >= end:
                raise
            if not reported:
                log.warning("%s; trying again until lockTimeout is over", error)
                reported = True
            time.sleep(_RETRY_LOCK_S)


def _send(producer: Any, staged: list[Staged], options: SinkOptions) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in (batch for item in staged for batch in item.batches()):
        columns = {name.lower(): _as_sent(name.lower(), batch.column(name)) for name in batch.schema.names}
        topics = columns.pop("topic", None)
        rows = pa.table(columns)
        if options.topic is not None or topics is None:
            producer.send_arrow(options.topic, rows)
            continue
        for topic in pc.unique(topics):  # the order of a topic's rows is kept
            producer.send_arrow(topic.as_py(), rows.filter(pc.equal(topics, topic)))


def _as_sent(name: str, column: pa.Array) -> pa.Array:
    import pyarrow as pa

    if name in {"key", "value"}:
        return column.cast(pa.binary()) if pa.types.is_string(column.type) else column
    return column.cast(pa.timestamp("ms", "UTC"), safe=False) if name == "timestamp" else column


def _checked(rows: Iterable[pa.RecordBatch], options: SinkOptions) -> Iterator[pa.RecordBatch]:
    """Finds in the task what would fail the commit of all."""
    for batch in rows:
        if options.topic is None:
            names = [name.lower() for name in batch.schema.names]
            if batch.column(names.index("topic")).null_count:
                raise OptionError("null topic present in the data. Use the 'topic' option for setting a topic.")
        yield batch
