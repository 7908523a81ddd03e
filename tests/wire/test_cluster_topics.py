"""Topics, partitions and properties on a cluster of three: every node knows a change with the response, and answers as a real 4.4.0 does some ms later
(rules of the recordings in `golden/cluster-events`)."""

import pytest
from confluent_kafka import Producer

from tests.support.batches import batch, record
from tests.support.cluster_probes import Probes

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, UNKNOWN_TOPIC_ID = 1, 3, 10, 100
TOPIC, NO_ID = 2, "0" * 32


@pytest.fixture
def cluster(kafka_cluster):
    """Probes of three nodes, and their clock."""
    kafka = kafka_cluster(nodes=3)
    kafka.clock.freeze()
    probes = Probes(kafka.bootstrap)
    yield kafka, probes
    probes.close()


def metadata(probes, node, name=None, topic_id=NO_ID):
    (topic,) = probes.ask(node, "Metadata", 12, {"Topics": [{"TopicId": topic_id, "Name": name}], "AllowAutoTopicCreation": False})["Topics"]
    return topic["ErrorCode"], {p["PartitionIndex"]: (p["ErrorCode"], p["LeaderId"]) for p in topic["Partitions"]}


def produce(probes, node, partition, version=13, size=1, topic_id=None):
    data = [{"Index": partition, "Records": batch([record(0, b"v" * size)]).hex()}]
    named = {"Name": "t", "TopicId": topic_id or probes.ids["t"], "PartitionData": data}
    answer = probes.ask(node, "Produce", version, {"TransactionalId": None, "Acks": -1, "TimeoutMs": 1000, "TopicData": [named]})
    return answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]


