"""Where a consumer starts, and where a seek moves it."""

from __future__ import annotations

import pytest

import fletchlog as fl

TP = fl.TopicPartition("t", 0)


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    """Topic t with ten records at 1000, 1010, .. ms."""
    broker.create_topic("t", partitions=1)
    with fl.Producer(broker) as producer:
        for i in range(10):
            producer.send("t", value=b"%d" % i, timestamp_ms=1000 + 10 * i)
    return broker


def consumer_of(broker: fl.Broker, **config: object) -> fl.Consumer:
    consumer = fl.Consumer(broker, {name.replace("_", "."): value for name, value in config.items()})
    consumer.assign([TP])
    return consumer


def offsets(consumer: fl.Consumer) -> list[int]:
    return [record.offset for record in consumer.poll(timeout_ms=100)]


def test_earliest_starts_at_the_log_start(topic: fl.Broker) -> None:
    assert offsets(consumer_of(topic, auto_offset_reset="earliest")) == list(range(10))


def test_latest_is_the_default_and_sees_only_what_comes(topic: fl.Broker) -> None:
    consumer = consumer_of(topic)
    assert offsets(consumer) == []
    with fl.Producer(topic) as producer:
        producer.send("t", value=b"new")
    assert offsets(consumer) == [10]


def test_none_refuses_to_guess(topic: fl.Broker) -> None:
    consumer = consumer_of(topic, auto_offset_reset="none", group_id="g")
    with pytest.raises(fl.errors.NoOffsetForPartitionError) as caught:
        consumer.poll(timeout_ms=100)
    assert caught.value.partitions == [TP]


def test_none_names_a_position_outside_the_log(topic: fl.Broker) -> None:
    consumer = consumer_of(topic, auto_offset_reset="none")
    consumer.seek(TP, 99)
    with pytest.raises(fl.errors.OffsetOutOfRangeError) as caught:
        for _ in range(3):
            consumer.poll(timeout_ms=100)
    assert caught.value.partitions == {TP: 99}
    assert caught.value.code == 1


def test_seek_takes_effect_at_the_next_poll(topic: fl.Broker) -> None:
    consumer = consumer_of(topic, auto_offset_reset="earliest", max_poll_records=3)
    assert offsets(consumer) == [0, 1, 2]
    consumer.seek(TP, 7)
    assert consumer.position(TP) == 7
    assert offsets(consumer) == [7, 8, 9]


def test_seek_to_beginning_and_end(topic: fl.Broker) -> None:
    consumer = consumer_of(topic)
    consumer.seek_to_beginning()
    assert consumer.position(TP) == 0
    consumer.seek_to_end([TP])
    assert consumer.position(TP) == 10
    assert consumer.beginning_offsets([TP]) == {TP: 0}
    assert consumer.end_offsets([TP]) == {TP: 10}


@pytest.mark.parametrize(("time", "expected"), [(0, 0), (1000, 0), (1001, 1), (1045, 5), (1090, 9), (1091, None)])
def test_a_time_finds_the_lowest_offset_at_or_after_it(topic: fl.Broker, time: int, expected: int | None) -> None:
    found = consumer_of(topic).offsets_for_times({TP: time})[TP]
    assert (None if found is None else found.offset) == expected
    assert found is None or found.timestamp == 1000 + 10 * found.offset


def test_with_times_out_of_order_the_lowest_offset_wins_and_later_ones_may_be_older(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    times = [100, 300, 200, 50, 300, 250]
    with fl.Producer(broker) as producer:
        for t in times:
            producer.send("t", value=b"", timestamp_ms=t)
    consumer = consumer_of(broker, auto_offset_reset="earliest")
    for asked in range(40, 310, 10):
        found = consumer.offsets_for_times({TP: asked})[TP]
        assert found is not None
        assert found.offset == next(i for i, t in enumerate(times) if t >= asked)
    # Kafka promises offset order, not time order
    assert [r.timestamp for r in consumer.poll(timeout_ms=100)] == times


@pytest.fixture
def append_time(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("t", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    return broker


def test_log_append_time_overwrites_the_producers_time(append_time: fl.Broker) -> None:
    with fl.Producer(append_time) as producer:
        future = producer.send("t", value=b"v", timestamp_ms=5)
        producer.flush()
        metadata = future.result()
    record = next(iter(consumer_of(append_time, auto_offset_reset="earliest").poll(timeout_ms=100)))
    assert record.timestamp == metadata.timestamp > 1_600_000_000_000
    assert record.timestamp_type == 1


def test_create_time_keeps_the_producers_time(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v", timestamp_ms=5)
    record = next(iter(consumer_of(broker, auto_offset_reset="earliest").poll(timeout_ms=100)))
    assert (record.timestamp, record.timestamp_type) == (5, 0)


def test_a_time_outside_the_topics_limits_is_refused(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1, config={"message.timestamp.before.max.ms": 1000})
    with fl.Producer(broker) as producer:
        future = producer.send("t", value=b"v", timestamp_ms=5)
        with pytest.raises(fl.errors.InvalidTimestampError):
            future.result(10)


def test_committed_offsets_survive_a_restart(tmp_path: object) -> None:
    with fl.Broker(f"{tmp_path}/log", create=True) as broker:
        broker.create_topic("t", partitions=1)
        with fl.Producer(broker) as producer:
            for i in range(10):
                producer.send("t", value=b"%d" % i)
        with fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest", "max.poll.records": 4}) as consumer:
            consumer.assign([TP])
            assert offsets(consumer) == [0, 1, 2, 3]
            consumer.commit()
            assert consumer.committed(TP) == fl.types.OffsetAndMetadata(4, leader_epoch=0)
            assert consumer.committed([TP, fl.TopicPartition("t", 0)]) == {TP: fl.types.OffsetAndMetadata(4, leader_epoch=0)}
    with fl.Broker(f"{tmp_path}/log") as broker, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.assign([TP])
        assert consumer.position(TP) == 4
        consumer.commit({TP: fl.types.OffsetAndMetadata(2, "note")})
        assert consumer.committed(TP) == fl.types.OffsetAndMetadata(2, "note")


def test_commit_without_a_group_is_refused(topic: fl.Broker) -> None:
    with pytest.raises(fl.errors.InvalidGroupIdError):
        consumer_of(topic).commit()
