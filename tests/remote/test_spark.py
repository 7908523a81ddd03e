"""The Spark format over a cluster: what it gives over a directory."""

import json

import pytest
from pyspark.errors import PySparkException

import fletchlog as fl
from fletchlog.ledger import TOPIC
from fletchlog.spark.errors import DataLossError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.schema import kafka_schema
from tests.support.certificates import Authority

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

START_MS = 1_700_000_000_000


@pytest.fixture
def cluster():
    """A broker of two nodes with topic `in`: 300 records in 3 partitions, an aborted transaction among them; and its servers."""
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as listener:
        broker.create_topic("in", partitions=3, config={"retention.ms": "-1"})
        broker.create_topic("out", partitions=2)
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            for begin in range(0, 300, 60):
                with producer.transaction():
                    for i in range(begin, begin + 60):
                        producer.send("in", value=b"%d" % i, key=b"k", partition=i % 3, timestamp_ms=START_MS + i, headers=[("h", b"%d" % i)])
                producer.begin_transaction()
                producer.send("in", value=b"-1", partition=0)
                producer.flush()
                producer.abort_transaction()
        yield broker, listener.bootstrap


@pytest.fixture
def read(spark, cluster):
    def load(stream=False, **options):
        reader = spark.readStream if stream else spark.read
        options = {"kafka.bootstrap.servers": cluster[1], "subscribe": "in", "kafka.isolation.level": "read_committed", **options}
        return reader.format("fletchlog").options(**options).load()

    return load


def values(rows):
    return sorted(int(row.value) for row in rows)


def test_the_rows_are_those_of_a_scan(cluster, read):
    broker, _ = cluster
    frame = read(includeHeaders="true")
    rows = sorted((row.partition, row.offset, row.key, row.value, row.headers[0].value, row.timestamp.timestamp()) for row in frame.collect())
    scanned = broker.scan("in", isolation_level="read_committed", include_headers=True).to_pyarrow().to_pylist()
    assert rows == sorted((r["partition"], r["offset"], r["key"], r["value"], r["headers"][0]["value"], r["timestamp"].timestamp()) for r in scanned)
    assert len(rows) == 300
    uncommitted = read(**{"kafka.isolation.level": "read_uncommitted"})
    assert uncommitted.where("value = '-1'").count() == 5


