"""What `fl.Cluster` reads and changes, held against what `Broker` does: here a broker of ours listens."""

import pytest

import fletchlog as fl
from fletchlog.errors import (
    GroupIdNotFoundError,
    InvalidArgumentError,
    InvalidPartitionsError,
    KafkaError,
    KafkaTimeoutError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def cluster():
    """A cluster of three nodes: what is behind it, its address, and itself."""
    with fl.Broker.in_memory(nodes=3) as broker, broker.listen() as listener:
        address = f"kafka://{listener.bootstrap}"
        with fl.Cluster(address) as cluster:
            yield broker, address, cluster


def filled(broker, partitions=5, records=400):
    """A topic with plain, aborted and committed records, deleted ones, an empty partition and an open transaction."""
    broker.create_topic("t", partitions=partitions)
    busy = partitions - 1
    with fl.Producer(broker, {"batch.size": 300, "compression.type": "lz4"}) as plain:
        for i in range(records):
            plain.send(
                "t", key=b"%d" % (i % 7), value=b"%d" % i * (i % 30), headers=[("h", b"%d" % i)], timestamp_ms=10_000 + i * 37 % 1_000, partition=i % busy
            )
    transactional = fl.Producer(broker, {"transactional.id": "x"})
    transactional.init_transactions()
    for number, end in enumerate([transactional.abort_transaction, transactional.commit_transaction]):
        transactional.begin_transaction()
        for p in range(busy):
            transactional.send("t", value=b"in %d" % number, timestamp_ms=11_000, partition=p)
        end()
    transactional.begin_transaction()
    transactional.send("t", value=b"open", timestamp_ms=12_000, partition=1)
    transactional.flush()
    with fl.Producer(broker) as plain:
        plain.send("t", value=b"behind the open one", timestamp_ms=12_001, partition=1).result()
    broker.delete_records("t", 0, 13)
    return transactional


@pytest.mark.slow
def test_a_scan_gives_the_rows_that_a_broker_gives(cluster):
    broker, _, cluster = cluster
    open_one = filled(broker)
    for more in (
        {},
        {"isolation_level": "read_committed", "include_headers": True},
        {"partition": 2},
        {"partition": 1, "start_offset": 5, "end_offset": 17, "batch_rows": 3},
        {"start_offset": 20, "end_offset": 60},
        {"order": "timestamp"},
        {"order": "timestamp", "isolation_level": "read_committed", "end_offset": 50, "batch_rows": 7},
        {"partition": 4},
        {"partition": 3, "start_offset": 10_000},
    ):
        ours, theirs = cluster.scan("t", **more), broker.scan("t", **more)
        assert ours.to_pyarrow().equals(theirs.to_pyarrow()), more
        assert ours.to_pyarrow().equals(theirs.to_pyarrow()), "a second time"
        if "batch_rows" in more:
            assert max(batch.num_rows for batch in ours) == more["batch_rows"]
    open_one.close(0)


def test_a_scan_keeps_to_its_end_while_records_are_added(cluster):
    broker, address, cluster = cluster
    filled(broker).close(0)
    expected, scan = broker.scan("t").to_pyarrow(), cluster.scan("t")
    with fl.Producer(address) as producer:
        for i in range(500):
            producer.send("t", value=b"later", partition=i % 5)
    assert scan.to_pyarrow().equals(expected)


def test_a_scan_of_much_more_than_is_read_ahead_is_complete(cluster):
    broker, _, cluster = cluster
    broker.create_topic("big", partitions=3)
    with fl.Producer(broker, {"batch.size": 100_000}) as producer:
        for i in range(3 * 9 * 1_024):
            producer.send("big", value=bytes(1_024), partition=i % 3)
    assert [len(batch) for batch in cluster.scan("big", partition=2, batch_rows=2_000)] == [2_000] * 4 + [1_216]
    table = cluster.scan("big").to_pyarrow()
    assert table["offset"].to_pylist() == [*range(9 * 1_024)] * 3


def test_a_scan_refuses_what_a_broker_refuses(cluster):
    broker, _, cluster = cluster
    filled(broker).close(0)
    for arguments, error in (
        (("nope",), UnknownTopicOrPartitionError),
        (("t", 9), UnknownTopicOrPartitionError),
        (("t", 0, 12), OffsetOutOfRangeError),
        (("t", 0, 20, 10), InvalidArgumentError),
        (("t", 0, -1), InvalidArgumentError),
    ):
        for where in (cluster, broker):
            with pytest.raises(error):
                where.scan(*arguments)
    for options in ({"order": "size"}, {"batch_rows": 0}):
        for where in (cluster, broker):
            with pytest.raises(InvalidArgumentError):
                where.scan("t", 0, **options)
    scan = cluster.scan("t", 0)
    broker.delete_records("t", 0, -1)
    with pytest.raises(OffsetOutOfRangeError):
        scan.to_pyarrow()


def test_a_scan_of_a_cluster_that_is_gone_names_it():
    with fl.Broker.in_memory() as broker:
        filled(broker).close(0)
        with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}", {"default.api.timeout.ms": 1_500}) as cluster:
            scan = cluster.scan("t")
        with pytest.raises(KafkaTimeoutError, match="refused"):
            scan.to_pyarrow()


