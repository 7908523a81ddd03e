"""Programs whose transactions are sick."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tests.explain.zoo import program
from tests.explain.zoo.clients import producer

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from pytest_fletchlog.kafka import Kafka


def _transaction(writer: Producer, topic: str, value: str, *, commits: bool = True) -> None:
    writer.begin_transaction()
    writer.produce(topic, value)
    writer.flush(10)
    if commits:
        writer.commit_transaction(10)
    else:
        writer.abort_transaction(10)


@program("producer-fenced")
def two_instances_have_one_transactional_id(kafka: Kafka, at: str, sick: bool) -> None:
    """transactional.id is a constant, and the service runs twice."""
    topic = kafka.topic()
    one = producer(at, transactional_id="shop-1", client_id="first")
    one.init_transactions(10)
    _transaction(one, topic, "1")
    two = producer(at, transactional_id="shop-1" if sick else "shop-2", client_id="second")
    two.init_transactions(10)
    _transaction(two, topic, "2")
    with contextlib.suppress(KafkaException):
        _transaction(one, topic, "3")


@program("transaction-expired")
def slow_work_in_a_transaction(kafka: Kafka, at: str, sick: bool) -> None:
    """A call to another service takes longer than transaction.timeout.ms."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1", transaction_timeout_ms=20_000)
    writer.init_transactions(10)
    _transaction(writer, topic, "1")
    writer.begin_transaction()
    writer.produce(topic, "2")
    writer.flush(10)
    if sick:
        kafka.clock.advance(seconds=60)
    with contextlib.suppress(KafkaException):
        writer.produce(topic, "3")
        writer.flush(10)
        writer.commit_transaction(10)


@program("transaction-timeout-refused")
def a_transaction_of_an_hour(kafka: Kafka, at: str, sick: bool) -> None:
    """transaction.timeout.ms is longer than transaction.max.timeout.ms."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1", transaction_timeout_ms=3_600_000 if sick else 60_000, message_timeout_ms=10_000)
    with contextlib.suppress(KafkaException):
        writer.init_transactions(2)
        _transaction(writer, topic, "1")


@program("transaction-per-record")
def a_transaction_for_each_record(kafka: Kafka, at: str, sick: bool) -> None:
    """begin, one record, commit, in a loop without pause."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1")
    writer.init_transactions(10)
    for number in range(25):
        _transaction(writer, topic, str(number))
        if not sick:
            # as often as Kafka Streams commits
            time.sleep(0.1)


@program("transactions-aborted")
def the_work_fails_each_time(kafka: Kafka, at: str, sick: bool) -> None:
    """An error in the work aborts the transaction, and the program tries the same again."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1")
    writer.init_transactions(10)
    for number in range(6):
        _transaction(writer, topic, str(number), commits=not sick)
