"""Clients of the zoo, with short waits."""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka

with warnings.catch_warnings():
    # kafka-python reads its tables of messages by a function that is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as kafka_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_fletchlog.kafka import Kafka


def producer(at: str, **config: Any) -> confluent_kafka.Producer:
    """confluent-kafka's producer; properties with `_` for `.`."""
    return confluent_kafka.Producer(
        {"bootstrap.servers": at, "client.id": "writer", "linger.ms": 0, "retry.backoff.ms": 5, "retry.backoff.max.ms": 10} | _names(config)
    )


@contextmanager
def consumer(at: str, topics: Sequence[str] = (), **config: Any) -> Iterator[confluent_kafka.Consumer]:
    """confluent-kafka's consumer."""
    defaults = {
        "bootstrap.servers": at, "client.id": "reader", "group.id": "shop", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50, "session.timeout.ms": 6000,
        "fetch.wait.max.ms": 100,
    }  # fmt: skip
    opened = confluent_kafka.Consumer(defaults | _names(config))
    if topics:
        opened.subscribe(list(topics))
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def python_consumer(at: str, *topics: str, **config: Any) -> Iterator[Any]:
    """kafka-python's consumer."""
    defaults = {
        "bootstrap_servers": at, "client_id": "reader", "group_id": "shop", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "session_timeout_ms": 6000,
        "fetch_max_wait_ms": 100, "retry_backoff_ms": 20,
    }  # fmt: skip
    opened = kafka_python.KafkaConsumer(*topics, **defaults | config)
    try:
        yield opened
    finally:
        opened.close()


def read(reader: confluent_kafka.Consumer, count: int, limit: float = 10) -> list[confluent_kafka.Message]:
    """So many records, one by one."""
    found: list[confluent_kafka.Message] = []
    end = time.monotonic() + limit
    while len(found) < count and time.monotonic() < end:
        record = reader.poll(0.05)
        if record is not None and not record.error():
            found.append(record)
    return found


def poll(reader: Any, count: int, limit: float = 10) -> list[Any]:
    """So many records, by kafka-python."""
    found: list[Any] = []
    end = time.monotonic() + limit
    while len(found) < count and time.monotonic() < end:
        for records in reader.poll(timeout_ms=50).values():
            found += records
    return found


def polled(condition: Callable[[], object], *readers: confluent_kafka.Consumer, limit: float = 15) -> bool:
    """Polls all readers in turn until the condition holds, whatever comes meanwhile. False: it does not, after so many seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        for reader in readers:
            reader.poll(0.02)
        if condition():
            return True
    return False


def asked(kafka: Kafka, api: str, client_id: str | None = None) -> int:
    """So many requests of an API."""
    return len(kafka.requests(api=api) if client_id is None else kafka.requests(api=api, client_id=client_id))


@contextmanager
def in_background(reader: confluent_kafka.Consumer) -> Iterator[None]:
    """Polls in a thread of its own."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            reader.poll(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _names(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}
