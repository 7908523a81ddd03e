"""`df.write.format("fletchlog")` and `df.writeStream`: the rows of the frame, in its order, once."""

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import fletchlog as fl
from fletchlog.ledger import TOPIC
from fletchlog.spark.errors import LedgerMissingError, OptionError
from fletchlog.spark.sink_options import SinkOptions
from fletchlog.spark.staging import Staged, clear, new_run, stage
from fletchlog.spark.writer import append, check_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def target(tmp_path):
    """A directory that nobody has open, with topics `t` (1 partition) and `u` (3)."""
    with fl.Broker(tmp_path / "out", create=True) as broker:
        broker.create_topic("t")
        broker.create_topic("u", partitions=3)
    return tmp_path / "out"


def save(frame, target, **options):
    options = {name.replace("__", "."): str(value) for name, value in options.items()}
    frame.write.format("fletchlog").option("path", str(target)).options(**options).mode("append").save()


def records(target, topic="t", isolation_level="read_committed"):
    with fl.Broker(target, read_only=True) as broker:
        return broker.scan(topic, isolation_level=isolation_level, include_headers=True).to_pyarrow().to_pylist()


def numbers(target, topic="t", **options):
    return [int(row["value"]) for row in records(target, topic, **options)]


def entries(target):
    """The last batch of each query or application in the ledger."""
    found = [json.loads(row["value"]) for row in records(target, TOPIC)]
    return {entry["name"]: entry["batch"] for entry in found}


def staged(target):
    return sorted(path.name for path in Path(f"{target}.staging").rglob("*"))


@pytest.mark.parametrize("inline", [4 << 20, 0], ids=["in messages", "in files"])
def test_the_order_of_the_frame_is_the_order_of_the_log(spark, target, inline):
    frame = spark.range(20_000, numPartitions=5).selectExpr("cast(19999 - id as string) as value").orderBy("value")
    save(frame, target, topic="t", maxInlineBytes=inline)
    assert [row["value"].decode() for row in records(target)] == sorted(map(str, range(20_000)))
    assert staged(target) == []


def test_every_column_of_a_record_is_written(spark, target):
    time = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
    rows = [
        ("t", None, "text", 0, time, [("h", b"\x00"), ("n", None)]),
        ("u", "key", None, 2, time, None),
        ("t", "", "", None, time, []),
    ]
    kinds = "topic string, key string, value string, partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    save(spark.createDataFrame(rows, kinds).coalesce(1), target)
    found = [(r["topic"], r["key"], r["value"], r["partition"], r["timestamp"], r["headers"]) for topic in "tu" for r in records(target, topic)]
    assert found == [
        ("t", None, b"text", 0, time, [{"key": "h", "value": b"\x00"}, {"key": "n", "value": None}]),
        ("t", b"", b"", 0, time, None),
        ("u", b"key", None, 2, time, None),
    ]


def test_a_time_may_be_seconds_and_the_option_topic_goes_before_any_column(spark, target):
    frame = spark.createDataFrame([("a", 1.0009995), ("b", None), ("c", 1700000000.25)], "value string, timestamp double").selectExpr("*", "7 as topic")
    save(frame.coalesce(1), target, topic="t")
    times = [row["timestamp"] for row in records(target)]
    assert [times[0].timestamp(), times[2].timestamp()] == [1.0, 1700000000.25]
    assert abs(times[1].timestamp() - time.time()) < 600


