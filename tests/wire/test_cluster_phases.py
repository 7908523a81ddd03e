"""What every node answers once it has settled after an event, as a real 4.4.0 did: reassignments, a killed node before and after it is noticed, too few
replicas in sync, an unclean election. `golden/cluster-events/phases.json.gz` has the answers."""

import gzip
import itertools
import json
from pathlib import Path

import pytest

from tests.support.cluster_probes import Probes, agrees

PHASES = json.loads(gzip.decompress((Path(__file__).resolve().parents[1] / "golden" / "cluster-events" / "phases.json.gz").read_bytes()))
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture
def started(kafka_cluster):
    """Three nodes, and probes of them."""
    kafka = kafka_cluster(nodes=3)
    kafka.clock.freeze()
    probes = Probes(kafka.bootstrap)
    yield kafka, probes
    probes.close()


def check(probes, scenario, phase):
    """Every node answers every probe as recorded."""
    for topic, names in PHASES[scenario][phase].items():
        for name, by_node in names.items():
            for node in probes.nodes:
                wanted = by_node.get("all", by_node.get(str(node)))
                if wanted is not None:
                    found = probes.probe(node, name, topic)
                    assert agrees(wanted, found), (phase, topic, name, node, wanted, found)


def reassign(kafka, probes, check):
    probes.create("ra1", [[2, 3], [1, 2], [3, 1]], min_insync_replicas="2")
    for partition, leader in enumerate([2, 1, 3]):
        probes.write(leader, "ra1", partition, count=60)
    check("before")
    probes.reassign("ra1", 0, [1, 3])
    check("the leader is no replica")
    probes.reassign("ra1", 1, [1, 2, 3])
    check("one more replica")
    probes.reassign("ra1", 2, [2])
    check("one other replica")


def kill(kafka, probes, check):
    probes.create("ev", REPLICAS, min_insync_replicas="2")
    for partition, (leader, *_) in enumerate(REPLICAS):
        probes.write(leader, "ev", partition)
    kafka.stop_node(2)
    kafka.start_node(2)
    probes.elect()
    probes.epochs["ev"] = [0, 2, 0]
    check("before")
    kafka.kill_node(2, detected_after_ms=9000)
    check("unnoticed")
    kafka.clock.advance(seconds=9)
    check("fenced")
    kafka.start_node(2)
    check("returned")
    probes.elect()
    check("elected")


def two_down(kafka, probes, check):
    probes.create("d1", REPLICAS, min_insync_replicas="2")
    probes.create("dr2x1", [[2, 3]], min_insync_replicas="2")
    probes.create("dr1x1", [[3]], min_insync_replicas="2")
    for topic, leaders in {"d1": [1, 2, 3], "dr2x1": [2], "dr1x1": [3]}.items():
        for partition, leader in enumerate(leaders):
            probes.write(leader, topic, partition)
    check("before")
    kafka.kill_node(3)
    check("one down")
    kafka.kill_node(2)
    check("two down")
    kafka.start_node(2)
    check("one returned")
    kafka.start_node(3)
    check("both returned")


def unclean(kafka, probes, check):
    probes.create("un1elect", [[2, 3]], min_insync_replicas="1")
    probes.write(2, "un1elect", 0, count=10)
    check("before")
    kafka.kill_node(3)
    probes.write(2, "un1elect", 0, count=20)
    check("one is behind")
    kafka.kill_node(2)
    check("no leader")
    kafka.start_node(3)
    check("the one behind returned")
    probes.elect("un1elect", kind=1)
    probes.write(3, "un1elect", 0, acks=1, count=8)
    check("elected")
    kafka.start_node(2)
    check("both returned")
    probes.elect("un1elect")
    check("the preferred one leads")


@pytest.mark.parametrize("scenario", [reassign, kill, two_down, unclean])
def test_nodes_answer_as_recorded_after_events(started, scenario):
    kafka, probes = started
    scenario(kafka, probes, lambda phase: check(probes, scenario.__name__, phase))


