"""Leaders and coordinators that move, nodes that stop: what a real Kafka 4.4.0 answered before and after, and what clients notice.

`golden/cluster-events/answers.json` has the answers of a cluster of three nodes (min.insync.replicas 2) once it had settled. "old" and "new" are the leader
epoch of the beginning and the next one; "n" is any number above 0.
"""

import itertools
import json
import socket
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError, KafkaError, LeaderError
from tests.support.batches import batch, record
from tests.support.waiting import until
from tests.support.wire_client import Closed, WireClient

ANSWERS = json.loads((Path(__file__).resolve().parents[1] / "golden" / "cluster-events" / "answers.json").read_text())
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
NOT_COORDINATOR = 16


class Cluster:
    """A connection to each node of a cluster with topic `ev`."""

    def __init__(self, kafka):
        self.kafka = kafka
        self.nodes = dict(enumerate((WireClient(address) for address in kafka.bootstrap.split(",")), start=1))
        assignments = [{"PartitionIndex": p, "BrokerIds": replicas} for p, replicas in enumerate(REPLICAS)]
        configs = [{"Name": "min.insync.replicas", "Value": "2"}]
        topic = {"Name": "ev", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": assignments, "Configs": configs}
        (made,) = self.nodes[1].ask("CreateTopics", 7, {"Topics": [topic], "timeoutMs": 5000, "validateOnly": False})["Topics"]
        assert made["ErrorCode"] == 0
        self.id = made["TopicId"]

    def ask(self, node, api, version, body):
        """The answer; None: the node refuses connections."""
        try:
            return self.nodes[node].ask(api, version, body)
        except (Closed, ConnectionRefusedError):
            return None

    def produce(self, node, partition, acks=-1):
        """A record."""
        data = [{"Index": partition, "Records": batch([record(0, b"v")]).hex()}]
        body = {"TransactionalId": None, "Acks": acks, "TimeoutMs": 1000, "TopicData": [{"TopicId": self.id, "PartitionData": data}]}
        return self.ask(node, "Produce", 13, body)

    def fetch(self, node, version, epoch, wait_ms=0, partitions=(0, 1, 2), offset=0):
        """All partitions from an offset."""
        asked = [{"Partition": p, "CurrentLeaderEpoch": epoch, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20} for p in partitions]
        topic = {"Topic": "ev", "TopicId": self.id, "Partitions": asked}
        return "Fetch", version, {"MaxWaitMs": wait_ms, "MinBytes": 1, "MaxBytes": 1 << 20, "SessionEpoch": -1, "Topics": [topic]}

    def probe(self, node, name):
        """What a probe of the recording says now."""
        what, _, which = name.partition(" ")
        epochs = {"-1": -1, "old": 0, "new": 1}
        if what == "Metadata":
            return self.metadata(node)
        if what == "DescribeTopicPartitions":
            return self.described(node)
        if what == "DescribeCluster":
            answer = self.ask(node, "DescribeCluster", 2, {"IncludeClusterAuthorizedOperations": False, "EndpointType": 1, "IncludeFencedBrokers": True})
            return answer and {"err": answer["ErrorCode"], "brokers": sorted([b["BrokerId"], b["IsFenced"]] for b in answer["Brokers"])}
        if what == "Produce":
            partition, acks = int(which[-1]), -1 if "acks=all" in which else 1
            return produced(self.produce(node, partition, acks))
        if what == "Fetch":
            version, epoch = int(which.split(" ")[0][1:]), epochs[which.split(" ")[2]]
            return fetched(self.ask(node, *self.fetch(node, version, epoch)))
        if what.startswith("ListOffsets"):
            timestamp, _, epoch = what.removeprefix("ListOffsets").partition("/")
            asked = [{"PartitionIndex": p, "CurrentLeaderEpoch": epochs[(epoch or "-1").removesuffix("Epoch")], "Timestamp": int(timestamp)} for p in range(3)]
            body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": "ev", "Partitions": asked}], "TimeoutMs": 1000}
            answer = self.ask(node, "ListOffsets", 10, body)
            return answer and {
                "p": [kept(p, i="PartitionIndex", err="ErrorCode", epoch="LeaderEpoch", off="Offset") for p in in_order(answer, "PartitionIndex")]
            }
        known, _, asked_for = which.partition(",ask ")
        epoch = epochs[known.removeprefix("cur").strip()]
        asked = [{"Partition": p, "CurrentLeaderEpoch": epoch, "LeaderEpoch": epochs[asked_for]} for p in range(3)]
        answer = self.ask(node, "OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": [{"Topic": "ev", "Partitions": asked}]})
        return answer and {"p": [kept(p, i="Partition", err="ErrorCode", epoch="LeaderEpoch", end="EndOffset") for p in in_order(answer, "Partition")]}

    def metadata(self, node):
        """Topic and brokers."""
        answer = self.ask(node, "Metadata", 12, {"Topics": [{"TopicId": "0" * 32, "Name": "ev"}], "AllowAutoTopicCreation": False})
        if answer is None:
            return None
        names = {"i": "PartitionIndex", "err": "ErrorCode", "leader": "LeaderId", "epoch": "LeaderEpoch"}
        names |= {"replicas": "ReplicaNodes", "isr": "IsrNodes", "offline": "OfflineReplicas"}
        topics = [
            {"t": t["Name"], "err": t["ErrorCode"], "p": [kept(p, **names) for p in sorted(t["Partitions"], key=lambda p: p["PartitionIndex"])]}
            for t in answer["Topics"]
        ]
        return {"brokers": sorted(b["NodeId"] for b in answer["Brokers"]), "topics": topics}

    def described(self, node):
        """The topic as DescribeTopicPartitions has it."""
        answer = self.ask(node, "DescribeTopicPartitions", 0, {"Topics": [{"Name": "ev"}], "ResponsePartitionLimit": 100, "Cursor": None})
        if answer is None:
            return None
        names = {"i": "PartitionIndex", "err": "ErrorCode", "leader": "LeaderId", "epoch": "LeaderEpoch", "isr": "IsrNodes"}
        names |= {"elr": "EligibleLeaderReplicas", "lastElr": "LastKnownElr", "offline": "OfflineReplicas"}
        return {"topics": [{"t": t["Name"], "err": t["ErrorCode"], "p": [kept(p, **names) for p in t["Partitions"]]} for t in answer["Topics"]]}

    def check(self, phase):
        """Every node answers every probe as the recording says."""
        for name, by_node in phase.items():
            for node in self.nodes:
                wanted = by_node.get("all") or by_node[str(node)]
                found = self.probe(node, name)
                assert found == (None if wanted == {"conn": "refused"} else wanted), (name, node)

    def wait_for_fetches(self, count):
        """Until so many wait in the broker."""
        assert until(lambda: self.kafka.broker.metrics()["purgatory-size"] >= count)

    def elect(self):
        """Preferred leaders everywhere; the partitions with another leader then."""
        answer = self.ask(1, "ElectLeaders", 2, {"ElectionType": 0, "TopicPartitions": None, "TimeoutMs": 1000})
        return [
            (t["Topic"], p["PartitionId"], p["ErrorCode"])
            for t in answer["ReplicaElectionResults"]
            for p in t["PartitionResult"]
            if not t["Topic"].startswith("__")
        ]


