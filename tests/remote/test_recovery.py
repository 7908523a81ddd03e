"""Clients whose known brokers are gone: bootstrap.servers are asked again (KIP-899), silent ones are given up, and nobody is warned twice."""

import contextlib
import logging
import socket
import time

import pytest

import fletchlog as fl
from fletchlog.errors import KafkaTimeoutError


def unused_ports(count):
    """Ports that refuse connections."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


@pytest.fixture
def moving():
    """A broker with a topic, a function that lets it listen at one of two ports, and the list of both."""
    ports = unused_ports(2)
    with fl.Broker.in_memory() as broker, contextlib.ExitStack() as stack:
        broker.create_topic("t")
        open_one = []

        def listen(number):
            for listener in open_one:
                listener.close()
            open_one[:] = [stack.enter_context(broker.listen(port=ports[number]))]

        listen(0)
        yield listen, {"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports), "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}


def test_a_cluster_whose_brokers_have_moved_is_found_again(moving):
    listen, config = moving
    with fl.Producer(config) as producer, fl.Consumer({**config, "auto.offset.reset": "earliest"}) as consumer, fl.Cluster(config) as cluster:
        consumer.assign([("t", 0)])
        for move in range(3):
            producer.send("t", value=b"%d" % move).result()
            assert cluster.describe_topic("t").partitions[0].high_watermark == move + 1
            values = []
            end = time.monotonic() + 20
            while not values and time.monotonic() < end:
                values = [record.value for record in consumer.poll(timeout_ms=500)]
            assert values == [b"%d" % move]
            listen((move + 1) % 2)


def test_without_recovery_the_known_brokers_are_tried_until_the_time_is_over(moving):
    listen, config = moving
    short = {**config, "metadata.recovery.strategy": "none", "default.api.timeout.ms": 700}
    with fl.Cluster(short) as cluster:
        assert cluster.topics() == ["t"]
        listen(1)
        with pytest.raises(KafkaTimeoutError, match=r"default\.api\.timeout\.ms"):
            cluster.topics()


def test_a_server_that_is_silent_is_given_up_after_request_timeout_ms_and_the_next_is_asked():
    with fl.Broker.in_memory() as broker, broker.listen() as listener, socket.create_server(("127.0.0.1", 0)) as silent:
        broker.create_topic("t")
        servers = f"127.0.0.1:{silent.getsockname()[1]},{listener.bootstrap}"
        config = {"bootstrap.servers": servers, "request.timeout.ms": 200, "default.api.timeout.ms": 20_000}
        with fl.Cluster(config) as cluster:
            assert cluster.topics() == ["t"]


def test_a_broker_that_cannot_be_reached_is_warned_of_once(caplog):
    (port,) = unused_ports(1)
    config = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}

    def warnings():
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING and str(port) in record.getMessage()]

    with caplog.at_level(logging.DEBUG, "fletchlog"):
        with fl.Consumer(config) as consumer:
            consumer.assign([("t", 0)])
            for _ in range(5):
                consumer.poll(timeout_ms=100)
        assert len(warnings()) == 1, warnings()
        caplog.clear()
        with pytest.raises(KafkaTimeoutError), fl.Cluster({**config, "default.api.timeout.ms": 500, "retry.backoff.ms": 20}) as cluster:
            cluster.topics()
        assert len(warnings()) == 1, warnings()


@pytest.mark.parametrize(("given", "noticed"), [({}, True), ({"metadata.cluster.check.enable": False}, False), ({"metadata.recovery.strategy": "none"}, False)])
def test_another_cluster_at_the_same_address_is_noticed_unless_told_otherwise(caplog, given, noticed):
    (port,) = unused_ports(1)
    config = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "auto.offset.reset": "earliest", **given}
    with caplog.at_level(logging.INFO, "fletchlog"), contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(fl.Broker.in_memory()) for _ in range(2)]
        for broker in brokers:
            broker.create_topic("t")
            with fl.Producer(broker) as producer:
                producer.send("t", value=b"v").result()
        consumer = None
        for broker in brokers:
            with broker.listen(port=port):
                if consumer is None:
                    consumer = stack.enter_context(fl.Consumer(config))
                    consumer.assign([("t", 0)])
                consumer.seek(("t", 0), 0)
                end = time.monotonic() + 20
                while not (rows := list(consumer.poll(timeout_ms=500))) and time.monotonic() < end:
                    pass
                assert [row.value for row in rows] == [b"v"]
    assert any("a node asks for it" in record.getMessage() for record in caplog.records) == noticed
