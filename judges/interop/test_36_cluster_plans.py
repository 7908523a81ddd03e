"""Part 36: leaders and coordinators move, producers are fenced or too slow, members of groups are slow: before a real cluster and on our listener.

The moves are Kafka's own requests on both sides (AlterPartitionReassignments, ElectLeaders). So that a program meets a move always at the same place, a rule
holds one of its requests until the cluster has settled. A client has a connection to each node, and which of two is heard first is chance: so requests are
compared in their order per API, with the node that was asked, unless a client asks any node. Fetches, which a client sends to several nodes at once, are compared
per node.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import confluent_kafka
import pytest

import fletchlog as fl
from fletchlog.testing import FaultRule, Request
from pytest_fletchlog.kafka import Kafka
from tests.support.wire_client import WireClient

from .cluster import NODES, OFFSETS, TRANSACTIONS, Cluster
from .kafka import NEWEST
from .programs import APP, CLIENTS, OURS, PART, Client, Place, compared, in_all_clients, load_coordinators, requests_of_app
from .test_16_wire_languages import go_program  # noqa: F401

with warnings.catch_warnings():
    # it reads its schemas by calls that newer Pythons are to drop
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition

# kafka-python leaves sockets open that no node took
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
CONFIG = {
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
# Requests whose number depends on time, and which any node is asked
UNCOUNTED = {"ApiVersions", "Metadata", "Heartbeat", "ListOffsets", "FindCoordinator"}
PREFERRED = 0
# A client gives up no request that a rule holds
HELD = {"request.timeout.ms": 15_000}
# A node hears of a change some ms after the controller has made it
SETTLED_SECONDS = 0.3
WAIT_SECONDS = 30


class Admin:
    """Moves leaders of a cluster by Kafka's requests."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client = KafkaAdminClient(bootstrap_servers=place.bootstrap.split(","), client_id="admin", request_timeout_ms=20_000)

    def close(self) -> None:
        """Its connections."""
        self._client.close()

    def create(self, topic: str, partitions: int) -> None:
        """Led by node 1."""
        self._client.create_topics({topic: {"assignments": {partition: list(NODES) for partition in range(partitions)}}})
        self._await_leader(topic)

    def _leader(self, topic: str) -> int:
        (described,) = self._client.describe_topics([topic])
        (of,) = [of for of in described["partitions"] if of["partition_index"] == 0]
        return int(of["leader_id"])

    def move(self, topic: str, to: int) -> None:
        """Makes a node the leader of partition 0: a new order of its replicas, and an election. Returns once every node knows, and the new one works."""
        if self._leader(topic) == to:
            return
        self._client.alter_partition_reassignments({TopicPartition(topic, 0): [to, *(node for node in NODES if node != to)]})
        deadline = time.monotonic() + WAIT_SECONDS
        while self._client.list_partition_reassignments():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self._client.elect_leaders(PREFERRED, {topic: [0]}, timeout_ms=20_000)
        while self._leader(topic) != to:
            assert time.monotonic() < deadline, f"{topic} is not led by {to}"
            time.sleep(0.02)
        self._await_leader(topic)
        time.sleep(SETTLED_SECONDS)

    def _await_leader(self, topic: str) -> None:
        """Until the new leader, or coordinator, responds."""
        if topic in (OFFSETS, TRANSACTIONS):
            load_coordinators(self._place)
            return
        with fl.Consumer(f"kafka://{self._place.bootstrap}", {"client.id": "admin"}) as consumer:
            consumer.end_offsets([fl.TopicPartition(topic, 0)])


