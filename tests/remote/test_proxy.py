"""`Cluster.proxy()`: clients of any language reach every node of a cluster through it, and see no other address."""

import contextlib
import http.client
import json
import multiprocessing
import socket
import struct
import subprocess
import sys
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError, ListenerError
from fletchlog.explain.session import Exchange, Session
from tests.support.batches import batch_of
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
    if len(frame) < 4:
        return None
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
    count = 150
    with connect(f"{nodes[leader].host}:{nodes[leader].port}") as connection, connect(proxy.bootstrap) as other:
        connection.sendall(b"".join(request(1, 4, n, fetch) for n in range(count)))
        sent, before = 0, -1_000_000
        # The answers to the other client are a few hundred bytes.
        while sent - before > 10_000:
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


def exchanged(bootstrap, faults, rule):
    """What a client gets for requests that it sends one behind the other, while this rule is about ApiVersions: correlation ids and errors, or the end."""
    added = rule(faults.on(api="ApiVersions", nth=2))
    metadata = struct.pack(">i", 0)
    found = []
    with connect(bootstrap) as connection:
        for number in range(6):
            try:
                connection.sendall(request(18, 0, number) if number % 2 else request(3, 1, number, metadata))
                connection.settimeout(0.3)
                got = response(connection)
            except (TimeoutError, ConnectionError):
                got = "nothing"
            if got in (None, "nothing"):
                found.append("the end" if got is None else "nothing")
                break
            found.append((got[0], got[1][:2] if number % 2 else len(got[1]) > 10))
    return found, added.matched, added.applied


RULES = {
    "error": lambda on: on.error("UNKNOWN_SERVER_ERROR"),
    "error, handled": lambda on: on.error("UNKNOWN_SERVER_ERROR", handled=True),
    "lose_response": lambda on: on.lose_response(),
    "close": lambda on: on.close(),
    "close after": lambda on: on.close("after"),
    "black_hole": lambda on: on.black_hole(),
    "black_hole after": lambda on: on.black_hole("after"),
    "delay": lambda on: on.delay(20),
    "delay_response": lambda on: on.delay_response(20),
    "cut": lambda on: on.cut(6),
    "wrong_correlation_id": lambda on: on.wrong_correlation_id(),
    "slow": lambda on: on.slow(4000),
    "throttle": lambda on: on.throttle(100),
}


