"""Consumers of topics that are deleted, embedded and over sockets: one warning, no spinning, and what ends does so at once."""

import logging
import time

import pytest

import fletchlog as fl
from fletchlog.errors import KafkaTimeoutError
from tests.support.waiting import until

# Far below the 30 s and more that a call would take that repeats what cannot succeed.
SOON_S = 10


def fetches(client):
    """Requests that a client has sent."""
    return sum(value for name, value in _numbers(client.metrics()) if name.endswith("request-total"))


def _numbers(metrics):
    for metric in metrics.to_pyarrow().to_pylist():
        yield metric["name"], metric["value"]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("version", ["2.6", "3.9", "4.3"])
def test_a_poll_of_a_deleted_topic_takes_its_time_and_warns_once(place, version, caplog):
    broker, to = place
    broker.create_topic("t")
    with fl.Consumer(to, {"auto.offset.reset": "earliest", "fletchlog.consumer.version": version}) as consumer:
        consumer.assign([("t", 0)])
        consumer.poll(timeout_ms=100)
        broker.delete_topic("t")
        before = fetches(consumer)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                begin = time.monotonic()
                assert len(consumer.poll(timeout_ms=1000)) == 0
                assert time.monotonic() - begin >= 0.9
        said = warnings(caplog)
        assert len([text for text in said if text.startswith("t-0 at offset")]) == 1, said
        assert len(said) <= 3
        # Two seconds of retry.backoff.ms = 100, metadata and fetches.
        assert fetches(consumer) - before < 100


def test_a_topic_that_is_there_again_is_read_again_and_a_second_deletion_warned_of(place, caplog):
    broker, to = place
    broker.create_topic("t")
    with fl.Consumer(to, {"auto.offset.reset": "earliest"}) as consumer, fl.Producer(broker) as producer, caplog.at_level(logging.WARNING):
        consumer.assign([("t", 0)])
        for round_number in (1, 2):
            producer.send("t", value=b"%d" % round_number).result()
            polled = []
            assert until(lambda polled=polled: polled.extend(consumer.poll(timeout_ms=200)) or polled)
            assert [record.value for record in polled] == [b"%d" % round_number]
            broker.delete_topic("t")
            consumer.poll(timeout_ms=500)
            assert len([text for text in warnings(caplog) if text.startswith("t-0 at offset")]) == round_number
            broker.create_topic("t")
            consumer.seek(("t", 0), 0)


def test_other_partitions_are_read_as_before_while_one_is_refused(place):
    broker, to = place
    for topic in ("gone", "kept"):
        broker.create_topic(topic)
    with fl.Consumer(to, {"auto.offset.reset": "earliest"}) as consumer, fl.Producer(broker) as producer:
        consumer.assign([("gone", 0), ("kept", 0)])
        consumer.poll(timeout_ms=100)
        broker.delete_topic("gone")
        for i in range(5):
            producer.send("kept", value=b"%d" % i).result()
            read = []
            assert until(lambda read=read: read.extend(consumer.poll(timeout_ms=200)) or read)
            assert [record.value for record in read] == [b"%d" % i]


def test_a_member_whose_topic_is_deleted_closes_at_once(place):
    broker, to = place
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v").result()
    consumer = fl.Consumer(to, {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert until(lambda: len(consumer.poll(timeout_ms=200)))
    broker.delete_topic("t")
    begin = time.monotonic()
    consumer.close()
    assert time.monotonic() - begin < SOON_S
    assert broker.describe_group("g").state == "Empty"


def test_the_offsets_of_topics_that_are_left_are_committed_by_close(place):
    broker, to = place
    for topic in ("gone", "kept"):
        broker.create_topic(topic)
    with fl.Producer(broker) as producer:
        for topic in ("gone", "kept"):
            producer.send(topic, value=b"v").result()
    with fl.Consumer(to, {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["gone", "kept"])
        read = []
        assert until(lambda: read.extend(consumer.poll(timeout_ms=200)) or len(read) == 2)
        broker.delete_topic("gone")
        begin = time.monotonic()
    assert time.monotonic() - begin < SOON_S
    assert {tp.topic: offset.offset for tp, offset in broker.group_offsets("g").items()} == {"kept": 1}


def test_a_new_topic_of_a_pattern_is_read_although_another_one_was_deleted(place):
    broker, to = place
    broker.create_topic("t1")
    config = {"group.id": "g", "auto.offset.reset": "earliest", "metadata.max.age.ms": 200, "heartbeat.interval.ms": 100}
    with fl.Producer(broker) as producer:
        producer.send("t1", value=b"old").result()
        with fl.Consumer(to, config) as consumer:
            consumer.subscribe(pattern="t.*")
            assert until(lambda: len(consumer.poll(timeout_ms=200)))
            broker.delete_topic("t1")
            broker.create_topic("t2")
            producer.send("t2", value=b"new").result()
            read = []
            assert until(lambda: read.extend(consumer.poll(timeout_ms=200)) or read)
            assert [record.value for record in read] == [b"new"]


def test_a_commit_for_a_deleted_topic_says_so(place):
    broker, to = place
    broker.create_topic("t")
    with fl.Consumer(to, {"group.id": "g", "enable.auto.commit": False, "default.api.timeout.ms": 500}) as consumer:
        consumer.assign([("t", 0)])
        broker.delete_topic("t")
        with pytest.raises(KafkaTimeoutError, match=r"t-0.*UNKNOWN_TOPIC_OR_PARTITION"):
            consumer.commit({("t", 0): 1})