def test_ranges_end_where_they_are_cut(cluster, read):
    frame = read(minPartitions=8, startingOffsets='{"in":{"0":3,"1":-2,"2":40}}', endingOffsets='{"in":{"0":20,"1":50,"2":-1}}')
    found = [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]
    assert len(found) == len(set(found))
    assert {p: (min(o for q, o in found if q == p), max(o for q, o in found if q == p)) for p in range(3)} == {0: (3, 19), 1: (0, 49), 2: (40, 103)}
    broker, _ = cluster
    broker.create_topic("plain", partitions=2, config={"retention.ms": "-1"})
    with fl.Producer(broker) as producer:  # a marker of a transaction would have a timestamp of its own
        for i in range(100):
            producer.send("plain", value=b"%d" % i, partition=i % 2, timestamp_ms=START_MS + i)
    assert values(read(subscribe="plain", startingTimestamp=str(START_MS + 50)).collect()) == list(range(50, 100))


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint_and_is_written_once(spark, cluster, read, tmp_path):
    broker, servers = cluster

    def copy():
        frame = read(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger="50").select("key", "value")
        sink = frame.writeStream.format("fletchlog").options(topic="out", checkpointLocation=str(tmp_path / "c"), **{"kafka.bootstrap.servers": servers})
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def written():
        return sorted(int(v) for v in broker.scan("out", isolation_level="read_committed").to_pyarrow()["value"].to_pylist())

    copy()
    assert written() == list(range(300))
    for commit in (tmp_path / "c" / "commits").glob("*3*"):
        commit.unlink()
    with fl.Producer(broker) as producer:
        producer.send("in", value=b"300", partition=1)
    query = copy()
    assert written() == list(range(301))
    entries = [json.loads(value) for value in broker.scan(TOPIC, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()]
    assert entries[-1] == {"name": query.id, "batch": query.lastProgress["batchId"]}


def test_a_frame_is_written_in_its_order(spark, cluster, tmp_path):
    broker, servers = cluster
    broker.create_topic("sorted")
    frame = spark.range(5000, numPartitions=3).selectExpr("cast(4999 - id as string) as value").orderBy("value")
    writer = frame.write.format("fletchlog").option("kafka.bootstrap.servers", servers).option("topic", "sorted").mode("append")
    writer.option("kafka.compression.type", "lz4").save()
    with pytest.raises(PySparkException, match="option stagingPath is missing"):
        writer.option("maxInlineBytes", "0").save()
    writer.option("stagingPath", str(tmp_path / "staging")).save()
    expected = sorted(str(i).encode() for i in range(5000))
    assert broker.scan("sorted", isolation_level="read_committed").to_pyarrow()["value"].to_pylist() == expected * 2
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "none"}, "kafka://127.0.0.1:.* has no topic none"),
        ({"path": "/tmp/x"}, "exactly one of the options path and kafka.bootstrap.servers"),
        ({"kafka.auto.offset.reset": "earliest"}, "option kafka.auto.offset.reset is refused"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1000"}, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_read_is_said(read, options, message):
    with pytest.raises(PySparkException, match=message):
        read(**options).count()


def test_records_that_are_gone_are_lost_data(cluster, read, spark):
    broker, _ = cluster
    frame = read(startingOffsets='{"in":{"0":0,"1":0,"2":0}}')
    assert frame.count() == 300
    broker.delete_records("in", 1, 30)
    with pytest.raises(PySparkException, match="the log of in-1 starts at 30; offsets from 0 were to be read"):
        frame.count()
    assert read(startingOffsets='{"in":{"0":0,"1":0,"2":0}}', failOnDataLoss="false").count() < 300


def test_records_that_are_deleted_while_they_are_read_are_lost_data(cluster):
    broker, servers = cluster
    broker.create_topic("big", config={"retention.ms": "-1"})
    with fl.Producer(broker, {"batch.size": 0}) as producer:
        for i in range(2000):  # 40 MB: a task has read a batch of 2 MiB, and some MiB more
            producer.send("big", value=b"%d" % i + bytes(20_000), timestamp_ms=START_MS + i)
    schema = kafka_schema(include_headers=False)
    for fail in ("false", "true"):
        options = SourceOptions.parse({"kafka.bootstrap.servers": servers, "subscribe": "big", "failOnDataLoss": fail})
        begin, gone = {"false": (0, 1200), "true": (1200, 1900)}[fail]
        batches = read_ranges((OffsetRange("big", 0, begin, 2000),), options, schema)
        offsets = next(batches)["offset"].to_pylist()
        broker.delete_records("big", 0, gone)
        if fail == "true":
            with pytest.raises(DataLossError, match=r"of big-0 .* were deleted while they were read; what is left of the range begins at 1900"):
                list(batches)
            continue
        offsets += [offset for batch in batches for offset in batch["offset"].to_pylist()]
        first_lost = next(i for i, offset in enumerate(offsets) if offset != i)
        assert 100 <= first_lost < 1000
        assert offsets == [*range(first_lost), *range(1200, 2000)]


@pytest.fixture
def secured(tmp_path):
    """A broker that asks for a user over TLS, with topics `in` (a record) and `out`; and the options of a client."""
    authority = Authority(tmp_path)
    listener = {
        "security.protocol": "SASL_SSL",
        "ssl.keystore.location": authority.issue("broker", ("127.0.0.1",))[0],
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret";',
    }
    with fl.Broker.in_memory(config=listener) as broker, broker.listen() as listening:
        broker.create_topic("in", config={"retention.ms": "-1"})
        broker.create_topic("out")
        with fl.Producer(broker) as producer:
            producer.send("in", value=b"0", timestamp_ms=START_MS)
        client = {
            "kafka.bootstrap.servers": listening.bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": authority.file,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "s3cret",
        }
        yield broker, client


def test_a_cluster_with_tls_and_users_is_written_to(spark, secured, tmp_path):
    broker, client = secured
    source = spark.readStream.format("fletchlog").options(subscribe="in", startingOffsets="earliest", **client).load()
    sink = source.select("value").writeStream.format("fletchlog").options(topic="out", checkpointLocation=str(tmp_path / "c"), **client)
    sink.trigger(availableNow=True).start().awaitTermination()
    frame = spark.range(1, 4, numPartitions=1).selectExpr("cast(id as string) as value")
    # a property of each kind: of the producer, of the clients beside it, of both
    more = {"kafka.compression.type": "lz4", "kafka.default.api.timeout.ms": "20000", "kafka.client.id": "spark"}
    frame.write.format("fletchlog").options(topic="out", **client, **more).mode("append").save()
    assert broker.scan("out", isolation_level="read_committed").to_pyarrow()["value"].to_pylist() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.password": "s3cret of nobody"}, "SaslAuthenticationError"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "security.protocol"),
        ({"kafka.batchsize": "1"}, "unknown configuration `batchsize` for a Producer; did you mean `batch.size`?"),
    ],
)
def test_what_the_clients_cannot_use_is_said_before_the_first_task(spark, secured, options, message):
    _, client = secured
    frame = spark.range(3).selectExpr("cast(raise_error('a task ran') as string) as value")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("fletchlog").options(**{"topic": "out", **client, **options}).mode("append").save()
    assert message in str(caught.value)
    assert "a task ran" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
