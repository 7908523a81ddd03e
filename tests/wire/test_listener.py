"""`Broker.listen()`: who can connect, what is counted, and what ends when."""

import contextlib
import io
import os
import socket
import struct
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

import fletchlog as fl
from fletchlog.errors import ClosedError, InvalidArgumentError, ListenerError


def port_of(listener):
    """The port of its first node."""
    return int(listener.bootstrap.split(",")[0].rpartition(":")[2])


def connect(listener):
    """A bare connection."""
    return socket.create_connection(("127.0.0.1", port_of(listener)), timeout=10)


def is_closed_by_peer(connection):
    """Waits until the other side has closed it."""
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def api_versions(correlation_id=7):
    """A request of ApiVersions, version 0."""
    body = struct.pack(">hhih", 18, 0, correlation_id, -1)
    return struct.pack(">i", len(body)) + body


def answered(connection):
    """The correlation id of the next answer."""
    size, correlation_id = struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))
    connection.recv(size - 4, socket.MSG_WAITALL)
    return correlation_id


def test_embedded_and_wire_clients_share_topics_groups_and_offsets(broker):
    broker.create_topic("orders", partitions=1)
    with broker.listen() as listener:
        producer = Producer({"bootstrap.servers": listener.bootstrap})
        producer.produce("orders", b"wire")
        assert producer.flush(10) == 0
        with fl.Producer(broker) as embedded:
            embedded.send("orders", value=b"embedded").result()
        with fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"}) as first:
            first.subscribe(["orders"])
            assert [record.value for record in first.poll(timeout_ms=5000)] == [b"wire", b"embedded"]
            first.commit()
        reader = Consumer({"bootstrap.servers": listener.bootstrap, "group.id": "g"})
        committed = reader.committed([TopicPartition("orders", 0)], timeout=10)
        reader.close()
    assert committed[0].offset == 2


def test_a_cluster_has_a_port_for_each_node_and_leads_its_partitions_there():
    with fl.Broker.in_memory(nodes=3) as broker, broker.listen() as listener:
        broker.create_topic("orders", partitions=6)
        assert len(listener.bootstrap.split(",")) == 3
        producer = Producer({"bootstrap.servers": listener.bootstrap})
        for partition in range(6):
            producer.produce("orders", b"v", partition=partition)
        assert producer.flush(10) == 0
        brokers = producer.list_topics(timeout=10).brokers
    assert sorted(brokers) == [1, 2, 3]
    assert sorted(f"{b.host}:{b.port}" for b in brokers.values()) == sorted(listener.bootstrap.split(","))


def test_an_advertised_address_is_what_clients_get(broker):
    with broker.listen() as direct, broker.listen(advertised="localhost:9") as listener:
        assert listener.bootstrap == "localhost:9"
        assert Producer({"bootstrap.servers": direct.bootstrap}).list_topics(timeout=10).brokers[1].host == "127.0.0.1"


def moved(listener, node, directories):
    """What AlterReplicaLogDirs, version 1, answers for (topic, partition); `directories`: [(path, topic, partitions)]."""

    def text(value):
        return struct.pack(">h", len(value)) + value.encode()

    body = struct.pack(">hhih", 34, 1, 7, -1) + struct.pack(">i", len(directories))
    for path, topic, partitions in directories:
        body += text(path) + struct.pack(">i", 1) + text(topic) + struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
    host, port = listener.bootstrap.split(",")[node - 1].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        answer = io.BytesIO(connection.recv(size, socket.MSG_WAITALL)[8:])

    def read(layout):
        return struct.unpack(layout, answer.read(struct.calcsize(layout)))

    found = {}
    for _ in range(read(">i")[0]):
        name = answer.read(read(">h")[0]).decode()
        found |= {(name, partition): error for partition, error in (read(">ih") for _ in range(read(">i")[0]))}
    assert answer.read() == b""
    return found


