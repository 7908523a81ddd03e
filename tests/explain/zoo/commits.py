"""Programs that commit wrongly, or begin at the wrong place."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from tests.explain.zoo import program
from tests.explain.zoo.clients import asked, consumer, kafka_python, poll, polled, python_consumer, read

if TYPE_CHECKING:
    from pytest_fletchlog.kafka import Kafka


def _records(kafka: Kafka, count: int = 12, partitions: int = 1, name: str | None = None) -> str:
    topic = kafka.topic(partitions=partitions, name=name)
    kafka.produce(topic, [(str(i), str(i)) for i in range(count)])
    return topic


@program("never-commits")
def auto_commit_is_off(kafka: Kafka, at: str, sick: bool) -> None:
    """enable.auto.commit=false was copied, commit() was not."""
    topic = _records(kafka)
    with consumer(at, [topic], enable_auto_commit=not sick) as reader:
        read(reader, 12)


@program("group-shared-by-assign")
def two_assign_with_one_group(kafka: Kafka, at: str, sick: bool) -> None:
    """Two consumers with assign() commit to one group."""
    topic = _records(kafka)
    partition = kafka_python.TopicPartition(topic, 0)
    with python_consumer(at, client_id="first", enable_auto_commit=False) as one:
        one.assign([partition])
        poll(one, 12)
        one.commit()
        with python_consumer(at, client_id="second", enable_auto_commit=False, group_id="shop" if sick else "audit") as two:
            two.assign([partition])
            two.seek_to_beginning(partition)
            poll(two, 6)
            two.commit()
            one.commit()


@program("commit-went-back")
def threads_commit_out_of_order(kafka: Kafka, at: str, sick: bool) -> None:
    """Workers commit when each is done, so an older offset comes last."""
    topic = _records(kafka)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        read(reader, 12)
        for offset in (4, 12, 8) if sick else (4, 8, 12):
            reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


@program("commits-too-often")
def commits_each_record(kafka: Kafka, at: str, sick: bool) -> None:
    """commit() after every record."""
    topic = _records(kafka, 60)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        for record in read(reader, 60):
            if sick or record.offset() == 59:
                reader.commit(record, asynchronous=False)


@program("commit-metadata-too-large")
def state_in_the_metadata(kafka: Kafka, at: str, sick: bool) -> None:
    """A program keeps its state in the metadata of its commits."""
    topic = _records(kafka)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        read(reader, 12)
        with contextlib.suppress(KafkaException):
            reader.commit(offsets=[TopicPartition(topic, 0, 12, metadata="x" * (5000 if sick else 50))], asynchronous=False)


@program("offset-out-of-range")
def too_slow_for_retention(kafka: Kafka, at: str, sick: bool) -> None:
    """Retention deletes records before they are read."""
    topic = _records(kafka)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        read(reader, 4)
        reader.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    if sick:
        kafka.broker.delete_records(topic, 0, 8)
    with consumer(at, [topic]) as reader:
        read(reader, 4)


@program("offset-out-of-range")
def commits_past_the_end(kafka: Kafka, at: str, sick: bool) -> None:
    """A mistake in the arithmetic of offsets: what is committed is behind the end of the log."""
    topic = _records(kafka)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        last = read(reader, 12)[-1].offset()
        reader.commit(offsets=[TopicPartition(topic, 0, last + (100 if sick else 1))], asynchronous=False)
    kafka.produce(topic, ["new"])
    with consumer(at, [topic]) as reader:
        read(reader, 1)


@program("started-at-end", slow=True)
def begins_at_the_end(kafka: Kafka, at: str, sick: bool) -> None:
    """A new group with auto.offset.reset=latest, the default, does not see what exists."""
    topic = _records(kafka)
    with consumer(at, [topic], auto_offset_reset="latest" if sick else "earliest") as reader:
        read(reader, 0 if sick else 12)
        # it has a position
        polled(lambda: asked(kafka, "Fetch"), reader)
        kafka.produce(topic, ["new"])
        read(reader, 1)