class Run(NamedTuple):
    """A program at work, and what a plan does to it."""

    place: Place
    admin: Admin
    topic: str
    gates: list[FaultRule]
    program: Future[list[Any]]

    def hold(self, api: str, client_id: str) -> FaultRule:
        """A gate from now on."""
        return self.place.faults.on(client_id=client_id, api=api, nth=1, optional=True).hold()

    def held(self, gate: FaultRule | None = None) -> None:
        """Waits until a rule, the first one unless given, holds a request, or the program has ended without."""
        of = gate or self.gates[0]
        self.until(lambda: bool(of.held), f"request held by {of}")

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Waits, at most as long as the program runs."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not reached() and not self.program.done():
            assert time.monotonic() < deadline, f"no {what}; {self.place.faults.requests(client_id=APP)}"
            time.sleep(0.01)

    def write(self, *values: bytes, partitions: int = 1) -> None:
        """Into each partition of the topic."""
        with fl.Producer(f"kafka://{self.place.bootstrap}", {"client.id": "filler"}) as producer:
            sent = [producer.send(self.topic, value=value, partition=partition) for value in values for partition in range(partitions)]
            for report in sent:
                report.result(WAIT_SECONDS)

    def members(self, number: int) -> None:
        """Waits until the group is stable with so many members, and these have both partitions."""
        with fl.Cluster(f"kafka://{self.place.bootstrap}", {"client.id": "admin"}) as cluster:

            def reached() -> bool:
                if self.topic not in [of.group_id for of in cluster.groups()]:
                    return False
                group = cluster.describe_group(self.topic)
                return (group.state, len(group.members), sum(len(of.partitions) for of in group.members)) == ("Stable", number, 2)

            self.until(reached, f"group of {number}")


class Plan(NamedTuple):
    """What happens to a program.

    Attributes:
        gates: Rules that hold requests of the program.
        act: What happens meanwhile.
        records: How many records the topic has before.
    """

    name: str
    kind: str
    gates: list[dict[str, Any]]
    act: Callable[[Run], None]
    config: dict[str, Any] | None = None
    records: int = 0
    partitions: int = 1


def moved(topic: str | None, *to: int, write: tuple[bytes, ...] = ()) -> Callable[[Run], None]:
    """While the first gate holds a request, leaders move: of the program's topic, or of another one."""

    def act(run: Run) -> None:
        run.held()
        # some clients ask for coordinators and leaders at intervals: they are to learn of the move by the request that is held
        lookups = run.place.faults.on(client_id=APP, api=["FindCoordinator", "Metadata"], optional=True).hold()
        for node in to:
            run.admin.move(topic or run.topic, node)
        run.write(*write)
        run.gates[0].release()
        time.sleep(SETTLED_SECONDS)
        lookups.clear()

    return act


def fenced(run: Run) -> None:
    """While a request is held, another producer gets the transactional id, and commits."""
    run.held()
    OURS.transacts(run.place, run.topic, **{"client.id": "other", "max.block.ms": 20000})
    with fl.Cluster(f"kafka://{run.place.bootstrap}", {"client.id": "admin"}) as cluster:
        run.until(lambda: {of.transactional_id: of.state for of in cluster.transactions()}[run.topic] == "CompleteCommit", "end of the transaction")
    run.gates[0].release()


def watched(_run: Run) -> None:
    """Nothing but what the program does itself."""


def hold(api: str, nth: int = 1) -> dict[str, Any]:
    """A gate."""
    return {"api": api, "nth": nth, "hold": True, "optional": True}


def producer_plans() -> Iterator[Plan]:
    """Leaders move under producers."""
    for idempotent in (True, False):
        config = {"enable.idempotence": idempotent, "acks": "all"}
        yield Plan(f"leader moves {idempotent}", "sends", [hold("Produce", 3)], moved(None, 2), config)
        yield Plan(f"leader moves and returns {idempotent}", "sends", [hold("Produce", 3)], moved(None, 2, 1), config)
        lost = {"api": "Produce", "nth": 3, "lose_response": True}
        yield Plan(f"leader moves after a lost response {idempotent}", "sends", [hold("Produce", 4), lost], moved(None, 2), config)
    yield Plan("leader moves", "transacts", [hold("Produce", 2)], moved(None, 3))


def consumer_plans() -> Iterator[Plan]:
    """Leaders and coordinators move under a consumer."""
    yield Plan("leader moves before the first record", "consumes", [hold("Fetch")], moved(None, 2), records=5)
    yield Plan("leader moves and returns", "consumes", [hold("Fetch")], moved(None, 2, 1), records=5)
    yield Plan("leader moves between records", "consumes", [hold("Fetch", 2)], moved(None, 3, write=(b"3", b"4")), records=3)
    for api in ("JoinGroup", "SyncGroup", "OffsetFetch", "OffsetCommit", "LeaveGroup"):
        yield Plan(f"coordinator moves at {api}", "consumes", [hold(api)], moved(OFFSETS, 2), records=5)
    yield Plan("coordinator moves and returns at OffsetCommit", "consumes", [hold("OffsetCommit")], moved(OFFSETS, 3, 1), records=5)