def kept(found, **names):
    """Some fields by short names; numbers that differ from run to run are "n"."""
    row = {short: found[name] for short, name in names.items()}
    return {short: "n" if short in ("off", "end") and value > 0 else value for short, value in row.items()}


def in_order(answer, key):
    """The partitions of the one topic."""
    return sorted(answer["Topics"][0]["Partitions"], key=lambda p: p[key])


def hinted(row, partition, answer):
    """Adds the leader that a partition's error names."""
    leader = partition.get("CurrentLeader", {"LeaderId": -1, "LeaderEpoch": -1})
    if leader != {"LeaderId": -1, "LeaderEpoch": -1}:
        row["cur"] = [leader["LeaderId"], leader["LeaderEpoch"]]
    return row


def endpoints(shown, answer):
    """Adds the nodes whose addresses are given."""
    if answer.get("NodeEndpoints"):
        shown["endpoints"] = [e["NodeId"] for e in answer["NodeEndpoints"]]
    return shown


def produced(answer):
    """A Produce answer as the recording has it."""
    if answer is None:
        return None
    rows = []
    for p in answer["Responses"][0]["PartitionResponses"]:
        row = {"i": p["Index"], "err": p["ErrorCode"], "off": "n" if p["ErrorCode"] == 0 else p["BaseOffset"]}
        if p["ErrorCode"]:
            row["start"] = p["LogStartOffset"]
        rows.append(hinted(row, p, answer))
    return endpoints({"p": rows}, answer)


