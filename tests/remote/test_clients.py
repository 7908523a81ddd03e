"""Consumers and producers of ours against a cluster behind sockets: here a broker of ours that listens, so no Kafka is needed."""

import contextlib
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError, KafkaTimeoutError


def url(listener):
    """What a client takes instead of a broker."""
    return f"kafka://{listener.bootstrap}"


@pytest.fixture
def cluster():
    """A cluster of three nodes and its address."""
    with fl.Broker.in_memory(nodes=3) as broker, broker.listen() as listener:
        yield broker, url(listener)


def poll_until(consumer, count, limit=20):
    """Values of the first so many records."""
    values = []
    end = time.monotonic() + limit
    while len(values) < count and time.monotonic() < end:
        values += [record.value for record in consumer.poll(timeout_ms=200)]
    return values


def unused_port():
    """A port that refuses connections."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_records_go_to_the_cluster_and_come_back_in_the_order_of_their_partitions(cluster):
    broker, address = cluster
    broker.create_topic("t", partitions=6)
    with fl.Producer(address, {"linger.ms": 5}) as producer:
        futures = [producer.send("t", value=b"%d" % i, key=b"k", headers=[("h", b"x")], partition=i % 6) for i in range(600)]
        assert [future.result().offset for future in futures[:12]] == [0] * 6 + [1] * 6
    with fl.Consumer(address, {"auto.offset.reset": "earliest"}) as consumer:
        partitions = [fl.TopicPartition("t", p) for p in range(6)]
        consumer.assign(partitions)
        read = {p: [] for p in range(6)}
        while sum(map(len, read.values())) < 600:
            for record in consumer.poll(timeout_ms=5000):
                read[record.partition].append(int(record.value))
                assert (record.key, record.headers) == (b"k", [("h", b"x")])
        assert read == {p: list(range(p, 600, 6)) for p in range(6)}
        assert consumer.position(partitions[0]) == 100
        assert consumer.end_offsets(partitions)[partitions[5]] == 100
        assert consumer.beginning_offsets(partitions)[partitions[5]] == 0
        assert consumer.offsets_for_times({partitions[1]: 0})[partitions[1]].offset == 0


def test_the_address_may_be_in_the_configuration(cluster):
    broker, address = cluster
    broker.create_topic("t")
    servers = address.removeprefix("kafka://")
    with fl.Producer({"bootstrap.servers": servers}) as producer:
        producer.send("t", value=b"v").result()
    with fl.Consumer(config={"bootstrap.servers": servers.split(","), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([fl.TopicPartition("t", 0)])
        assert poll_until(consumer, 1) == [b"v"]


@pytest.mark.parametrize(
    "arguments",
    [(), ({},), ("kafka://",), ("kafka://h:0",), ("h:1",), ("kafka://h:1", {"bootstrap.servers": "h:1"})],
)
@pytest.mark.parametrize("client", [fl.Consumer, fl.Producer])
def test_what_is_no_cluster_is_refused_with_what_was_expected(client, arguments):
    with pytest.raises((InvalidArgumentError, ConfigError), match=r"HOST:PORT|kafka://h:1|one of the two"):
        client(*arguments)


def test_a_group_shares_partitions_commits_and_goes_on(cluster):
    broker, address = cluster
    broker.create_topic("t", partitions=4)
    with fl.Producer(address) as producer:
        for i in range(40):
            producer.send("t", value=b"%d" % i, partition=i % 4)
    config = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
    with fl.Consumer(address, config) as first:
        first.subscribe(["t"])
        assert len(poll_until(first, 40)) == 40
        first.commit()
        with fl.Consumer(address, config) as second:
            second.subscribe(["t"])
            end = time.monotonic() + 20
            while not (len(first.assignment()) == 2 == len(second.assignment())):
                assert time.monotonic() < end, (first.assignment(), second.assignment())
                first.poll(timeout_ms=50)
                second.poll(timeout_ms=50)
    assert broker.describe_group("g").state == "Empty"
    with fl.Consumer(address, {"group.id": "g"}) as later:
        committed = later.committed([fl.TopicPartition("t", p) for p in range(4)])
    assert [offset.offset for offset in committed.values()] == [10] * 4


def test_transactions_are_all_or_nothing_and_take_offsets_with_them(cluster):
    broker, address = cluster
    broker.create_topic("in", partitions=1)
    broker.create_topic("out", partitions=3)
    with fl.Producer(address) as producer:
        for i in range(10):
            producer.send("in", value=b"%d" % i)
    source = fl.TopicPartition("in", 0)
    with (
        fl.Consumer(address, {"group.id": "copy", "auto.offset.reset": "earliest", "enable.auto.commit": False}) as consumer,
        fl.Producer(address, {"transactional.id": "copier"}) as producer,
    ):
        consumer.subscribe(["in"])
        values = poll_until(consumer, 10)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", value=b"lost", partition=1)
        producer.abort_transaction()
        producer.begin_transaction()
        for i, value in enumerate(values):
            producer.send("out", value=value, partition=i % 3)
        producer.send_offsets_to_transaction({source: 10}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed([source])[source].offset == 10
    with fl.Consumer(address, {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}) as reader:
        reader.assign([fl.TopicPartition("out", p) for p in range(3)])
        assert sorted(poll_until(reader, 10)) == sorted(values)


@pytest.mark.parametrize("version", ["2.6", "3.9", "4.3"])
def test_polls_are_those_of_the_embedded_consumer(broker, version):
    broker.create_topic("t", partitions=5)
    with fl.Producer(broker, {"batch.size": 300}) as producer:
        for i in range(2_000):
            producer.send("t", value=b"value %d" % i, partition=i * 7 % 5)
    config = {"fletchlog.consumer.version": version, "auto.offset.reset": "earliest", "max.poll.records": 44, "max.partition.fetch.bytes": 1_300}

    def polls(peer):
        """(partition, offset) of each record of each poll that had any."""
        with fl.Consumer(peer, config) as consumer:
            consumer.assign([fl.TopicPartition("t", p) for p in range(5)])
            shown = []
            while sum(map(len, shown)) < 2_000:
                got = [(record.partition, record.offset) for record in consumer.poll(timeout_ms=2_000)]
                time.sleep(0.02)  # every answer arrives between two polls
                shown += [got] if got else []
            return shown

    with broker.listen() as listener:
        assert polls(url(listener)) == polls(broker)


def test_a_member_that_does_not_poll_stays_in_its_group_until_max_poll_interval_is_over():
    with fl.Broker.in_memory(config={"group.min.session.timeout.ms": 100}) as broker, broker.listen() as listener:
        broker.create_topic("t")
        config = {"group.id": "g", "session.timeout.ms": 500, "heartbeat.interval.ms": 50, "max.poll.interval.ms": 2_000}
        with fl.Consumer(url(listener), config) as consumer:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(timeout_ms=50)
            member = broker.describe_group("g").members[0].member_id
            end = time.monotonic() + 1.4
            while time.monotonic() < end:
                assert [m.member_id for m in broker.describe_group("g").members] == [member]
                time.sleep(0.05)
            while broker.describe_group("g").members:
                time.sleep(0.05)
            assert broker.describe_group("g").state == "Empty"
            while not broker.describe_group("g").members:  # it joins again with the next poll
                consumer.poll(timeout_ms=50)


def test_a_server_of_the_list_that_refuses_is_passed_over(cluster):
    broker, address = cluster
    broker.create_topic("t")
    first = f"kafka://127.0.0.1:{unused_port()},{address.removeprefix('kafka://')}"
    with fl.Producer(first) as producer:
        assert producer.send("t", value=b"v").result().offset == 0
    with fl.Consumer(first, {"auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        assert poll_until(consumer, 1) == [b"v"]


def test_without_any_server_calls_fail_in_their_time_and_name_the_server():
    server = f"127.0.0.1:{unused_port()}"
    address, partition = f"kafka://{server}", fl.TopicPartition("t", 0)
    refused = re.escape(server) + ".*refused"
    with fl.Producer(address, {"max.block.ms": 300}) as producer, pytest.raises(KafkaTimeoutError, match=refused):
        producer.send("t", value=b"v").result()
    with fl.Consumer(address, {"group.id": "g"}) as consumer:
        consumer.assign([partition])
        began = time.monotonic()
        assert len(consumer.poll(timeout_ms=300)) == 0
        assert 0.25 < time.monotonic() - began < 5
        calls = [
            lambda: consumer.position(partition, timeout_ms=200),
            lambda: consumer.end_offsets([partition], timeout_ms=200),
            lambda: consumer.offsets_for_times({partition: 0}, timeout_ms=200),
            lambda: consumer.committed(partition, timeout_ms=200),
        ]
        for call in calls:
            with pytest.raises(KafkaTimeoutError, match=refused):
                call()


def test_a_lookup_of_what_does_not_exist_asks_so_when_the_cluster_answers(cluster):
    _, address = cluster
    with fl.Consumer(address) as consumer, pytest.raises(KafkaTimeoutError, match="do these partitions exist"):
        consumer.end_offsets([fl.TopicPartition("nope", 0)], timeout_ms=200)


def test_a_subscribed_topic_that_is_made_later_is_found_long_before_the_metadata_is_old(cluster):
    broker, address = cluster
    with fl.Consumer(address, {"auto.offset.reset": "earliest", "group.id": "g", "allow.auto.create.topics": False}) as consumer:
        consumer.subscribe(["later"])
        assert len(consumer.poll(timeout_ms=500)) == 0
        broker.create_topic("later")
        with fl.Producer(broker) as producer:
            producer.send("later", value=b"v").result()
        assert poll_until(consumer, 1, limit=10) == [b"v"]


def test_a_topic_that_is_made_later_is_found(cluster):
    broker, address = cluster
    with fl.Consumer(address, {"auto.offset.reset": "earliest", "retry.backoff.ms": 20, "metadata.max.age.ms": 100}) as consumer:
        consumer.assign([fl.TopicPartition("later", 0)])
        assert len(consumer.poll(timeout_ms=100)) == 0
        broker.create_topic("later")
        with fl.Producer(address) as producer:
            producer.send("later", value=b"v").result()
        assert poll_until(consumer, 1) == [b"v"]


def test_clients_go_on_when_the_cluster_comes_back_at_its_address(broker):
    broker.create_topic("t")
    listener = broker.listen()
    config = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50, "retry.backoff.ms": 20}
    consumer = fl.Consumer(url(listener), config)
    producer = fl.Producer(url(listener), {"enable.idempotence": True, "retry.backoff.ms": 20})
    consumer.subscribe(["t"])
    producer.send("t", value=b"before").result()
    assert poll_until(consumer, 1) == [b"before"]
    listener.close()
    pending = [producer.send("t", value=b"during %d" % i) for i in range(20)]
    assert len(consumer.poll(timeout_ms=100)) == 0
    with broker.listen(port=int(listener.bootstrap.rpartition(":")[2])), consumer, producer:
        assert [future.result().offset for future in pending] == list(range(1, 21))
        assert poll_until(consumer, 20) == [b"during %d" % i for i in range(20)]


def test_a_poll_lets_other_threads_run_and_wakeup_ends_it(cluster):
    broker, address = cluster
    broker.create_topic("t")
    with fl.Consumer(address) as consumer:
        consumer.assign([fl.TopicPartition("t", 0)])
        threading.Timer(0.3, consumer.wakeup).start()
        began = time.monotonic()
        with pytest.raises(fl.errors.WakeupError):
            consumer.poll(timeout_ms=20_000)
        assert time.monotonic() - began < 10


def test_ctrl_c_ends_a_poll_of_a_cluster_that_is_silent():
    code = """