def test_the_address_of_a_new_leader_in_a_response_is_that_of_the_proxy(cluster, proxy):
    broker, listener = cluster
    old = broker.describe_topic("orders").partitions[0].leader
    new = old % NODES + 1
    nodes = Producer({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20).brokers
    broker.move_leader("orders", 0, to=new)
    batch = batch_of(1, 100)
    data = bytes([2, 7]) + b"orders" + bytes([2]) + struct.pack(">i", 0) + bytes([len(batch) + 1]) + batch + bytes([0, 0, 0])
    produce = struct.pack(">hhih", 0, 10, 7, -1) + bytes([0, 0]) + struct.pack(">hi", -1, 1000) + data
    with connect(f"{nodes[old].host}:{nodes[old].port}") as connection:
        connection.sendall(struct.pack(">i", len(produce)) + produce)
        correlation_id, body = response(connection)
    assert correlation_id == 7
    endpoint = struct.pack(">i", new) + b"\x0a127.0.0.1" + struct.pack(">i", nodes[new].port)
    assert endpoint in body
    assert not any(struct.pack(">i", port) in body for port in ports(listener.bootstrap))


OUTCOMES = {
    "lose_response": "response lost",
    "close": "closed",
    "close after": "response lost",
    "black_hole": "black hole",
    "black_hole after": "black hole",
    "cut": "response cut",
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_does_the_same_at_a_listener_and_at_a_proxy_before_it(name):
    with fl.Broker.in_memory() as broker, broker.listen() as direct, broker.listen() as real, fl.Cluster(f"kafka://{real.bootstrap}").proxy() as proxy:
        expected = exchanged(direct.bootstrap, direct.faults, RULES[name])
        assert expected[2] == 1
        proxy.faults.record_requests()
        assert exchanged(proxy.bootstrap, proxy.faults, RULES[name]) == expected
        outcome = "pending"
        while outcome == "pending":
            (outcome,) = [row.outcome for row in proxy.faults.requests(api="ApiVersions") if row.fault is not None]
        assert outcome == OUTCOMES.get(name, "answered")


def test_rules_keep_the_order_of_requests_in_flight(proxy):
    error = proxy.faults.on(api="ApiVersions", nth=3).error("UNKNOWN_SERVER_ERROR")
    gate = proxy.faults.on(api="ApiVersions", nth=6, times=1).hold()
    late = proxy.faults.on(api="Metadata", nth=4, times=1).delay_response(50)
    metadata = struct.pack(">i", -1)
    with connect(proxy.bootstrap) as connection:
        connection.sendall(b"".join(request(18, 0, n) if n % 2 else request(3, 1, n, metadata) for n in range(40)))
        gate.wait()
        answers = [response(connection) for _ in range(11)]
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        gate.release()
        answers += [response(connection) for _ in range(29)]
    assert [number for number, _ in answers] == list(range(40))
    assert [body[:2] for number, body in answers if number % 2].count(b"\xff\xff") == 1
    assert [rule.applied for rule in (error, gate, late)] == [1, 1, 1]


def test_a_held_request_is_carried_out_after_its_client_has_closed_its_side(cluster, proxy):
    broker, _ = cluster
    gate = proxy.faults.on(api="Metadata", topic="made").hold()
    with connect(proxy.bootstrap) as connection:
        connection.sendall(request(3, 4, 1, struct.pack(">ih", 1, 4) + b"made" + b"\x01"))
        gate.wait()
        connection.shutdown(socket.SHUT_WR)
        assert "made" not in broker.topics()
        gate.release()
        assert response(connection)[0] == 1
        assert response(connection) is None
    assert "made" in broker.topics()


def test_a_lost_acknowledgement_does_not_repeat_an_idempotent_record(cluster, proxy):
    broker, _ = cluster
    rule = proxy.faults.on(api="Produce", topic="orders", nth=1).lose_response()
    proxy.faults.record_requests()
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 10})
    producer.produce("orders", b"once", partition=0)
    assert producer.flush(20) == 0
    assert rule.applied == 1
    assert broker.describe_topic("orders").partitions[0].high_watermark == 1
    first, again = proxy.faults.requests(api="Produce")
    assert (first.outcome, first.topics, again.outcome, again.errors) == ("response lost", ["orders"], "answered", [])
    assert first.node == again.node == broker.describe_topic("orders").partitions[0].leader


def test_a_fetch_by_topic_ids_is_selected_by_name(cluster, proxy):
    with fl.Producer(f"kafka://{proxy.bootstrap}") as producer:
        producer.send("orders", value=b"v", partition=0).result()
    rule = proxy.faults.on(api="Fetch", topic="orders", partition=0, times=1).error("NOT_LEADER_OR_FOLLOWER")
    proxy.faults.on(api="Fetch", topic="other", optional=True).close()
    with fl.Consumer(f"kafka://{proxy.bootstrap}", {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0)])
        assert [record.value for record in consumer.poll(timeout_ms=20_000)] == [b"v"]
    assert rule.applied == 1


def test_connections_are_refused_by_rule(proxy):
    proxy.faults.on(connection=1).refuse_connection()
    proxy.faults.on(connection=2).tls_failure()
    with connect(proxy.bootstrap) as connection, contextlib.suppress(ConnectionResetError):
        assert connection.recv(10) == b""
    with connect(proxy.bootstrap) as connection, contextlib.suppress(ConnectionResetError):
        assert connection.recv(10) == bytes([21, 3, 3, 0, 2, 2, 40])
    with connect(proxy.bootstrap) as connection:
        connection.sendall(request(18, 0, 1))
        assert response(connection)[0] == 1


