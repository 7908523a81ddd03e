"""Nodes that are silent instead of closed: every call ends by its own time-out and names the node, and what other nodes serve goes on."""

import contextlib
import logging
import socket
import time

import pytest

import fletchlog as fl
from fletchlog.errors import KafkaError, KafkaTimeoutError
from tests.support.silent_peer import SilentPeer
from tests.support.waiting import until

SILENT = ["nothing", "half", "black_hole"]
# Far below what a call may take that only fails by the properties' defaults of 30 s and more.
LIMIT_S = 15
# What no test waits for.
FAR_MS = 120_000
HEARTBEAT = 12
SHORT = {
    "request.timeout.ms": 150,
    "default.api.timeout.ms": 400,
    "max.block.ms": 400,
    "socket.connection.setup.timeout.ms": 150,
    "socket.connection.setup.timeout.max.ms": 150,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
}


def short(peer, *names):
    """The address of a peer, and short times for the properties of these names."""
    return {"bootstrap.servers": peer.address} | {name: SHORT[name] for name in SHORT if name in names or name.startswith(("request", "socket", "reconnect"))}


@contextlib.contextmanager
def ends_in_time(peer, kind=KafkaTimeoutError):
    """The call fails within its time, with an error that names the node."""
    begin = time.monotonic()
    with pytest.raises(kind) as caught:
        yield
    assert time.monotonic() - begin < LIMIT_S
    assert peer.address in str(caught.value)


@pytest.fixture(params=SILENT)
def peer(request):
    with SilentPeer(request.param) as peer:
        yield peer


CLUSTER_CALLS = {
    "topics": lambda c: c.topics(),
    "cluster_id": lambda c: c.cluster_id,
    "describe_topic": lambda c: c.describe_topic("t"),
    "create_topic": lambda c: c.create_topic("t"),
    "delete_topic": lambda c: c.delete_topic("t"),
    "create_partitions": lambda c: c.create_partitions("t", 3),
    "describe_config": lambda c: c.describe_config("t"),
    "alter_topic_config": lambda c: c.alter_topic_config("t", {"retention.ms": "1"}),
    "delete_records": lambda c: c.delete_records("t", 0, 1),
    "groups": lambda c: c.groups(),
    "describe_group": lambda c: c.describe_group("g"),
    "group_offsets": lambda c: c.group_offsets("g"),
    "lag": lambda c: c.lag("g"),
    "alter_offsets": lambda c: c.alter_offsets("g", {("t", 0): 1}),
    "delete_offsets": lambda c: c.delete_offsets("g", [("t", 0)]),
    "delete_group": lambda c: c.delete_group("g"),
    "transactions": lambda c: c.transactions(),
    "scan": lambda c: c.scan("t").to_pyarrow(),
}


@pytest.mark.parametrize("mode", ["nothing", "black_hole"])
@pytest.mark.parametrize("call", CLUSTER_CALLS)
def test_every_verb_of_a_cluster_ends(mode, call):
    with SilentPeer(mode) as peer, fl.Cluster(short(peer, "default.api.timeout.ms")) as cluster, ends_in_time(peer):
        CLUSTER_CALLS[call](cluster)


def test_a_verb_ends_when_half_an_answer_comes():
    with SilentPeer("half") as peer, fl.Cluster(short(peer, "default.api.timeout.ms")) as cluster, ends_in_time(peer):
        cluster.topics()


def test_every_call_of_a_consumer_ends(peer):
    tp = fl.TopicPartition("t", 0)
    with fl.Consumer(short(peer, "default.api.timeout.ms") | {"group.id": "g"}) as consumer:
        consumer.assign([tp])
        assert len(consumer.poll(timeout_ms=400)) == 0
        for call in (
            lambda: consumer.position(tp),
            lambda: consumer.position(tp, timeout_ms=200),
            lambda: consumer.beginning_offsets([tp]),
            lambda: consumer.end_offsets([tp]),
            lambda: consumer.offsets_for_times({tp: 0}),
            lambda: consumer.committed(tp),
            lambda: consumer.commit({tp: 1}),
        ):
            with ends_in_time(peer):
                call()


