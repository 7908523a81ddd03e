"""Clients say who they are before a listener serves them, with the mechanisms of Kafka."""

import json
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import fletchlog as fl

CLIENTS = Path(__file__).parent / "clients"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="b,=\\"x";'
    ),
}


def sasl(kafka, user="alice", password="alice-secret", mechanism="PLAIN"):
    """librdkafka's properties of a client."""
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture
def broker():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders")
        yield broker


def refusal(config):
    """The first error of a client, and when it came."""
    errors = []
    began = time.monotonic()
    client = AdminClient(config | {"error_cb": errors.append})
    while not errors and time.monotonic() - began < 3:
        client.poll(0.05)
    return errors[0], time.monotonic() - began


def round_trip(config):
    """What a client produces and reads."""
    producer = confluent_kafka.Producer(config)
    producer.produce("orders", b"v")
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(10)
    consumer.close()
    return message.value()


@pytest.mark.parametrize(("user", "password"), [("alice", "alice-secret"), ("bob", 'b,="x')])
def test_plain_lets_in_who_knows_the_password(broker, user, password):
    with broker.listen(config=PLAIN) as kafka:
        assert round_trip(sasl(kafka, user, password)) == b"v"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "alice-secret")])
def test_a_wrong_password_is_the_named_error_within_a_second(broker, user, password):
    with broker.listen(config=PLAIN) as kafka:
        error, seconds = refusal(sasl(kafka, user, password))
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "Invalid username or password" in error.str()
    assert 0.1 <= seconds < 1, "not before connection.failed.authentication.delay.ms, and no hang"


def test_a_mechanism_that_is_not_offered_is_named(broker):
    with broker.listen(config=PLAIN) as kafka:
        error, _ = refusal(sasl(kafka, mechanism="SCRAM-SHA-256"))
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "mechanism" in error.str().lower()


def kafka_python(kafka, mechanism, user, password):
    """The topics that kafka-python sees, or the name of its error: in a process of its own, since it warns."""
    command = [sys.executable, CLIENTS / "kafka_python_sasl.py", kafka.bootstrap, mechanism, user, password]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def test_kafka_python_authenticates_and_is_refused(broker):
    with broker.listen(config=PLAIN) as kafka:
        assert kafka_python(kafka, "PLAIN", "alice", "alice-secret") == ["orders"]
        assert kafka_python(kafka, "PLAIN", "alice", "wrong") in {"SaslAuthenticationFailedError", "KafkaTimeoutError"}


def test_a_client_without_sasl_is_not_served(broker):
    with broker.listen(config=PLAIN) as kafka, pytest.raises(confluent_kafka.KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=2)


def test_listeners_of_a_broker_differ(broker):
    with broker.listen() as plaintext, broker.listen(config=PLAIN) as with_sasl:
        assert round_trip({"bootstrap.servers": plaintext.bootstrap}) == b"v"
        assert "orders" in AdminClient(sasl(with_sasl)).list_topics(timeout=5).topics


def test_librdkafka_authenticates_again_before_its_session_ends(broker):
    """KIP-368: its connection is not closed."""
    with broker.listen(config=PLAIN | {"connections.max.reauth.ms": "2000"}) as kafka:
        closed = []
        client = AdminClient(sasl(kafka) | {"error_cb": closed.append})
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert "orders" in client.list_topics(timeout=5).topics
            client.poll(0.2)
        authenticated = [row for row in kafka.last_requests().to_pyarrow().to_pylist() if row["api"] == "SaslAuthenticate"]
    assert len(authenticated) >= 3
    assert not closed


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.enabled.mechanisms"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config"),
        (PLAIN | {"plain.sasl.jaas.config": "X required user_a=hidden1"}, "semi-colon"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"num.partitions": "3"}, "not of a listener"),
    ],
)
def test_what_a_listener_lacks_is_said_without_a_secret(broker, config, text):
    with pytest.raises(fl.errors.ConfigException, match=text) as raised:
        broker.listen(config=config)
    assert "hidden1" not in str(raised.value)


def test_passwords_are_not_shown_anywhere(caplog):
    with fl.Broker.in_memory(config=PLAIN) as broker, broker.listen() as kafka:
        _error, _ = refusal(sasl(kafka, password="wrong-secret"))
        admin = AdminClient(sasl(kafka))
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.BROKER, "1")
        described = next(iter(admin.describe_configs([resource]).values())).result(10)
        entry = described["plain.sasl.jaas.config"]
        assert (entry.value, entry.is_sensitive) == (None, True)
        shown = [
            broker,
            kafka,
            broker.describe_config(),
            kafka.stats(),
            kafka.last_requests().to_pyarrow().to_pylist(),
            *caplog.messages,
            *map(str, described.values()),
        ]
    assert not [one for one in shown if "secret" in repr(one)]
