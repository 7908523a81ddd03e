"""Consumer groups through the public API: what each member gets, when listeners are called, what is committed."""

from __future__ import annotations

from typing import Any

import pytest

import fletchlog as fl


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("t", partitions=4)
    with fl.Producer(broker) as producer:
        for i in range(40):
            producer.send("t", value=b"%d" % i, partition=i % 4)
    return broker


def member(broker: fl.Broker, **config: Any) -> fl.Consumer:
    # a member hears of a rebalance with its next heartbeat: 3 s by default
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 20}
    return fl.Consumer(broker, {**settings, **{name.replace("_", "."): value for name, value in config.items()}})


def settle(*consumers: fl.Consumer, rounds: int = 40) -> list[fl.Record]:
    """Polls in turns until the group has settled; returns everything read."""
    read: list[fl.Record] = []
    for _ in range(rounds):
        for consumer in consumers:
            read += list(consumer.poll(timeout_ms=20))
    return read


def test_one_member_gets_everything_and_two_share(topic: fl.Broker) -> None:
    with member(topic) as first:
        first.subscribe(["t"])
        read = settle(first)
        assert sorted(int(r.value or b"") for r in read) == list(range(40))
        assert len(first.assignment()) == 4
        with member(topic) as second:
            second.subscribe(["t"])
            settle(first, second)
            parts = [{tp.partition for tp in c.assignment()} for c in (first, second)]
            assert sorted(map(len, parts)) == [2, 2]
            assert parts[0] | parts[1] == {0, 1, 2, 3}
        settle(first)
        assert len(first.assignment()) == 4


def test_listeners_are_called_before_anything_of_a_new_partition_is_read(topic: fl.Broker) -> None:
    called: list[tuple[str, list[fl.TopicPartition]]] = []
    with member(topic) as consumer:

        def assigned(partitions: list[fl.TopicPartition]) -> None:
            called.append(("assigned", partitions))
            for tp in partitions:
                consumer.seek(tp, 8)

        consumer.subscribe(["t"], on_assigned=assigned, on_revoked=lambda tps: called.append(("revoked", tps)))
        read = settle(consumer)
        assert sorted(r.offset for r in read) == [8, 8, 8, 8, 9, 9, 9, 9]
    assert [kind for kind, _ in called] == ["assigned", "revoked"]
    assert all(len(partitions) == 4 for _, partitions in called)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_listener_commits_what_a_rebalance_takes_from_it(topic: fl.Broker, strategy: str) -> None:
    """Kafka: `ConsumerCoordinator#onJoinPrepare` and `#onJoinComplete` call the listener before the partitions are given up."""
    settings = {"partition.assignment.strategy": strategy, "max.poll.records": 3}
    committed: dict[fl.TopicPartition, int] = {}
    with member(topic, **settings) as first, member(topic, **settings) as second:

        def revoked(partitions: list[fl.TopicPartition]) -> None:
            assert set(partitions) <= set(first.assignment())
            for tp in partitions:
                committed[tp] = first.position(tp)
            first.commit()

        first.subscribe(["t"], on_revoked=revoked)
        read = [record for _ in range(6) for record in first.poll(timeout_ms=200)]
        assert 0 < len(read) < 40
        first.pause(first.assignment())
        second.subscribe(["t"])
        while not second.assignment():
            first.poll(timeout_ms=20)
            second.poll(timeout_ms=20)
        assert any(committed.values())
        assert set(second.assignment()) <= set(committed)
        for tp in second.assignment():
            assert second.committed([tp])[tp].offset == committed[tp]  # type: ignore[union-attr]


