# pyright: strict
"""Sixty programs in which no type checker may find anything. `test_typing.py` has them checked; nothing here runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import fletchlog as fl
from fletchlog import serde
from fletchlog.admin import NewTopic
from fletchlog.configs import BrokerConfig, ConsumerConfig, ProducerConfig, TopicConfig
from fletchlog.types import Column, IsolationLevel, OffsetAndMetadata, RecordMetadata
from pytest_fletchlog.kafka import Kafka

T0 = fl.TopicPartition("t", 0)


def fixtures(kafka: Kafka) -> None:
    assert_type(kafka.topic(partitions=3), str)
    assert_type(kafka.topic("orders", partitions=3), str)
    kafka.topic(3, "orders", {"retention.ms": 5})
    kafka.produce("t", ["v", (b"k", "v"), ("k", None)])
    assert_type(kafka.requests(api="Fetch")[0].errors, list[str])


def place(broker: fl.Broker, cluster: fl.Cluster, path: Path) -> None:
    assert_type(fl.Consumer(broker), fl.Consumer)  # 1
    assert_type(fl.Consumer(cluster), fl.Consumer)  # 2
    fl.Consumer(path, group="g", topics=["orders"])  # 3
    fl.Consumer("data/", {"group.id": "g"})  # 4
    fl.Consumer("kafka://127.0.0.1:9092", {"group.id": "g", "enable.auto.commit": False})  # 5
    fl.Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"})  # 6
    assert_type(fl.Producer(broker), fl.Producer)  # 7
    fl.Producer({"bootstrap.servers": "127.0.0.1:9092", "acks": "all"})  # 8
    fl.Broker(path, create=True, config={"num.partitions": 3})  # 9
    fl.Broker.in_memory(nodes=3, config={"delete.topic.enable": True})  # 10


def computed(broker: fl.Broker, properties: dict[str, Any]) -> None:
    fl.Consumer(broker, properties)  # 11
    more: dict[str, Any] = {**properties, "group.id": "g"}
    fl.Consumer(broker, more)  # 12
    fl.Producer(broker, dict(properties))  # 13
    consumer: ConsumerConfig = {"group.id": "g", "max.poll.records": 10}
    fl.Consumer(broker, consumer)  # 14
    fl.Consumer(broker, {**consumer, "auto.offset.reset": "earliest"})  # 15
    producer: ProducerConfig = {"linger.ms": 5}
    fl.Producer(broker, producer)  # 16
    topic: TopicConfig = {"cleanup.policy": ["compact", "delete"]}
    broker.create_topic("t", config=topic)  # 17
    own: BrokerConfig = {"log.retention.ms": "1000"}
    fl.Broker.in_memory(config=own)  # 18


def produce(broker: fl.Broker) -> None:
    with fl.Producer(broker) as producer:
        metadata = producer.send("t", b"value", b"key", headers=[("h", b"1"), ("n", None)]).result(5)
        assert_type(metadata, RecordMetadata)  # 19
        producer.send("t", None, b"key", partition=0, timestamp_ms=datetime.now(UTC))  # 20
        producer.send("t", bytearray(b"v"), headers={"h": b"1"})  # 21
        producer.send_many("t", [b"a", None], [b"k", b"l"])  # 22
        producer.flush(1.5)  # 23
        producer.flush(timedelta(seconds=1))  # 24
        producer.flush()  # 25
        with producer.transaction() as same:
            assert_type(same, fl.Producer)  # 26
    with fl.Producer(broker, key_serializer=serde.String(), value_serializer=serde.Long()) as numbers:
        assert_type(numbers, fl.Producer[str, int])  # 27
        numbers.send("t", 3, "three")  # 28
        numbers.send_many("t", range(3), ["a", "b", "c"])  # 29
    with fl.Producer(broker, value_serializer=serde.Json()) as anything:
        anything.send("t", {"amount": 3}, b"key")  # 30
    with fl.Producer(broker, value_serializer=encode) as texts:
        assert_type(texts, fl.Producer[bytes | bytearray | memoryview, str])  # 31
        texts.send("t", "text", b"key")  # 32


def encode(value: str) -> bytes:
    return value.encode()


def consume(broker: fl.Broker) -> None:
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"], on_assigned=lambda partitions: partitions.sort())  # 33
        consumer.assign(("t", 0))  # 34
        consumer.assign([T0, ("t", 1)])  # 35
        consumer.seek_to_end(("t", 0))  # 36
        consumer.seek(T0, datetime.now(UTC))  # 37
        consumer.seek(("t", 0), OffsetAndMetadata(5))  # 38
        assert_type(consumer.committed(T0), OffsetAndMetadata | None)  # 39
        assert_type(consumer.committed([T0]), dict[fl.TopicPartition, OffsetAndMetadata | None])  # 40
        records = consumer.poll(timedelta(seconds=1), until=consumer.end_offsets([T0]))
        assert_type(records, fl.Records)  # 41
        assert_type(records[0].value, bytes | None)  # 42
        assert_type(records[-2:], fl.Records)  # 43
        for tp, part in records.by_partition().items():
            consumer.commit({tp: part[-1].offset + 1})  # 44
        for found in consumer.read_to_end():
            assert_type(found, fl.Records)  # 45
        for record in consumer:
            assert_type(record, fl.Record)  # 46
            assert_type(record.header("h", b""), bytes | None)  # 47
            break
        consumer.pause(T0)  # 48
        consumer.offsets_for_times({("t", 0): 5})  # 49


def typed(broker: fl.Broker) -> None:
    with fl.Consumer(broker, key_deserializer=serde.String(), value_deserializer=json.loads) as consumer:
        for record in consumer.poll():
            assert_type(record.key, str | None)  # 50
    with fl.Consumer(broker, value_deserializer=serde.Double()) as numbers:
        assert_type(numbers, fl.Consumer[bytes, float])  # 51
        assert_type(next(numbers).value, float | None)  # 52
    with fl.Consumer(broker, value_deserializer=int) as whole:
        assert_type(next(iter(whole.poll())).value, int | None)  # 53
        assert_type(whole.poll()[0].value, int | None)  # 54


def administer(peer: fl.Broker | fl.Cluster, level: IsolationLevel) -> Iterator[fl.Record]:
    peer.create_topic("t", 3, config={"retention.ms": 1000}, exist_ok=True)  # 55
    peer.create_topics(["a", ("b", 3), NewTopic("c", config={"retention.ms": 5})], exist_ok=True)  # 56
    assert_type(peer.describe_config(node=1)[0].name, str)  # 57
    assert_type(peer.end_offsets(("t", 0), isolation_level=level), dict[fl.TopicPartition, int])  # 58
    columns: list[Column] = ["key", "value"]
    peer.scan("t", columns=columns, order="timestamp", timestamp_unit="ms", isolation_level=level)  # 59
    yield from peer.scan("t", tail=3).records()  # 60