def fetched(answer):
    """A Fetch answer as the recording has it."""
    if answer is None:
        return None
    rows = []
    for p in sorted(answer["Responses"][0]["Partitions"], key=lambda p: p["PartitionIndex"]):
        row = {"i": p["PartitionIndex"], "err": p["ErrorCode"], "hw": "n" if p["HighWatermark"] > 0 else p["HighWatermark"]}
        if p["Records"]:
            row["rec"] = True
        rows.append(hinted(row, p, answer))
    return endpoints({"err": answer["ErrorCode"], "p": rows}, answer)


@pytest.fixture
def cluster(kafka_cluster):
    """Three nodes with some records in each partition."""
    made = Cluster(kafka_cluster(nodes=3))
    for partition, (leader, *_) in enumerate(REPLICAS):
        assert produced(made.produce(leader, partition))["p"][0]["err"] == 0
    yield made
    for node in made.nodes.values():
        node.wire.drop()


def test_a_reassignment_and_an_election_move_a_leader_as_in_kafka(cluster):
    phases = ANSWERS["move"]
    cluster.check(phases["before"])
    topic = {"Name": "ev", "Partitions": [{"PartitionIndex": 0, "Replicas": [2, 3, 1]}]}
    answer = cluster.ask(2, "AlterPartitionReassignments", 0, {"TimeoutMs": 1000, "Topics": [topic]})
    assert (answer["ErrorCode"], answer["Responses"][0]["Partitions"][0]["ErrorCode"]) == (0, 0)
    cluster.check(phases["reordered"])
    assert cluster.elect() == [("ev", 0, 0)]
    cluster.check(phases["moved"])
    assert cluster.elect() == []
    named = [{"Topic": "ev", "Partitions": [0, 9]}]
    answer = cluster.ask(1, "ElectLeaders", 2, {"ElectionType": 0, "TopicPartitions": named, "TimeoutMs": 1000})
    results = [(p["ErrorCode"], p["ErrorMessage"]) for p in answer["ReplicaElectionResults"][0]["PartitionResult"]]
    assert results == [(84, "Leader election not needed for topic partition."), (3, "No such partition as ev-9")]


def test_a_node_stops_and_starts_as_in_kafka(cluster):
    phases = ANSWERS["stop"]
    cluster.check(phases["before"])
    cluster.kafka.stop_node(2)
    cluster.check(phases["after"])
    cluster.kafka.stop_node(2)
    cluster.kafka.start_node(2)
    assert cluster.elect() == [("ev", 1, 0)]
    cluster.check(phases["returned"])


def test_a_waiting_fetch_ends_with_the_new_leader_and_a_stopped_node_closes_its_connections(cluster):
    poll = cluster.fetch(1, 18, 0, wait_ms=60_000, partitions=[0], offset=1)
    for node in (1, 2, 3):
        cluster.nodes[node].send(*poll)
    cluster.wait_for_fetches(3)
    cluster.kafka.move_leader("ev", 0, to=2)
    wanted = {"err": 0, "p": [{"i": 0, "err": 74, "hw": -1, "cur": [2, 1]}], "endpoints": [2]}
    assert [fetched(cluster.nodes[node].receive("Fetch", 18)) for node in (1, 3)] == [wanted, wanted]
    assert cluster.nodes[2].receive("Fetch", 18, wait=0.05) is None
    unaware = WireClient(cluster.kafka.bootstrap.split(",")[1])
    unaware.send(*cluster.fetch(2, 18, -1, wait_ms=60_000, partitions=[0], offset=1))
    cluster.wait_for_fetches(2)
    cluster.kafka.stop_node(2)
    assert fetched(cluster.nodes[2].receive("Fetch", 18))["p"] == [{"i": 0, "err": 74, "hw": -1, "cur": [1, 2]}]
    for client in (cluster.nodes[2], unaware):
        with pytest.raises(Closed):
            client.receive("Fetch", 18)
    host, port = cluster.kafka.bootstrap.split(",")[1].split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    cluster.kafka.start_node(2)
    socket.create_connection((host, int(port))).close()
    moved = cluster.kafka.broker.describe_topic("ev").partitions[0]
    assert (moved.leader, moved.leader_epoch, moved.replicas, moved.isr) == (1, 2, (2, 1, 3), (1, 2, 3))


