"""`Cluster.proxy()`: clients of any language reach every node of a cluster through it, and see no other address."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError, ListenerError
from tests.support.certificates import Authority

NODES = 3


@pytest.fixture
def cluster():
    """A cluster of three nodes."""
    with fl.Broker.in_memory(nodes=NODES, config={"auto.create.topics.enable": "true"}) as broker:
        broker.create_topic("orders", partitions=6)
        with broker.listen() as listener:
            yield broker, listener


@pytest.fixture
def proxy(cluster):
    """A proxy in front of it."""
    _, listener = cluster
    with fl.Cluster(f"kafka://{listener.bootstrap}").proxy() as proxy:
        yield proxy


def connect(address):
    host, port = address.split(",")[0].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def request(api, version, correlation_id, body=b""):
    frame = struct.pack(">hhih", api, version, correlation_id, -1) + body
    return struct.pack(">i", len(frame)) + frame


def received(connection, count):
    """So many bytes, or those before the end."""
    data = bytearray()
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return bytes(data)


def response(connection):
    """Correlation id and body; None: the end."""
    head = received(connection, 4)
    if len(head) < 4:
        return None
    frame = received(connection, struct.unpack(">i", head)[0])
    return struct.unpack(">i", frame[:4])[0], frame[4:]


def ports(bootstrap):
    return {int(address.rsplit(":", 1)[1]) for address in bootstrap.split(",")}


def test_librdkafka_reaches_every_node_and_knows_no_other_address(cluster, proxy):
    _, listener = cluster
    config = {"bootstrap.servers": proxy.bootstrap}
    producer = Producer(config)
    for partition in range(6):
        producer.produce("orders", b"%d" % partition, partition=partition)
    assert producer.flush(20) == 0
    consumer = Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = {consumer.poll(20).value() for _ in range(6)}
    assert read == {b"%d" % partition for partition in range(6)}
    consumer.commit(asynchronous=False)
    assert sum(tp.offset for tp in consumer.committed([TopicPartition("orders", p) for p in range(6)], timeout=20)) == 6
    admin = AdminClient(config)
    found = admin.list_topics(timeout=20)
    described = admin.describe_cluster().result()
    nodes = [(node.id, node.host, node.port) for node in described.nodes]
    assert sorted(nodes) == sorted((node.id, node.host, node.port) for node in found.brokers.values())
    assert [node for node, _, _ in sorted(nodes)] == [1, 2, 3]
    seen = {port for _, _, port in nodes}
    assert len(seen) == NODES
    assert not seen & (ports(listener.bootstrap) | ports(proxy.bootstrap))
    assert admin.describe_configs([ConfigResource("broker", "2")])
    consumer.close()


def test_our_own_clients_and_transactions(cluster, proxy):
    broker, _ = cluster
    place = f"kafka://{proxy.bootstrap}"
    with fl.Producer(place, {"transactional.id": "t"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            for partition in range(6):
                producer.send("orders", value=b"v", partition=partition)
    with fl.Consumer(place, {"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}) as consumer:
        consumer.subscribe(["orders"])
        read = 0
        while read < 6:
            read += len(consumer.poll(timeout_ms=20_000))
        consumer.commit()
    with fl.Cluster(place) as behind:
        assert behind.nodes == [1, 2, 3]
        assert behind.cluster_id == broker.cluster_id
        assert sum(behind.end_offsets([("orders", p) for p in range(6)]).values()) == 12


def test_records_without_acknowledgements_have_no_response(cluster, proxy):
    broker, _ = cluster
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "acks": 0, "topic.metadata.refresh.interval.ms": 20})
    for number in range(2000):
        producer.produce("orders", b"x" * 1000, partition=number % 6)
        producer.poll(0)
    assert producer.flush(20) == 0
    while sum(p.high_watermark for p in broker.describe_topic("orders").partitions) < 2000:
        pass
    assert producer.list_topics(timeout=20).brokers


def test_requests_in_flight_are_answered_in_their_order(proxy):
    metadata = struct.pack(">i", -1)
    with connect(proxy.bootstrap) as connection:
        connection.sendall(b"".join(request(18, 0, n) if n % 2 else request(3, 1, n, metadata) for n in range(200)))
        answers = [response(connection) for _ in range(200)]
    assert [number for number, _ in answers] == list(range(200))


def test_what_a_client_sends_before_it_closes_its_side_is_answered(proxy):
    with connect(proxy.bootstrap) as connection:
        connection.sendall(request(18, 0, 7) + request(3, 1, 8, struct.pack(">i", -1)))
        connection.shutdown(socket.SHUT_WR)
        assert [response(connection)[0] for _ in range(2)] == [7, 8]
        assert response(connection) is None


def test_a_client_that_reads_nothing_stops_its_node_not_the_memory_of_the_proxy(cluster, proxy):
    broker, listener = cluster
    broker.create_topic("large", config={"max.message.bytes": 2_000_000})
    leader = broker.describe_topic("large").partitions[0].leader
    with fl.Producer(broker, {"max.request.size": 2_000_000}) as producer:
        producer.send("large", value=b"x" * 1_000_000).result()
    nodes = Producer({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20).brokers
    partition = struct.pack(">iqi", 0, 0, 2_000_000)
    fetch = struct.pack(">iiiib", -1, 0, 1, 2_000_000, 0) + struct.pack(">ih", 1, 5) + b"large" + struct.pack(">i", 1) + partition
    count = 300
    with connect(f"{nodes[leader].host}:{nodes[leader].port}") as connection, connect(proxy.bootstrap) as other:
        connection.sendall(b"".join(request(1, 4, n, fetch) for n in range(count)))
        sent, before = 0, -1
        while sent != before:
            time.sleep(0.1)
            other.sendall(request(18, 0, 1))
            assert response(other)[0] == 1
            before, sent = sent, int(listener.stats().to_pyarrow().schema.metadata[b"bytes.sent"])
        assert 1_000_000 < sent < 60_000_000
        for number in range(count):
            correlation_id, body = response(connection)
            assert correlation_id == number
            assert len(body) > 1_000_000


def test_a_node_that_is_down_closes_connections_and_is_found_again():
    with fl.Broker.in_memory() as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}").proxy() as proxy:
        with connect(proxy.bootstrap) as connection:
            connection.sendall(request(18, 0, 1))
            assert response(connection)[0] == 1
            listener.close()
            assert response(connection) is None
        with connect(proxy.bootstrap) as connection:
            connection.sendall(request(18, 0, 1))
            with contextlib.suppress(ConnectionResetError):
                assert response(connection) is None
        (port,) = ports(listener.bootstrap)
        with broker.listen(port=port), connect(proxy.bootstrap) as connection:
            connection.sendall(request(18, 0, 1))
            assert response(connection)[0] == 1


@pytest.mark.parametrize("hostile", [b"\xff\xff\xff\xff", b"\0\0\0\x01x", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhi", 8, 17, 0, 1)])
def test_bytes_that_are_no_requests_end_only_their_connection(proxy, hostile):
    with connect(proxy.bootstrap) as bad, connect(proxy.bootstrap) as good:
        bad.sendall(hostile)
        bad.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""
        good.sendall(request(18, 0, 9))
        assert response(good)[0] == 9


def test_tls_on_either_side_and_sasl_as_it_is(tmp_path):
    authority = Authority(tmp_path)
    names = ("localhost", "127.0.0.1")
    keystore = authority.issue("broker", names)[0]
    own = authority.issue("proxy", names)[0]
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": keystore,
    }
    with fl.Broker.in_memory(nodes=2) as broker:
        broker.create_topic("orders", partitions=4)
        broker.upsert_user_scram_credential("alice", "secret")
        with broker.listen(config=config) as listener:
            to_nodes = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(authority.file), "ssl.truststore.type": "PEM"}
            ports = {"security.protocol": "SSL", "ssl.keystore.location": str(own)}
            with fl.Cluster(f"kafka://{listener.bootstrap}", to_nodes | SCRAM).proxy(config=ports) as proxy:
                client = {
                    "bootstrap.servers": proxy.bootstrap,
                    "security.protocol": "sasl_ssl",
                    "ssl.ca.location": authority.file,
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.username": "alice",
                    "sasl.password": "secret",
                }
                producer = Producer(client)
                for partition in range(4):
                    producer.produce("orders", b"x" * 100_000, partition=partition)
                assert producer.flush(20) == 0
                consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
                consumer.subscribe(["orders"])
                assert sum(len(consumer.poll(20).value()) for _ in range(4)) == 400_000
                consumer.close()


SCRAM = {
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";',
}


def test_mistakes_are_named(cluster):
    _, listener = cluster
    with fl.Cluster(f"kafka://{listener.bootstrap}") as real:
        with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
            real.proxy("here")
        with pytest.raises(InvalidArgumentError, match="advertised"):
            real.proxy("0.0.0.0:0")
        with pytest.raises(ListenerError, match="cannot listen on"):
            real.proxy(listener.bootstrap.split(",")[0])
        with pytest.raises(ConfigError):
            real.proxy(config={"security.protocol": "SSL"})
        with real.proxy() as proxy:
            assert repr(proxy) == f"<fletchlog.types.Proxy: {proxy.bootstrap}>"
            proxy.close()
            with pytest.raises(ConnectionRefusedError):
                connect(proxy.bootstrap)


def test_the_command_relays_until_it_is_ended(cluster):
    _, listener = cluster
    command = [sys.executable, "-m", "fletchlog", "proxy", f"kafka://{listener.bootstrap}", "--listen", "127.0.0.1:0", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = json.loads(process.stdout.readline())
        assert printed["pid"] == process.pid
        assert len(Producer({"bootstrap.servers": printed["bootstrap"]}).list_topics(timeout=20).brokers) == NODES
        process.terminate()
        assert process.wait(20) == 0
        assert f"relaying to kafka://{listener.bootstrap}" in process.stderr.read()