def transaction_plans() -> Iterator[Plan]:
    """Coordinators move, producers are fenced, transactions are too long."""
    for api in ("InitProducerId", "AddPartitionsToTxn", "EndTxn"):
        yield Plan(f"coordinator moves at {api}", "transacts", [hold(api)], moved(TRANSACTIONS, 2))
    for api in ("AddPartitionsToTxn", "Produce", "EndTxn"):
        yield Plan(f"fenced at {api}", "transacts", [hold(api)], fenced)
    late = {"transaction.timeout.ms": 2000, "request.timeout.ms": 2000, "pause.ms": 4000}
    yield Plan("timed out", "transacts", [], watched, late)


class Member:
    """Another member of the group, of librdkafka, with client id "other"."""

    def __init__(self, run: Run) -> None:
        config = {"bootstrap.servers": run.place.bootstrap, "client.id": "other", "group.id": run.topic, "enable.auto.commit": False}
        config |= {"auto.offset.reset": "latest", "session.timeout.ms": 10000, "heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}
        self._consumer = confluent_kafka.Consumer(config)
        self._consumer.subscribe([run.topic])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ends.is_set():
            self._consumer.poll(0.05)

    def leave(self) -> None:
        """Ends it."""
        self._ends.set()
        self._thread.join(30)
        self._consumer.close()


def stop(run: Run, *others: Member) -> None:
    """The program's membership; then that of others."""
    run.write(b"stop", partitions=2)
    wait([run.program])
    for other in others:
        other.leave()


def joined(run: Run) -> None:
    """Another member comes and goes."""
    run.members(1)
    other = Member(run)
    run.members(2)
    other.leave()
    run.members(1)
    stop(run)


def slow(api: str, client_id: str) -> Callable[[Run], None]:
    """A request of a member is held for a second, while another one joins."""

    def act(run: Run) -> None:
        run.members(1)
        gate = run.hold(api, client_id)
        other = Member(run)
        run.held(gate)
        time.sleep(1)
        gate.clear()
        run.members(2)
        stop(run, other)

    return act


def left_out(api: str) -> Callable[[Run], None]:
    """A request of the program is held until the group has removed it; another member has the group meanwhile."""

    def act(run: Run) -> None:
        run.members(1)
        gate = run.hold(api, APP)
        other = Member(run)
        run.held(gate)
        run.members(1)
        gate.clear()
        run.members(2)
        stop(run, other)

    return act


def silent(run: Run) -> None:
    """A heartbeat of the program is held until its session has ended."""
    run.members(1)
    with fl.Cluster(f"kafka://{run.place.bootstrap}", {"client.id": "admin"}) as cluster:
        (member,) = cluster.describe_group(run.topic).members
        gate = run.hold("Heartbeat", APP)
        run.held(gate)
        # Java notices it by itself, and may have joined again by now
        run.until(lambda: member.member_id not in [of.member_id for of in cluster.describe_group(run.topic).members], f"end of {member}")
    gate.clear()
    run.members(1)
    stop(run)


def group_plans() -> Iterator[Plan]:
    """Members are slow."""
    config = {"session.timeout.ms": 10000, "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest"}
    yield Plan("another member comes and goes", "belongs", [], joined, config, partitions=2)
    for api in ("JoinGroup", "SyncGroup"):
        yield Plan(f"another member's {api} is slow", "belongs", [], slow(api, "other"), config, partitions=2)
        yield Plan(f"{api} is slow", "belongs", [], slow(api, APP), config, partitions=2)
    short = config | {"max.poll.interval.ms": 2000, "session.timeout.ms": 2000}
    yield Plan("JoinGroup is too slow", "belongs", [], left_out("JoinGroup"), short, partitions=2)
    yield Plan("Heartbeat is too slow", "belongs", [], silent, config | {"session.timeout.ms": 1000}, partitions=2)


def plans(client: Client) -> Iterator[Plan]:
    """Those that a client has programs for."""
    yield from itertools.chain(producer_plans(), consumer_plans(), transaction_plans(), group_plans() if client.belongs else [])


def asked(rows: Iterator[Request]) -> dict[str, list[Any]]:
    """Requests by API; those in a row that are alike once, as a request is repeated as often as time allows."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        if row.api in UNCOUNTED or (row.api == "Fetch" and row.outcome != "answered") or (not row.fault and row.errors == ["CONCURRENT_TRANSACTIONS"]):
            continue
        # without a transactional id it is a request for any node
        node = None if row.api == "InitProducerId" and not row.transactional_ids else row.node
        of_api = found.setdefault(f"Fetch to {node}" if row.api == "Fetch" else row.api, [])
        line = (node, row.errors, row.outcome if row.outcome != "client gone" else "closed")
        if line not in of_api[-1:]:
            of_api.append(line)
    return found


def outcome(place: Place, admin: Admin, topic: str, plan: Plan, client: Client) -> dict[str, Any]:
    """What a program sees, what it asked for, and what is in the log."""
    for internal in (OFFSETS, TRANSACTIONS):
        admin.move(internal, 1)
    admin.create(topic, plan.partitions)
    place.faults.record_requests()
    rules = [{"client_id": APP} | rule for rule in plan.gates]
    gates = [place.faults.load({"rules": [rule]})[0] for rule in rules]
    with ThreadPoolExecutor(1) as threads:
        before = Run(place, admin, topic, gates, Future())
        before.write(*(b"%d" % number for number in range(plan.records)))
        program = getattr(client, plan.kind)
        run = before._replace(program=threads.submit(program, place, topic, **(HELD | (plan.config or {}))))
        try:
            plan.act(run)
        finally:
            for gate in gates:
                if "hold" in gate.rule:
                    gate.release()
        seen = run.program.result(90)
    applied = [gate.applied for gate in gates]
    for gate in gates:
        gate.clear()
    found = asked(requests_of_app(place))
    with fl.Cluster(f"kafka://{place.bootstrap}", {"client.id": "reader"}) as cluster:
        written = cluster.scan(topic, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()
    return {"seen": seen, "applied": applied, "asked": found, "written": written}


def load_producer_ids(address: str) -> None:
    """A real node asks the controller for producer ids when it is first asked for one, and answers COORDINATOR_LOAD_IN_PROGRESS meanwhile."""
    asked = {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1}
    client = WireClient(address)
    deadline = time.monotonic() + WAIT_SECONDS
    while client.ask("InitProducerId", 4, asked)["ErrorCode"] != 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextlib.contextmanager
def administered(place: Place, nodes: str) -> Iterator[tuple[Place, Admin]]:
    """With a client that moves leaders; both coordinators exist, and every node gives out producer ids. `nodes`: their addresses."""
    admin = Admin(place)
    try:
        for address in nodes.split(","):
            load_producer_ids(address)
        admin.create("loaded", 1)
        load_coordinators(place)
        yield place, admin
    finally:
        admin.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Place, Admin]]]:
    """Our proxy before a real cluster, and our listener."""
    scratch = tmp_path_factory.mktemp("cluster")
    with (
        Cluster(NEWEST, scratch, CONFIG) as running,
        fl.Cluster(running.url) as cluster,
        cluster.proxy() as proxy,
        Kafka(nodes=len(NODES), config=CONFIG) as opened,
        administered(Place(proxy.bootstrap, proxy.faults), running.address) as real,
        administered(Place(opened.bootstrap, opened.faults), opened.bootstrap) as ours,
    ):
        yield [real, ours]
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="module")
def clients(go_program: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:  # noqa: F811
    """By name."""
    with in_all_clients(go_program, tmp_path_factory.mktemp("clients")) as found:
        yield found


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", CLIENTS)
def test_programs_see_the_same_while_a_cluster_moves(
    name: str, clients: dict[str, Client], places: list[tuple[Place, Admin]], count: Callable[..., None]
) -> None:
    different: list[str] = []
    client = clients[name]
    for number, plan in enumerate(plans(client)):

        def run(place: tuple[Place, Admin], attempt: int, number: int = number, plan: Plan = plan) -> dict[str, Any]:
            return outcome(*place, f"{name}-{number}-{attempt}", plan, client)

        different += compared(f"{name} {plan.kind}: {plan.name}", places, run, count)
        count(PART, plans_of_a_cluster=1)
    assert not different, f"{len(different)} differ\n" + "\n".join(different)