def test_a_plan_and_a_record_from_the_start(cluster, tmp_path):
    broker, listener = cluster
    plan = {"rules": [{"api": "Produce", "nth": 1, "error": "NOT_ENOUGH_REPLICAS"}]}
    with fl.Cluster(f"kafka://{listener.bootstrap}") as real:
        with real.proxy(faults=plan, record=True) as proxy:
            producer = Producer({"bootstrap.servers": proxy.bootstrap, "retry.backoff.ms": 10})
            producer.produce("orders", b"v", partition=0)
            assert producer.flush(20) == 0
            assert [row.errors for row in proxy.faults.requests(api="Produce")] == [["NOT_ENOUGH_REPLICAS"], []]
        with pytest.raises(InvalidArgumentError):
            real.proxy(faults={"rules": [{"api": "Prodduce", "close": "before"}]})
    assert broker.describe_topic("orders").partitions[0].high_watermark == 1


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


def test_a_forked_child_leaves_the_ports_to_the_parent(proxy):
    assert len(Producer({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20).brokers) == NODES
    context = multiprocessing.get_context("fork")
    started, done = context.Event(), context.Event()

    def wait():
        started.set()
        done.wait()

    child = context.Process(target=wait)
    child.start()
    started.wait()
    proxy.close()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy.bootstrap)
    done.set()
    child.join()


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


def test_the_command_relays_until_it_is_ended(cluster, tmp_path):
    _, listener = cluster
    plan, record = tmp_path / "plan.toml", tmp_path / "session.fltrace"
    plan.write_text('[[rules]]\napi = "ApiVersions"\nnth = 1\nclose = "before"\n')
    command = [sys.executable, "-m", "fletchlog", "proxy", f"kafka://{listener.bootstrap}", "--listen", "127.0.0.1:0", "--print-address"]
    with subprocess.Popen([*command, "--faults", plan, "--record", record], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = json.loads(process.stdout.readline())
        assert printed["pid"] == process.pid
        assert len(Producer({"bootstrap.servers": printed["bootstrap"]}).list_topics(timeout=20).brokers) == NODES
        process.terminate()
        assert process.wait(20) == 0
        words = process.stderr.read()
    assert f"relaying to kafka://{listener.bootstrap}" in words
    assert "applied 1" in words
    rows = [item for item in Session(record) if isinstance(item, Exchange)]
    assert (rows[0].api, rows[0].outcome) == ("ApiVersions", "closed")
    assert any(row.api == "Metadata" and row.outcome == "answered" for row in rows)


def test_a_name_of_json_for_a_session_is_refused_with_what_to_do(cluster, tmp_path):
    _, listener = cluster
    command = [sys.executable, "-m", "fletchlog", "proxy", f"kafka://{listener.bootstrap}", "--listen", "127.0.0.1:0", "--record", tmp_path / "session.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0
    assert "session.fltrace" in done.stderr
    assert "--control" in done.stderr


def relay(listener, *words):
    """A proxy in a process of its own, and what it has printed."""
    command = [sys.executable, "-m", "fletchlog", "proxy", f"kafka://{listener.bootstrap}", "--listen", "127.0.0.1:0", "--print-address"]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, json.loads(process.stdout.readline())


def test_a_proxy_is_controlled_over_http(cluster):
    _, listener = cluster
    process, printed = relay(listener, "--control", "127.0.0.1:0")

    def call(method, path, body=None):
        with closing(http.client.HTTPConnection(urlsplit(printed["control"]).netloc, timeout=20)) as control:
            control.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            response = control.getresponse()
            return response.status, json.loads(response.read())

    with process:
        assert call("GET", "/v1") == (200, {"version": 1, "bootstrap": printed["bootstrap"], "nodes": None})
        assert call("POST", "/v1/faults", {"rules": [{"api": "ApiVersions", "nth": 1, "close": "before"}]}) == (200, {"rules": [1]})
        assert len(Producer({"bootstrap.servers": printed["bootstrap"]}).list_topics(timeout=20).brokers) == NODES
        assert call("GET", "/v1/faults")[1]["rules"][0]["applied"] == 1
        assert call("GET", "/v1/requests?api=Metadata")[1]["requests"]
        assert call("DELETE", "/v1/requests") == (200, {})
        status, refused = call("POST", "/v1/clock/advance", {"seconds": 1})
        assert (status, "a proxy has" in refused["message"]) == (404, True)
        process.terminate()
        assert process.wait(20) == 0
