"""confluent-kafka's tuned consume loop into pyarrow, against the mock cluster that librdkafka brings along."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC = "bench"
# the mock cluster's default number of partitions, and what it keeps of each (5 MB) at some 17 bytes a record
PARTITIONS = 4
PER_PARTITION = 200_000


class Filled:
    """A cluster with records in it."""

    def __init__(self, servers: str, topic: str = TOPIC, records: int = PARTITIONS * PER_PARTITION) -> None:
        self._servers = servers
        self._topic = topic
        self.records = records

    def consume(self) -> int:
        """Reads everything into Arrow batches with the columns of Spark's kafka source."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 1_000_000,
                "fetch.message.max.bytes": 50_000_000,
            }
        )
        consumer.assign([TopicPartition(self._topic, p, 0) for p in range(PARTITIONS)])
        seen = 0
        while seen < self.records:
            seen += batch_of(consumer.consume(100_000, timeout=1.0)).num_rows
        consumer.close()
        return seen


def batch_of(messages: list) -> pa.RecordBatch:
    """Messages as one Arrow batch, with no more Python than it takes: the topic and the timestamp type are left out."""
    return pa.record_batch(
        {
            "key": pa.array([m.key() for m in messages], pa.binary()),
            "value": pa.array([m.value() for m in messages], pa.binary()),
            "partition": pa.array([m.partition() for m in messages], pa.int32()),
            "offset": pa.array([m.offset() for m in messages], pa.int64()),
            "timestamp": pa.array([m.timestamp()[1] for m in messages], pa.timestamp("ms", "UTC")),
        }
    )


@contextlib.contextmanager
def filled() -> Iterator[Filled]:
    """A mock cluster with ten-byte records; gone with the context."""
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "linger.ms": 50, "queue.buffering.max.messages": 1_000_000, "log_level": 3}
    )
    broker = next(iter(producer.list_topics(TOPIC, timeout=10).brokers.values()))
    for number in range(PARTITIONS * PER_PARTITION):
        while True:
            try:
                producer.produce(TOPIC, value=b"0123456789", partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    yield Filled(f"{broker.host}:{broker.port}")
    del producer
