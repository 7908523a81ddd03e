"""Poll order as a function of log, configuration and calls."""

from __future__ import annotations

import pytest

import fletchlog as fl
from tests.support.batches import batch_of


def fill(broker: fl.Broker, topics: list[str], batches: int = 4, count: int = 7, size: int = 180) -> None:
    """Topics of one partition with equal batches."""
    for topic in topics:
        broker.create_topic(topic, partitions=1)
        for _ in range(batches):
            broker.append_batches(topic, 0, batch_of(count, size))


def polls(broker: fl.Broker, topics: list[str], times: int, **config: object) -> list[list[tuple[str, int]]]:
    """Runs of each poll of an assigned consumer that fetches one batch of 7 at a time and polls 3."""
    settings = {"auto.offset.reset": "earliest", "max.poll.records": 3, "max.partition.fetch.bytes": 180, **config}
    with fl.Consumer(broker, settings) as consumer:
        consumer.assign([fl.TopicPartition(topic, 0) for topic in topics])
        return [[(run.topic, run.count) for run in consumer.poll(timeout_ms=100).runs()] for _ in range(times)]


def test_the_order_is_that_of_the_recorded_java_consumer(broker: fl.Broker) -> None:
    fill(broker, ["A", "B", "C"])
    # spec 7.9, T1'
    expected = "A3 A3 A1+B2 B3 B2+C1 C3 C3 A3 A3 A1 B3 B3 B1+C2 C3 C2 A3"
    seen = polls(broker, ["A", "B", "C"], 16)
    assert " ".join("+".join(f"{topic}{count}" for topic, count in poll) for poll in seen) == expected


def test_the_same_calls_give_the_same_polls(broker: fl.Broker) -> None:
    fill(broker, ["A", "B", "C"])
    assert polls(broker, ["A", "B", "C"], 28) == polls(broker, ["C", "A", "B"], 28)


def test_another_release_has_another_order(broker: fl.Broker) -> None:
    fill(broker, ["A", "B", "C"])
    old = polls(broker, ["A", "B", "C"], 32)
    new = polls(broker, ["A", "B", "C"], 32, **{"fletchlog.consumer.version": "4.3"})
    assert old != new
    assert sum(n for p in old for _, n in p) == sum(n for p in new for _, n in p) == 3 * 28


def test_rows_come_in_the_order_of_a_java_for_each_and_runs_in_drain_order(broker: fl.Broker) -> None:
    fill(broker, ["A", "B", "C"])
    config = {"auto.offset.reset": "earliest", "max.poll.records": 10, "max.partition.fetch.bytes": 180, "group.id": "g"}
    with fl.Consumer(broker, config) as consumer:
        consumer.subscribe(["A", "B", "C"])
        records = consumer.poll(timeout_ms=1000)
        while not records:
            records = consumer.poll(timeout_ms=1000)
    # subscribe() in 2.6 fetches C first (spec 7.2); the result is a hash map that is walked A before C
    assert [(run.topic, run.count) for run in records.runs()] == [("C", 7), ("A", 3)]
    assert [record.topic for record in records] == ["A"] * 3 + ["C"] * 7
    assert records.to_pyarrow().column("topic").to_pylist() == ["A"] * 3 + ["C"] * 7
    assert records.partitions() == [fl.TopicPartition("A", 0), fl.TopicPartition("C", 0)]


def test_paused_data_is_kept_and_returned_after_resume(broker: fl.Broker) -> None:
    fill(broker, ["A", "B"], batches=1)
    a, b = fl.TopicPartition("A", 0), fl.TopicPartition("B", 0)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 3}) as consumer:
        consumer.assign([a, b])
        consumer.poll(timeout_ms=100)
        consumer.pause([a])
        assert consumer.paused() == [a]
        while_paused = [run.topic for _ in range(4) for run in consumer.poll(timeout_ms=50).runs()]
        assert set(while_paused) == {"B"}
        consumer.resume([a])
        rest = [(run.topic, run.first_offset) for _ in range(3) for run in consumer.poll(timeout_ms=50).runs()]
        assert rest == [("A", 3), ("A", 6)]


def test_records_of_several_nodes_are_all_returned_in_offset_order(broker: fl.Broker) -> None:
    with fl.Broker.in_memory(nodes=3) as cluster:
        cluster.create_topic("t", partitions=6)
        assert {p.leader for p in cluster.describe_topic("t").partitions} == set(cluster.nodes)
        for partition in range(6):
            for _ in range(4):
                cluster.append_batches("t", partition, batch_of(7, 180))
        with fl.Consumer(cluster, {"auto.offset.reset": "earliest", "max.poll.records": 5}) as consumer:
            consumer.assign([fl.TopicPartition("t", p) for p in range(6)])
            seen: dict[int, list[int]] = {p: [] for p in range(6)}
            while sum(map(len, seen.values())) < 6 * 28:
                for record in consumer.poll(timeout_ms=1000):
                    seen[record.partition].append(record.offset)
    assert all(offsets == list(range(28)) for offsets in seen.values())


def test_the_trace_has_requests_and_polls(broker: fl.Broker) -> None:
    fill(broker, ["A", "B"])
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "fletchlog.trace": True}) as consumer:
        consumer.assign([fl.TopicPartition("A", 0), fl.TopicPartition("B", 0)])
        total = len(consumer.poll(timeout_ms=100))
        trace = consumer.trace().to_pyarrow().to_pylist()
    returned = [row for row in trace if row["kind"] == "take"]
    assert {row["topic"] for row in returned} == {"A", "B"}
    assert sum(row["records"] for row in returned) == total == 56
    assert [row["kind"] for row in trace][:2] == ["call", "poll"]
    assert [(p["topic"], p["partition"], p["offset"]) for p in trace[0]["partitions"]] == [("A", 0, None), ("B", 0, None)]
    assert any(row["kind"] == "ask" and row["full"] for row in trace)


@pytest.mark.parametrize("version", ["2.6", "3.7", "3.9", "4.3"])
def test_a_new_topics_offset_is_looked_up_while_another_lookup_is_unanswered(broker: fl.Broker, version: str) -> None:
    """As Java 2.6.3 to 4.3.1: the lookup of orders-2 is under way from the first poll on, that of `a` waits for metadata only."""
    for topic, partitions in (("a", 1), ("orders", 3), ("t-1", 3)):
        broker.create_topic(topic, partitions=partitions)
        for partition in range(partitions):
            for _ in range(100):
                broker.append_batches(topic, partition, batch_of(7, 180))
    config = {"auto.offset.reset": "earliest", "max.poll.records": 1, "max.partition.fetch.bytes": 5_000, "fletchlog.consumer.version": version}
    with fl.Consumer(broker, config) as consumer:
        consumer.assign([("orders", 0), ("t-1", 2), ("t-1", 1)])
        for _ in range(9):
            assert len(consumer.poll(1000)) == 1
        consumer.assign([("a", 0), ("orders", 0), ("t-1", 1), ("orders", 2)])
        for _ in range(7):
            assert [run.topic for run in consumer.poll(1000).runs()] == ["t-1"]
        consumer.pause([("t-1", 1), ("orders", 0)])
        assert [run[:2] for run in consumer.poll(1000).runs()] == [("a", 0)]
