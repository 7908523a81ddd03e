"""What waits while a cluster changes, for how long, and how it ends: rules of the recordings in `golden/cluster-events`, on a frozen clock.

What nodes answer once they have settled is in `test_cluster_phases.py` and `test_cluster_events.py`.
"""

import contextlib

import pytest

from tests.support.batches import batch, record
from tests.support.cluster_probes import Probes
from tests.support.waiting import until
from tests.support.wire_client import WireClient

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
OFFSET_NOT_AVAILABLE, FENCED = 78, 74
PENDING = None


class Cluster(Probes):
    """Three nodes with topic `ev` and a record in each partition; connections for requests that wait."""

    def __init__(self, kafka):
        super().__init__(kafka.bootstrap)
        self.kafka, self.waiting = kafka, []
        self.create("ev", REPLICAS, min_insync_replicas="2")
        for partition, (leader, *_) in enumerate(REPLICAS):
            self.write(leader, "ev", partition)

    def begin(self, node, api, version, body):
        """Sends a request; returns what takes its answer: `PENDING` while there is none."""
        client = WireClient(self.kafka.bootstrap.split(",")[node - 1])
        self.waiting.append(client)
        client.send(api, version, body)
        return lambda wait=20: client.receive(api, version, wait)

    def close(self):
        super().close()
        for client in self.waiting:
            client.wire.drop()

    def named(self, name, kind, node):
        """A group (0) or transactional id (1) that this node coordinates."""
        asked = {"KeyType": kind, "CoordinatorKeys": [f"{name}{number}" for number in range(100)]}
        found = self.ask(1, "FindCoordinator", 4, asked)["Coordinators"]
        return next(one["Key"] for one in found if one["NodeId"] == node)

    def move_slowly(self, topic, to):
        """Lets a node lead every partition of the topic, with followers that are late for 1.1 s."""
        for partition in self.kafka.broker.describe_topic(topic).partitions:
            self.kafka.move_leader(topic, partition.partition, to=to, replicated_after_ms=1100)


@pytest.fixture
def started(kafka_cluster):
    """Makes a cluster, with these properties."""
    with contextlib.ExitStack() as opened:

        def start(nodes=3, **properties):
            kafka = kafka_cluster(nodes=nodes, config={name.replace("_", "."): value for name, value in properties.items()} | SELECTOR)
            kafka.clock.freeze()
            cluster = Cluster(kafka)
            opened.callback(cluster.close)
            return kafka, cluster

        yield start


def produce(cluster, topic, partition, acks=-1, timeout_ms=60_000):
    data = [{"Index": partition, "Records": batch([record(0, b"v")]).hex()}]
    topics = [{"TopicId": cluster.ids[topic], "PartitionData": data}]
    return "Produce", 13, {"TransactionalId": None, "Acks": acks, "TimeoutMs": timeout_ms, "TopicData": topics}


def produced(answer):
    """Error, base offset and log start."""
    (found,) = answer["Responses"][0]["PartitionResponses"]
    return found["ErrorCode"], found["BaseOffset"], found["LogStartOffset"]


def fetch(cluster, partition, epoch=-1, offset=1, wait_ms=60_000, version=18, **rest):
    asked = {"Partition": partition, "CurrentLeaderEpoch": epoch, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
    topics = [{"Topic": "ev", "TopicId": cluster.ids["ev"], "Partitions": [asked]}]
    return "Fetch", version, {"MaxWaitMs": wait_ms, "MinBytes": 1, "MaxBytes": 1 << 20, "SessionEpoch": -1, "Topics": topics, **rest}


def fetched(answer):
    """Error, the leader that is named, the follower that is preferred, whether there are records."""
    (found,) = answer["Responses"][0]["Partitions"]
    leader = found.get("CurrentLeader", {"LeaderId": -1})["LeaderId"]
    return found["ErrorCode"], leader, found["PreferredReadReplica"], bool(found["Records"])


def latest(cluster, node, partition, epoch=-1, timestamp=-1):
    """Error and offset of ListOffsets."""
    asked = [{"PartitionIndex": partition, "CurrentLeaderEpoch": epoch, "Timestamp": timestamp}]
    topics = [{"Name": "ev", "Partitions": asked}]
    found = cluster.ask(node, "ListOffsets", 10, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics, "TimeoutMs": 1000})
    return found["Topics"][0]["Partitions"][0]["ErrorCode"], found["Topics"][0]["Partitions"][0]["Offset"]