def test_a_listener_hears_of_an_unsubscribe_while_its_partitions_are_assigned(topic: fl.Broker) -> None:
    """Kafka: `KafkaConsumer#unsubscribe` runs `onLeavePrepare` first."""
    sizes: list[int] = []
    with member(topic) as consumer:

        def revoked(partitions: list[fl.TopicPartition]) -> None:
            sizes.append(len(consumer.assignment()))
            consumer.commit(dict.fromkeys(partitions, 3))

        for leave in (consumer.unsubscribe, lambda: consumer.subscribe([])):
            consumer.subscribe(["t"], on_revoked=revoked)
            settle(consumer)
            leave()
            assert consumer.assignment() == []
        assert sizes == [4, 4]
        assert [found.offset for found in consumer.committed([("t", p) for p in range(4)]).values() if found] == [3] * 4


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_listener_may_ask_for_positions_and_commit_while_the_consumer_closes(topic: fl.Broker, auto_commit: bool) -> None:
    positions: list[Any] = []
    consumer = member(topic, enable_auto_commit=auto_commit)

    def revoked(partitions: list[fl.TopicPartition]) -> None:
        assert sorted(partitions) == sorted(consumer.assignment())
        positions.append([consumer.position(tp) for tp in partitions])
        consumer.commit(dict.fromkeys(partitions, 7))

    consumer.subscribe(["t"], on_revoked=revoked)
    settle(consumer)
    consumer.close()
    consumer.close()
    assert positions == [[10, 10, 10, 10]]
    with member(topic) as later:
        committed = later.committed([("t", partition) for partition in range(4)])
    assert [offset.offset for offset in committed.values() if offset] == [7] * 4


def test_a_listener_that_raises_while_the_consumer_closes_ends_the_close_with_its_error(topic: fl.Broker) -> None:
    def fail(_: list[fl.TopicPartition]) -> None:
        message = "my own trouble"
        raise RuntimeError(message)

    consumer = member(topic)
    consumer.subscribe(["t"], on_revoked=fail)
    settle(consumer)
    with pytest.raises(RuntimeError, match="my own trouble"):
        consumer.close()
    with pytest.raises(fl.errors.ClosedError):
        consumer.poll(timeout_ms=0)
    assert topic.describe_group("g").members == []


def test_a_listener_that_raises_ends_the_poll_and_loses_nothing(topic: fl.Broker) -> None:
    def fail(_: list[fl.TopicPartition]) -> None:
        message = "my own trouble"
        raise RuntimeError(message)

    with member(topic) as consumer:
        consumer.subscribe(["t"], on_assigned=fail)
        read: list[fl.Record] = []
        raised = 0
        for _ in range(20):
            try:
                read += list(consumer.poll(timeout_ms=50))
            except RuntimeError:
                raised += 1
        assert raised == 1
        assert len(read) == 40


def test_a_pattern_subscribes_to_every_matching_topic(topic: fl.Broker) -> None:
    topic.create_topic("tt")
    topic.create_topic("other")
    with member(topic) as consumer:
        consumer.subscribe(pattern="t+")
        settle(consumer, rounds=10)
        assert {tp.topic for tp in consumer.assignment()} == {"t", "tt"}
        assert sorted(consumer.subscription()) == ["t", "tt"]


def test_what_one_member_commits_the_next_continues(topic: fl.Broker) -> None:
    with member(topic, enable_auto_commit=False, max_poll_records=10) as first:
        first.subscribe(["t"])
        read: list[fl.Record] = []
        while len(read) < 20:
            read += list(first.poll(timeout_ms=200))
        first.commit()
        metadata = first.group_metadata()
        assert metadata is not None
        assert metadata[2] == "g"
    with member(topic) as second:
        second.subscribe(["t"])
        rest = settle(second)
    assert len(rest) == 40 - len(read)
    assert {(r.partition, r.offset) for r in rest}.isdisjoint({(r.partition, r.offset) for r in read})


def test_auto_commit_happens_on_close(topic: fl.Broker) -> None:
    with member(topic) as consumer:
        consumer.subscribe(["t"])
        assert len(settle(consumer, rounds=10)) == 40
    with member(topic) as consumer:
        consumer.assign([fl.TopicPartition("t", p) for p in range(4)])
        assert [consumer.position(fl.TopicPartition("t", p)) for p in range(4)] == [10] * 4
