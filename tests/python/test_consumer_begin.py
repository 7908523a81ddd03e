"""Where a consumer begins: the topics of a pattern in Java's syntax, and auto.offset.reset by a duration."""

import time

import pytest

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(?i)orders", {"orders", "ORDERS"}),
        (r"^(?!_).*", {"orders", "ORDERS", "o1"}),
        (r"\p{Alpha}+", {"orders", "ORDERS"}),
        (r"\Qo1\E|\p{Upper}{6}", {"ORDERS", "o1"}),
    ],
)
def test_patterns_are_those_of_java(broker, pattern, expected):
    for topic in ("orders", "ORDERS", "o1", "_hidden"):
        broker.create_topic(topic)
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(pattern=pattern)
        assert until(lambda: consumer.poll(timeout_ms=50) or consumer.assignment())
        assert {tp.topic for tp in consumer.assignment()} == expected


def test_a_pattern_that_takes_too_long_is_an_error_of_poll(broker):
    broker.create_topic("a" * 100 + "-b")
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(pattern=r"(?:(a|aa)+)\1-")
        with pytest.raises(InvalidArgumentError, match="simpler pattern"):
            until(lambda: consumer.poll(timeout_ms=50))


def test_a_consumer_begins_by_a_duration(place):
    broker, to = place
    broker.create_topic("t", partitions=2)
    now_ms = int(time.time() * 1000)
    with fl.Producer(broker) as producer:
        for hours in (3, 2, 1, 0):
            producer.send("t", value=b"%d" % hours, partition=0, timestamp_ms=now_ms - hours * 3_600_000).result()
        producer.send("t", value=b"old", partition=1, timestamp_ms=now_ms - 9 * 3_600_000).result()
        config = {"auto.offset.reset": "by_duration:PT2H30M", "fletchlog.consumer.version": "4.3"}
        with fl.Consumer(to, config) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            read = []
            assert until(lambda: read.extend(consumer.poll(timeout_ms=200)) or len(read) >= 3)
            assert [record.value for record in read] == [b"2", b"1", b"0"]
            assert consumer.position(("t", 1)) == 1, "the end: no record is so new"
    with pytest.raises(ConfigError, match=r"4\.0 or later"):
        fl.Consumer(to, {"auto.offset.reset": "by_duration:PT1H"})
    with pytest.raises(ConfigError, match="PT1H30M"):
        fl.Consumer(to, {"auto.offset.reset": "by_duration:-PT1H", "fletchlog.consumer.version": "4.0"})