def test_bytes_and_properties_of_the_producer_are_taken(spark, target):
    frame = spark.range(100, numPartitions=1).selectExpr("cast(cast(id as string) as binary) as value", "'no' as topic")
    save(frame, target, topic="t", kafka__compression__type="zstd")
    assert numbers(target) == list(range(100))
    segment = fl.files.inspect_segment(target / "t-0" / "00000000000000000000.log").batches.to_pyarrow()
    assert set(zip(segment["codec"].to_pylist(), segment["control"].to_pylist(), strict=True)) == {("zstd", False), ("none", True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["cast(id as string) as key"], {"topic": "t"}, "Required attribute 'value' not found"),
        (["cast(id as string) as value"], {}, "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."),
        (["id as value"], {"topic": "t"}, "value attribute unsupported type bigint. value must be a(n) string or binary"),
        (["'v' as value", "id as offset"], {"topic": "t"}, "column offset: a record has only topic, key, value, headers, partition, timestamp"),
        (["'v' as value", "if(id = 3, null, 't') as topic"], {}, "contains a null topic. Use the `topic` option for setting a default topic."),
        (["'v' as value"], {"topic": "missing"}, "topic missing does not exist in"),
        (["'v' as value", "'missing' as topic"], {}, "cannot send to topic `missing`"),
        (["'v' as value"], {"topic": "t", "subscribe": "t"}, "unknown option subscribe for writing with format fletchlog"),
        (["'v' as value"], {"topic": "t", "stagePath": "x"}, "did you mean stagingPath?"),
        (["'v' as value"], {"topic": "t", "kafka.acks": "1"}, "option kafka.acks is refused: the sink always writes in transactions"),
        (["'v' as value"], {"topic": "t", "txnAppId": "a"}, "options txnAppId and txnVersion go together"),
        (["'v' as value"], {"topic": "t", "txnAppId": "a", "txnVersion": "-1"}, "option txnVersion: expected a whole number from 0, got -1"),
        (["'v' as value"], {"topic": "t", "lockTimeout": "soon"}, "option lockTimeout: expected a duration"),
        (["'v' as value", "id % 1 - 1 as partition"], {"topic": "t"}, "partition attribute unsupported type bigint. partition must be a(n) int"),
        (["'v' as value", "cast(7 as int) as partition"], {"topic": "t"}, "7"),
        (["'v' as value", "cast('NaN' as double) as timestamp"], {"topic": "t"}, "column timestamp: a value is no time in seconds since 1970"),
    ],
)
def test_what_cannot_be_written_is_said_and_nothing_is_there(spark, target, columns, options, message):
    with pytest.raises(PySparkException) as caught:
        save(spark.range(10, numPartitions=2).selectExpr(*columns), target, **{k.replace(".", "__"): v for k, v in options.items()})
    assert message in str(caught.value)
    assert records(target) == []
    assert staged(target) == []