def fetch(probes, node, partition, version, topic_id):
    asked = {"Partition": partition, "CurrentLeaderEpoch": -1, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
    topics = [{"Topic": "t", "TopicId": topic_id, "Partitions": [asked]}]
    answer = probes.ask(node, "Fetch", version, {"MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 20, "SessionEpoch": -1, "Topics": topics})
    return answer["ErrorCode"], answer["Responses"][0]["Partitions"][0]["ErrorCode"]


def latest(probes, node, partition):
    topics = [{"Name": "t", "Partitions": [{"PartitionIndex": partition, "CurrentLeaderEpoch": -1, "Timestamp": -1}]}]
    answer = probes.ask(node, "ListOffsets", 10, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics, "TimeoutMs": 1000})
    return answer["Topics"][0]["Partitions"][0]["ErrorCode"]


def test_a_new_topic_has_leaders_at_every_node_and_takes_records_by_its_id(cluster):
    _, probes = cluster
    probes.create("t", REPLICAS)
    assert [metadata(probes, node, "t") for node in (1, 2, 3)] == [(0, {0: (0, 1), 1: (0, 2), 2: (0, 3)})] * 3
    assert [produce(probes, node, partition) for partition, node in enumerate((1, 2, 3))] == [0, 0, 0]


def test_new_partitions_are_known_to_every_node_and_answered_by_their_leaders(cluster):
    _, probes = cluster
    probes.create("t", REPLICAS)
    assert (produce(probes, 1, 3), latest(probes, 1, 3)) == (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
    more = [{"Name": "t", "Count": 6, "Assignments": [{"BrokerIds": replicas} for replicas in REPLICAS]}]
    assert probes.ask(2, "CreatePartitions", 3, {"Topics": more, "TimeoutMs": 1000, "ValidateOnly": False})["Results"][0]["ErrorCode"] == 0
    found = [metadata(probes, node, "t")[1] for node in (1, 2, 3)]
    assert found == [{partition: (0, partition % 3 + 1) for partition in range(6)}] * 3
    assert [(produce(probes, partition - 2, partition), latest(probes, partition - 2, partition)) for partition in (3, 4, 5)] == [(0, 0)] * 3


def test_an_altered_property_is_described_and_kept_by_every_node(cluster):
    _, probes = cluster
    probes.create("t", REPLICAS)
    altered = {"ResourceType": TOPIC, "ResourceName": "t", "Configs": [{"Name": "max.message.bytes", "ConfigOperation": 0, "Value": "200"}]}
    assert probes.ask(3, "IncrementalAlterConfigs", 1, {"Resources": [altered], "ValidateOnly": False})["Responses"][0]["ErrorCode"] == 0
    asked = {"ResourceType": TOPIC, "ResourceName": "t", "ConfigurationKeys": ["max.message.bytes"]}
    for node in (1, 2, 3):
        answer = probes.ask(node, "DescribeConfigs", 4, {"Resources": [asked], "IncludeSynonyms": False, "IncludeDocumentation": False})
        assert [(found["Name"], found["Value"]) for found in answer["Results"][0]["Configs"]] == [("max.message.bytes", "200")]
        assert (produce(probes, node, node - 1, size=300), produce(probes, node, node - 1)) == (MESSAGE_TOO_LARGE, 0)


def test_a_deleted_topic_is_unknown_to_every_node_and_its_name_gets_another_id(cluster):
    _, probes = cluster
    probes.create("t", REPLICAS)
    old = probes.ids["t"]
    probes.ask(3, "DeleteTopics", 6, {"Topics": [{"Name": "t", "TopicId": NO_ID}], "TimeoutMs": 1000})
    for node in (1, 2, 3):
        assert metadata(probes, node, "t") == (UNKNOWN_TOPIC_OR_PARTITION, {})
        assert metadata(probes, node, topic_id=old) == (UNKNOWN_TOPIC_ID, {})
        assert [fetch(probes, node, 0, version, old) for version in (12, 13, 18)] == [
            (0, UNKNOWN_TOPIC_OR_PARTITION),
            (0, UNKNOWN_TOPIC_ID),
            (0, UNKNOWN_TOPIC_ID),
        ]
        assert [produce(probes, node, 0, version) for version in (12, 13)] == [UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID]
        assert latest(probes, node, 0) == UNKNOWN_TOPIC_OR_PARTITION
    probes.create("t", REPLICAS)
    assert probes.ids["t"] != old
    for partition, node in enumerate((1, 2, 3)):
        assert (produce(probes, node, partition), produce(probes, node, partition, topic_id=old)) == (0, UNKNOWN_TOPIC_ID)
        assert fetch(probes, node, partition, 18, old) == (0, UNKNOWN_TOPIC_ID)


def test_during_a_controlled_shutdown_acks_all_of_other_leaders_has_no_gap(cluster):
    kafka, probes = cluster
    probes.create("t", REPLICAS, min_insync_replicas="2")
    kafka.stop_node(2, closes_after_ms=3000)
    assert [produce(probes, 1, 0), produce(probes, 3, 2), produce(probes, 3, 1)] == [0, 0, 0], "node 3 leads partition 1 already"
    kafka.clock.advance(seconds=3)
    assert [produce(probes, 1, 0), produce(probes, 3, 2), produce(probes, 3, 1)] == [0, 0, 0]


def test_leaders_and_coordinators_come_back_with_an_election(cluster):
    kafka, probes = cluster
    probes.create("t", REPLICAS)
    names = [f"g{number}" for number in range(30)]

    def coordinators():
        asked = {"KeyType": 0, "CoordinatorKeys": names}
        found = [probes.ask(node, "FindCoordinator", 4, asked)["Coordinators"] for node in (1, 3)]
        assert found[0] == found[1]
        return [one["NodeId"] for one in found[0]]

    before = coordinators()
    kafka.stop_node(2)
    stopped = coordinators()
    kafka.start_node(2)
    assert coordinators() == stopped
    assert set(before) == {1, 2, 3}
    assert 2 not in stopped
    probes.elect()
    assert (coordinators(), metadata(probes, 1, "t")[1][1]) == (before, (0, 2))


def test_a_producer_gets_no_error_for_what_an_unclean_election_loses(cluster):
    kafka, probes = cluster
    probes.create("t", [[2, 3]], min_insync_replicas="1", unclean_leader_election_enable="true")
    offsets, errors = [], []

    def report(error, message):
        errors.append(error)
        offsets.append(message.offset())

    def send():
        producer.produce("t", b"v", partition=0, on_delivery=report)
        assert producer.flush(20) == 0

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": 1, "retry.backoff.ms": 10})
    send()
    kafka.kill_node(3)
    send()
    kafka.kill_node(2)
    kafka.start_node(3)
    send()
    assert (offsets, errors) == ([0, 1, 1], [None] * 3)
