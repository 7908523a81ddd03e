"""Writing from Spark, exactly once and in order.

Tasks stage their rows. The driver's commit is the only writer of the directory: it takes the directory's lock, opens one
transaction, appends what the tasks staged in the order of the DataFrame (by task, then by row), and commits the number of the batch
with it, as a record of the ledger (`fletchlog.ledger`). A batch whose number the ledger has is skipped, so Spark may repeat a commit as
often as it likes. A commit that died leaves a transaction that the next commit aborts. Kafka: transactions (KIP-98).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog._rows import refused
from fletchlog.ledger import TOPIC as LEDGER_TOPIC
from fletchlog.ledger import Ledger
from fletchlog.spark.compat import BATCH_ID, QUERY_ID, DataSourceArrowWriter, DataSourceStreamArrowWriter
from fletchlog.spark.directory import open_directory
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import log
from fletchlog.spark.staging import Staged, clear, new_run, query_id, stage
from fletchlog.spark.task_transaction import write_once
from fletchlog.spark.typed import Encoder
from fletchlog.spark.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from fletchlog.spark.sink_options import SinkOptions

# One name for all queries: the lock of the directory lets only one commit run, and each ends what the last one left.
TRANSACTIONAL_ID = "fletchlog-spark"
# The transactional id of a query or application in a cluster.
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
        query, rows, task = context.getLocalProperty(QUERY_ID), _checked(iterator, self._options), context.partitionId()
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
        if not self._options.task_transactions:
            append(self._options, _staged(messages), self._options.app, self._run)
        clear(self._options, {self._run})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Removes what was staged; nothing of it is in the log."""
        clear(self._options, {self._run})


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch once, even if tasks are killed and repeated."""

    def _ledger(self, context: Any) -> tuple[str, int]:
        return context.getLocalProperty(QUERY_ID), int(context.getLocalProperty(BATCH_ID))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's signature
        """Appends one micro-batch in one transaction, with its number; skips one that is there."""
        staged = _staged(messages)
        queries = {item.query for item in staged if item.query is not None}  # one, or none if the batch has no task
        if not (staged and self._options.task_transactions) and (query := min(queries, default=query_id(self._options))) is not None:
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

    A batch without rows only makes the entry in the ledger, if there is none: later ones look for it.

    Returns:
        False if there were no rows, or the ledger has this number.

    Raises:
        OptionError: A topic that does not exist.
        LedgerMissingError: The batch is not the first one, and the ledger does not know the query.
        fletchlog.errors.DirectoryLockedError: Another process has the directory open for longer than `lockTimeout`.
        fletchlog.errors.KafkaError: The broker refused a row; nothing of the batch is visible to read_committed readers.
    """
    import fletchlog as fl

    has_rows = any(item.data is not None or item.file is not None for item in staged)
    if not has_rows and ledger is None:
        return False
    name = f"{GROUP_PREFIX}{ledger[0] if ledger is not None else run}"
    # A directory has one writer: each commit ends what the last one left. On a cluster others commit at the same time.
    transactional_id = TRANSACTIONAL_ID if options.path is not None else name
    with _closed(_opened(options)) as broker:
        peer = broker if options.path is not None else options.source
        with _closed(fl.Producer(peer, dict(options.producer) | {"transactional.id": transactional_id}), _CLOSE_MS) as producer:
            if ledger is not None:
                return _append_once(producer, Written(broker, peer, options, ledger[0]), staged if has_rows else [], options, ledger)
            producer.init_transactions()
            with producer.transaction():
                _send(producer, _batches(staged), options)
            return True


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
    transactional_id = f"{TASK_PREFIX}{task}-{name}"
    with (
        _closed(_opened(options)) as cluster,
        _closed(fl.Producer(options.source, dict(options.producer) | {"transactional.id": transactional_id}), _CLOSE_MS) as producer,
    ):
        written = Written(cluster, options.source, options, name, task)
        return write_once(producer, written, number, rows, lambda batch, look: _send(producer, [batch], options, look))


def _append_once(producer: Any, written: Written, staged: list[Staged], options: SinkOptions, ledger: tuple[str, int]) -> bool:
    name, number = ledger
    written.begin(producer)
    last = written.last()
    if last is not None and last["batch"] >= number:
        log.info("batch %d of %s is in %s: skipped", number, name, options.source)
        return False
    if last is not None and not staged:
        return False
    if last is None and number > 0 and options.missing_ledger == "skip" and written.is_missing():
        log.warning("option missingLedger: batch %d of %s is taken to be in %s: skipped", number, name, options.source)
        staged = []
    with producer.transaction():
        _send(producer, _batches(staged), options, written.looks_at(number) if last is None else None)
        written.write(producer, number)
    return bool(staged)