import sys, fletchlog as fl
with fl.Consumer(f"kafka://127.0.0.1:{sys.argv[1]}") as consumer:
    consumer.assign([fl.TopicPartition("t", 0)])
    print("polls", flush=True)
    try:
        consumer.poll(timeout_ms=60_000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        child = subprocess.Popen([sys.executable, "-c", code, str(silent.getsockname()[1])], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "polls\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "interrupted\n"
        assert child.returncode == 0


def test_what_is_no_kafka_broker_is_named_in_the_log_and_no_call_hangs(caplog):
    def answer(server, text):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(100)
                connection.sendall(text)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server, b"HTTP/1.1 400 Bad Request\r\n\r\n"), daemon=True).start()
        with fl.Consumer(f"kafka://127.0.0.1:{server.getsockname()[1]}") as consumer:
            consumer.assign([fl.TopicPartition("t", 0)])
            assert len(consumer.poll(timeout_ms=500)) == 0
            end = time.monotonic() + 10
            while "HTTP server" not in caplog.text and time.monotonic() < end:
                time.sleep(0.01)
        server.shutdown(socket.SHUT_RDWR)
    assert "looks like an HTTP server" in caplog.text


def test_a_configuration_of_another_client_is_taken_with_one_warning(cluster, caplog):
    broker, address = cluster
    broker.create_topic("t")
    java = {"key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer", "send.buffer.bytes": 131072, "linger.ms": 1}
    with fl.Producer({"bootstrap.servers": address.removeprefix("kafka://"), **java}) as producer:
        producer.send("t", value=b"v").result()
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "key.serializer (send() takes bytes" in warnings[0]
    assert "send.buffer.bytes" in warnings[0]
    with pytest.raises(ConfigError, match=r"enable\.ssl\.certificate\.verification"):
        fl.Consumer(address, {"enable.ssl.certificate.verification": False})


