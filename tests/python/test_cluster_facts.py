"""Nodes, controller, id, and offsets without a consumer, of a broker and of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import fletchlog as fl

Peer = fl.Broker | fl.Cluster


@pytest.fixture(params=["broker", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[fl.Broker, Peer]]:
    with fl.Broker.in_memory(nodes=3) as broker:
        broker.create_topic("t", 3)
        if request.param == "broker":
            yield broker, broker
        else:
            with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
                yield broker, cluster


def test_the_facts_are_properties(place: tuple[fl.Broker, Peer]) -> None:
    broker, peer = place
    assert peer.nodes == [1, 2, 3]
    assert peer.controller in peer.nodes
    assert peer.cluster_id == broker.cluster_id
    assert isinstance(peer.cluster_id, str)


def test_offsets_are_those_of_a_consumer(place: tuple[fl.Broker, Peer]) -> None:
    broker, peer = place
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("t", b"v", partition=number % 2, timestamp_ms=1000 * number)
    broker.delete_records("t", 0, 2)
    partitions = [fl.TopicPartition("t", number) for number in range(3)]
    assert peer.beginning_offsets(partitions) == dict(zip(partitions, [2, 0, 0], strict=True))
    assert peer.end_offsets(partitions) == dict(zip(partitions, [5, 5, 0], strict=True))
    assert peer.end_offsets(("t", 1)) == {("t", 1): 5}
    times = {partitions[0]: 4500, partitions[1]: datetime.fromtimestamp(5, UTC), partitions[2]: 0}
    with fl.Consumer(broker) as consumer:
        wanted = consumer.offsets_for_times(times)
    found = peer.offsets_for_times(times)
    assert found == wanted
    assert [found[tp] and found[tp].offset for tp in partitions] == [3, 2, None]  # type: ignore[union-attr]


def test_offsets_of_partitions_that_do_not_exist() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="no topic `u`"):
            broker.end_offsets([("t", 0), ("u", 0)])
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="no partition t-1"):
            broker.beginning_offsets(("t", 1))
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="no topic `u`"):
            broker.offsets_for_times({("u", 0): 0})


def test_the_end_of_committed_records(place: tuple[fl.Broker, Peer]) -> None:
    broker, peer = place
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"open", partition=0)
        producer.flush()
        assert peer.end_offsets(("t", 0)) == {("t", 0): 1}
        assert peer.end_offsets(("t", 0), isolation_level="read_committed") == {("t", 0): 0}
        producer.abort_transaction()


def test_what_cannot_be_asked_is_refused(place: tuple[fl.Broker, Peer]) -> None:
    _, peer = place
    with pytest.raises(fl.errors.InvalidArgumentError, match="isolation_level is `committed`"):
        peer.end_offsets(("t", 0), isolation_level="committed")  # type: ignore[arg-type]
    with pytest.raises(fl.errors.InvalidArgumentError, match="has no time zone"):
        peer.offsets_for_times({("t", 0): datetime(2026, 1, 1)})  # noqa: DTZ001
    with pytest.raises(TypeError):
        peer.offsets_for_times({("t", 0): 1.5})  # type: ignore[dict-item]
    with pytest.raises(fl.errors.InvalidArgumentError, match="describe_config takes a topic, or node=, or group="):
        peer.describe_config("t", node=1)


def test_one_request_for_each_leader() -> None:
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        broker.create_topic("t", 20)
        cluster.end_offsets([("t", number) for number in range(20)])
        counted = {row["api"]: row["requests"] for row in listener.stats().to_pyarrow().to_pylist()}
        assert counted["ListOffsets"] == 2
