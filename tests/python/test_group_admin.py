"""What an administrator sees of groups and does with them: list, describe, delete, committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

import fletchlog as fl

T0, T1 = fl.TopicPartition("t", 0), fl.TopicPartition("t", 1)


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("t", partitions=2)
    return broker


def member(broker: fl.Broker, **config: str) -> fl.Consumer:
    consumer = fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest", **config})
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(timeout_ms=20)
    return consumer


def committed(broker: fl.Broker) -> list[int | None]:
    with fl.Consumer(broker, {"group.id": "g"}) as consumer:
        offsets = consumer.committed([T0, T1])
    return [offset and offset.offset for offset in (offsets[T0], offsets[T1])]


def test_a_group_is_listed_and_described_with_what_each_member_reads(topic: fl.Broker) -> None:
    assert topic.groups() == []
    with pytest.raises(fl.errors.GroupIdNotFoundError, match="no group `g`"):
        topic.describe_group("g")
    with member(topic, **{"client.id": "reader", "partition.assignment.strategy": "roundrobin"}):
        assert topic.groups() == [fl.admin.GroupListing("g", "consumer", "Stable", 1)]
        group = topic.describe_group("g")
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "roundrobin")
        (one,) = group.members
        assert (one.client_id, one.client_host, one.partitions) == ("reader", "in-process", [T0, T1])
        assert one.member_id.startswith("reader-")
        assert b"t" in one.metadata
        assert b"t" in one.assignment
    group = topic.describe_group("g")
    assert (group.state, group.members) == ("Empty", [])


def test_offsets_are_altered_and_deleted_while_nobody_reads(topic: fl.Broker) -> None:
    topic.alter_offsets("g", {T0: 5, T1: fl.types.OffsetAndMetadata(7, "seven")})
    assert committed(topic) == [5, 7]
    with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
        topic.alter_offsets("g", {T0: 6, fl.TopicPartition("t", 9): 6})
    assert committed(topic) == [5, 7]
    topic.delete_offsets("g", [T0])
    assert committed(topic) == [None, 7]
    with member(topic):
        with pytest.raises(fl.errors.NonEmptyGroupError, match="members"):
            topic.alter_offsets("g", {T0: 1})
        with pytest.raises(fl.errors.GroupSubscribedToTopicError, match="t-1"):
            topic.delete_offsets("g", [T1])
        with pytest.raises(fl.errors.NonEmptyGroupError):
            topic.delete_group("g")


def test_offsets_that_are_too_large_to_be_written_say_so(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=300)
    offsets = {fl.TopicPartition("t", partition): fl.types.OffsetAndMetadata(1, "x" * 4000) for partition in range(300)}
    with pytest.raises(fl.errors.KafkaError, match="group g cannot be written: the committed offsets are too large"):
        broker.alter_offsets("g", offsets)


def test_a_deleted_group_stays_deleted(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.alter_offsets("g", {T0: 5})
        broker.alter_offsets("kept", {T0: 6})
        broker.delete_group("g")
        with pytest.raises(fl.errors.GroupIdNotFoundError):
            broker.delete_group("g")
    with fl.Broker(tmp_path) as broker:
        assert [group.group_id for group in broker.groups()] == ["kept"]
        assert committed(broker) == [None, None]
    with fl.Broker(tmp_path, read_only=True) as broker:
        assert [group.group_id for group in broker.groups()] == ["kept"]
        with pytest.raises(fl.errors.ReadOnlyError):
            broker.delete_group("kept")


@pytest.mark.parametrize("remote", [False, True])
def test_a_negative_offset_is_no_start_of_a_group(topic: fl.Broker, remote: bool) -> None:
    with topic.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        admin = cluster if remote else topic
        for alter in (admin.alter_offsets, admin.alter_share_group_offsets):
            with pytest.raises(fl.errors.InvalidArgumentError, match="t-0: offset -7 is negative"):
                alter("g", {("t", 0): -7})
        with pytest.raises(TypeError, match="expected a list of topic names, got str"):
            admin.delete_share_group_offsets("g", "t")  # type: ignore[arg-type]
        assert topic.groups() == []