def test_a_missing_directory_is_not_made(spark, tmp_path):
    with pytest.raises(PySparkException, match="there is no directory"):
        save(spark.range(1).selectExpr("'v' as value"), tmp_path / "typo", topic="t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["a directory", "a cluster"])
def test_a_write_makes_its_topic_and_leaves_one_that_exists_as_it_is(spark, tmp_path, kind):
    frame = spark.range(3, numPartitions=1).selectExpr("cast(id as string) as key", "cast(id as string) as value")

    def write(place):
        def into(topic, **options):
            frame.write.format("fletchlog").options(**place, topic=topic, **options).mode("append").save()

        policy = {"topic.cleanup.policy": "compact,delete"}
        into("new", partitions=3, **policy)
        into("new", partitions=3, **policy)
        into("new", partitions=2, **{"topic.cleanup.policy": "delete"})
        into("new")
        with pytest.raises(PySparkException, match=r"topic new of .* exists, with 3 partitions instead of 4"):
            into("new", partitions=4)
        into("other", **{"topic.retention.ms": "-1"})
        with pytest.raises(PySparkException, match=r"retention.ms"):
            into("third", **{"topic.retention.ms": "long"})

    def check(admin):
        assert sorted(admin.topics()) == ["new", "other"]
        found = {name: admin.describe_topic(name) for name in ("new", "other")}
        assert [len(topic.partitions) for topic in found.values()] == [3, 1]
        assert (found["new"].config["cleanup.policy"], found["other"].config["retention.ms"]) == ("compact,delete", "-1")
        values = [sorted(admin.scan(name).to_pyarrow()["value"].to_pylist()) for name in ("new", "other")]
        assert values == [sorted([b"0", b"1", b"2"] * 4), [b"0", b"1", b"2"]]

    if kind == "a cluster":
        with fl.Broker.in_memory() as broker, broker.listen() as listener:
            write({"kafka.bootstrap.servers": listener.bootstrap})
            check(broker)
    else:
        write({"path": str(tmp_path / "deep" / "out")})
        with fl.Broker(tmp_path / "deep" / "out", read_only=True) as broker:
            check(broker)


def test_a_staging_path_inside_of_the_directory_is_refused(spark, target):
    with pytest.raises(PySparkException, match="is inside of the directory"):
        save(spark.range(1).selectExpr("'v' as value"), target, topic="t", stagingPath=target / "staging")


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_a_log_is_only_appended_to(spark, target, mode):
    with pytest.raises(PySparkException, match=r"a log is only appended to|UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        spark.range(1).selectExpr("'v' as value").write.format("fletchlog").option("path", str(target)).option("topic", "t").mode(mode).save()
    assert records(target) == []


def test_one_refused_row_leaves_nothing_to_readers_of_committed_records(spark, target):
    frame = spark.range(50, numPartitions=2).selectExpr("if(id = 40, repeat('x', 3000000), cast(id as string)) as value")
    with pytest.raises(PySparkException, match="RecordTooLarge"):
        save(frame, target, topic="t", maxInlineBytes=0)
    assert records(target) == []
    save(spark.range(3, numPartitions=1).selectExpr("cast(id as string) as value"), target, topic="t")
    assert numbers(target) == [0, 1, 2]
    assert staged(target) == []


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("9 as partition", "topic t has no partition 9: it has"),
        ("repeat('x', 3000000) as key", "the record needs up to 3000001 bytes"),
        ("timestamp_millis(-1) as timestamp", "timestamp -1 is negative"),
    ],
)
def test_a_refused_row_is_not_named_by_its_place_in_a_piece_of_the_frame(spark, target, column, says):
    frame = spark.range(2, numPartitions=1).selectExpr("cast(id as string) as value", column)
    with pytest.raises(PySparkException, match=f"a row for topic t: {says}.* nothing of it is committed") as caught:
        save(frame, target, topic=" t ")
    assert "are queued" not in str(caught.value)
    assert records(target) == []


def test_an_empty_frame_writes_nothing(spark, target):
    save(spark.range(0).selectExpr("cast(id as string) as value"), target, topic="t")
    assert records(target) == []


def test_a_version_of_an_application_is_written_once(spark, target):
    for version in (1, 2, 2, 1, 3):
        frame = spark.range(version * 10, version * 10 + 2, numPartitions=1).selectExpr("cast(id as string) as value")
        save(frame, target, topic="t", txnAppId="nightly", txnVersion=version)
    assert numbers(target) == [10, 11, 20, 21, 30, 31]


