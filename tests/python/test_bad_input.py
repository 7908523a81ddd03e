"""Bad input gives a named exception that says what, where and what to do; what was written stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl

TP = fl.TopicPartition("t", 0)


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("t")
    return broker


def test_an_unknown_property_suggests_the_nearest(broker: fl.Broker) -> None:
    for make in (
        lambda: fl.Consumer(broker, {"auto.ofset.reset": "earliest"}),
        lambda: fl.Consumer(broker, {"auto_offset_reset": "earliest"}),
    ):
        with pytest.raises(fl.errors.ConfigError, match=r"did you mean `auto\.offset\.reset`"):
            make()
    with pytest.raises(ValueError, match=r"did you mean `linger\.ms`"):
        fl.Producer(broker, {"linger": 5})
    for client in (fl.Producer, fl.Consumer):
        with pytest.raises(fl.errors.ConfigError, match=r"did you mean `fletchlog\.trace`"):
            client(broker, {"trace": True})
    with pytest.raises(fl.errors.ConfigError, match=r"retention\.ms"):
        broker.create_topic("t", config={"retention.msec": 5})
    with pytest.raises(fl.errors.ConfigError):
        fl.Broker.in_memory(config={"nonsense": 1})


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"max.poll.records": 0}, "max.poll.records"),
        ({"max.poll.records": "many"}, "max.poll.records"),
        ({"auto.offset.reset": "first"}, "earliest"),
        ({"enable.auto.commit": "yes"}, "true or false"),
        ({"fletchlog.consumer.version": "1.0"}, "2.4 to 4.4"),
        ({"fetch.max.bytes": 2**40}, "fetch.max.bytes"),
    ],
)
def test_an_invalid_value_says_what_is_expected(broker: fl.Broker, config: dict[str, Any], match: str) -> None:
    with pytest.raises(fl.errors.ConfigError, match=match):
        fl.Consumer(broker, config)


@pytest.mark.parametrize(
    "config",
    [
        {"enable.idempotence": True, "acks": 1},
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        {"enable.idempotence": True, "retries": 0},
        {"delivery.timeout.ms": 10, "linger.ms": 100},
    ],
)
def test_contradicting_properties_are_refused_as_kafka_does(broker: fl.Broker, config: dict[str, Any]) -> None:
    with pytest.raises(fl.errors.ConfigError):
        fl.Producer(broker, config)


@pytest.mark.parametrize("config", ["max.poll.records=5", 5, {"max.poll.records": None}, {5: "x"}, {"client.id": object()}])
def test_a_configuration_of_another_type_is_a_type_error(broker: fl.Broker, config: Any) -> None:
    with pytest.raises(TypeError):
        fl.Consumer(broker, config)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\0b"])
def test_names_that_kafka_forbids_are_refused(broker: fl.Broker, name: str) -> None:
    with pytest.raises(fl.errors.InvalidTopicError):
        broker.create_topic(name)
    assert broker.topics() == []


@given(st.text(max_size=12))
def test_a_topic_name_is_taken_exactly_when_kafka_takes_it(name: str) -> None:
    legal = 0 < len(name) < 250 and name not in (".", "..") and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    with fl.Broker.in_memory() as broker:
        if legal:
            broker.create_topic(name)
            assert broker.topics() == [name]
        else:
            with pytest.raises(fl.errors.InvalidTopicError):
                broker.create_topic(name)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_needs_a_partition(broker: fl.Broker, partitions: int) -> None:
    with pytest.raises(fl.errors.InvalidPartitionsError):
        broker.create_topic("t", partitions=partitions)


def test_a_topic_is_created_once(topic: fl.Broker) -> None:
    with pytest.raises(fl.errors.TopicAlreadyExistsError) as caught:
        topic.create_topic("t")
    assert caught.value.code == 36


@pytest.mark.parametrize(
    "call",
    [
        lambda broker: broker.scan("nothing"),
        lambda broker: broker.scan("t", partition=9),
        lambda broker: broker.describe_topic("nothing"),
        lambda broker: broker.delete_topic("nothing"),
        lambda broker: broker.append_batches("t", 9, b""),
        lambda broker: broker.read_batches("nothing", 0, 0, 10),
        lambda broker: broker.delete_records("t", 3, -1),
        lambda broker: broker.scan("t", partition=-1),
    ],
)
def test_unknown_topics_and_partitions_are_named(topic: fl.Broker, call: Callable[[fl.Broker], object]) -> None:
    with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
        call(topic)


@pytest.mark.parametrize(
    "arguments",
    [{"start_offset": -1}, {"end_offset": -5}, {"batch_rows": 0}, {"batch_rows": -1}, {"isolation_level": "dirty"}],
)
def test_impossible_scans_are_refused(topic: fl.Broker, arguments: dict[str, Any]) -> None:
    with pytest.raises(fl.errors.InvalidArgumentError):
        topic.scan("t", **arguments)


def test_numbers_outside_their_range_are_refused(topic: fl.Broker, tmp_path: Path) -> None:
    for call in (
        lambda: fl.Broker(tmp_path / "log", create=True, nodes=0),
        lambda: fl.Broker.in_memory(nodes=-1),
        lambda: topic.read_batches("t", 0, 0, -1),
        lambda: topic.scan("t", start_offset=9, end_offset=4),
        lambda: fl.testing.FaultPlan().random(seed=-1, rate=0.1),
    ):
        with pytest.raises(fl.errors.InvalidArgumentError):
            call()
    with pytest.raises(fl.errors.OffsetOutOfRangeError):
        topic.read_batches("t", 0, -1, 100)


def test_a_scan_below_the_log_start_is_out_of_range(topic: fl.Broker) -> None:
    with fl.Producer(topic) as producer:
        for _ in range(5):
            producer.send("t", value=b"v")
    topic.delete_records("t", 0, 3)
    with pytest.raises(fl.errors.OffsetOutOfRangeError, match="starts at 3") as caught:
        topic.scan("t", start_offset=2)
    assert caught.value.code == 1
    assert topic.scan("t").to_pyarrow().num_rows == 2


@pytest.mark.parametrize("data", [b"", b"x", bytes(61), bytes(200), b"\xff" * 300])
def test_bytes_that_are_no_batch_are_refused_and_nothing_is_written(topic: fl.Broker, data: bytes) -> None:
    with pytest.raises(fl.errors.KafkaError):
        topic.append_batches("t", 0, data)
    assert topic.describe_topic("t").partitions[0].high_watermark == 0


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_broker(data: bytes) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with pytest.raises(fl.errors.KafkaError) as caught:
            broker.append_batches("t", 0, data)
        assert not isinstance(caught.value, fl.errors.InternalError)


def test_a_consumer_without_partitions_cannot_poll(broker: fl.Broker) -> None:
    with fl.Consumer(broker) as consumer, pytest.raises(fl.errors.IllegalStateError, match="subscribe"):
        consumer.poll(timeout_ms=10)


def test_seek_needs_an_assigned_partition_and_an_offset_from_zero(topic: fl.Broker) -> None:
    with fl.Consumer(topic) as consumer:
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.seek(TP, 0)
        consumer.assign([TP])
        with pytest.raises(fl.errors.InvalidArgumentError):
            consumer.seek(TP, -1)
        for call in (consumer.pause, consumer.resume):
            with pytest.raises(fl.errors.IllegalStateError):
                call([fl.TopicPartition("other", 0)])
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.position(fl.TopicPartition("other", 0))


def test_subscribe_and_assign_exclude_each_other(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"group.id": "g"}) as consumer:
        consumer.assign([TP])
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.subscribe(["t"])
    with fl.Consumer(topic) as consumer, pytest.raises(fl.errors.InvalidGroupIdError):
        consumer.subscribe(["t"])
        consumer.poll(timeout_ms=10)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.subscribe("t"),
        lambda consumer: consumer.subscribe([5]),
        lambda consumer: consumer.assign("t"),
        lambda consumer: consumer.assign(["t"]),
        lambda consumer: consumer.assign([("t", "0")]),
        lambda consumer: consumer.seek("t", 0),
        lambda consumer: consumer.commit([TP]),
        lambda consumer: consumer.poll(timeout_ms="soon"),
    ],
)
def test_arguments_of_another_type_are_type_errors(topic: fl.Broker, call: Callable[[fl.Consumer], object]) -> None:
    with fl.Consumer(topic, {"group.id": "g"}) as consumer, pytest.raises(TypeError):
        call(consumer)


def test_negative_times_and_partitions_are_refused(topic: fl.Broker) -> None:
    with fl.Consumer(topic) as consumer:
        with pytest.raises(fl.errors.InvalidArgumentError):
            consumer.assign([("t", -1)])
        consumer.assign([TP])
        with pytest.raises(fl.errors.InvalidArgumentError):
            consumer.poll(timeout_ms=-1)
        with pytest.raises(fl.errors.InvalidArgumentError):
            consumer.offsets_for_times({TP: -5})


def test_subscribe_takes_topics_or_a_pattern(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"group.id": "g"}) as consumer:
        for arguments in ({}, {"topics": ["t"], "pattern": "t"}):
            with pytest.raises(fl.errors.InvalidArgumentError):
                consumer.subscribe(**arguments)
        with pytest.raises(fl.errors.KafkaError):
            consumer.subscribe(pattern="(")


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"value": 5},
        {"key": "k", "value": b"v"},
        {"value": b"v", "headers": "h"},
        {"value": b"v", "headers": [("h",)]},
        {"value": b"v", "headers": [(b"h", b"v")]},
        {"value": b"v", "partition": "0"},
    ],
)
def test_records_of_other_types_are_type_errors(topic: fl.Broker, record: dict[str, Any]) -> None:
    with fl.Producer(topic) as producer, pytest.raises(TypeError):
        producer.send("t", **record)


def test_bytearrays_and_memoryviews_are_bytes(topic: fl.Broker) -> None:
    with fl.Producer(topic) as producer:
        producer.send("t", value=bytearray(b"a"), key=memoryview(b"b"), headers={"h": bytearray(b"c")})
    row = topic.scan("t", include_headers=True).to_pyarrow().to_pylist()[0]
    assert (row["value"], row["key"], row["headers"]) == (b"a", b"b", [{"key": "h", "value": b"c"}])


@pytest.mark.parametrize("record", [{"partition": 9}, {"partition": -1}, {"timestamp_ms": -5}])
def test_a_record_that_fits_nowhere_is_refused(topic: fl.Broker, record: dict[str, Any]) -> None:
    with fl.Producer(topic, {"max.block.ms": 50}) as producer, pytest.raises(fl.errors.KafkaError) as caught:
        producer.send("t", value=b"v", **record).result(5)
    assert not isinstance(caught.value, fl.errors.InternalError)


def test_an_oversize_record_is_named(topic: fl.Broker) -> None:
    with fl.Producer(topic) as producer:
        with pytest.raises(fl.errors.RecordTooLargeError):
            producer.send("t", value=bytes(2_000_000)).result(5)
        assert producer.send("t", value=b"small").result(5).offset == 0


def test_a_batch_larger_than_the_topic_takes_is_named(broker: fl.Broker) -> None:
    broker.create_topic("t", config={"max.message.bytes": 1000})
    with fl.Producer(broker) as producer, pytest.raises(fl.errors.RecordTooLargeError):
        producer.send("t", value=bytes(5000)).result(10)


def test_a_null_key_on_a_compacted_topic_is_refused(broker: fl.Broker) -> None:
    broker.create_topic("t", config={"cleanup.policy": "compact"})
    with fl.Producer(broker) as producer:
        with pytest.raises(fl.errors.InvalidRecordError):
            producer.send("t", value=b"v").result(5)
        assert producer.send("t", value=b"v", key=b"k").result(5).offset == 0


def test_sending_to_an_unknown_topic_times_out_with_a_name(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"max.block.ms": 50}) as producer, pytest.raises(fl.errors.KafkaError, match="nothing"):
        producer.send("nothing", value=b"v").result(5)


def test_a_result_that_is_not_there_in_time_is_a_timeout(topic: fl.Broker) -> None:
    with fl.Producer(topic, {"linger.ms": 10_000, "request.timeout.ms": 1000, "delivery.timeout.ms": 20_000}) as producer:
        future = producer.send("t", value=b"v")
        assert not future.done()
        with pytest.raises(TimeoutError):
            future.result(0.01)
        with pytest.raises(fl.errors.KafkaTimeoutError):
            future.exception(0.01)
        producer.flush()
        assert future.done()
        assert future.exception() is None


NUMBERS: dict[str, Callable[[fl.Broker, Any], object]] = {
    "send": lambda broker, number: fl.Producer(broker).send("t", b"", partition=number),
    "send_many": lambda broker, number: fl.Producer(broker).send_many("t", [b""], partition=number),
    "assign": lambda broker, number: fl.Consumer(broker).assign([("t", number)]),
    "create_topic": lambda broker, number: broker.create_topic("u", partitions=number),
    "create_partitions": lambda broker, number: broker.create_partitions("t", number),
    "delete_records": lambda broker, number: broker.delete_records("t", number, 0),
    "delete_records before": lambda broker, number: broker.delete_records("t", 0, number),
    "read_batches": lambda broker, number: broker.read_batches("t", number, 0, 1),
    "scan": lambda broker, number: fl.scan(broker, "t", partition=number),
    "scan tail": lambda broker, number: fl.scan(broker, "t", tail=number),
    "scan start": lambda broker, number: fl.scan(broker, "t", start_offset=number),
    "scan rows": lambda broker, number: fl.scan(broker, "t", batch_rows=number),
    "nodes": lambda _, number: fl.Broker.in_memory(nodes=number),
    "node": lambda broker, number: broker.kill_node(number),
    "port": lambda broker, number: broker.listen(port=number),
}


@pytest.mark.parametrize("place", NUMBERS)
def test_a_number_is_an_int_that_fits(topic: fl.Broker, place: str) -> None:
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TypeError, match=f"{type(wrong).__name__}|{wrong!r}"):
            NUMBERS[place](topic, wrong)
    with pytest.raises((fl.errors.InvalidArgumentError, TypeError), match=f"{2**70}"):
        NUMBERS[place](topic, 2**70)


def test_an_offset_is_an_int(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"group.id": "g"}) as consumer:
        consumer.assign([TP])
        with pytest.raises(TypeError, match="bool True"):
            consumer.seek(TP, True)
        with pytest.raises(TypeError, match="bool True"):
            consumer.commit({TP: True})
