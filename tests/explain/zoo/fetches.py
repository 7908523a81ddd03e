"""Programs whose fetches are sick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.explain.zoo import program
from tests.explain.zoo.clients import asked, consumer, polled, producer, read
from tests.support.waiting import until

if TYPE_CHECKING:
    from pytest_fletchlog.kafka import Kafka


def _one_by_one(kafka: Kafka, topic: str, count: int, size: int = 10) -> None:
    """So many batches of one record."""
    for number in range(count):
        kafka.produce(topic, [str(number).zfill(size)])


@program("fetch-too-small")
def fetches_a_record_at_a_time(kafka: Kafka, at: str, sick: bool) -> None:
    """max.partition.fetch.bytes was made small to save memory."""
    topic = kafka.topic()
    _one_by_one(kafka, topic, 30, 200)
    with consumer(at, [topic], max_partition_fetch_bytes=100 if sick else 1_048_576) as reader:
        read(reader, 30)


@program("fetch-waits", slow=True)
def waits_for_many_bytes(kafka: Kafka, at: str, sick: bool) -> None:
    """fetch.min.bytes is larger than what arrives in fetch.max.wait.ms."""
    topic = kafka.topic()
    with consumer(at, [topic], fetch_min_bytes=1_000_000 if sick else 1, fetch_wait_max_ms=150) as reader:
        for number in range(5):
            kafka.produce(topic, [str(number)])
            read(reader, 1)


@program("busy-fetch", slow=True)
def asks_without_pause(kafka: Kafka, at: str, sick: bool) -> None:
    """fetch.max.wait.ms was made small to save time."""
    topic = kafka.topic()
    kafka.produce(topic, ["1"])
    with consumer(at, [topic], fetch_wait_max_ms=1 if sick else 200) as reader:
        read(reader, 1)
        polled(lambda: asked(kafka, "Fetch") > (70 if sick else 5), reader)


@program("reads-uncommitted")
def reads_what_was_aborted(kafka: Kafka, at: str, sick: bool) -> None:
    """The default isolation level of many clients is read_uncommitted."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1")
    writer.init_transactions(10)
    for number in range(2):
        writer.begin_transaction()
        writer.produce(topic, str(number))
        writer.flush(10)
        if number:
            writer.commit_transaction(10)
        else:
            writer.abort_transaction(10)
    with consumer(at, [topic], isolation_level="read_uncommitted" if sick else "read_committed") as reader:
        read(reader, 2 if sick else 1)


@program("open-transaction")
def a_transaction_is_left_open(kafka: Kafka, at: str, sick: bool) -> None:
    """A program returns early and neither commits nor aborts: readers with read_committed stand still."""
    topic = kafka.topic()
    writer = producer(at, transactional_id="shop-1", transaction_timeout_ms=600_000)
    writer.init_transactions(10)
    writer.begin_transaction()
    writer.produce(topic, "1")
    writer.flush(10)
    if not sick:
        writer.commit_transaction(10)
    with consumer(at, client_id="reader", isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        read(reader, 0 if sick else 1)
        # long polls that bring nothing
        until(lambda: reader.poll(0.02) or len(kafka.requests(api="Fetch", client_id="reader")) > (7 if sick else 2))


@program("poison-record")
def fails_at_one_record(kafka: Kafka, at: str, sick: bool) -> None:
    """A record cannot be parsed, the program ends, and its supervisor starts it again."""
    topic = kafka.topic()
    _one_by_one(kafka, topic, 5)
    with consumer(at, [topic], enable_auto_commit=False) as reader:
        read(reader, 2)
        reader.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    for _ in range(5 if sick else 1):
        with consumer(at, [topic], enable_auto_commit=False) as reader:
            read(reader, 1 if sick else 3)
            if not sick:
                reader.commit(asynchronous=False)


@program("reads-again")
def goes_back_for_every_run(kafka: Kafka, at: str, sick: bool) -> None:
    """Reference data is read by seek() to the beginning before each job, instead of once."""
    topic = kafka.topic()
    kafka.produce(topic, [str(number) for number in range(20)])
    with consumer(at, [topic], auto_commit_interval_ms=20) as reader:
        read(reader, 20)
        for _ in range(6 if sick else 1):
            reader.seek(TopicPartition(topic, 0, 0))
            read(reader, 20)


@program("partition-starved")
def pauses_and_never_resumes(kafka: Kafka, at: str, sick: bool) -> None:
    """A partition is paused for back pressure, and an error skips the resume()."""
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, ["0"] * 5, partition=0)
    kafka.produce(topic, ["1"] * 5, partition=1)
    with consumer(at, fetch_wait_max_ms=20) as reader:

        def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
            reader.assign(partitions)
            if sick:
                reader.pause([TopicPartition(topic, 1)])

        reader.subscribe([topic], on_assign=on_assign)
        read(reader, 5 if sick else 10)
        for number in range(12):
            kafka.produce(topic, [str(number)], partition=0)
            read(reader, 1)


@program("throttled")
def a_quota_is_used_up(kafka: Kafka, at: str, sick: bool) -> None:
    """The broker throttles the client."""
    topic = kafka.topic()
    if sick:
        kafka.faults.on(api="Produce", topic=topic, times=3).throttle(60)
    writer = producer(at)
    for number in range(4):
        writer.produce(topic, str(number))
        writer.flush(10)


@program("topic-missing", auto_create_topics_enable="false")
def the_topic_does_not_exist(kafka: Kafka, at: str, sick: bool) -> None:
    """A name with a mistake, and topics are not created automatically."""
    topic = kafka.topic(name="orders")
    kafka.produce(topic, ["1"] * 12)
    with consumer(at, ["order" if sick else topic], topic_metadata_refresh_interval_ms=100) as reader:
        if sick:
            polled(lambda: asked(kafka, "Metadata", "reader") > 5, reader)
        else:
            read(reader, 12)


@program("lookup-per-record")
def looks_up_what_it_has_committed(kafka: Kafka, at: str, sick: bool) -> None:
    """committed() before each record."""
    topic = kafka.topic()
    kafka.produce(topic, [str(number) for number in range(40)])
    with consumer(at, [topic]) as reader:
        for _ in read(reader, 40):
            if sick:
                reader.committed([TopicPartition(topic, 0)], timeout=10)