def test_a_directory_in_use_is_waited_for_and_then_named(spark, target):
    frame = spark.range(3, numPartitions=1).selectExpr("cast(id as string) as value")
    with fl.Broker(target, create=True), pytest.raises(PySparkException, match=rf"is locked by another writer .process {os.getpid()}"):
        save(frame, target, topic="t", lockTimeout="100ms")
    holder = "import sys, fletchlog as fl\nwith fl.Broker(sys.argv[1]):\n    print(flush=True)\n    sys.stdin.read()\n"
    with subprocess.Popen([sys.executable, "-c", holder, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        with pytest.raises(PySparkException, match=f"process {process.pid}"):
            save(frame, target, topic="t", lockTimeout="100ms")
    save(frame, target, topic="t")
    assert numbers(target) == [0, 1, 2]


@pytest.fixture
def copy(spark, log, target, tmp_path):
    """Copies topic `in` of the log to the target, with what is there now; one checkpoint per test."""

    def start(checkpoint="checkpoint", topic="t", **options):
        stream = spark.readStream.format("fletchlog").options(path=log.path, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=100)
        frame = stream.load().select("key", "value", "timestamp")
        sink = frame.writeStream.format("fletchlog").options(path=str(target), topic=topic, **options)
        query = sink.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    return start


def test_a_stream_is_written_in_order_and_goes_on_where_it_was(log, target, copy):
    log.topic("in").append("in", 0, 250)
    query = copy()
    assert numbers(target) == list(range(250))
    log.append("in", 0, 50)
    again = copy()
    assert numbers(target) == list(range(300))
    assert again.id == query.id
    assert entries(target)[query.id] == again.lastProgress["batchId"]


def forget_last_commit(checkpoint):
    """As if Spark had been killed between the sink's commit and its own."""
    folder = checkpoint / "commits"
    last = max((file.name for file in folder.glob("[0-9]*")), key=int)
    for file in folder.glob(f"*{last}*"):
        file.unlink()


def test_batches_whose_commit_spark_forgot_are_not_written_again(log, target, copy, tmp_path):
    log.topic("in").append("in", 0, 250)
    copy(maxInlineBytes=0)
    forget_last_commit(tmp_path / "checkpoint")
    log.append("in", 0, 50)
    copy(maxInlineBytes=0)
    assert numbers(target) == list(range(300))
    assert staged(target) == []


@pytest.mark.slow
def test_two_queries_write_into_one_directory(spark, log, target, tmp_path):
    log.topic("in").append("in", 0, 300)
    queries = []
    for name in ("one", "two"):
        stream = spark.readStream.format("fletchlog").options(path=log.path, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=60)
        sink = stream.load().selectExpr("value", "0 as partition", f"'{name}' as key").writeStream.format("fletchlog")
        sink = sink.options(path=str(target), topic="u", checkpointLocation=str(tmp_path / name))
        queries.append(sink.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    rows = records(target, "u")
    for name in (b"one", b"two"):
        assert [int(row["value"]) for row in rows if row["key"] == name] == list(range(300))


def test_complete_mode_is_refused_with_advice(spark, log, target, tmp_path):
    log.topic("in").append("in", 0, 3)
    frame = spark.readStream.format("fletchlog").options(path=log.path, subscribe="in", startingOffsets="earliest").load()
    counted = frame.groupBy("key").count().selectExpr("cast(count as string) as value")
    sink = counted.writeStream.format("fletchlog").outputMode("complete").options(path=str(target), topic="t")
    with pytest.raises(StreamingQueryException, match="use append, or foreachBatch"):
        sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()


def test_for_each_batch_is_exactly_once_with_an_application(spark, log, target, tmp_path):
    log.topic("in").append("in", 0, 120)

    def write(frame, batch):
        save(frame.select("value"), target, topic="t", txnAppId="app", txnVersion=batch)
        save(frame.select("value"), target, topic="t", txnAppId="app", txnVersion=batch)

    frame = spark.readStream.format("fletchlog").options(path=log.path, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=50).load()
    frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    assert numbers(target) == list(range(120))


# what was staged is gone, whichever writer left it


def options_of(target, **more):
    return SinkOptions.parse({"path": str(target), "topic": "t", "maxInlineBytes": "0", **more})


def rows_then(act):
    """Two batches of rows of a task; `act` is called between them."""
    batch = pa.RecordBatch.from_pydict({"value": [b"v"] * 10})
    yield batch
    act()
    yield batch


def test_a_task_that_fails_leaves_no_file(target):
    options = options_of(target)
    run = new_run(options)
    with pytest.raises(ZeroDivisionError):
        stage(options, rows_then(lambda: 1 // 0), task=0, attempt=1, run=run, query=None)
    assert staged(target) == [run]
    assert stage(options, rows_then(lambda: None), task=0, attempt=2, run=run, query=None).file is not None
    assert staged(target) == ["0-2.arrow", run]
    clear(options, {run})
    assert not Path(f"{target}.staging").exists()


def test_an_attempt_that_is_late_leaves_no_file(target):
    options = options_of(target)
    run = new_run(options)
    with pytest.raises(FileNotFoundError):
        stage(options, rows_then(lambda: clear(options, {run})), task=0, attempt=1, run=run, query=None)
    with pytest.raises(OptionError, match="which the driver makes"):
        stage(options, rows_then(lambda: None), task=0, attempt=2, run=run, query=None)
    assert not Path(f"{target}.staging").exists()


def test_what_a_killed_driver_staged_is_removed_when_it_is_old(spark, target):
    options = options_of(target)
    old, recent = new_run(options), new_run(options)
    for run in (old, recent):
        stage(options, rows_then(lambda: None), task=0, attempt=1, run=run, query=None)
    foreign = Path(f"{target}.staging") / "fletchlog-of-mine"
    foreign.mkdir()
    two_hours_ago = time.time() - 7200
    for path in (foreign, foreign.parent / old, foreign.parent / old / "0-1.arrow"):
        os.utime(path, (two_hours_ago, two_hours_ago))
    frame = spark.range(3, numPartitions=1).selectExpr("cast(id as string) as value")
    save(frame, target, topic="t", stagingRetention="3h")
    assert {old, recent, foreign.name} <= set(staged(target))
    save(frame, target, topic="t", stagingRetention="1h")
    assert staged(target) == sorted(["0-1.arrow", recent, foreign.name])
    assert numbers(target) == [0, 1, 2] * 2


@pytest.mark.slow
def test_what_a_killed_driver_of_a_query_staged_is_removed_by_its_next_batch(log, target, copy, tmp_path):
    log.topic("in").append("in", 0, 50)
    for checkpoint in ("checkpoint", "another"):
        copy(checkpoint)
        options = options_of(target, checkpointLocation=str(tmp_path / checkpoint))
        other = new_run(options)
        stage(options, rows_then(lambda: None), task=0, attempt=1, run=other, query="q")
    log.append("in", 0, 50)
    copy("checkpoint")
    assert staged(target) == sorted(["0-1.arrow", other])
    assert numbers(target) == [*range(50), *range(100)]


def test_a_query_of_which_every_task_failed_leaves_nothing(spark, log, target, tmp_path):
    log.topic("in", partitions=2).append("in", 0, 50).append("in", 1, 50)
    stream = spark.readStream.format("fletchlog").options(path=log.path, subscribe="in", startingOffsets="earliest")
    # the failure comes after Spark has handed over the first rows
    frame = stream.load().repartition(2).selectExpr("if(offset = 49, raise_error('bad row'), value) as value")
    sink = frame.writeStream.format("fletchlog").options(path=str(target), topic="t", maxInlineBytes="0", checkpointLocation=str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="bad row"):
        sink.trigger(availableNow=True).start().awaitTermination()
    assert staged(target) == []
    assert records(target) == []


# what the ledger does not know


def forget(target):
    """Deletes the ledger, and every group."""
    with fl.Broker(target, create=True) as broker:
        broker.delete_topic(TOPIC)
        for group in broker.groups():
            broker.delete_group(group.group_id)


def staged_as(columns):
    """Rows of one task, as a writer's commit gets them."""
    rows = pa.RecordBatch.from_pydict(columns)
    memory = pa.BufferOutputStream()
    with pa.ipc.new_stream(memory, rows.schema) as writer:
        writer.write_batch(rows)
    return [Staged(0, "run", "q", memory.getvalue().to_pybytes(), None)]


def frame_of(*numbers):
    """Rows of these numbers."""
    return staged_as({"value": [b"%d" % number for number in numbers]})


NOTHING = [Staged(0, "run", "q", None, None)]


def test_a_batch_without_an_entry_beside_records_is_an_error_until_it_is_decided(target):
    options = options_of(target)
    assert append(options, frame_of(0), ("q", 0), "q")
    assert append(options, frame_of(1), ("q", 1), "q")
    forget(target)
    for _ in range(2):  # batch 1 again, as after a kill: it must not be there twice
        with pytest.raises(LedgerMissingError, match=r"batch 1 of q: topic t of .* has records"):
            append(options, frame_of(1), ("q", 1), "q")
    assert numbers(target) == [0, 1]
    assert not append(options_of(target, missingLedger="skip"), frame_of(1), ("q", 1), "q")
    assert not append(options, frame_of(1), ("q", 1), "q")
    assert append(options_of(target, missingLedger="skip"), frame_of(2), ("q", 2), "q")  # there is an entry again
    forget(target)
    assert append(options_of(target, missingLedger="append"), frame_of(3), ("q", 3), "q")
    assert numbers(target) == [0, 1, 2, 3]
    assert entries(target) == {"q": 3}


@pytest.mark.slow
def test_a_stream_whose_ledger_was_deleted_writes_no_batch_twice(log, target, copy, tmp_path):
    log.topic("in").append("in", 0, 250)
    copy()
    forget(target)
    forget_last_commit(tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="missingLedger"):
        copy()
    assert numbers(target) == list(range(250))
    log.append("in", 0, 50)
    copy(missingLedger="skip")
    copy()
    assert numbers(target) == list(range(300))


def test_groups_may_be_forgotten(target):
    options = options_of(target)
    for number in range(3):
        assert append(options, frame_of(number), ("q", number), "q")
        with fl.Broker(target, create=True) as broker:
            for group in broker.groups():
                broker.delete_group(group.group_id)
        assert not append(options, frame_of(number), ("q", number), "q")
    assert numbers(target) == [0, 1, 2]


def test_a_query_whose_first_batches_were_empty_goes_on_in_a_topic_that_others_fill(target):
    options = options_of(target)
    assert not append(options, NOTHING, ("q", 0), "q")
    assert append(options, frame_of(100), ("other", 0), "other")
    assert not append(options, NOTHING, ("q", 1), "q")
    assert append(options, frame_of(2), ("q", 2), "q")
    assert not append(options, frame_of(2), ("q", 2), "q")
    assert numbers(target) == [100, 2]


def test_a_query_goes_on_in_a_new_topic_but_not_in_one_that_has_records(target):
    assert append(options_of(target), frame_of(0), ("q", 0), "q")
    with fl.Broker(target, create=True) as broker:
        broker.create_topic("new")
    assert append(options_of(target, topic="new"), frame_of(1), ("q", 1), "q")
    assert numbers(target, "new") == [1]
    assert append(options_of(target, topic="new"), frame_of(9), ("other", 0), "other")
    with pytest.raises(LedgerMissingError):
        append(options_of(target, topic="new"), frame_of(1), ("third", 1), "third")
    with fl.Broker(target) as broker:
        broker.delete_topic("new")
        broker.create_topic("new")
    assert append(options_of(target, topic="new"), frame_of(1), ("q", 1), "q")  # it is another topic
    assert numbers(target, "new") == [1]


def test_topics_of_a_column_are_looked_at_before_their_first_row(target):
    options = SinkOptions.parse({"path": str(target)})
    assert append(options_of(target), frame_of(0), ("other", 0), "other")
    staged_rows = staged_as({"value": [b"1", b"2"], "topic": ["u", "t"]})
    with pytest.raises(LedgerMissingError, match="topic t of"):
        append(options, staged_rows, ("q", 5), "q")
    assert (numbers(target, "u"), numbers(target)) == ([], [0])
    with fl.Broker(target, create=True) as broker:
        broker.delete_topic("t")
        broker.create_topic("t")
    assert append(options, staged_rows, ("q", 5), "q")
    assert (numbers(target, "u"), numbers(target)) == ([1], [2])


def test_a_batch_whose_rows_are_refused_leaves_no_entry(target):
    options = options_of(target)
    with pytest.raises(fl.KafkaError, match=r"max\.request\.size"):
        append(options, staged_as({"value": [b"x" * 3_000_000]}), ("q", 0), "q")
    assert records(target, TOPIC) == []
    assert append(options, frame_of(0), ("q", 0), "q")


def test_the_ledger_is_no_topic_of_rows(target):
    with pytest.raises(OptionError, match="write into another topic"):
        check_topic(options_of(target, topic=TOPIC))


def test_an_option_for_a_missing_ledger_is_checked(target):
    with pytest.raises(OptionError, match="option missingLedger: expected fail, append or skip, got no"):
        options_of(target, missingLedger="no")
    place = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "transactionPerTask": "true"}
    with pytest.raises(OptionError, match="some tasks of a batch may be missing"):
        SinkOptions.parse({**place, "missingLedger": "skip"})