def test_a_replica_may_be_moved_to_the_directory_in_which_it_is():
    """The errors of a Kafka 4.3.1."""
    with fl.Broker.in_memory(nodes=3) as broker, broker.listen() as listener:
        broker.create_topic("orders", partitions=4)
        here = AdminClient({"bootstrap.servers": listener.bootstrap}).list_topics("orders", timeout=10).topics["orders"].partitions
        node = here[0].leader
        path, other = (f"/memory/node-{number}" for number in (node, node % 3 + 1))
        assert moved(listener, node, [(path, "orders", [0])]) == {("orders", 0): 0}
        assert moved(listener, node, [("/nowhere", "orders", [0])]) == {("orders", 0): 57}
        assert moved(listener, node, [(path, "orders", [0]), ("/nowhere", "orders", [0])]) == {("orders", 0): 57}
        assert moved(listener, node, [("/nowhere", "orders", [0]), (path, "orders", [0])]) == {("orders", 0): 0}
        assert moved(listener, node, [(path, "orders", [77, -1]), (path, "none", [0])]) == {("orders", 77): 3, ("orders", -1): 3, ("none", 0): 3}
        assert moved(listener, node, [("/nowhere", "none", [0])]) == {("none", 0): 57}
        assert moved(listener, node, [("/nowhere", "n" * 240, [0])]) == {("n" * 240, 0): 17}
        assert moved(listener, node % 3 + 1, [(other, "orders", [0]), (path, "orders", [3])]) == {("orders", 0): 9, ("orders", 3): 57}
        assert moved(listener, node, []) == {}


def test_closing_the_broker_closes_its_listeners_and_closing_twice_does_nothing():
    broker = fl.Broker.in_memory()
    first, second = broker.listen(), broker.listen()
    with connect(first) as one, connect(second) as other:
        broker.close()
        assert is_closed_by_peer(one)
        assert is_closed_by_peer(other)
    first.close(), second.close()
    with pytest.raises(ClosedError):
        broker.listen()


def test_a_closed_listener_leaves_the_broker_open_and_its_port_free(broker):
    listener = broker.listen()
    port = port_of(listener)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    broker.create_topic("orders")
    with broker.listen(port=port) as again:
        assert port_of(again) == port


def test_a_taken_port_and_an_address_that_nobody_can_reach_are_named(broker):
    with broker.listen() as listener, pytest.raises(ListenerError, match=rf"cannot listen on 127.0.0.1:{port_of(listener)}"):
        broker.listen(port=port_of(listener))
    with pytest.raises(InvalidArgumentError, match="say with `advertised`"):
        broker.listen("0.0.0.0")
    with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
        broker.listen(advertised="host:port")


def test_stats_count_requests_by_api_version_and_client(broker):
    with broker.listen() as listener, connect(listener) as connection:
        for number in range(3):
            connection.sendall(api_versions(number))
            assert answered(connection) == number
        table = listener.stats().to_pyarrow()
    assert table.to_pylist() == [{"api": "ApiVersions", "version": 0, "client": "", "requests": 3, "bytes": 30}]
    assert table.schema.metadata[b"connections.open"] == b"1"
    assert table.schema.metadata[b"connections.accepted"] == b"1"


def test_requests_that_come_at_once_are_answered_in_their_order(broker):
    with broker.listen() as listener, connect(listener) as connection:
        connection.sendall(b"".join(api_versions(number) for number in range(100)))
        assert [answered(connection) for _ in range(100)] == list(range(100))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        struct.pack(">ih", 2, 18),
    ],
)
def test_hostile_bytes_cost_their_sender_the_connection_and_nobody_else(broker, data):
    with broker.listen() as listener, connect(listener) as good, connect(listener) as bad:
        bad.sendall(data)
        assert is_closed_by_peer(bad)
        good.sendall(api_versions())
        assert answered(good) == 7


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (struct.pack(">hhih", 80, 1, 7, 3) + b"me\n", "its AddRaftVoter request, version 1, client id `me\\n`: this API is not served"),
        (struct.pack(">hhih", 1, 99, 7, 2) + b"me\0", "its Fetch request, version 99, client id `me`: versions 4 to 18 are served"),
        (struct.pack(">hhih", 999, 1, 7, 2) + b"me", "its API 999 request, version 1, client id `me`: this API is not served"),
        (struct.pack(">hhih", 3, 1, 7, 2) + b"me" + struct.pack(">i", 2**31 - 1), "its Metadata request, version 1, client id `me`: "),
        (struct.pack(">hhih", 3, 1, 7, 100) + b"me", "its Metadata request, version 1, client id ``: "),
        (struct.pack(">hh", 3, 1), "its Metadata request, version 1, client id ``: "),
        (struct.pack(">h", 3), "its Metadata request: "),
    ],
)
def test_the_log_says_what_is_readable_of_a_request_that_costs_its_connection(broker, caplog, payload, line):
    with broker.listen() as listener, connect(listener) as bad:
        bad.sendall(struct.pack(">i", len(payload)) + payload)
        host, port = bad.getsockname()
        assert is_closed_by_peer(bad)
        wait_until(lambda: caplog.messages)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"the connection of {host}:{port} was closed: {line}")