def test_offsets_are_at_the_new_coordinator_and_the_old_one_refuses(cluster):
    def found(node):
        answer = cluster.ask(node, "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["billing"]})
        return answer["Coordinators"][0]["NodeId"]

    def committed(node):
        topics = [{"Name": "ev", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]
        body = {"GroupId": "billing", "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None, "Topics": topics}
        return cluster.ask(node, "OffsetCommit", 8, body)["Topics"][0]["Partitions"][0]["ErrorCode"]

    old = found(1)
    assert committed(old) == 0
    new = old % 3 + 1
    cluster.kafka.move_coordinator("billing", to=new)
    assert [found(node) for node in (1, 2, 3)] == [new] * 3
    assert (committed(old), committed(new)) == (NOT_COORDINATOR, 0)
    cluster.kafka.stop_node(new)
    assert found(old) == old, "the next replica"


def waiting_produce(cluster, node, partition, timeout_ms):
    """Sends a record with acks=all, which waits."""
    data = [{"Index": partition, "Records": batch([record(0, b"v")]).hex()}]
    body = {"TransactionalId": None, "Acks": -1, "TimeoutMs": timeout_ms, "TopicData": [{"TopicId": cluster.id, "PartitionData": data}]}
    cluster.nodes[node].send("Produce", 13, body)


def test_a_killed_node_is_noticed_after_a_time_as_in_kafka(cluster):
    """Rules of the recording: until the fencing its leaders are named, acks=all waits, coordinators refuse after offsets.commit.timeout.ms."""
    kafka = cluster.kafka
    kafka.clock.freeze()
    kafka.kill_node(2, detected_after_ms=9000)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(kafka.bootstrap.split(",")[1].split(":")[1])))
    shown = cluster.metadata(1)
    assert shown["brokers"] == [1, 2, 3]
    assert [(p["leader"], p["isr"], p["offline"]) for p in shown["topics"][0]["p"]] == [(r[0], r, []) for r in REPLICAS]
    assert cluster.probe(1, "DescribeCluster")["brokers"] == [[1, False], [2, False], [3, False]]
    refused = produced(cluster.produce(1, 1, acks=1))
    assert refused == {"p": [{"i": 1, "err": 6, "off": -1, "start": -1, "cur": [2, 0]}], "endpoints": [2]}
    assert produced(cluster.produce(1, 0, acks=1))["p"][0]["err"] == 0
    waiting_produce(cluster, 1, 0, 1500)
    waiting_produce(cluster, 3, 2, 60_000)
    assert cluster.nodes[1].receive("Produce", 13, wait=0.05) is None
    kafka.clock.advance(seconds=1.5)
    late = cluster.nodes[1].receive("Produce", 13)["Responses"][0]["PartitionResponses"][0]
    assert (late["ErrorCode"], late["BaseOffset"], late["LogStartOffset"]) == (7, 2, 0)
    assert fetched(cluster.ask(1, *cluster.fetch(1, 18, -1, partitions=[0], offset=1)))["p"] == [{"i": 0, "err": 0, "hw": "n"}]
    kafka.clock.advance(seconds=7)
    assert cluster.nodes[3].receive("Produce", 13, wait=0.05) is None
    kafka.clock.advance(seconds=0.5)
    assert produced(cluster.nodes[3].receive("Produce", 13)) == {"p": [{"i": 2, "err": 0, "off": "n"}]}
    shown = cluster.metadata(1)
    assert (shown["brokers"], shown["topics"][0]["p"][1]["leader"], shown["topics"][0]["p"][1]["epoch"]) == ([1, 3], 3, 1)
    assert fetched(cluster.ask(1, *cluster.fetch(1, 18, -1, partitions=[0], offset=1)))["p"] == [{"i": 0, "err": 0, "hw": "n", "rec": True}]


def test_a_group_coordinator_waits_for_its_replicas_as_in_kafka(cluster):
    kafka = cluster.kafka
    answer = cluster.ask(1, "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["billing"]})
    node = answer["Coordinators"][0]["NodeId"]
    topics = [{"Name": "ev", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]
    commit = {"GroupId": "billing", "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": None, "Topics": topics}

    def committed(answer):
        return answer["Topics"][0]["Partitions"][0]["ErrorCode"]

    assert committed(cluster.ask(node, "OffsetCommit", 8, commit)) == 0
    kafka.clock.freeze()
    kafka.kill_node(node % 3 + 1, detected_after_ms=9000)
    client, reader = cluster.nodes[node], WireClient(kafka.bootstrap.split(",")[node - 1])
    client.send("OffsetCommit", 8, commit)
    assert client.receive("OffsetCommit", 8, wait=0.05) is None
    fetch = {"Groups": [{"GroupId": "billing", "MemberId": None, "MemberEpoch": -1, "Topics": None}], "RequireStable": True}
    reader.send("OffsetFetch", 9, fetch)
    assert reader.receive("OffsetFetch", 9, wait=0.05) is None
    kafka.clock.advance(seconds=5)
    assert committed(client.receive("OffsetCommit", 8)) == 15
    assert reader.receive("OffsetFetch", 9)["Groups"][0]["ErrorCode"] == NOT_COORDINATOR
    client.send("OffsetCommit", 8, commit)
    kafka.clock.advance(seconds=4)
    assert committed(client.receive("OffsetCommit", 8)) == 0
    reader.wire.drop()


def test_an_unclean_election_loses_what_the_elected_replica_had_not_as_in_kafka(cluster):
    """Partition 1 of the recording's scenario: leader 2 with more records than replica 3 had when it ended."""
    kafka = cluster.kafka
    topic = {"Name": "f", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [2, 3]}], "Configs": []}
    cluster.ask(1, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 5000, "validateOnly": False})
    kafka.produce("f", [b"kept"] * 10)
    kafka.kill_node(3)
    assert cluster.metadata(3) is None
    kafka.produce("f", [b"lost"] * 20)
    kafka.kill_node(2)
    kafka.start_node(3)

    def elect(kind):
        body = {"ElectionType": kind, "TopicPartitions": [{"Topic": "f", "Partitions": [0]}], "TimeoutMs": 1000}
        (found,) = cluster.ask(1, "ElectLeaders", 2, body)["ReplicaElectionResults"][0]["PartitionResult"]
        return found["ErrorCode"]

    def fetch(epoch, offset, last=-1):
        partition = {"Partition": 0, "CurrentLeaderEpoch": epoch, "FetchOffset": offset, "LastFetchedEpoch": last, "PartitionMaxBytes": 1 << 20}
        topics = [{"Topic": "f", "Partitions": [partition]}]
        answer = cluster.ask(3, "Fetch", 12, {"MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 20, "SessionEpoch": -1, "Topics": topics})
        (found,) = answer["Responses"][0]["Partitions"]
        diverging = found.get("DivergingEpoch") or {"Epoch": -1, "EndOffset": -1}
        return found["ErrorCode"], found["HighWatermark"], (diverging["Epoch"], diverging["EndOffset"])

    def end_of(epoch):
        asked = {"Topic": "f", "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": epoch}]}
        answer = cluster.ask(3, "OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": [asked]})
        found = answer["Topics"][0]["Partitions"][0]
        return found["ErrorCode"], found["LeaderEpoch"], found["EndOffset"]

    no = (-1, -1)
    assert fetch(-1, 0) == (0, 10, no), "a replica that may not lead answers with what it has"
    assert (elect(0), elect(1), elect(1)) == (80, 0, 84)
    assert [fetch(epoch, 15) for epoch in (0, 1, 2, 3)] == [(74, -1, no), (74, -1, no), (1, -1, no), (75, -1, no)]
    assert fetch(2, 15, last=0) == (0, 10, (0, 10))
    assert [end_of(epoch) for epoch in (0, 1, 2)] == [(0, 0, 10), (0, 0, 10), (0, 2, 10)]
    kafka.produce("f", [b"new"])
    kafka.start_node(2)
    kafka.move_leader("f", 0, to=2)
    assert kafka.records("f")["value"].to_pylist() == [b"kept"] * 10 + [b"new"]


