"""`kafka.clock` and clients over TCP: what is due has been answered when `advance` returns, and no connection is lost in the middle of a request."""

import socket
import struct
import threading

import pytest
from confluent_kafka import Consumer, Producer

import fletchlog as fl

HEADER = ">hhih"


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def request(api, version, body=b"", correlation_id=7):
    """A request without a client id."""
    frame = struct.pack(HEADER, api, version, correlation_id, -1) + body
    return struct.pack(">i", len(frame)) + frame


def answer(connection):
    """The next answer, without its correlation id."""
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    return connection.recv(size, socket.MSG_WAITALL)[4:]


def connect(bootstrap):
    host, port = bootstrap.split(",")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_open(connection):
    """Whether it answers."""
    connection.sendall(request(18, 0))
    try:
        return len(answer(connection)) > 0
    except (OSError, struct.error):
        return False


class Member:
    """A member with a session of 45 s that sends no heartbeat."""

    def __init__(self, bootstrap, group):
        self.connection, self.group = connect(bootstrap), group
        join = text(group) + struct.pack(">ii", 45_000, 45_000) + text("") + text("consumer") + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0)
        self.connection.sendall(request(11, 2, join))
        joined = answer(self.connection)
        error, self.generation = struct.unpack(">hi", joined[4:10])
        assert error == 0, joined
        at = 10
        for _ in ("protocol", "leader", "member"):
            size = struct.unpack(">h", joined[at : at + 2])[0]
            self.id, at = joined[at + 2 : at + 2 + size].decode(), at + 2 + size
        sync = text(group) + struct.pack(">i", self.generation) + text(self.id) + struct.pack(">i", 1) + text(self.id) + struct.pack(">i", 0)
        self.connection.sendall(request(14, 1, sync))
        assert struct.unpack(">ih", answer(self.connection)[:6]) == (0, 0)

    def heartbeat(self):
        """The error."""
        self.connection.sendall(request(12, 1, text(self.group) + struct.pack(">i", self.generation) + text(self.id)))
        return struct.unpack(">ih", answer(self.connection))[1]


def fetch(topic, max_wait_ms):
    """A fetch from the beginning of partition 0, version 4."""
    partition = struct.pack(">iqi", 0, 0, 1 << 20)
    return request(1, 4, struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + partition)


def test_two_hundred_sessions_of_45_s(kafka):
    kafka.clock.freeze()
    for number in range(200):
        member = Member(kafka.bootstrap, f"g-{number}")
        kafka.clock.advance(seconds=44.999)
        assert member.heartbeat() == 0
        kafka.clock.advance(seconds=45)
        assert member.heartbeat() == 25
        member.connection.close()


def test_answers_that_are_due_have_been_sent_and_those_that_are_not_wait(kafka):
    kafka.clock.freeze()
    topic = kafka.topic()
    with connect(kafka.bootstrap) as soon, connect(kafka.bootstrap) as late:
        soon.sendall(fetch(topic, 500))
        late.sendall(fetch(topic, 60_000))
        while kafka.broker.metrics()["purgatory-size"] < 2:
            pass
        soon.settimeout(0.05)
        with pytest.raises(TimeoutError):
            soon.recv(1)
        kafka.clock.advance(seconds=1)
        soon.setblocking(False)
        assert len(soon.recv(1000)) > 4, "it is in the socket when advance returns"
        late.setblocking(False)
        with pytest.raises(BlockingIOError):
            late.recv(1)
        kafka.clock.advance(seconds=59)
        assert len(late.recv(1000)) > 4


def test_no_connection_is_closed_in_the_middle_of_a_request_but_an_idle_one_is(kafka):
    kafka.clock.freeze()
    with connect(kafka.bootstrap) as amid, connect(kafka.bootstrap) as idle, connect(kafka.bootstrap) as used:
        assert is_open(idle)
        amid.sendall(request(18, 0)[:9])
        while int(kafka.listener.stats().to_pyarrow().schema.metadata[b"bytes.received"]) < 23:
            pass
        kafka.clock.advance(seconds=45)
        kafka.clock.advance(seconds=550)
        assert is_open(used)
        kafka.clock.advance(seconds=6)  # connections.max.idle.ms is 600,000
        idle.setblocking(False)
        assert idle.recv(1) == b"", "closed when advance returns"
        amid.sendall(request(18, 0)[9:])
        assert len(answer(amid)) > 0
        assert is_open(used)


def test_a_member_of_librdkafka_comes_back_after_its_session(kafka):
    topic = kafka.topic(partitions=1)
    kafka.produce(topic, ["one"])
    assigned = threading.Event()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100})
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())
    assert consumer.poll(20).value() == b"one"
    first = kafka.wait_for_group("g", members=1).members[0].member_id
    assert assigned.is_set()
    kafka.clock.advance(seconds=45)
    while True:
        consumer.poll(0.05)
        members = [m.member_id for m in kafka.broker.describe_group("g").members]
        if members and first not in members:
            break
    consumer.close()


def test_a_join_is_delayed_by_the_clock(kafka_cluster):
    kafka = kafka_cluster(config={"group.initial.rebalance.delay.ms": 3_000})
    kafka.clock.freeze()
    members = []
    joins = threading.Thread(target=lambda: members.append(Member(kafka.bootstrap, "g")))
    joins.start()
    while not any(group.group_id == "g" for group in kafka.broker.groups()):
        pass
    kafka.clock.advance(seconds=2.999)
    joins.join(0.1)
    assert members == []
    kafka.clock.advance(seconds=0.001)
    joins.join(20)
    assert members[0].heartbeat() == 0
    members[0].connection.close()


def test_times_in_records_of_the_broker_follow_the_clock(kafka):
    topic = kafka.topic(config={"message.timestamp.type": "LogAppendTime"})
    kafka.clock.freeze()
    kafka.clock.advance(seconds=86_400)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0
    kafka.produce(topic, ["embedded"])
    assert kafka.records(topic).column("timestamp").cast("int64").to_pylist() == [kafka.clock.now_ms * 1000] * 2


def test_a_listener_that_closes_ends_no_advance(kafka):
    other = kafka.broker.listen()
    other.close()
    kafka.clock.advance(seconds=1)
    with kafka.broker.listen() as another, fl.Cluster(f"kafka://{another.bootstrap}") as cluster:
        assert cluster.topics() == []
        kafka.clock.advance(seconds=1)
        assert cluster.topics() == []