class Member:
    """A stable member of a classic group."""

    def __init__(self, cluster, name, node):
        self.group, self.id = cluster.named(name, 0, node), ""
        protocols = [{"Name": "range", "Metadata": "00"}]
        join = {"GroupId": self.group, "SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": 60_000, "ProtocolType": "consumer", "Protocols": protocols}
        for _ in range(2):  # the first answer has the id
            joined = cluster.ask(node, "JoinGroup", 9, join | {"MemberId": self.id, "GroupInstanceId": None, "Reason": None})
            self.id, self.generation = joined["MemberId"], joined["GenerationId"]
        self.of = {"GroupId": self.group, "GenerationId": self.generation, "MemberId": self.id, "GroupInstanceId": None}
        sync = self.of | {"ProtocolType": "consumer", "ProtocolName": "range", "Assignments": [{"MemberId": self.id, "Assignment": "00"}]}
        assert cluster.ask(node, "SyncGroup", 5, sync)["ErrorCode"] == 0

    def heartbeat(self):
        return "Heartbeat", 4, self.of

    def commit(self):
        partitions = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]
        topics = [{"Name": "ev", "Partitions": partitions}]
        body = {"GroupId": self.group, "GenerationIdOrMemberEpoch": self.generation, "MemberId": self.id, "GroupInstanceId": None, "Topics": topics}
        return "OffsetCommit", 8, body

    def offsets(self):
        groups = [{"GroupId": self.group, "MemberId": None, "MemberEpoch": -1, "Topics": None}]
        return "OffsetFetch", 9, {"Groups": groups, "RequireStable": True}


def code(answer):
    """The error of an answer; that of a commit is its partition's."""
    if "Topics" in answer:
        return answer["Topics"][0]["Partitions"][0]["ErrorCode"]
    if "ResultsByTopicV3AndBelow" in answer:
        (result,) = answer["ResultsByTopicV3AndBelow"]
        return {found["PartitionErrorCode"] for found in result["ResultsByPartition"]}
    return answer["Groups"][0]["ErrorCode"] if "Groups" in answer else answer["ErrorCode"]