def test_the_quorum_has_another_leader_when_its_first_node_ends(cluster):
    def quorum(node):
        answer = cluster.ask(node, "DescribeQuorum", 2, {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]})
        found = answer["Topics"][0]["Partitions"][0]
        return found["LeaderId"], found["LeaderEpoch"], [voter["ReplicaId"] for voter in found["CurrentVoters"]]

    leader, epoch, voters = quorum(2)
    assert (leader, voters) == (1, [1, 2, 3])
    cluster.kafka.stop_node(1)
    assert quorum(2) == (2, epoch + 1, [1, 2, 3])
    cluster.kafka.start_node(1)
    assert quorum(3) == (2, epoch + 1, [1, 2, 3])
    # Metadata name any live node as controller, since brokers pass requests on: which one says nothing about the quorum
    named = [cluster.ask(node, "Metadata", 12, {"Topics": [], "AllowAutoTopicCreation": False})["ControllerId"] for node in (2, 3)]
    assert set(named) <= {1, 2, 3}
    cluster.kafka.stop_node(1)
    assert cluster.ask(3, "Metadata", 12, {"Topics": [], "AllowAutoTopicCreation": False})["ControllerId"] in {2, 3}


def ask_for_quorum(client):
    """Only sends."""
    client.send("DescribeQuorum", 2, {"Topics": [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]})


