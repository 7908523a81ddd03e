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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from fletchlog.spark.directory import open_directory
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import log
from fletchlog.spark.staging import Staged, clear, new_run, stage
from fletchlog.spark.task_transaction import write_once

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
# With transactionPerTask: of a task of a query or application, which may be in use without it, too.
TASK_PREFIX = "fletchlog-spark-task-"
_RETRY_LOCK_S = 0.05
# Of a timestamp that is a double: 64 bits of microseconds.
_HIGHEST_SECONDS = 9.2e12
# Of a producer after its transaction has ended, or could not be ended: nothing is left to send then.
_CLOSE_MS = 30_000


class _Writer:
    """What batch and stream writers share. Spark makes one in the driver for each batch; of streams, another one for the commit."""

    def __init__(self, options: SinkOptions) -> None:
        check_topic(options)
        self._options = options
        self._run = new_run(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """One task: keeps its rows for the commit, or writes them."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a writer's task runs in a worker of Spark")
        query, rows, task = context.getLocalProperty("sql.streaming.queryId"), _checked(iterator, self._options), context.partitionId()
        if self._options.task_transactions:
            write_task(self._options, rows, self._ledger(context), task)
            return Staged(task, self._run, query, None, None)
        return stage(self._options, rows, task=task, attempt=context.taskAttemptId(), run=self._run, query=query)

    def _ledger(self, context: Any) -> tuple[str, int]:
        """Name and number of the batch, in a task."""
        raise NotImplementedError


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: everything or nothing, in one transaction; or one a task."""

    def _ledger(self, context: Any) -> tuple[str, int]:  # noqa: ARG002 - in foreachBatch it has the number of the stream's batch
        return self._options.app or (self._run, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Appends what all tasks staged. With txnAppId, a txnVersion that is not above the last one is skipped."""
        append(self._options, _staged(messages), self._options.app, self._run)
        clear(self._options, {self._run})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Removes what was staged; nothing of it is in the log."""
        clear(self._options, {self._run})


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch once, even if tasks are killed and repeated."""

    def _ledger(self, context: Any) -> tuple[str, int]:
        return context.getLocalProperty("sql.streaming.queryId"), int(context.getLocalProperty("streaming.sql.batchId"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Appends one micro-batch in one transaction, with its number; skips one that is there."""
        staged = _staged(messages)
        for query in {item.query for item in staged if item.query is not None}:  # one, or none if the batch has no task
            append(self._options, staged, (query, batchId), query)
        self._clear(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's signature
        """Removes what was staged; nothing of it is in the log."""
        self._clear(messages)

    def _clear(self, messages: list[WriterCommitMessage | None]) -> None:
        """Of a batch without a task that ended well there are no messages: the query's id finds its directory then."""
        clear(self._options, {self._run} | {item.run for item in _staged(messages)})


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
    with _closed(_opened(options)) as broker:
        peer = broker if options.path is not None else options.source
        with _closed(fl.Producer(peer, {**options.producer, "transactional.id": transactional_id}), _CLOSE_MS) as producer:
            producer.init_transactions()
            if ledger is None:
                with producer.transaction():
                    _send(producer, _batches(staged), options)
                return True
            return _append_once(broker, peer, producer, staged, options, ledger)


@contextlib.contextmanager
def _closed(handle: Any, *timeout_ms: int) -> Iterator[Any]:
    """The handle, closed at the end. A close that fails is logged: it neither takes back what was committed nor hides why nothing was."""
    import fletchlog as fl

    try:
        yield handle
    finally:
        try:
            handle.close(*timeout_ms)
        except fl.KafkaError as error:
            log.warning("after a commit: %s", error)


def write_task(options: SinkOptions, rows: Iterable[pa.RecordBatch], ledger: tuple[str, int], task: int) -> bool:
    """`transactionPerTask`: writes the rows of a task into a cluster, in a transaction of its own; `ledger` as in `append`.

    Returns:
        False if this task of the batch has been written.

    Raises:
        BatchChangedError: It has been written with other rows.
        fletchlog.errors.KafkaError: The cluster refused a row, or another attempt has begun; nothing of the task is visible to read_committed readers.
    """
    import fletchlog as fl

    name, number = ledger
    group = f"{TASK_PREFIX}{task}-{name}"
    with (
        _closed(fl.Producer(options.source, {**options.producer, "transactional.id": group}), _CLOSE_MS) as producer,
        _closed(fl.Consumer(options.source, {**options.client, "group.id": group, "enable.auto.commit": "false"})) as consumer,
    ):
        return write_once(producer, consumer, (group, number), (LEDGER_TOPIC, 0), rows, lambda batch: _send(producer, [batch], options))


def _append_once(broker: Any, peer: Any, producer: Any, staged: list[Staged], options: SinkOptions, ledger: tuple[str, int]) -> bool:
    import fletchlog as fl

    name, number = ledger
    _create_ledger(broker)
    group = GROUP_PREFIX + name
    with fl.Consumer(peer, {**options.client, "group.id": group, "enable.auto.commit": "false"}) as consumer:
        done = consumer.committed((LEDGER_TOPIC, 0))
    if done is not None and done.offset > number:
        log.info("batch %d of %s is in %s: skipped", number, name, options.source)
        return False
    with producer.transaction():
        _send(producer, _batches(staged), options)
        producer.send_offsets_to_transaction({(LEDGER_TOPIC, 0): number + 1}, fl.ConsumerGroupMetadata("", -1, group))
    return True


def _create_ledger(broker: Any) -> None:
    import fletchlog as fl

    if LEDGER_TOPIC not in broker.topics():
        with contextlib.suppress(fl.errors.TopicAlreadyExistsError):
            broker.create_topic(LEDGER_TOPIC)


def check_topic(options: SinkOptions) -> None:
    """Finds before the first task what would fail the commit; tasks that write themselves find the ledger's topic then.

    Raises:
        OptionError: The directory or the topic does not exist.
        fletchlog.errors.ConfigException: A property that a producer of the cluster does not take.
    """
    import fletchlog as fl

    if options.path is None:
        fl.Producer(options.source, options.producer).close(_CLOSE_MS)  # connects with its first record
        with _opened(options) as cluster:
            topics = cluster.topics()
            if options.task_transactions:
                _create_ledger(cluster)
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
        return fl.Cluster(options.source, options.client)
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


def _batches(staged: Iterable[Staged]) -> Iterator[pa.RecordBatch]:
    return (batch for item in staged for batch in item.batches())


def _send(producer: Any, batches: Iterable[pa.RecordBatch], options: SinkOptions) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
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
    import pyarrow.compute as pc

    if name in {"key", "value"}:
        return column.cast(pa.binary()) if pa.types.is_string(column.type) else column
    if name != "timestamp":
        return column
    if pa.types.is_floating(column.type):  # seconds, as Spark casts them: to whole microseconds
        column = pc.multiply(column, 1e6).cast(pa.int64(), safe=False).cast(pa.timestamp("us", "UTC"))
    return column.cast(pa.timestamp("ms", "UTC"), safe=False)


def _checked(rows: Iterable[pa.RecordBatch], options: SinkOptions) -> Iterator[pa.RecordBatch]:
    """Finds in the task what would fail the commit of all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in rows:
        columns = dict(zip([name.lower() for name in batch.schema.names], batch.columns, strict=True))
        if options.topic is None and columns["topic"].null_count:
            raise OptionError("The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a default topic.")
        times = columns.get("timestamp")
        if times is not None and pa.types.is_floating(times.type) and not pc.all(pc.less(pc.abs(times), _HIGHEST_SECONDS)).as_py():
            raise OptionError("column timestamp: a value is no time in seconds since 1970")
        yield batch
