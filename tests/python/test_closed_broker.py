"""Clients whose embedded broker was closed say so at once; nothing waits for an answer that cannot come."""

import threading
import time

import pytest

import fletchlog as fl


@pytest.fixture
def broker():
    broker = fl.Broker.in_memory()
    broker.create_topic("t", partitions=1)
    return broker


@pytest.mark.parametrize(
    "client",
    [fl.Producer, fl.Consumer, lambda broker: fl.legacy.LegacyConsumer(broker, {"group.id": "g"})],
    ids=["Producer", "Consumer", "LegacyConsumer"],
)
def test_no_client_is_made_for_a_closed_broker(broker, client):
    broker.close()
    with pytest.raises(fl.errors.ClosedError, match="the broker is closed; open a new one"):
        client(broker)


def test_a_producer_says_that_the_broker_is_closed_and_closes_at_once(broker):
    producer = fl.Producer(broker, {})
    producer.send("t", value=b"before").result(1)
    broker.close()
    with pytest.raises(fl.errors.ClosedError, match="broker is closed"):
        producer.send("t", value=b"after").result(1)
    with pytest.raises(fl.errors.ClosedError, match="broker is closed"):
        producer.send("t", value=b"later").result(1)
    producer.close()


def test_a_consumer_says_that_the_broker_is_closed(broker):
    consumer = fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([fl.TopicPartition("t", 0)])
    consumer.poll(timeout_ms=10)
    broker.close()
    with pytest.raises(fl.errors.ClosedError, match="broker is closed"):
        consumer.poll(timeout_ms=1000)
    with pytest.raises(fl.errors.ClosedError, match="broker is closed"):
        consumer.commit()
    consumer.close()


def test_a_waiting_poll_ends_when_another_thread_closes_the_broker(broker):
    consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest"})
    consumer.assign([fl.TopicPartition("t", 0)])
    consumer.poll(timeout_ms=10)
    threading.Timer(0.2, broker.close).start()
    start = time.monotonic()
    with pytest.raises(fl.errors.ClosedError, match="broker is closed"):
        consumer.poll(timeout_ms=20_000)
    assert time.monotonic() - start < 15
    consumer.close()