NOT_COORDINATOR, NOT_AVAILABLE = 16, 15


class Coordinated:
    """A group with an offset and an open transaction at each node."""

    def __init__(self, probes):
        self.probes, self.groups, self.ids, self.producers = probes, {}, {}, {}
        for number in itertools.count():
            for kind, found, name in ((0, self.groups, f"g{number}"), (1, self.ids, f"t{number}")):
                found.setdefault(self.coordinator(kind, name), name)
            if len(self.groups) == len(self.ids) == len(probes.nodes):
                break
        for node, name in self.ids.items():
            made = self.init(node, name)
            self.producers[name] = made["ProducerId"], made["ProducerEpoch"]
            assert (self.add_partition(node, name), self.commit(node, self.groups[node])) == (0, 0)

    def coordinator(self, kind, name, node=1):
        (found,) = self.probes.ask(node, "FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [name]})["Coordinators"]
        return found["NodeId"]

    def init(self, node, name):
        return self.probes.ask(node, "InitProducerId", 4, {"TransactionalId": name, "TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1})

    def add_partition(self, node, name):
        """Again and again: it is in the transaction, so nothing is written."""
        producer, epoch = self.producers[name]
        body = {"V3AndBelowTransactionalId": name, "V3AndBelowProducerId": producer, "V3AndBelowProducerEpoch": epoch}
        topics = [{"Name": "ev", "Partitions": [0]}]
        answer = self.probes.ask(node, "AddPartitionsToTxn", 3, body | {"V3AndBelowTopics": topics})
        return answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"]

    def commit(self, node, name):
        topics = [{"Name": "ev", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]
        body = {"GroupId": name, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None, "Topics": topics}
        return self.probes.ask(node, "OffsetCommit", 8, body)["Topics"][0]["Partitions"][0]["ErrorCode"]

    def fetch(self, node, name):
        groups = [{"GroupId": name, "MemberId": None, "MemberEpoch": -1, "Topics": None}]
        (found,) = self.probes.ask(node, "OffsetFetch", 9, {"Groups": groups, "RequireStable": True})["Groups"]
        return found["ErrorCode"], len(found["Topics"])

    def check(self, coordinators, nodes):
        """Each of the nodes says so, the coordinators answer with what there was, and the others refuse."""
        for node, first in itertools.product(nodes, self.groups):
            group, name, refused = self.groups[first], self.ids[first], coordinators[first] != node
            assert [self.coordinator(kind, asked, node) for kind, asked in ((0, group), (1, name))] == [coordinators[first]] * 2
            found = [self.commit(node, group), self.fetch(node, group), self.add_partition(node, name)]
            assert found == ([NOT_COORDINATOR, (NOT_COORDINATOR, 0), NOT_COORDINATOR] if refused else [0, (0, 1), 0]), (node, first)


def test_coordinators_are_where_the_leaders_of_their_partitions_are(kafka_cluster):
    """Rules of the recordings; with too few replicas a coordinator answers what needs no write."""
    kafka = kafka_cluster(nodes=3, config={"min.insync.replicas": "2"})
    probes = Probes(kafka.bootstrap)
    probes.create("ev", REPLICAS)
    coordinated = Coordinated(probes)
    coordinated.check({1: 1, 2: 2, 3: 3}, [1, 2, 3])
    kafka.kill_node(3)
    coordinated.check({1: 1, 2: 2, 3: 1}, [1, 2])
    kafka.kill_node(2)
    assert [coordinated.coordinator(0, group) for group in coordinated.groups.values()] == [1, 1, 1]
    for name in coordinated.ids.values():
        found = coordinated.add_partition(1, name), coordinated.init(1, f"{name}-new")["ErrorCode"]
        assert found == (0, NOT_AVAILABLE)
    assert coordinated.init(1, None)["ErrorCode"] == 0
    kafka.start_node(2)
    kafka.start_node(3)
    coordinated.check({1: 1, 2: 1, 3: 1}, [1, 2, 3])
    probes.close()
