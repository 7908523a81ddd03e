"""Kafka clients of other makers on a listener that speaks TLS."""

import asyncio
import ssl

import pytest

import fletchlog as fl
from tests.support.certificates import Authority


@pytest.fixture
def tls(tmp_path):
    """The authority, and the address of a listener that wants a certificate of its clients."""
    authority = Authority(tmp_path)
    keystore = authority.issue("broker", ("localhost", "127.0.0.1"))[0]
    config = {
        "security.protocol": "SSL",
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": authority.file,
        "ssl.client.auth": "required",
    }
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as listener:
        broker.create_topic("t", partitions=3)
        yield authority, listener.bootstrap


@pytest.mark.timeout(120)
def test_confluent_kafka_produces_and_consumes_over_tls(tls):
    from confluent_kafka import Consumer, Producer

    authority, address = tls
    _, chain, key = authority.issue("alice")
    config = {
        "bootstrap.servers": address,
        "security.protocol": "ssl",
        "ssl.ca.location": authority.file,
        "ssl.certificate.location": chain,
        "ssl.key.location": key,
    }
    producer = Producer(config)
    values = {b"%d" % i + b"x" * 10_000 for i in range(300)}
    for value in values:
        producer.produce("t", value)
    assert producer.flush(60) == 0
    consumer = Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read = set()
    while read != values:
        messages = consumer.consume(100, timeout=30)
        assert messages
        assert not any(message.error() for message in messages)
        read |= {message.value() for message in messages}
    consumer.close()


@pytest.mark.timeout(120)
def test_confluent_kafka_without_a_certificate_is_refused(tls):
    from confluent_kafka import KafkaError, Producer

    authority, address = tls
    errors = []
    config = {"bootstrap.servers": address, "security.protocol": "ssl", "ssl.ca.location": authority.file}
    producer = Producer(config | {"error_cb": errors.append, "log.connection.close": False})
    producer.produce("t", b"v")
    while not errors:
        producer.poll(1)
    assert errors[0].code() in {KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
    assert producer.purge(in_queue=True) is None


@pytest.mark.timeout(120)
def test_aiokafka_produces_and_consumes_over_tls(tls):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    authority, address = tls
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(authority.issue("alice")[0])
    config = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}

    async def round_trip():
        async with AIOKafkaProducer(**config) as producer:
            for i in range(50):
                await producer.send_and_wait("t", b"%d" % i, partition=0)
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **config) as consumer:
            return [(await consumer.getone()).value for _ in range(50)]

    assert asyncio.run(round_trip()) == [b"%d" % i for i in range(50)]
