"""Fetches by topic ids (version 13 and newer, KIP-516): topics that are deleted and made again while a consumer reads them."""

import logging
import time

import pytest

import fletchlog as fl

# up to 3.0 a consumer asks by names
RELEASES = ["3.0", "3.1", "3.9", "4.3"]
CONFIG = {"auto.offset.reset": "earliest", "retry.backoff.ms": 10, "allow.auto.create.topics": False}


@pytest.fixture
def broker():
    with fl.Broker.in_memory() as broker:
        for topic in ("t", "stays"):
            broker.create_topic(topic, partitions=2)
        yield broker


def send(broker, topic, first, end):
    with fl.Producer(broker) as producer:
        for number in range(first, end):
            producer.send(topic, value=b"%d" % number, partition=number % 2)


def read(consumer, topic, count):
    """Polls until so many records of a topic came; the values of every topic."""
    found = {}
    end = time.monotonic() + 20
    while len(found.get(topic, [])) < count:
        assert time.monotonic() < end, found
        for record in consumer.poll(timeout_ms=200):
            found.setdefault(record.topic, []).append(int(record.value))
    return {name: sorted(values) for name, values in found.items()}


@pytest.mark.parametrize("release", RELEASES)
def test_a_topic_that_is_made_again_is_read_and_the_others_go_on(broker, release, caplog):
    # no fetch waits at the broker when the topic is deleted: one that waits has another error
    config = {**CONFIG, "fletchlog.consumer.version": release, "fetch.max.wait.ms": 0}
    with caplog.at_level(logging.WARNING, "fletchlog"), broker.listen() as listener, fl.Consumer(f"kafka://{listener.bootstrap}", config) as consumer:
        consumer.assign([(topic, partition) for topic in ("t", "stays") for partition in (0, 1)])
        send(broker, "t", 0, 20)
        assert read(consumer, "t", 20) == {"t": list(range(20))}
        for number, size in enumerate((6, 4)):
            broker.delete_topic("t")
            send(broker, "stays", number, number + 1)
            assert read(consumer, "stays", 1) == {"stays": [number]}
            broker.create_topic("t", partitions=2)
            send(broker, "t", 100, 100 + size)
            assert read(consumer, "t", size) == {"t": list(range(100, 100 + size))}
        assert consumer.position(("stays", 0)) == consumer.position(("stays", 1)) == 1
    by_ids = release != "3.0"
    assert any("UNKNOWN_TOPIC_ID" in record.getMessage() for record in caplog.records) == by_ids


@pytest.mark.parametrize("release", RELEASES[1:])
def test_a_position_within_the_new_topic_stays(broker, release):
    """The offset counts, whatever topic it was of, as in Java."""
    config = {**CONFIG, "fletchlog.consumer.version": release}
    with broker.listen() as listener, fl.Consumer(f"kafka://{listener.bootstrap}", config) as consumer:
        consumer.assign([("t", 0)])
        send(broker, "t", 0, 8)
        assert read(consumer, "t", 4) == {"t": [0, 2, 4, 6]}
        broker.delete_topic("t")
        broker.create_topic("t", partitions=2)
        send(broker, "t", 100, 120)
        assert read(consumer, "t", 6) == {"t": list(range(108, 120, 2))}