def test_topics_are_altered_and_records_deleted(cluster):
    broker, _, cluster = cluster
    filled(broker).close(0)
    with pytest.raises(InvalidPartitionsError):
        cluster.create_partitions("t", 5)
    cluster.create_partitions("t", 7, validate_only=True)
    assert len(broker.describe_topic("t").partitions) == 5
    cluster.create_partitions("t", 7)
    assert len(broker.describe_topic("t").partitions) == 7
    cluster.alter_topic_config("t", {"retention.ms": 5_000, "segment.bytes": 10_000_000})
    cluster.alter_topic_config("t", {"segment.bytes": None, "retention.ms": 6_000})
    with pytest.raises(KafkaError, match="retention"):
        cluster.alter_topic_config("t", {"retention.ms": "x"})
    assert broker.describe_topic("t").config == {"retention.ms": "6000"}
    ours, theirs = cluster.describe_config("t"), {entry.name: entry for entry in broker.describe_config("t")}
    assert [entry.name for entry in ours] == sorted(entry.name for entry in ours)
    for entry in ours:
        assert entry == theirs[entry.name]
    assert any(entry.name == "log.retention.ms" for entry in cluster.describe_config())
    cluster.alter_broker_config({"log.retention.ms": 7_000}, node=1)
    cluster.alter_group_config("g", {"consumer.session.timeout.ms": 50_000})
    for whose in ({"node": 1}, {"group": "g"}):
        theirs = {entry.name: entry for entry in broker.describe_config(**whose)}
        assert all(entry == theirs[entry.name] for entry in cluster.describe_config(**whose) if entry.name in theirs)
    assert {entry.source for entry in cluster.describe_config(node=1)} >= {"DYNAMIC_BROKER_CONFIG"}
    with pytest.raises(KafkaError, match=r"no node 9; its nodes are \[1"):
        cluster.alter_broker_config({}, node=9)
    assert cluster.delete_records("t", 2, 30) == 30 == broker.describe_topic("t").partitions[2].log_start_offset
    end = broker.describe_topic("t").partitions[3].high_watermark
    assert cluster.delete_records("t", 3, -1) == end
    with pytest.raises(OffsetOutOfRangeError):
        cluster.delete_records("t", 3, end + 1)
    for call in (lambda: cluster.delete_records("t", 9, -1), lambda: cluster.create_partitions("nope", 2), lambda: cluster.describe_config("nope")):
        with pytest.raises(UnknownTopicOrPartitionError):
            call()


def test_offsets_of_groups_are_altered_and_deleted(cluster):
    broker, address, cluster = cluster
    filled(broker).close(0)
    one, two = fl.TopicPartition("t", 1), fl.TopicPartition("t", 2)
    cluster.alter_offsets("g", {one: 7, two: fl.types.OffsetAndMetadata(9, "why")})
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        committed = consumer.committed([one, two])
        assert (committed[one].offset, committed[two].offset, committed[two].metadata) == (7, 9, "why")
        cluster.delete_offsets("g", [one])
        assert consumer.committed([one, two])[one] is None
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.alter_offsets("g", {("nope", 0): 1})
    with fl.Consumer(address, {"group.id": "g"}) as member:
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(timeout_ms=50)
        for call in (lambda: cluster.alter_offsets("g", {one: 1}), lambda: cluster.delete_group("g")):
            with pytest.raises(NonEmptyGroupError):
                call()
    cluster.delete_group("g")
    with pytest.raises(GroupIdNotFoundError):
        cluster.delete_group("g")
    assert cluster.groups() == []
