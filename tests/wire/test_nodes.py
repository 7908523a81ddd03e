"""Ids and racks of nodes, and followers near the client, as clients of other makers see them."""

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError
from tests.support.waiting import until

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def sum_of(kafka, place, client, rack):
    """What a consumer in a rack reads of `orders`."""
    config = {"group.id": f"{client}-{rack}", "client.id": f"{client}-{rack}", "auto.offset.reset": "earliest", "client.rack": rack}
    seen = []
    if client == "librdkafka":
        consumer = Consumer(config | {"bootstrap.servers": kafka.bootstrap, "fetch.wait.max.ms": 20})
        consumer.subscribe(["orders"])
        assert until(lambda: seen.append(m.value()) if (m := consumer.poll(0.05)) and not m.error() else len(seen) == 6)
        consumer.close()
        return seen
    with fl.Consumer(place, config) as consumer:
        consumer.subscribe(["orders"])
        assert until(lambda: seen.extend(r.value for r in consumer.poll(timeout_ms=50)) or len(seen) == 6)
    return seen


@pytest.mark.parametrize("client", ["librdkafka", "fletchlog"])
def test_a_consumer_reads_from_the_follower_in_its_rack(kafka_cluster, client):
    kafka = kafka_cluster(nodes={1: "r1", 2: "r2", 3: "r3"}, config=SELECTOR)
    kafka.topic(name="orders")
    kafka.move_leader("orders", 0, to=1)
    kafka.produce("orders", [b"1", b"2", b"3"] * 2)
    for rack in ("r2", "r3"):
        assert sum_of(kafka, f"kafka://{kafka.bootstrap}", client, rack) == [b"1", b"2", b"3"] * 2
        fetches = [request.node for request in kafka.requests(api="Fetch", client_id=f"{client}-{rack}")]
        assert fetches[0] == 1
        assert int(rack[1]) in fetches
    sum_of(kafka, f"kafka://{kafka.bootstrap}", client, "r1")
    assert {request.node for request in kafka.requests(api="Fetch", client_id=f"{client}-r1")} == {1}


def test_an_embedded_consumer_reads_from_the_follower_in_its_rack(kafka_cluster):
    kafka = kafka_cluster(nodes={1: "r1", 2: "r2", 3: "r3"}, config=SELECTOR)
    kafka.topic(name="orders")
    kafka.produce("orders", [b"1", b"2", b"3"] * 2)
    leader = kafka.broker.describe_topic("orders").partitions[0].leader
    follower = leader % 3 + 1
    config = {"auto.offset.reset": "earliest", "client.rack": f"r{follower}", "fletchlog.trace": "true"}
    with fl.Consumer(kafka.broker, config) as consumer:
        consumer.assign([("orders", 0)])
        seen = []
        assert until(lambda: seen.extend(r.value for r in consumer.poll(timeout_ms=50)) or len(seen) == 6)
        asked = [event["node"] for event in consumer.trace().to_pyarrow().to_pylist() if event["kind"] == "ask"]
    assert asked[0] == leader
    assert follower in asked


def test_clients_see_ids_and_racks(kafka_cluster):
    kafka = kafka_cluster(nodes={0: "a", 5: None})
    assert kafka.broker.nodes == [0, 5]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    nodes = admin.describe_cluster().result(10).nodes
    assert [(node.id, node.rack) for node in nodes] == [(0, "a"), (5, None)]
    kafka.topic(name="orders", partitions=2)
    leaders = [p.leader for p in admin.list_topics("orders").topics["orders"].partitions.values()]
    assert sorted(leaders) == [0, 5]
    kafka.stop_node(0)
    kafka.produce("orders", [b"x"] * 4)
    assert kafka.records("orders").num_rows == 4


@pytest.mark.parametrize(
    ("nodes", "error", "text"),
    [
        ({}, InvalidArgumentError, "has no node"),
        ({-1: "a"}, InvalidArgumentError, "the id of a node is -1"),
        ([1, 2], TypeError, "racks of nodes by their ids"),
        ({1: 2}, TypeError, "ids and racks"),
        ("3", TypeError, "racks of nodes by their ids"),
    ],
)
def test_wrong_nodes_are_named(nodes, error, text):
    with pytest.raises(error, match=text):
        fl.Broker.in_memory(nodes=nodes)