def check_topic(options: SinkOptions) -> None:
    """Finds before the first task what would fail the commit, and makes the topic, if the options say how; tasks that write themselves find the ledger's then.

    Raises:
        OptionError: The directory or the topic does not exist, or the topic has too few partitions.
        fletchlog.errors.ConfigError: A property that a producer of the cluster does not take, or a value that the topic does not.
    """
    import fletchlog as fl

    if options.topic == LEDGER_TOPIC:
        raise OptionError(f"option topic: {LEDGER_TOPIC} is where copies and sinks keep how far they are; write into another topic")
    if options.path is None:
        fl.Producer(options.source, options.producer).close(_CLOSE_MS)  # connects with its first record
        with _opened(options) as cluster:
            if _is_missing(options, _partitions_in(cluster, options.topic)):
                _create_topic(cluster, options)
            if options.task_transactions:
                Ledger(cluster, options.source, options.client).create()
        return
    path = Path(options.path)
    is_new = options.new_topic is not None and not (path.is_dir() and any(path.iterdir()))
    if not is_new and not path.is_dir():
        raise OptionError(
            f"option path: there is no directory {path}. To make it with its topic, set the options topic and partitions; or: fletchlog topics create"
        )
    existing = None if is_new else open_directory(options.path, "read_uncommitted")
    if _is_missing(options, len(existing.partitions(options.topic)) if existing and options.topic is not None else 0):
        with _opened(options, create=True) as broker:
            _create_topic(broker, options)


def _partitions_in(cluster: Any, topic: str | None) -> int:
    return len(cluster.describe_topic(topic).partitions) if topic in cluster.topics() else 0


def _is_missing(options: SinkOptions, partitions: int) -> bool:
    """Whether the topic is to be made. `partitions`: how many it has; 0: there is none."""
    topic, new, source = options.topic, options.new_topic, options.source
    if topic is None:
        return False
    if new is None and partitions == 0:
        raise OptionError(f"topic {topic} does not exist in {source}. To make it, set the option partitions; or: fletchlog topics create, Broker.create_topic")
    if new is not None and 0 < partitions < new.partitions:
        raise OptionError(
            f"option partitions: topic {topic} of {source} exists, with {partitions} partitions instead of {new.partitions}. Leave the option out, or give the "
            "topic more: fletchlog topics alter, Broker.create_partitions"
        )
    return partitions == 0


def _create_topic(admin: Any, options: SinkOptions) -> None:
    import fletchlog as fl

    if options.new_topic is not None:
        with contextlib.suppress(fl.errors.TopicAlreadyExistsError):  # another query has made it meanwhile
            admin.create_topic(options.topic, options.new_topic.partitions, config=options.new_topic.config)


def _opened(options: SinkOptions, *, create: bool = False) -> Any:
    """The directory, open for writing; waits while another process has it. Or the cluster."""
    import fletchlog as fl

    if options.path is None:
        return fl.Cluster(options.source, options.client)
    end = time.monotonic() + options.lock_timeout_ms / 1000
    reported = False
    while True:
        try:
            return fl.Broker(options.path, create=create)
        except fl.errors.DirectoryLockedError as error:
            if time.monotonic() >= end:
                raise
            if not reported:
                log.warning("%s; trying again until lockTimeout is over", error)
                reported = True
            time.sleep(_RETRY_LOCK_S)


def _batches(staged: Iterable[Staged]) -> Iterator[pa.RecordBatch]:
    return (batch for item in staged for batch in item.batches())


def _send(producer: Any, batches: Iterable[pa.RecordBatch], options: SinkOptions, look: Callable[[str], None] | None = None) -> None:
    """Queues rows. `look` is called with each topic before its first row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    import fletchlog as fl

    seen = set()
    for batch in batches:
        columns = {name.lower(): _as_sent(name.lower(), batch.column(name)) for name in batch.schema.names}
        of_rows = columns.pop("topic", None)
        rows = pa.table(columns)
        topics = [options.topic] if options.topic is not None else pc.unique(of_rows).to_pylist()
        for topic in topics:  # the order of a topic's rows is kept
            if look is not None and topic not in seen:
                look(topic)
            seen.add(topic)
            of_topic = rows if options.topic is not None else rows.filter(pc.equal(of_rows, topic))
            _refuse_negative(topic, of_topic)
            try:
                producer.send_arrow(topic, of_topic)
            except fl.KafkaError as error:
                found = refused(error)
                if found is None:
                    raise
                # the number of the row is that in a part of the frame, which its writer does not know
                raise type(error)(f"a row for topic {topic}: {found[1]}. Its transaction is aborted, nothing of it is committed") from None


def _refuse_negative(topic: str, rows: pa.Table) -> None:
    """As Java's producer, and so Spark's kafka sink. In Kafka -1 is no time: it would become that of the commit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from fletchlog.errors import InvalidArgumentError

    least = pc.min(rows["timestamp"].cast(pa.int64())).as_py() if "timestamp" in rows.column_names else None
    if least is not None and least < 0:
        advice = "give milliseconds since 1970, or null for now. Its transaction is aborted, nothing of it is committed"
        raise InvalidArgumentError(f"a row for topic {topic}: timestamp {least} is negative; {advice}")


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

    encoder = Encoder(options.typed, options.topic)
    for found in rows:
        batch = encoder.encoded(found)
        columns = dict(zip([name.lower() for name in batch.schema.names], batch.columns, strict=True))
        if options.topic is None and columns["topic"].null_count:
            raise OptionError("The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a default topic.")
        times = columns.get("timestamp")
        if times is not None and pa.types.is_floating(times.type) and not pc.all(pc.less(pc.abs(times), _HIGHEST_SECONDS)).as_py():
            raise OptionError("column timestamp: a value is no time in seconds since 1970")
        yield batch
