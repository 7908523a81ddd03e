"""What a client may do that may only read: ACLs on a listener of ours."""

import pytest
from confluent_kafka import admin

import fletchlog as fl
from fletchlog.errors import KafkaError
from fletchlog.spark.cluster import ClusterLog
from fletchlog.spark.errors import DataLossError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.schema import kafka_schema
from fletchlog.spark.stream import StreamReader

CONFIG = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "plain.sasl.jaas.config": "PlainLoginModule required user_root=r user_alice=a;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}


@pytest.fixture
def alice():
    """The properties of a client that may read topic orders, and nothing else."""
    with fl.Broker.in_memory(config=CONFIG) as broker, broker.listen() as kafka:
        for topic in ("orders", "secret"):
            broker.create_topic(topic, config={"retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            producer.send("orders", value=b"v", timestamp_ms=1_700_000_000_000).result()
        base = {"bootstrap.servers": kafka.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        root = admin.AdminClient(base | {"sasl.username": "root", "sasl.password": "r"})
        kind, literal, read, allow = admin.ResourceType.TOPIC, admin.ResourcePatternType.LITERAL, admin.AclOperation.READ, admin.AclPermissionType.ALLOW
        for future in root.create_acls([admin.AclBinding(kind, "orders", literal, "User:alice", "*", read, allow)]).values():
            future.result(10)
        yield base | {"sasl.username": "alice", "sasl.password": "a"}


def test_a_reader_describes_and_scans_a_topic_without_its_properties(alice):
    with fl.Cluster(alice) as cluster:
        assert cluster.topics() == ["orders"]
        described = cluster.describe_topic("orders")
        assert (described.config, described.partitions[0].high_watermark) == (None, 1)
        assert cluster.scan("orders").to_pyarrow()["value"].to_pylist() == [b"v"]
        with pytest.raises(KafkaError, match="authoriz"):
            cluster.describe_config("orders")
        with pytest.raises(KafkaError, match="authoriz"):
            cluster.describe_topic("secret")


def test_a_reader_is_enough_for_spark(alice):
    options = {f"kafka.{name}": value for name, value in alice.items()} | {"subscribe": "orders"}
    log = ClusterLog(SourceOptions.parse(options))
    assert log.topics() == ["orders"]
    span = log.spans([("orders", 0)])["orders", 0]
    batches = log.scan(("orders", 0), span.start, span.end, columns=["value"])
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"v"]


def test_a_stream_keeps_its_place_in_a_topic_that_it_may_not_see_any_more(alice):
    def planner(**options):
        given = {f"kafka.{name}": value for name, value in alice.items()} | {"fetchOffset.numRetries": "1"} | options
        return StreamReader(SourceOptions.parse(given), kafka_schema(include_headers=False))

    start = {"orders": {"0": 0}, "secret": {"0": 7}}
    with pytest.raises(DataLossError, match="partitions secret-0 are gone, or kafka://"):
        planner(subscribePattern="orders|secret").latestOffset(start)
    forgiving = planner(subscribePattern="orders|secret", failOnDataLoss="false")
    assert forgiving.latestOffset(start) == {"orders": {"0": 1}, "secret": {"0": 7}}
    for strategy in ({"subscribe": "orders,secret"}, {"assign": '{"secret":[0]}'}):
        with pytest.raises(KafkaError, match="authoriz"):
            planner(failOnDataLoss="false", **strategy).latestOffset(start)