def test_nodes_wait_for_the_next_active_controller_as_in_kafka(cluster):
    kafka, client = cluster.kafka, cluster.nodes[3]
    kafka.clock.freeze()
    kafka.kill_node(1, detected_after_ms=12_000, election_ms=2400)
    ask_for_quorum(client)
    assert client.receive("DescribeQuorum", 2, wait=0.05) is None
    assert cluster.metadata(2)["brokers"] == [1, 2, 3], "nothing else waits"
    kafka.clock.advance(seconds=2.4)
    (found,) = client.receive("DescribeQuorum", 2)["Topics"][0]["Partitions"]
    assert (found["ErrorCode"], found["LeaderId"], found["LeaderEpoch"]) == (0, 2, 1)
    kafka.clock.advance(seconds=9.6)
    assert cluster.metadata(2)["brokers"] == [2, 3]


def test_a_node_that_shuts_down_answers_as_a_follower_until_it_closes_its_connections(cluster):
    kafka = cluster.kafka
    kafka.clock.freeze()
    kafka.stop_node(2, closes_after_ms=3000)
    for node in (1, 2, 3):
        shown = cluster.metadata(node)
        assert (shown["brokers"], shown["topics"][0]["p"][1]["leader"], shown["topics"][0]["p"][1]["isr"]) == ([1, 2, 3], 3, [3, 1])
    assert produced(cluster.produce(2, 1)) == {"p": [{"i": 1, "err": 6, "off": -1, "start": -1, "cur": [3, 1]}], "endpoints": [3]}
    assert fetched(cluster.ask(2, *cluster.fetch(2, 18, -1, partitions=[1])))["p"] == [{"i": 1, "err": 0, "hw": "n", "rec": True}]
    kafka.clock.advance(seconds=3)
    assert cluster.metadata(1)["brokers"] == [1, 3]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(kafka.bootstrap.split(",")[1].split(":")[1])))


def test_a_controller_that_shuts_down_answers_until_it_ends(cluster):
    kafka, client = cluster.kafka, cluster.nodes[3]
    kafka.clock.freeze()
    kafka.stop_node(1, closes_after_ms=3000, election_ms=1000)
    ask_for_quorum(client)
    assert client.receive("DescribeQuorum", 2)["Topics"][0]["Partitions"][0]["LeaderId"] == 1
    kafka.clock.advance(seconds=3)
    ask_for_quorum(client)
    assert client.receive("DescribeQuorum", 2, wait=0.05) is None
    kafka.clock.advance(seconds=1)
    assert client.receive("DescribeQuorum", 2)["Topics"][0]["Partitions"][0]["LeaderId"] == 2


def test_waiting_fetches_of_a_deleted_topic_end_with_its_partition_unknown(cluster):
    for node, version in ((1, 18), (2, 12)):
        cluster.nodes[node].send(*cluster.fetch(node, version, 0, wait_ms=60_000, partitions=[0], offset=1))
    cluster.wait_for_fetches(2)
    cluster.ask(3, "DeleteTopics", 6, {"Topics": [{"Name": "ev", "TopicId": "0" * 32}], "TimeoutMs": 1000})
    for node, version in ((1, 18), (2, 12)):
        assert fetched(cluster.nodes[node].receive("Fetch", version)) == {"err": 0, "p": [{"i": 0, "err": 3, "hw": -1}]}
    assert fetched(cluster.ask(1, *cluster.fetch(1, 18, 0, partitions=[0])))["p"][0]["err"] == 100


