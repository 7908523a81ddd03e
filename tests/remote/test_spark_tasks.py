"""The Spark sink with `transactionPerTask`: tasks write into a cluster in parallel, each task's rows once."""

import json
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

import fletchlog as fl
from fletchlog.ledger import TOPIC
from fletchlog.spark.errors import BatchChangedError, LedgerMissingError
from fletchlog.spark.sink_options import SinkOptions
from fletchlog.spark.task_transaction import Fingerprint
from fletchlog.spark.writer import write_task

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

PARTITIONS = 4


@pytest.fixture(scope="module")
def servers():
    """Of `fletchlog serve` in a process of its own."""
    command = [sys.executable, "-m", "fletchlog", "serve", "--memory", "--listen", "127.0.0.1:0", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield json.loads(process.stdout.readline())["bootstrap"]
        process.terminate()


@pytest.fixture
def topic(servers, request):
    """A new topic."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    with fl.Cluster(f"kafka://{servers}") as cluster:
        cluster.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def committed(servers, topic):
    """Numbers that readers of committed records see, by partition."""

    def read():
        with fl.Cluster(f"kafka://{servers}") as cluster:
            tables = [cluster.scan(topic, partition=partition, isolation_level="read_committed").to_pyarrow() for partition in range(PARTITIONS)]
        return [[int(value) for value in table["value"].to_pylist()] for table in tables]

    return read


@pytest.fixture
def save(servers, topic):
    def write(frame, **options):
        place = {"kafka.bootstrap.servers": servers, "topic": topic, "transactionPerTask": "true"}
        frame.write.format("fletchlog").options(**place, **{name: str(value) for name, value in options.items()}).mode("append").save()

    return write


def numbers(spark, end, tasks):
    """Each task in a partition of its own."""
    columns = ("cast(id as string) as value", "spark_partition_id() as partition")
    return spark.range(end, numPartitions=tasks).selectExpr(*columns)


def parts(end, tasks):
    return [list(range(end * task // tasks, end * (task + 1) // tasks)) for task in range(tasks)]


def test_every_task_writes_its_rows_once_and_in_order(spark, save, committed):
    frame = numbers(spark, 4000, PARTITIONS)
    save(frame)
    assert committed() == parts(4000, PARTITIONS)
    save(frame)  # without txnAppId another write
    assert committed() == [part * 2 for part in parts(4000, PARTITIONS)]


def test_what_some_tasks_wrote_before_the_job_failed_is_not_written_again(spark, save, committed):
    frame = numbers(spark, 4000, PARTITIONS)
    failing = frame.selectExpr("if(value = '3999', raise_error('bad row'), value) as value", "partition")
    with pytest.raises(PySparkException, match="bad row"):
        save(failing, txnAppId="some", txnVersion=7)
    assert committed()[3] == []  # the transaction of this task was aborted
    for _ in range(2):
        save(frame, txnAppId="some", txnVersion=7)
        assert committed() == parts(4000, PARTITIONS)
    save(frame, txnAppId="some", txnVersion=6)
    assert committed() == parts(4000, PARTITIONS)


def test_a_repeated_batch_that_is_cut_into_other_tasks_is_an_error(spark, save, committed):
    save(numbers(spark, 400, 4), txnAppId="cut", txnVersion=1)
    with pytest.raises(PySparkException, match="must be cut into the same tasks"):
        save(numbers(spark, 400, 2), txnAppId="cut", txnVersion=1)
    assert committed() == parts(400, 4)


@pytest.mark.slow
def test_a_stream_whose_commit_spark_forgot_is_not_written_again(spark, servers, topic, committed, tmp_path):
    with fl.Cluster(f"kafka://{servers}") as cluster:
        cluster.create_topic(f"{topic}-in", partitions=PARTITIONS)
    with fl.Producer(f"kafka://{servers}") as producer:
        for number in range(400):
            producer.send(f"{topic}-in", value=b"%d" % number, partition=number % PARTITIONS)
    place = {"kafka.bootstrap.servers": servers}
    for _ in range(2):
        stream = spark.readStream.format("fletchlog").options(**place, subscribe=f"{topic}-in", startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
        sink = stream.select("value", "partition").writeStream.format("fletchlog").options(**place, topic=topic, transactionPerTask="true")
        query = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert committed() == [list(range(partition, 400, PARTITIONS)) for partition in range(PARTITIONS)]
        last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for file in last.parent.glob(f"*{last.name}*"):  # killed before it noted the end of the last batch
            file.unlink()
    with fl.Cluster(f"kafka://{servers}") as cluster:
        entries = [json.loads(value) for value in cluster.scan(TOPIC, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()]
    assert max(entry["batch"] for entry in entries if entry["name"] == query.id) > 3


def test_a_directory_has_one_writer(tmp_path):
    with pytest.raises(ValueError, match="option transactionPerTask: a directory has one writer"):
        SinkOptions.parse({"path": str(tmp_path), "transactionPerTask": "true"})


def test_a_fingerprint_is_of_rows_not_of_batches():
    import pyarrow as pa

    def text(values, rows):
        seen = Fingerprint()
        assert sum(batch.num_rows for batch in seen.over(pa.table({"value": values}).to_batches(rows))) == len(values)
        return seen.text()

    assert text([b"a", b"b", b"c"], 1) == text([b"a", b"b", b"c"], 2)
    assert len({text(values, 2) for values in ([b"a", b"b", b"c"], [b"a", b"b"], [b"b", b"b", b"c"], [b"a", b"b", b"d"], [])}) == 5


def test_a_fingerprint_sees_every_row_and_only_rows():
    import pyarrow as pa

    def text(*batches):
        seen = Fingerprint()
        assert list(seen.over(batches)) == list(batches)
        return seen.text()

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema(
        [("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32()), ("timestamp", pa.timestamp("us", "UTC")), ("headers", headers)]
    )
    rows = [
        {"key": "a", "value": b"1", "partition": 0, "timestamp": 1, "headers": [{"key": "h", "value": b"x"}, {"key": "i", "value": None}]},
        {"key": None, "value": b"", "partition": None, "timestamp": None, "headers": None},
        {"key": "", "value": None, "partition": 2, "timestamp": 3, "headers": []},
        {"key": "bc", "value": b"23", "partition": 3, "timestamp": 4, "headers": [{"key": "", "value": b""}]},
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema)
    expected = text(whole)
    # as it is kept in ledgers: other releases must find the same
    assert expected == "4 1a35ad5855ab3f0cc9dc23c6dd6bbadc"
    cuts = [whole.slice(0, 1), whole.slice(1, 0), whole.slice(1, 2), whole.slice(3)]
    assert text(*cuts) == expected
    around = pa.RecordBatch.from_pylist([rows[3], *rows, rows[0]], schema)
    assert text(around.slice(1, 4)) == expected
    assert text(*[pa.RecordBatch.from_pylist([row], schema) for row in rows]) == expected
    large = pa.schema([("key", pa.large_string()), ("value", pa.large_binary()), *list(schema)[2:]])
    assert text(whole.cast(large)) == expected
    assert text(whole.select(["value", "headers", "key", "timestamp", "partition"])) == expected
    others = [
        (1, "value", None),
        (1, "key", ""),
        (2, "partition", 1),
        (1, "headers", []),
        (2, "headers", None),
        (0, "headers", [{"key": "h", "value": b"x"}, {"key": "i", "value": b""}]),
        (2, "timestamp", 2),
        (3, "key", "cb"),
    ]
    changed = [
        text(pa.RecordBatch.from_pylist([{**row, name: value} if at == number else row for number, row in enumerate(rows)], schema))
        for at, name, value in others
    ]
    moved = [text(pa.RecordBatch.from_pylist([{**rows[0], "key": key, "value": value}, *rows[1:]], schema)) for key, value in (("a1", b""), ("", b"a1"))]
    assert len({expected, text(), *changed, *moved}) == len(others) + 4


def options_of(servers, topic, **more):
    return SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": topic, "transactionPerTask": "true", **more})


def task_rows(*numbers):
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in numbers], "partition": pa.array([0] * len(numbers), pa.int32())})


def test_batches_of_more_tasks_than_before_go_on(servers, topic, committed):
    options = options_of(servers, topic)
    assert write_task(options, task_rows(0), ("more", 0), 0)
    assert [write_task(options, task_rows(task + 1), ("more", 1), task) for task in range(3)] == [True] * 3
    assert [write_task(options, task_rows(task + 1), ("more", 1), task) for task in (2, 1, 0)] == [False] * 3
    assert committed()[0] == [0, 1, 2, 3]


def test_a_task_of_a_batch_that_the_ledger_does_not_know_is_an_error_beside_records(servers, topic, committed):
    options = options_of(servers, topic)
    # a new topic: the first task finds nothing, the second one what the first one wrote
    assert [write_task(options, task_rows(task), ("late", 7), task) for task in range(2)] == [True] * 2
    for task in range(3):
        with pytest.raises(LedgerMissingError, match="no batch of another is in the ledger"):
            write_task(options, task_rows(9), ("another", 7), task)
    assert committed()[0] == [0, 1]
    assert write_task(options_of(servers, topic, missingLedger="append"), task_rows(9), ("another", 7), 2)
    assert write_task(options, task_rows(10), ("another", 7), 0)
    assert committed()[0] == [0, 1, 9, 10]


def test_a_repeated_task_with_another_row_in_the_middle_is_an_error(servers, topic, committed):
    options = options_of(servers, topic)
    assert write_task(options, task_rows(1, 2, 3), ("middle", 0), 0)
    assert not write_task(options, task_rows(1, 2, 3), ("middle", 0), 0)
    with pytest.raises(BatchChangedError, match="middle: batch 0 has been written with other rows"):
        write_task(options, task_rows(1, 4, 3), ("middle", 0), 0)
    assert committed()[0] == [1, 2, 3]