def test_a_member_of_a_group_ends_its_polls_and_closes(peer):
    begin = time.monotonic()
    with fl.Consumer(short(peer, "default.api.timeout.ms") | {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        for _ in range(3):
            assert len(consumer.poll(timeout_ms=300)) == 0
        consumer.unsubscribe()
        consumer.subscribe(pattern="t.*")
        assert len(consumer.poll(timeout_ms=300)) == 0
    assert time.monotonic() - begin < LIMIT_S


def test_every_call_of_a_producer_ends(peer):
    config = short(peer, "max.block.ms") | {"delivery.timeout.ms": 900, "linger.ms": 0}
    begin = time.monotonic()
    with fl.Producer(config) as producer:
        with ends_in_time(peer):
            producer.partitions_for("t")
        with ends_in_time(peer, KafkaError):
            producer.send("t", value=b"v").result()
        producer.flush()
    assert time.monotonic() - begin < LIMIT_S


def test_a_transactional_producer_ends_its_calls(peer):
    config = short(peer, "max.block.ms") | {"delivery.timeout.ms": 900, "transactional.id": "x"}
    begin = time.monotonic()
    with fl.Producer(config) as producer, ends_in_time(peer, KafkaError):
        producer.init_transactions()
    assert time.monotonic() - begin < LIMIT_S


def two_ports():
    """The first of two ports that follow each other and are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
                return port


class Nodes:
    """A cluster, each of whose nodes is reached through a peer that may become silent."""

    def __init__(self, stack, count, config=None):
        self.broker = stack.enter_context(fl.Broker.in_memory(nodes=count, config=config or {}))
        outside, inside = two_ports(), two_ports()
        self.peers = [stack.enter_context(SilentPeer("nothing", port=outside + at)) for at in range(count)]
        stack.enter_context(self.broker.listen(port=inside, advertised=f"127.0.0.1:{outside}"))
        for at, peer in enumerate(self.peers):
            peer.upstream, peer.mode = f"127.0.0.1:{inside + at}", "all"
        self.bootstrap = ",".join(peer.address for peer in self.peers)

    def led_by(self, topic):
        """A partition of each node, by the place of its peer."""
        return {part.leader - 1: part.partition for part in self.broker.describe_topic(topic).partitions}


@pytest.fixture
def nodes():
    with contextlib.ExitStack() as stack:
        yield lambda count, config=None: Nodes(stack, count, config)


# It makes hundreds of attempts, each of 0.1 s or more on a busy machine.
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_clients_of_a_node_that_answers_one_request_of_ten_get_there(nodes):
    cluster = nodes(1)
    cluster.broker.create_topic("t")
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "request.timeout.ms": 100,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 1,
        "retry.backoff.ms": 1,
        "default.api.timeout.ms": FAR_MS,
    }
    cluster.peers[0].mode = "one_in_ten"
    with fl.Cluster(config) as verbs:
        verbs.create_topic("other")
        assert verbs.topics() == ["other", "t"]
    with fl.Producer(config | {"linger.ms": 0}) as producer:
        assert [producer.send("t", value=b"%d" % i).result().offset for i in range(3)] == [0, 1, 2]
    with fl.Consumer(config | {"auto.offset.reset": "earliest", "fetch.max.wait.ms": 10}) as consumer:
        consumer.assign([("t", 0)])
        read = []
        assert until(lambda: read.extend(r.value for r in consumer.poll(timeout_ms=500)) or len(read) >= 3, limit=200)
    assert read == [b"0", b"1", b"2"]


@pytest.mark.parametrize("mode", ["nothing", "black_hole"])
def test_a_healthy_node_serves_on_beside_a_silent_one_and_the_member_stays_in_its_group(nodes, mode, caplog):
    cluster = nodes(2)
    cluster.broker.create_topic("t", partitions=2)
    led = cluster.led_by("t")
    with fl.Consumer(cluster.broker, {"group.id": "g"}) as probe:
        probe.subscribe(["t"])
        assert until(lambda: probe.poll(timeout_ms=100) or probe.assignment())
        coordinator = cluster.broker.describe_group("g").coordinator - 1
    healthy, silent = coordinator, 1 - coordinator
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 100,
        "request.timeout.ms": 700,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "metadata.max.age.ms": 300,
    }

    def beats():
        return len([key for key in cluster.peers[healthy].requests if key == HEARTBEAT])

    with caplog.at_level(logging.WARNING), fl.Consumer(config) as consumer, fl.Producer(cluster.broker) as producer:
        consumer.subscribe(["t"])
        producer.send("t", value=b"first", partition=led[0]).result()
        producer.send("t", value=b"first", partition=led[1]).result()
        read = []
        assert until(lambda: read.extend(consumer.poll(timeout_ms=200)) or len(read) == 2)
        before = cluster.broker.describe_group("g")
        cluster.peers[silent].mode = mode
        for count in range(5):
            producer.send("t", value=b"%d" % count, partition=led[healthy]).result()
            assert until(lambda: len(consumer.poll(timeout_ms=200))), f"record {count} waits for the silent node"
            # The next heartbeats come without a poll, and two thirds of a session pass for the coordinator: without them it ends.
            seen = beats()
            assert until(lambda seen=seen: time.sleep(0.01) or beats() >= seen + 2), "no heartbeat between two polls"
            cluster.broker.clock.advance(seconds=20)
        after = cluster.broker.describe_group("g")
    assert (after.state, [m.member_id for m in after.members]) == ("Stable", [m.member_id for m in before.members])
    assert not [text for text in caplog.messages if "leaves the group" in text]


@pytest.mark.parametrize("mode", ["nothing", "black_hole"])
def test_a_producer_goes_on_to_a_healthy_node_beside_a_silent_one(nodes, mode):
    cluster = nodes(2)
    cluster.broker.create_topic("t", partitions=2)
    led = cluster.led_by("t")
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
    far = {"request.timeout.ms": FAR_MS, "delivery.timeout.ms": 2 * FAR_MS, "metadata.max.age.ms": 200}
    with fl.Producer(config | far) as producer:
        for partition in led.values():
            producer.send("t", value=b"v", partition=partition).result()
        cluster.peers[0].mode = mode
        lost = producer.send("t", value=b"lost", partition=led[0])
        # The last ones when metadata are due.
        for count in range(10):
            producer.send("t", value=b"w", partition=led[1]).result(timeout=30)
            time.sleep(0.05 * (count > 5))
        assert not lost.done()
        producer.close(timeout_ms=0)


@pytest.mark.parametrize("mode", ["nothing", "black_hole"])
def test_a_record_for_a_silent_node_fails_after_its_delivery_timeout(nodes, mode):
    cluster = nodes(2)
    cluster.broker.create_topic("t", partitions=2)
    led = cluster.led_by("t")
    config = short(cluster.peers[0]) | {"request.timeout.ms": 300, "delivery.timeout.ms": 1000, "linger.ms": 0, "fletchlog.producer.version": "2.6"}
    with fl.Producer(config | {"bootstrap.servers": cluster.bootstrap}) as producer:
        producer.partitions_for("t")
        cluster.peers[0].mode = mode
        with pytest.raises(KafkaError, match=r"delivery\.timeout\.ms.*last failure"):
            producer.send("t", value=b"lost", partition=led[0]).result(timeout=30)
        producer.send("t", value=b"w", partition=led[1]).result(timeout=30)


def test_verbs_go_on_with_a_healthy_node(nodes):
    cluster = nodes(2)
    cluster.broker.create_topic("t", partitions=1)
    config = {"bootstrap.servers": cluster.bootstrap, "request.timeout.ms": 300, "socket.connection.setup.timeout.ms": 300}
    for silent in (0, 1):
        with fl.Cluster(config) as verbs:
            assert verbs.topics() == ["t"]
            cluster.peers[silent].mode = "nothing"
            begin = time.monotonic()
            assert verbs.topics() == ["t"]
            assert time.monotonic() - begin < LIMIT_S
            cluster.peers[silent].mode = "all"