def test_limits_of_connections_and_of_time_hold():
    config = {"max.connections": "2", "connections.max.idle.ms": "300", "fletchlog.request.read.timeout.ms": "200"}
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as listener, contextlib.ExitStack() as stack:
        idle, slow = (stack.enter_context(connect(listener)) for _ in range(2))
        slow.sendall(api_versions()[:5])
        refused = stack.enter_context(connect(listener))
        assert is_closed_by_peer(refused)
        assert is_closed_by_peer(slow)
        assert is_closed_by_peer(idle)
        with connect(listener) as again:
            again.sendall(api_versions())
            assert answered(again) == 7


def test_limits_follow_properties_that_are_altered_while_it_listens(broker):
    with broker.listen() as listener, contextlib.ExitStack() as stack:

        def is_refused():
            return is_closed_by_peer(stack.enter_context(connect(listener)))

        broker.alter_broker_config({"max.connections": 0})
        assert is_refused()
        broker.alter_broker_config({"max.connections": 50}, node=1)
        more = stack.enter_context(connect(listener))
        more.sendall(api_versions())
        assert answered(more) == 7
        admin = AdminClient({"bootstrap.servers": listener.bootstrap})
        change = ConfigEntry("max.connections", "60", incremental_operation=AlterConfigOpType.SET)
        (altered,) = admin.incremental_alter_configs([ConfigResource("broker", "1", incremental_configs=[change])]).values()
        altered.result(10)
        (described,) = admin.describe_configs([ConfigResource("broker", "1")]).values()
        described = described.result(10)["max.connections"]
        assert (described.value, described.source) == ("60", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        # A listener's own properties win.
        with broker.listen(config={"max.connections": "1"}) as own, connect(own) as first:
            first.sendall(api_versions())
            assert answered(first) == 7
            assert is_closed_by_peer(stack.enter_context(connect(own)))


def padded(size, correlation_id):
    """A request of ApiVersions with bytes behind it, which Kafka ignores, `size` in all."""
    body = struct.pack(">hhih", 18, 0, correlation_id, -1).ljust(size, b"\0")
    return struct.pack(">i", len(body)) + body


def test_large_requests_share_their_memory_and_small_ones_need_none():
    broker = fl.Broker.in_memory(config={"queued.max.request.bytes": "300000"})
    with broker, broker.listen() as listener, contextlib.ExitStack() as open_connections:
        first, second, small = (open_connections.enter_context(connect(listener)) for _ in range(3))
        first.sendall(padded(250_000, 1)[:100_000])
        time.sleep(0.2)
        second.sendall(padded(200_000, 2))
        second.settimeout(0.3)
        with pytest.raises(TimeoutError):
            second.recv(1)
        small.sendall(api_versions(3))
        assert answered(small) == 3
        first.sendall(padded(250_000, 1)[100_000:])
        assert answered(first) == 1
        second.settimeout(10)
        assert answered(second) == 2
        # One that is lost gives its memory back as well.
        first.sendall(padded(250_000, 4)[:100_000])
        time.sleep(0.2)
        second.sendall(padded(200_000, 5))
        time.sleep(0.2)
        first.close()
        assert answered(second) == 5


def fetch(topic, max_bytes, max_wait_ms=0):
    """A request of Fetch, version 4, of partition 0 from offset 0; it waits for a byte, if it waits."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    asked = name + struct.pack(">iiqi", 1, 0, 0, max_bytes)
    body = struct.pack(">hhih", 1, 4, 7, -1) + struct.pack(">iiiibi", -1, max_wait_ms, min(max_wait_ms, 1), max_bytes, 0, 1) + asked
    return struct.pack(">i", len(body)) + body


def test_answers_that_nobody_takes_have_a_budget():
    with fl.Broker.in_memory(config={"queued.max.request.bytes": 4 << 20}) as broker, broker.listen() as listener:
        broker.create_topic("large")
        with fl.Producer(broker) as producer:
            for _ in range(24):
                producer.send("large", value=bytes(900_000))
        with connect(listener) as idle, connect(listener) as deaf:
            deaf.sendall(fetch("large", 20 << 20))
            time.sleep(0.3)
            with connect(listener) as other:
                other.sendall(fetch("large", 20 << 20))
                size = struct.unpack(">i", other.recv(4, socket.MSG_WAITALL))[0]
                assert 900_000 < size < 1_000_000  # one batch, as the other answer takes more than the budget
                other.recv(size, socket.MSG_WAITALL)
            until = time.monotonic() + 15
            while open_connections(listener) > 1 and time.monotonic() < until:
                time.sleep(0.1)
            assert open_connections(listener) == 1
            idle.sendall(api_versions(9))
            assert answered(idle) == 9


def open_connections(listener):
    """How many there are."""
    return int(listener.stats().to_pyarrow().schema.metadata[b"connections.open"])


@contextlib.contextmanager
def a_client_waits(config, max_wait_ms=2**31 - 1):
    """A listener, and a connection whose fetch has begun to wait."""
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as listener, contextlib.closing(connect(listener)) as connection:
        broker.create_topic("empty")
        connection.sendall(fetch("empty", 1 << 20, max_wait_ms))
        wait_until(lambda: listener.stats().to_pyarrow().num_rows == 1)
        yield listener, connection


def wait_until(is_true):
    """Returns when it is."""
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_client_that_breaks_the_connection_while_it_waits_gives_it_back_at_once():
    with a_client_waits({"fletchlog.request.read.timeout.ms": 10**9}) as (listener, connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        wait_until(lambda: open_connections(listener) == 0)


def test_a_client_that_closes_while_it_waits_gives_the_connection_back_in_time():
    with a_client_waits({"fletchlog.request.read.timeout.ms": 300}) as (listener, connection):
        time.sleep(0.5)
        assert open_connections(listener) == 1  # as long as it is there, it may wait
        connection.close()
        wait_until(lambda: open_connections(listener) == 0)


def test_a_client_that_has_closed_only_its_own_side_is_answered():
    with a_client_waits({}, max_wait_ms=300) as (_, connection):
        connection.shutdown(socket.SHUT_WR)
        assert answered(connection) == 7
        assert is_closed_by_peer(connection)


def test_connections_are_accepted_at_their_rate():
    with fl.Broker.in_memory(config={"max.connection.creation.rate": "2"}) as broker, broker.listen() as listener:
        begun = time.monotonic()
        with contextlib.ExitStack() as open_connections:
            all_of_them = [open_connections.enter_context(connect(listener)) for _ in range(6)]
            for number, connection in enumerate(all_of_them):
                connection.sendall(api_versions(number))
            assert [answered(connection) for connection in all_of_them] == list(range(6))
        assert 1.9 <= time.monotonic() - begun < 9


def test_a_forked_child_does_not_keep_the_port(broker):
    listener = broker.listen()
    released, release = os.pipe()
    began, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begin, b"x")
        os.read(released, 1)
        os._exit(0)
    try:
        os.read(began, 1)  # the child closes what it inherits before anything else
        port = port_of(listener)
        with connect(listener) as connection:
            connection.sendall(api_versions(1))
            assert answered(connection) == 1
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
        broker.listen(port=port).close()
    finally:
        os.write(release, b"x")
        os.waitpid(child, 0)
        for end in (released, release, began, begin):
            os.close(end)


def test_a_node_says_where_clients_reach_it():
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as listener:
        for node, address in enumerate(listener.bootstrap.split(","), 1):
            admin = AdminClient({"bootstrap.servers": address})
            (described,) = admin.describe_configs([ConfigResource("broker", str(node))], request_timeout=10).values()
            config = described.result()
            assert config["advertised.listeners"].value == f"PLAINTEXT://{address}"
            assert config["node.id"].value == str(node)


def test_a_listener_on_a_directory_that_was_left_leads_in_a_new_epoch(tmp_path):
    def epochs(broker):
        """Those in the checkpoint, after one more record over the listener."""
        with broker.listen() as listener:
            producer = Producer({"bootstrap.servers": listener.bootstrap})
            producer.produce("t", b"v", partition=0)
            assert producer.flush(20) == 0
        (checkpoint,) = tmp_path.glob("t-0/leader-epoch-checkpoint")
        return [line.split() for line in checkpoint.read_text().splitlines()[2:]]

    with fl.Broker(tmp_path, create=True) as broker:
        broker.create_topic("t")
        assert epochs(broker) == [["0", "0"]]
    for offset in (1, 2):
        with fl.Broker(tmp_path) as broker:
            found = epochs(broker)
        assert found[-1] == [str(2 * offset), str(offset)], "a real broker is two epochs further after each start"
