"""More partitions and other properties for a topic that exists; what holds, and where it comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl


def _entry(broker: fl.Broker, name: str, topic: str | None = "t") -> fl.admin.ConfigEntry:
    return next(entry for entry in broker.describe_config(topic) if entry.name == name)


def _sent(broker: fl.Broker, partition: int, size: int = 1) -> int:
    with fl.Producer(broker) as producer:
        return producer.send("t", value=b"v" * size, partition=partition).result().offset


def test_more_partitions_are_there_at_once_and_after_the_next_start(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "d", create=True) as broker:
        broker.create_topic("t", partitions=1)
        assert _sent(broker, 0) == 0
        broker.create_partitions("t", 3, validate_only=True)
        assert len(broker.describe_topic("t").partitions) == 1
        broker.create_partitions("t", 3)
        assert _sent(broker, 2) == 0
        with pytest.raises(fl.errors.InvalidPartitionsError, match=r"currently has 3 partition\(s\); 2 would not be an increase"):
            broker.create_partitions("t", 2)
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
            broker.create_partitions("nothing", 2)
    with fl.Broker(tmp_path / "d") as broker:
        assert [p.high_watermark for p in broker.describe_topic("t").partitions] == [1, 0, 1]


def test_a_running_producer_and_consumer_come_to_the_new_partitions() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=1)
        config = {"metadata.max.age.ms": 10, "auto.offset.reset": "earliest"}
        with fl.Producer(broker, {"metadata.max.age.ms": 10}) as producer, fl.Consumer(broker, {"group.id": "g", **config}) as consumer:
            consumer.subscribe(["t"])
            producer.send("t", value=b"a", partition=0).result()
            found: set[int] = set()
            while found != {0}:
                found |= {tp.partition for tp in consumer.poll(1000).partitions()}
            broker.create_partitions("t", 2)
            while producer.partitions_for("t") < 2:
                pass
            producer.send("t", value=b"b", partition=1).result()
            while found != {0, 1}:
                found |= {tp.partition for tp in consumer.poll(1000).partitions()}


def test_a_change_of_properties_holds_at_once_and_after_the_next_start(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "d", create=True) as broker:
        broker.create_topic("t", config={"retention.ms": 1000, "segment.bytes": 5000})
        assert _sent(broker, 0, 500) == 0
        broker.alter_topic_config("t", {"max.message.bytes": 300, "retention.ms": None})
        with pytest.raises(fl.errors.RecordTooLargeError):
            _sent(broker, 0, 500)
    with fl.Broker(tmp_path / "d", read_only=True) as broker:
        assert broker.describe_topic("t").config == {"max.message.bytes": "300", "segment.bytes": "5000"}


def test_nodes_and_groups_are_altered_while_the_broker_runs(tmp_path: Path) -> None:
    retention = "log.retention.ms"

    def of(broker: fl.Broker, name: str = retention, **whose: Any) -> tuple[str | None, str]:
        entry = next(entry for entry in broker.describe_config(**whose) if entry.name == name)
        return entry.value, entry.source

    with fl.Broker(tmp_path / "d", create=True, nodes=2, config={retention: 9_000_000}) as broker:
        broker.alter_broker_config({retention: 5_000_000})
        broker.alter_broker_config({retention: 6_000_000}, node=2)
        broker.alter_group_config("g", {"consumer.session.timeout.ms": 50_000})
        assert of(broker, node=1) == of(broker) == ("5000000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert of(broker, node=2) == ("6000000", "DYNAMIC_BROKER_CONFIG")
        broker.alter_broker_config({retention: None}, validate_only=True)
    with fl.Broker(tmp_path / "d", config={retention: 8_000_000}) as broker:
        assert of(broker, node=2) == ("6000000", "DYNAMIC_BROKER_CONFIG")
        assert of(broker, "consumer.session.timeout.ms", group="g") == ("50000", "DYNAMIC_GROUP_CONFIG")
        broker.alter_broker_config({retention: None})
        broker.alter_broker_config({retention: None}, node=2)
        assert of(broker, node=2) == ("8000000", "STATIC_BROKER_CONFIG")
        for wrong, message in [
            (lambda: broker.alter_broker_config({"num.partitions": 4}), r"Cannot update these configs dynamically: \[num\.partitions\]"),
            (lambda: broker.alter_broker_config({retention: "x"}), "Not a number of type LONG"),
            (lambda: broker.alter_broker_config({}, node=3), "no node 3; its nodes are 1 to 2"),
            (lambda: broker.alter_group_config("g", {"x": 1}), "Unknown group config name: x"),
        ]:
            with pytest.raises(fl.errors.KafkaError, match=message):
                wrong()
        with pytest.raises(ValueError, match="one of them"):
            broker.describe_config("t", node=1)


def test_what_cannot_be_altered_changes_nothing() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", config={"retention.ms": 1000})
        with pytest.raises(fl.errors.ConfigError, match=r"retention\.msx.*did you mean `retention\.ms`"):
            broker.alter_topic_config("t", {"segment.bytes": 5000, "retention.msx": 5})
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
            broker.alter_topic_config("nothing", {})
        with pytest.raises(TypeError, match="expected str, bool, int, float or a list of str"):
            broker.alter_topic_config("t", {"retention.ms": b"5"})
        with pytest.raises(TypeError, match="a configuration is a dict"):
            broker.alter_topic_config("t", None)  # type: ignore[arg-type]
        broker.alter_topic_config("t", {"retention.ms": 5}, validate_only=True)
        assert broker.describe_topic("t").config == {"retention.ms": "1000"}


def test_every_property_says_where_it_comes_from() -> None:
    with fl.Broker.in_memory(config={"log.segment.bytes": 100_000}) as broker:
        broker.create_topic("t", config={"cleanup.policy": ["compact", "delete"]})
        policy = _entry(broker, "cleanup.policy")
        assert policy[:5] == ("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG", False, "LIST")
        assert policy.synonyms == [
            ("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG"),
            ("log.cleanup.policy", "delete", "DEFAULT_CONFIG"),
        ]
        assert policy.doc == next(key.doc for key in fl.admin.config_table() if key.scope == "topic" and key.name == "cleanup.policy")
        assert _entry(broker, "segment.bytes")[1:3] == ("100000", "STATIC_BROKER_CONFIG")
        assert _entry(broker, "retention.ms")[1:3] == ("604800000", "DEFAULT_CONFIG")
        assert _entry(broker, "log.segment.bytes", None)[1:3] == ("100000", "STATIC_BROKER_CONFIG")
        assert _entry(broker, "log.retention.ms", None).value is None
        assert [entry.name for entry in broker.describe_config("t")] == [key.name for key in fl.admin.config_table() if key.scope == "topic"]
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
            broker.describe_config("nothing")


@pytest.mark.parametrize("remote", [False, True])
def test_a_property_that_does_not_exist_is_not_reset(broker: fl.Broker, remote: bool) -> None:
    broker.create_topic("t", config={"retention.ms": 1000})
    with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        admin = cluster if remote else broker
        for reset, meant in (
            (lambda: admin.alter_topic_config("t", {"retention.m": None}), "retention.ms"),
            (lambda: admin.alter_broker_config({"log.retention.m": None}), "log.retention.ms"),
            (lambda: admin.alter_group_config("g", {"share.auto.offset.rest": None}), "share.auto.offset.reset"),
        ):
            with pytest.raises(fl.errors.ConfigError, match=f"did you mean `{re.escape(meant)}`"):
                reset()
        admin.alter_topic_config("t", {"retention.ms": None})
        assert "retention.ms" not in {entry.name for entry in broker.describe_config("t") if entry.source == "DYNAMIC_TOPIC_CONFIG"}


@pytest.mark.parametrize("remote", [False, True])
def test_topics_of_kafka_are_not_made_by_mistake(broker: fl.Broker, remote: bool) -> None:
    with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        admin = cluster if remote else broker
        for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            with pytest.raises(fl.errors.InvalidArgumentError, match=r"set its cleanup\.policy"):
                admin.create_topic(name)
        admin.create_topic("__consumer_offsets", partitions=3, config={"cleanup.policy": "compact"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [("retention_ms", "retention.ms"), ("segment_bytes", "segment.bytes"), ("Retention.MS", "retention.ms"), ("local_retention_ms", "local.retention.ms")],
)
def test_a_name_with_underscores_is_meant_with_dots(broker: fl.Broker, given: str, meant: str) -> None:
    with pytest.raises(fl.errors.ConfigError, match=f"did you mean `{re.escape(meant)}`"):
        broker.create_topic("t", config={given: 5})
