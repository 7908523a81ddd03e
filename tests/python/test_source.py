"""A place of records may be given by name or open, wherever one is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.errors import ClosedError, DirectoryError, DirectoryLockedError, InvalidArgumentError, ReadOnlyError

EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b"a", b"b", b"c"])
    return tmp_path / "data"


def values(records: fl.Records) -> list[bytes | None]:
    return [record.value for record in records]


def read(source: fl.types.Source, config: dict[str, str] | None = None) -> list[bytes | None]:
    with fl.Consumer(source, EARLIEST | (config or {})) as consumer:
        consumer.assign([("t", 0)])
        found: list[bytes | None] = []
        for _ in range(20):
            found += values(consumer.poll(timeout_ms=500))
            if len(found) >= 3:
                break
        return found


@pytest.mark.parametrize("name", [str, Path, lambda path: f"file://{path}"], ids=["str", "Path", "URI"])
def test_a_directory_is_read_by_its_name(directory: Path, name) -> None:
    assert read(name(directory)) == [b"a", b"b", b"c"]
    assert fl.scan(name(directory), "t").to_pyarrow()["value"].to_pylist() == [b"a", b"b", b"c"]
    assert fl.explain.polls(name(directory), ["t"], polls=1).text()
    assert fl.audit.run(name(directory), ["t"]).partitions[0].records == 3


def test_an_open_broker_and_a_cluster_are_read(directory: Path) -> None:
    with fl.Broker(directory) as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        for source in (broker, cluster, f"kafka://{listener.bootstrap}"):
            assert read(source) == [b"a", b"b", b"c"]
            assert fl.scan(source, "t").to_pyarrow().num_rows == 3
            assert fl.explain.polls(source, ["t"], polls=2).text()
            assert fl.audit.run(source, ["t"]).partitions[0].records == 3
        # what was given open stays open
        assert broker.topics() == cluster.topics() == ["t"]


def test_a_scan_outlives_what_was_opened_for_it(directory: Path) -> None:
    scan = fl.scan(directory, "t", columns=["value"])
    with fl.Broker(directory) as broker, fl.Producer(broker) as producer:
        producer.send("t", b"later")
        producer.flush()
    # the range was fixed by the call
    assert scan.to_pyarrow()["value"].to_pylist() == [b"a", b"b", b"c"]
    assert scan.to_pyarrow().num_rows == 3


def test_a_producer_opens_a_directory_for_writing_and_closes_it(directory: Path) -> None:
    with fl.Producer(directory) as producer:
        producer.send("t", b"d").result(30)
        with pytest.raises(DirectoryLockedError):
            fl.Broker(directory)
    producer.close()
    with fl.Broker(directory) as broker:
        assert broker.scan("t").to_pyarrow().num_rows == 4


def test_a_consumer_writes_to_a_directory_only_for_a_group(directory: Path) -> None:
    with fl.Broker(directory), fl.Consumer(directory, EARLIEST) as beside:
        beside.assign([("t", 0)])
        assert values(beside.poll(timeout_ms=5000)) == [b"a", b"b", b"c"]
    with fl.Consumer(directory, EARLIEST | {"group.id": "g", "enable.auto.commit": "false"}) as consumer:
        consumer.subscribe(["t"])
        assert len(consumer.poll(timeout_ms=5000)) == 3
        consumer.commit()
        with pytest.raises(DirectoryLockedError):
            fl.Broker(directory)
    with fl.Broker(directory) as broker:
        assert broker.group_offsets("g")["t", 0].offset == 3


def test_clients_of_a_cluster_have_its_properties_unless_they_have_others(directory: Path) -> None:
    with fl.Broker(directory) as broker, broker.listen() as listener:
        properties = {"client.id": "of-cluster", "max.poll.records": 2, "linger.ms": 5}
        with fl.Cluster(f"kafka://{listener.bootstrap}", properties) as cluster:
            with fl.Consumer(cluster, EARLIEST) as consumer:
                assert "client.id=of-cluster" in repr(consumer)
                consumer.assign([("t", 0)])
                assert len(consumer.poll(timeout_ms=5000)) == 2
            with fl.Consumer(cluster, EARLIEST | {"client.id": "own", "max.poll.records": 1}) as consumer:
                assert "client.id=own" in repr(consumer)
                consumer.assign([("t", 0)])
                assert len(consumer.poll(timeout_ms=5000)) == 1
            with fl.Producer(cluster) as producer:
                assert producer.send("t", b"d").result(30).offset == 3
            with pytest.raises(InvalidArgumentError, match=r"bootstrap\.servers names one cluster"):
                fl.Consumer(cluster, {"bootstrap.servers": "127.0.0.1:1"})
        with fl.Cluster({"bootstrap.servers": listener.bootstrap}) as cluster:
            assert len(read(cluster)) == 4


def test_a_closed_broker_and_what_is_no_place_are_named(directory: Path, tmp_path: Path) -> None:
    broker = fl.Broker(directory)
    broker.close()
    with pytest.raises(ClosedError):
        fl.Consumer(broker)
    calls = [fl.Consumer, fl.Producer, lambda source: fl.scan(source, "t"), lambda source: fl.explain.polls(source, ["t"]), fl.audit.run]
    for call in calls:
        with pytest.raises(DirectoryError, match="does not exist"):
            call(tmp_path / "typo")
        assert not (tmp_path / "typo").exists()
        with pytest.raises(InvalidArgumentError, match="kafka://localhost:9092"):
            call("localhost:9092")
        with pytest.raises(InvalidArgumentError, match="expected a Broker"):
            call(3)
    with pytest.raises(ReadOnlyError):
        fl.Producer("s3://bucket/logs")


def test_options_that_the_place_cannot_take_are_refused(directory: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no cluster"):
        fl.scan(directory, "t", config={"client.id": "x"})
    with pytest.raises(InvalidArgumentError, match="no object store"):
        fl.scan(directory, "t", storage_options={"region": "x"})
    with fl.Broker(directory) as broker, pytest.raises(InvalidArgumentError, match="is open"):
        fl.scan(broker, "t", config={"client.id": "x"})


def test_a_directory_of_kafka_needs_a_word_for_writing(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\ncluster.id=Xq1fMMWHSYWpNjIfQ9rL5w\nnode.id=1\n")
    with pytest.raises(DirectoryError, match="was written by a Kafka broker"):
        fl.Producer(tmp_path / "kafka")
    assert [path.name for path in (tmp_path / "kafka").iterdir()] == ["meta.properties"]


def test_copies_and_replays_take_every_place(directory: Path, tmp_path: Path) -> None:
    with fl.Broker.in_memory() as memory, memory.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        assert fl.transfer.copy(directory, cluster)[0].records == 3
        assert fl.transfer.copy(cluster, tmp_path / "back", create=True)[0].records == 3
        with pytest.raises(InvalidArgumentError, match="no cluster"):
            fl.transfer.copy(directory, tmp_path / "back", destination_config={"client.id": "x"})
        with fl.Consumer(directory, EARLIEST | {"fletchlog.trace": "true"}) as consumer:
            consumer.assign([("t", 0)])
            consumer.poll(timeout_ms=5000)
            trace = consumer.trace()
        assert fl.explain.replay(trace, str(directory)).same
        assert fl.explain.replay(trace, directory).same
        with pytest.raises(InvalidArgumentError, match="Broker or a directory"):
            fl.explain.replay(trace, cluster)
