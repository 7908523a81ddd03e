# pyright: strict
"""Sixty lines that are wrong, each of which every type checker has to find. `test_typing.py` has them checked; nothing here runs."""

from __future__ import annotations

import fletchlog as fl
from fletchlog import serde
from fletchlog.admin import NewTopic
from fletchlog.configs import ConsumerConfig, ProducerConfig, TopicConfig

T0 = fl.TopicPartition("t", 0)


def place(broker: fl.Broker, cluster: fl.Cluster) -> None:
    fl.Consumer()  # 1
    fl.Producer()  # 2
    fl.Consumer(5)  # 3
    fl.Producer(b"data/")  # 4
    fl.Consumer(broker, {"group.idd": "g"})  # 5
    fl.Producer(broker, {"ack": "all"})  # 6
    fl.Consumer({"bootstrap.server": "127.0.0.1:9092"})  # 7
    fl.Consumer(broker, {"max.poll.records": [1]})  # 8
    fl.Producer(broker, {"linger.ms": None})  # 9
    fl.Consumer(broker, "g")  # 10
    fl.Consumer(broker, group_id="g")  # 11
    fl.Broker("data/", True)  # 12
    fl.Broker("data/", config={"num.partition": 3})  # 13
    fl.Broker.in_memory(3)  # 14
    fl.Consumer(broker, {"acks": "all"})  # 15
    fl.Producer(broker, {"group.id": "g"})  # 16


def configured(broker: fl.Broker) -> None:
    a: ConsumerConfig = {"group": "g"}  # 17
    b: ProducerConfig = {"acks": ["all"]}  # 18
    c: TopicConfig = {"retention": 5}  # 19
    broker.create_topic("t", config={"retention.m": 5})  # 20
    broker.create_topic("t", config={"cleanup.policy": 5})  # 21
    broker.create_topic(str((a, b, c)))


def produce(broker: fl.Broker) -> None:
    producer = fl.Producer(broker)
    producer.send("t", "text", b"key")  # 22
    producer.send("t", 3)  # 23
    producer.send("t", b"value", "key")  # 24
    producer.send(5, b"value")  # 25
    producer.send("t", b"value", partition="0")  # 26
    producer.send("t", b"value", timestamp_ms=1.5)  # 27
    producer.send("t", b"value", headers=[("h", "text")])  # 28
    producer.send_many("t", ["text"])  # 29
    producer.send_many("t", [b"value"], ["key"])  # 30
    producer.flush(timeout_ms=1.5)  # 31
    producer.flush("1s")  # 32
    numbers = fl.Producer(broker, value_serializer=serde.Long())
    numbers.send("t", "three")  # 33
    numbers.send("t", 3, "key")  # 34
    numbers.send_many("t", [b"3"])  # 35
    fl.Producer(broker, value_serializer="utf-8")  # 36
    fl.Producer(broker, value_serializer=len)  # 37
    producer.send("t", producer.send("t", b"value").result())  # 38


def consume(broker: fl.Broker) -> None:
    consumer = fl.Consumer(broker)
    consumer.assign("t")  # 39
    consumer.assign([("t", "0")])  # 40
    consumer.seek("t", 5)  # 41
    consumer.seek(T0, "2026-01-01")  # 42
    consumer.seek(T0, 1.5)  # 43
    consumer.poll("1s")  # 44
    consumer.poll(1.5)  # 45
    consumer.seek(T0, consumer.committed(T0))  # 46
    consumer.offsets_for_times({T0: 1.5})  # 47
    consumer.poll()[0].value.decode()  # 48
    consumer.poll()["a"]  # 49
    consumer.poll(until={"t": 5})  # 50
    typed = fl.Consumer(broker, value_deserializer=serde.Long())
    bytes.hex(typed.poll()[0].value)  # 51
    fl.Consumer(broker, value_deserializer="utf-8")  # 52
    fl.Consumer(broker, key_deserializer=5)  # 53


def administer(peer: fl.Broker | fl.Cluster) -> None:
    peer.scan("t", isolation_level="read-commited")  # 54
    peer.scan("t", order="time")  # 55
    peer.scan("t", columns=["valu"])  # 56
    peer.scan("t", columns="value")  # 57
    peer.scan("t", timestamp_unit="ns")  # 58
    peer.describe_config("t", node=1)  # 59
    peer.create_topics([NewTopic("t", "3")])  # 60