def test_the_configuration_of_a_program_with_librdkafka_is_taken_as_it_is(cluster, caplog):
    broker, address = cluster
    broker.create_topic("t")
    shared = {
        "metadata.broker.list": address.removeprefix("kafka://"),
        "security.protocol": "plaintext",
        "socket.timeout.ms": 20_000,
        "error_cb": print,
        "stats_cb": lambda _: None,
        "logger": logging.getLogger("mine"),
        "statistics.interval.ms": 0,
        "enable.partition.eof": False,
        "group.protocol": "classic",
    }
    with fl.Producer({**shared, "message.timeout.ms": 20_000, "request.required.acks": -1, "compression.codec": "lz4"}) as producer:
        producer.send("t", value=b"v").result()
    with fl.Consumer({**shared, "auto.offset.reset": "smallest", "fetch.wait.max.ms": 100, "linger.ms": 5}) as consumer:
        consumer.assign([("t", 0)])
        assert poll_until(consumer, 1) == [b"v"]
    with fl.Cluster({**shared, "acks": "all"}) as of_both:
        assert of_both.topics() == ["t"]
    warnings = [record.getMessage() for record in caplog.records if "another client" in record.getMessage()]
    assert len(warnings) == 3, "one warning each"
    assert all("error_cb (calls raise their errors" in text for text in warnings)
    assert ["linger.ms (a producer has it)" in text for text in warnings] == [False, True, False]
    assert not [text for text in warnings if "acks" in text or "enable.partition.eof" in text]


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"on_delivery": print}, r"`on_delivery` of another client cannot be followed: give the function to send\(callback=...\)"),
        ({"default.topic.config": {"acks": "all"}}, "put its properties beside the others"),
        ({"interceptor.classes": "x.Y"}, "do it before send"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "leave it out"),
        ({"erorr_cb": print}, "expected str, bool, int"),
    ],
)
def test_a_property_that_cannot_be_followed_says_what_to_do(given, advice):
    for client in (fl.Consumer, fl.Producer, fl.Cluster):
        with pytest.raises((ConfigError, TypeError), match=advice):
            client({"bootstrap.servers": "127.0.0.1:1", **given})