def test_acks_all_waits_for_followers_that_are_late_after_a_move(cluster):
    kafka = cluster.kafka
    kafka.clock.freeze()
    kafka.move_leader("ev", 0, to=2, replicated_after_ms=1100)
    waiting_produce(cluster, 2, 0, 60_000)
    assert cluster.nodes[2].receive("Produce", 13, wait=0.05) is None
    kafka.clock.advance(seconds=1.1)
    assert produced(cluster.nodes[2].receive("Produce", 13)) == {"p": [{"i": 0, "err": 0, "off": "n"}]}


def written(place, bootstrap, client, over):
    """Writes numbers until the events are over; returns how many."""
    numbers = itertools.count()
    if client == "librdkafka":
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 10})
        while not over.is_set():
            producer.produce("orders", str(number := next(numbers)).encode(), partition=number % 3)
            producer.poll(0.004)
        assert producer.flush(20) == 0
        return next(numbers)
    with fl.Producer(place, {"retry.backoff.ms": 10}) as producer:
        while not over.is_set():
            producer.send("orders", value=str(number := next(numbers)).encode(), partition=number % 3)
            over.wait(0.004)
        producer.flush(timeout=20)
    return next(numbers)


def polls(place, bootstrap, client, assigned):
    """Numbers as a member of group `billing` reads them, some at a time; `assigned` gets what is assigned."""
    config = {"group.id": "billing", "auto.offset.reset": "earliest", "retry.backoff.ms": 10}
    if client == "librdkafka":
        consumer = Consumer(config | {"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 20})
        consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
        while True:
            message = consumer.poll(0.05)
            yield [int(message.value())] if message is not None and not message.error() else []
    with fl.Consumer(place, config) as consumer:
        consumer.subscribe(["orders"], on_assigned=lambda partitions: assigned.append(len(partitions)))
        while True:
            yield [int(r.value) for r in consumer.poll(timeout_ms=50)]


@pytest.mark.parametrize("client", ["librdkafka", "fletchlog", "embedded"])
def test_clients_go_through_moves_and_a_stopped_node_without_a_lost_or_repeated_record(kafka_cluster, client):
    """An idempotent producer, and a member of a group that is not rebalanced."""
    kafka = kafka_cluster(nodes=3)
    kafka.topic(partitions=3, name="orders")
    place = kafka.broker if client == "embedded" else f"kafka://{kafka.bootstrap}"
    over, assigned, seen, count = threading.Event(), [], [], []
    writer = threading.Thread(target=lambda: count.append(written(place, kafka.bootstrap, client, over)))
    writer.start()
    events = iter(
        [
            *(lambda p=partition, to=to: kafka.move_leader("orders", p, to=to) for partition, to in enumerate([2, 3, 1])),
            lambda: kafka.move_coordinator("billing", to=3),
            lambda: kafka.stop_node(3),
            lambda: kafka.start_node(3),
            lambda: kafka.kill_node(2, detected_after_ms=300),
            lambda: kafka.start_node(2),
            lambda: kafka.move_leader("orders", 0, to=3),
            over.set,
        ]
    )
    end, wanted = time.monotonic() + 30, 30
    for numbers in polls(place, kafka.bootstrap, client, assigned):
        seen += numbers
        if len(seen) >= wanted:
            wanted = len(seen) + 20
            next(events, lambda: None)()
        if time.monotonic() > end or (count and len(seen) >= count[0]):
            break
    over.set()
    writer.join()
    assert sorted(seen) == list(range(count[0]))
    assert kafka.records("orders").num_rows == count[0]
    assert assigned == [3], "the group was rebalanced"


def test_wrong_events_are_named(kafka_cluster):
    kafka = kafka_cluster(nodes=3)
    kafka.topic(name="orders")
    for call in (lambda: kafka.stop_node(4), lambda: kafka.move_leader("orders", 0, to=0)):
        with pytest.raises(KafkaError, match="the broker has no node"):
            call()
    with pytest.raises(InvalidArgumentError, match="either group_id or transactional_id"):
        kafka.broker.move_coordinator(to=1)
    kafka.stop_node(3)
    with pytest.raises(LeaderError, match="node 3 cannot lead orders-0: it is stopped"):
        kafka.move_leader("orders", 0, to=3)
