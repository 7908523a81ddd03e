"""Programs whose producers are sick."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from tests.explain.zoo import program
from tests.explain.zoo.clients import kafka_python, producer

if TYPE_CHECKING:
    from pytest_fletchlog.kafka import Kafka


def _python(at: str, **config: Any) -> Any:
    defaults = {"bootstrap_servers": at, "client_id": "writer", "retry_backoff_ms": 5, "enable_idempotence": False}
    return kafka_python.KafkaProducer(**defaults | config)


@program("order-lost", slow=True)
def five_in_flight_without_idempotence(kafka: Kafka, at: str, sick: bool) -> None:
    """A batch fails and is sent again, behind those that were sent after it."""
    topic = kafka.topic()
    writer = producer(at, enable_idempotence=not sick)
    writer.produce(topic, "0")
    writer.flush(10)
    rule = kafka.faults.on(api="Produce", topic=topic, nth=2, delay_ms=150).error("NOT_ENOUGH_REPLICAS")
    for number in range(1, 5):
        writer.produce(topic, str(number))
        writer.poll(0.02)
    writer.flush(10)
    assert rule.applied


@program("written-twice")
def a_response_is_lost(kafka: Kafka, at: str, sick: bool) -> None:
    """The connection breaks before the acknowledgement, and the producer sends again."""
    topic = kafka.topic()
    writer = producer(at, enable_idempotence=not sick)
    kafka.faults.on(api="Produce", topic=topic, nth=2).lose_response()
    for number in range(3):
        writer.produce(topic, str(number))
        writer.flush(10)


@program("acks-0")
def nobody_acknowledges(kafka: Kafka, at: str, sick: bool) -> None:
    """acks=0."""
    topic = kafka.topic()
    writer = producer(at, acks="0" if sick else "all")
    for number in range(5):
        writer.produce(topic, str(number))
        writer.flush(10)


@program("tiny-batches")
def flushes_each_record(kafka: Kafka, at: str, sick: bool) -> None:
    """flush() after every send."""
    topic = kafka.topic()
    writer = producer(at, linger_ms=0 if sick else 5)
    for number in range(60):
        writer.produce(topic, str(number))
        if sick:
            writer.flush(10)
    writer.flush(10)


@program("hot-partition")
def one_key_has_most_records(kafka: Kafka, at: str, sick: bool) -> None:
    """Key skew: the key is the country, and most customers live in one."""
    topic = kafka.topic(partitions=4)
    writer = producer(at, linger_ms=2)
    for number in range(25):
        for part in range(4):
            writer.produce(topic, "order", key="de" if sick else f"customer-{number * 4 + part}")
        writer.flush(10)


@program("timestamps-off")
def seconds_for_milliseconds(kafka: Kafka, at: str, sick: bool) -> None:
    """Timestamps in seconds since 1970."""
    topic = kafka.topic()
    writer = producer(at)
    writer.produce(topic, "1", timestamp=int(time.time()) * (1 if sick else 1000))
    writer.flush(10)


@program("client-per-record")
def a_producer_for_each_record(kafka: Kafka, at: str, sick: bool) -> None:
    """A web handler makes a producer, sends and flushes."""
    topic = kafka.topic()
    writer = producer(at)
    for number in range(18):
        writer = producer(at) if sick else writer
        writer.produce(topic, str(number))
        writer.flush(10)


@program("metadata-storm")
def lists_topics_before_each_send(kafka: Kafka, at: str, sick: bool) -> None:
    """A check that the topic exists, before every record."""
    topic = kafka.topic()
    writer = producer(at)
    for number in range(35):
        if sick:
            writer.list_topics(topic, 10)
        writer.produce(topic, str(number))
        if number % 5 == 4:
            writer.flush(10)


@program("message-too-large")
def records_are_too_large(kafka: Kafka, at: str, sick: bool) -> None:
    """A record is larger than the topic's max.message.bytes."""
    topic = kafka.topic(config={"max.message.bytes": "1000"})
    writer = producer(at)
    writer.produce(topic, "x" * (2000 if sick else 100))
    writer.flush(10)


@program("record-refused")
def a_compacted_topic_needs_keys(kafka: Kafka, at: str, sick: bool) -> None:
    """A record without a key, for a compacted topic."""
    topic = kafka.topic(config={"cleanup.policy": "compact"})
    writer = producer(at)
    writer.produce(topic, "1", key=None if sick else "k")
    writer.flush(10)


@program("not-enough-replicas")
def min_insync_replicas_is_not_reached(kafka: Kafka, at: str, sick: bool) -> None:
    """A node is down, and min.insync.replicas is the number of replicas."""
    topic = kafka.topic()
    if sick:
        kafka.faults.on(api="Produce", topic=topic, times=4).error("NOT_ENOUGH_REPLICAS")
    writer = producer(at, acks="all")
    writer.produce(topic, "1")
    writer.flush(10)


@program("order-lost")
def kafka_python_with_five_in_flight(kafka: Kafka, at: str, sick: bool) -> None:
    """The same with kafka-python, whose producer allows it, too."""
    topic = kafka.topic()
    rule = kafka.faults.on(api="Produce", topic=topic, nth=2, delay_ms=150).error("NOT_ENOUGH_REPLICAS")
    writer = _python(at, retries=5, max_in_flight_requests_per_connection=5 if sick else 1, acks="all")
    with contextlib.closing(writer):
        writer.send(topic, b"0").get(10)
        sent = []
        for number in range(1, 5):
            sent.append(writer.send(topic, str(number).encode()))
            time.sleep(0.02)
        for one in sent:
            one.get(10)
    assert rule.applied


@program("request-timeout", slow=True)
def gives_up_too_early(kafka: Kafka, at: str, sick: bool) -> None:
    """request.timeout.ms is shorter than the broker needs under load: the client sends the same again, and makes the load larger."""
    topic = kafka.topic()
    kafka.faults.on(api="Produce", topic=topic, times=2).delay(1500 if sick else 20)
    writer = producer(at, enable_idempotence=True, socket_timeout_ms=250)
    writer.produce(topic, "1")
    writer.flush(10)


@program("acks-1-leader-moved", nodes=3)
def acks_1_while_the_leader_moves(kafka: Kafka, at: str, sick: bool) -> None:
    """acks=1 acknowledges what the leader alone has; then another node leads."""
    topic = kafka.topic()
    writer = producer(at, acks="1" if sick else "all")
    writer.produce(topic, "1")
    writer.flush(10)
    leader = kafka.broker.describe_topic(topic).partitions[0].leader
    kafka.move_leader(topic, 0, to=next(node for node in kafka.broker.nodes if node != leader))
    writer.produce(topic, "2")
    writer.flush(10)