class Transactional:
    """A producer with an id."""

    def __init__(self, cluster, name, node):
        self.id = cluster.named(name, 1, node)
        made = cluster.ask(node, *self.init())
        assert made["ErrorCode"] == 0
        self.producer = made["ProducerId"], made["ProducerEpoch"]

    def init(self):
        return "InitProducerId", 4, {"TransactionalId": self.id, "TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1}

    def add(self, *partitions):
        number, epoch = self.producer
        topics = [{"Name": "ev", "Partitions": list(partitions)}]
        body = {"V3AndBelowTransactionalId": self.id, "V3AndBelowProducerId": number, "V3AndBelowProducerEpoch": epoch, "V3AndBelowTopics": topics}
        return "AddPartitionsToTxn", 3, body

    def end(self):
        number, epoch = self.producer
        return "EndTxn", 4, {"TransactionalId": self.id, "ProducerId": number, "ProducerEpoch": epoch, "Committed": True}

    def write(self, cluster, node, partition):
        data = [{"Index": partition, "Records": batch([record(0, b"v")], producer=(*self.producer, 0), attributes=16).hex()}]
        topics = [{"Name": "ev", "PartitionData": data}]
        return cluster.ask(node, "Produce", 11, {"TransactionalId": self.id, "Acks": -1, "TimeoutMs": 1000, "TopicData": topics})


def test_a_new_leader_whose_followers_are_late_knows_where_its_log_begins_alone(started):
    kafka, cluster = started()
    kafka.move_leader("ev", 0, to=2, replicated_after_ms=1100)
    found = [latest(cluster, 2, 0, epoch, timestamp) for epoch, timestamp in ((-1, -1), (1, -1), (0, -1), (-1, -2), (-1, -4))]
    assert found == [(OFFSET_NOT_AVAILABLE, -1), (OFFSET_NOT_AVAILABLE, -1), (FENCED, -1), (0, 0), (0, 0)]
    kafka.clock.advance(seconds=1.1)
    assert latest(cluster, 2, 0, 1) == (0, 1)


def test_a_new_coordinator_waits_for_followers_that_are_late(started):
    kafka, cluster = started()
    member, producer = Member(cluster, "g", 1), Transactional(cluster, "t", 1)
    cluster.move_slowly("__consumer_offsets", to=2)
    cluster.move_slowly("__transaction_state", to=2)
    commit, init = cluster.begin(2, *member.commit()), cluster.begin(2, *producer.init())
    assert (commit(0.05), init(0.05)) == (PENDING, PENDING)
    kafka.clock.advance(seconds=1.1)
    assert (code(commit()), code(init())) == (0, 0)


def test_a_transaction_coordinator_refuses_loads_and_continues(started):
    kafka, cluster = started()
    open_one, ended = Transactional(cluster, "o", 1), Transactional(cluster, "t", 1)
    assert [code(cluster.ask(1, *request)) for request in (open_one.add(0), ended.add(0), ended.end())] == [{0}, {0}, 0]
    for name in {open_one.id, ended.id}:
        kafka.move_coordinator(transactional_id=name, to=2, loading_ms=200)

    def found(node):
        return [code(cluster.ask(node, *request)) for request in (open_one.add(0, 1), ended.end(), ended.init())]

    assert found(1) == [{NOT_COORDINATOR}, NOT_COORDINATOR, NOT_COORDINATOR]
    assert found(2) == [{LOADING}, LOADING, LOADING]
    kafka.clock.advance(seconds=0.2)
    assert found(2) == [{0}, 0, 0]


def test_heartbeats_wait_behind_a_commit_that_waits_for_a_killed_replica(started):
    kafka, cluster = started()
    member, quiet = Member(cluster, "g", 1), Member(cluster, "q", 1)
    kafka.kill_node(3, detected_after_ms=9000)
    for ends in (NOT_AVAILABLE, 0):
        commit = cluster.begin(1, *member.commit())
        assert commit(0.05) is PENDING
        heartbeat, offsets = cluster.begin(1, *member.heartbeat()), cluster.begin(1, *member.offsets())
        assert (heartbeat(0.05), offsets(0.05)) == (PENDING, PENDING)
        assert code(cluster.ask(1, *quiet.heartbeat())) == 0, "nothing was written before it"
        kafka.clock.advance(seconds=5)
        assert (code(commit()), code(heartbeat()), code(offsets())) == (ends, ends, NOT_COORDINATOR if ends else 0)


def test_a_producer_id_waits_until_a_killed_replica_is_noticed(started):
    kafka, cluster = started()
    fresh, ended = Transactional(cluster, "n", 1), Transactional(cluster, "t", 1)
    assert [code(cluster.ask(1, *request)) for request in (ended.add(0), ended.end())] == [{0}, 0]
    kafka.kill_node(3, detected_after_ms=9000)
    init = cluster.begin(1, *fresh.init())
    kafka.clock.advance(seconds=8.9)
    assert init(0.05) is PENDING
    assert code(cluster.ask(1, *ended.end())) == 0, "nothing is written"
    kafka.clock.advance(seconds=0.1)
    assert code(init()) == 0


def test_a_transaction_over_a_killed_leader_ends_when_that_is_noticed(started):
    kafka, cluster = started()
    producer = Transactional(cluster, "t", 1)
    assert code(cluster.ask(1, *producer.add(0, 1))) == {0}
    for leader, partition in ((1, 0), (2, 1)):
        assert produced(producer.write(cluster, leader, partition))[0] == 0
    kafka.kill_node(2, detected_after_ms=9000)
    end = cluster.begin(1, *producer.end())

    def stable(node, partition):
        answer = cluster.ask(node, *fetch(cluster, partition, wait_ms=0, IsolationLevel=1))
        return answer["Responses"][0]["Partitions"][0]["LastStableOffset"]

    assert (end(0.05), stable(1, 0)) == (PENDING, 1)
    kafka.clock.advance(seconds=9)
    assert code(end()) == 0
    assert (stable(1, 0), stable(3, 1)) == (3, 3), "behind the markers"


def test_a_fetch_waits_on_at_the_node_that_becomes_leader(started):
    kafka, cluster = started()
    kafka.kill_node(2, detected_after_ms=9000)
    follower, new, unaware = (cluster.begin(node, *fetch(cluster, 1, epoch)) for node, epoch in ((1, 0), (3, 0), (1, -1)))
    assert until(lambda: kafka.broker.metrics()["purgatory-size"] >= 3)
    kafka.clock.advance(seconds=9)
    assert fetched(follower()) == (FENCED, 3, -1, False)
    assert (new(0.05), unaware(0.05)) == (PENDING, PENDING)
    cluster.write(3, "ev", 1)
    assert fetched(unaware()) == (0, -1, -1, True)
    assert fetched(new()) == (FENCED, 3, -1, False)


def test_below_min_isr_what_waits_waits_on_and_coordinators_that_must_write_do_not_answer(started):
    kafka, cluster = started(min_insync_replicas="2")
    member, ended = Member(cluster, "g", 1), Transactional(cluster, "t", 1)
    open_one, fresh = Transactional(cluster, "o", 1), Transactional(cluster, "n", 1)
    assert [code(cluster.ask(1, *request)) for request in (ended.add(0), ended.end(), open_one.add(0))] == [{0}, 0, {0}]
    kafka.kill_node(3)
    kafka.kill_node(2, detected_after_ms=9000)
    late, patient = (cluster.begin(1, *produce(cluster, "ev", 0, timeout_ms=wait)) for wait in (12_000, 60_000))
    init = cluster.begin(1, *fresh.init())
    assert (late(0.05), patient(0.05), init(0.05)) == (PENDING, PENDING, PENDING)
    kafka.clock.advance(seconds=9)
    assert (late(0.05), init(0.05)) == (PENDING, PENDING), "never NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    kafka.clock.advance(seconds=3)
    error, offset, start = produced(late())
    assert (error, offset > 0, start) == (7, True, 0)
    assert produced(cluster.ask(1, *produce(cluster, "ev", 0))) == (19, -1, 0)
    assert code(cluster.ask(1, *member.heartbeat())) == 0
    for _ in range(2):
        commit = cluster.begin(1, *member.commit())
        assert commit(0.05) is PENDING
        offsets = cluster.begin(1, *member.offsets())
        assert offsets(0.05) is PENDING
        kafka.clock.advance(seconds=5)
        assert (code(commit()), code(offsets())) == (NOT_AVAILABLE, NOT_COORDINATOR)
    assert [code(cluster.ask(1, *request)) for request in (ended.end(), open_one.add(0), ended.init())] == [0, {0}, NOT_AVAILABLE]
    kafka.start_node(2)
    assert produced(patient())[0] == 0
    assert code(init()) == 0


def test_transactions_need_as_many_replicas_as_their_log_does(started):
    """`transaction.state.log.min.isr` is 2, whatever `min.insync.replicas` is."""
    kafka, cluster = started()
    names = ["min.insync.replicas", "unclean.leader.election.enable"]
    producer = Transactional(cluster, "t", 1)
    config = {entry.name: entry.value for entry in kafka.broker.describe_config("__transaction_state")}
    assert [config[name] for name in names] == ["2", "false"]
    kafka.kill_node(3)
    assert code(cluster.ask(1, *producer.init())) == 0
    kafka.kill_node(2)
    assert code(cluster.ask(1, *producer.init())) == NOT_AVAILABLE
    kafka, cluster = started(transaction_state_log_min_isr="1")
    producer = Transactional(cluster, "t", 1)
    kafka.kill_node(3)
    kafka.kill_node(2)
    assert code(cluster.ask(1, *producer.init())) == 0


def test_a_pending_record_needs_the_min_isr_of_the_end_of_its_wait(started):
    kafka, cluster = started()
    kafka.kill_node(3)
    kafka.kill_node(2, detected_after_ms=9000)
    waits = cluster.begin(1, *produce(cluster, "ev", 0, timeout_ms=20_000))
    assert waits(0.05) is PENDING
    kafka.broker.alter_topic_config("ev", {"min.insync.replicas": "3"})
    assert produced(cluster.ask(1, *produce(cluster, "ev", 0))) == (19, -1, 0)
    assert produced(cluster.ask(1, *produce(cluster, "ev", 0, acks=1))) == (0, 2, 0)
    kafka.start_node(2)
    assert waits(0.05) is PENDING, "two replicas are in sync"
    kafka.clock.advance(seconds=20)
    assert produced(waits()) == (7, 1, 0)


def test_a_killed_follower_is_preferred_until_it_is_noticed(started):
    kafka, cluster = started(nodes={1: "r1", 2: "r2", 3: "r3"})

    def preferred(node, rack, offset=0):
        return fetched(cluster.ask(node, *fetch(cluster, 0, offset=offset, RackId=rack)))[2:]

    follower, leader = (2, False), (-1, True)
    assert [preferred(1, rack) for rack in ("r2", "r1", "none", "")] == [follower, leader, leader, leader]
    assert preferred(1, "r2", offset=1) == follower, "at once, also at the end of the log"
    assert [preferred(2, rack) for rack in ("r2", "r3", "")] == [leader] * 3, "a follower has records and sends nobody away"
    kafka.kill_node(2, detected_after_ms=9000)
    assert preferred(1, "r2") == follower
    kafka.clock.advance(seconds=9)
    assert preferred(1, "r2") == leader
    kafka.start_node(2)
    assert preferred(1, "r2") == follower


def test_what_names_a_leader_and_which_nodes_are_listed(started):
    """By versions: addresses of leaders since Fetch 16 and Produce 10, fenced nodes since DescribeCluster 2, if asked for."""
    kafka, cluster = started()
    assert [fetched_error(cluster, 2, version) for version in (4, 10, 11)] == [6, 6, 0]
    kafka.move_leader("ev", 0, to=2)
    for version, leader in ((12, -1), (15, -1), (16, 2), (18, 2)):
        for node in cluster.nodes:
            assert fetched(cluster.ask(node, *fetch(cluster, 0, epoch=0, version=version)))[:2] == (FENCED, leader)
    for version, known in ((9, False), (10, True), (12, True)):
        _, _, body = produce(cluster, "ev", 0)
        (topic,) = body["TopicData"]
        answer = cluster.ask(1, "Produce", version, body | {"TopicData": [topic | {"Name": "ev"}]})
        assert [node["NodeId"] for node in answer.get("NodeEndpoints", [])] == [2] * known
    kafka.stop_node(1)

    def listed(version, **asked):
        answer = cluster.ask(2, "DescribeCluster", version, {"IncludeClusterAuthorizedOperations": False, "EndpointType": 1, **asked})
        assert answer["ControllerId"] in (2, 3)
        return sorted(broker["BrokerId"] for broker in answer["Brokers"])

    assert [listed(0), listed(1), listed(2, IncludeFencedBrokers=False), listed(2, IncludeFencedBrokers=True)] == [[2, 3], [2, 3], [2, 3], [1, 2, 3]]


def fetched_error(cluster, node, version):
    answer = cluster.ask(node, *fetch(cluster, 0, offset=0, version=version))
    return answer["Responses"][0]["Partitions"][0]["ErrorCode"]
