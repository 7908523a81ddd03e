"""Programs in share groups that are sick, with fletchlog's share consumer and confluent-kafka's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message, ShareConsumer

import fletchlog as fl
from tests.explain.zoo import program
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fletchlog.kafka import Kafka

GROUP = "billing"
EXPLICIT = "share.acknowledgement.mode"
# librdkafka learns its partitions with the second heartbeat
SOON: dict[str, Any] = {"group_share_min_heartbeat_interval_ms": 50, "group_share_heartbeat_interval_ms": 100}


def _topic(kafka: Kafka, count: int, **config: Any) -> str:
    """A topic with records, and a group that begins at the first."""
    given = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0}
    kafka.broker.alter_group_config(GROUP, given | {name.replace("_", "."): value for name, value in config.items()})
    topic = kafka.topic()
    with fl.Producer(kafka.broker) as producer:
        for number in range(count):
            producer.send(topic, value=b"%d" % number)
            if number % 10 == 9:
                producer.flush()
    return topic


def _member(at: str, topic: str, *, explicit: bool = True, **config: Any) -> fl.ShareConsumer[Any, Any]:
    """fletchlog's."""
    given = {"client.id": "reader", EXPLICIT: "explicit" if explicit else "implicit"} | {name.replace("_", "."): value for name, value in config.items()}
    return fl.ShareConsumer(f"kafka://{at}", given, group=GROUP, topics=[topic])


@contextmanager
def _confluent(at: str, topic: str, *, explicit: bool = True) -> Iterator[ShareConsumer]:
    """confluent-kafka's."""
    mode = "explicit" if explicit else "implicit"
    opened = ShareConsumer({"bootstrap.servers": at, "client.id": "reader", "group.id": GROUP, EXPLICIT: mode})
    opened.subscribe([topic])
    try:
        yield opened
    finally:
        opened.close()


def _read(reader: fl.ShareConsumer[Any, Any], count: int = 1) -> list[Any]:
    """So many records, in one poll or more."""
    found: list[Any] = []
    assert until(lambda: found.extend(reader.poll(200)) or len(found) >= count)
    return found


def _messages(reader: ShareConsumer) -> list[Message]:
    """The records of the next poll that has some."""
    found: list[Message] = []
    assert until(lambda: found.extend(message for message in reader.poll(0.1) if message.error() is None) or found)
    return found


@program("share-record-again")
def releases_what_it_cannot_parse(kafka: Kafka, at: str, sick: bool) -> None:
    """A record cannot be parsed, and the handler releases everything that fails."""
    topic = _topic(kafka, 3)
    with _member(at, topic) as reader:
        done = 0
        while done < 3:
            for record in _read(reader):
                bad = record.value == b"1"
                reader.acknowledge(record, "accept" if not bad else "release" if sick else "reject")
                done += not bad or not sick or record.delivery_count == 5
        reader.commit()


@program("share-record-ends-members")
def dies_at_one_record(kafka: Kafka, at: str, sick: bool) -> None:
    """A record ends the process, and its supervisor starts it again."""
    topic = _topic(kafka, 1)
    for _ in range(4 if sick else 1):
        reader = _member(at, topic, explicit=False)
        _read(reader)
        if not sick:
            reader.close()
        # without close() its connections end as those of a killed process do
        del reader
    if not sick:
        with _member(at, topic, explicit=False) as reader:
            _read(reader)
            reader.commit()


@program("share-lock-expired", **SOON)
def works_longer_than_the_lock(kafka: Kafka, at: str, sick: bool) -> None:
    """A call in the handler takes longer than the lock; another delivery begins meanwhile."""
    topic = _topic(kafka, 2)
    with _confluent(at, topic) as reader:
        messages = _messages(reader)
        if sick:
            kafka.clock.advance(seconds=31)
        for message in messages:
            reader.acknowledge(message)
        reader.commit_sync(5.0)
        if sick:
            for message in _messages(reader):
                reader.acknowledge(message)
            reader.commit_sync(5.0)


@program("share-acknowledgement-lost")
def loses_a_response(kafka: Kafka, at: str, sick: bool) -> None:
    """The connection breaks while it acknowledges, and the broker has not seen that."""
    topic = _topic(kafka, 2)
    if sick:
        kafka.faults.on(api="ShareAcknowledge", nth=1).close()
    with _member(at, topic) as reader:
        for _ in range(2 if sick else 1):
            for record in _read(reader, 2):
                reader.acknowledge(record)
            reader.commit(5000)


@program("share-never-acknowledges", **SOON)
def closes_before_it_commits(kafka: Kafka, at: str, sick: bool) -> None:
    """A job reads a batch in the implicit mode and ends: close() accepts nothing."""
    topic = _topic(kafka, 2)
    for _ in range(2 if sick else 1):
        with _confluent(at, topic, explicit=False) as reader:
            _messages(reader)
            if not sick:
                reader.commit_sync(5.0)


@program("share-member-died")
def is_killed_with_records(kafka: Kafka, at: str, sick: bool) -> None:
    """A container is killed; another takes over what it had."""
    topic = _topic(kafka, 2)
    reader = _member(at, topic, explicit=False)
    _read(reader, 2)
    if not sick:
        reader.commit()
        reader.close()
    del reader
    if sick:
        with _member(at, topic, explicit=False) as reader:
            _read(reader, 2)
            reader.commit()


@program("share-start-pinned", slow=True)
def works_on_one_record_for_long(kafka: Kafka, at: str, sick: bool) -> None:
    """A record takes hours and its lock is renewed; what other members have done behind it still counts."""
    topic = _topic(kafka, 1200)
    with _member(at, topic, share_acquire_mode="record_limit", max_poll_records=1) as first, _member(at, topic) as other:
        record = _read(first)[0]
        if not sick:
            first.acknowledge(record)
            first.commit()
        done = 1
        while done < 1200:
            records = _read(other)
            for other_record in records:
                other.acknowledge(other_record)
            done += len(records)
            if sick and done > 500:
                first.acknowledge(record, "renew")
                (record,) = _read(first)
        other.commit()
        if sick:
            first.acknowledge(record)


@program("share-partition-full", slow=True)
def takes_more_than_it_acknowledges(kafka: Kafka, at: str, sick: bool) -> None:
    """A member takes everything and works on it for long; the others get nothing though there is more."""
    topic = _topic(kafka, 150, share_partition_max_record_locks=100)
    with (
        _member(at, topic, share_acquire_mode="record_limit", max_poll_records=100 if sick else 10) as first,
        _member(at, topic, fetch_max_wait_ms=50) as other,
    ):
        records = _read(first, 100 if sick else 10)
        if sick:
            assert until(lambda: other.poll(50) or len(kafka.requests(api="ShareFetch")) > 6)
        for record in records:
            first.acknowledge(record)
        first.commit()
        for record in _read(other):
            other.acknowledge(record)
        other.commit()
