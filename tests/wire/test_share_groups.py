"""Share groups (KIP-932) behave as recorded with a real Kafka 4.4.0, and so do their records. tests/golden/README.md explains the recordings."""

import pytest

import fletchlog as fl
from fletchlog.errors import GroupIdNotFoundError, InvalidArgumentError, UnknownTopicOrPartitionError
from tests.support.recordings import SETTINGS as RECORDED
from tests.support.recordings import different, replay

SETTINGS = RECORDED | {
    "group.share.min.session.timeout.ms": "100",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "8",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    # scripts deny themselves topics
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
# ids of scripts, and why they run otherwise
DIFFERENT = {
    "acquire-004": "an acquire mode that does not exist is an invalid request here, and no unknown error",
    "offsets-007": "Kafka never answers for a partition that does not exist of a topic that exists",
}


@pytest.mark.timeout(120)
def test_every_recorded_request_of_share_groups_is_answered_as_kafka_answered_it(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS)
    recording, options = golden / "share-groups" / "vectors.jsonl", ["--schemas", "schemas-share-groups.json"]
    lines = replay(golden, "wire/vectors", "replay.py", cluster.bootstrap, recording, options)
    assert lines[0].endswith(" equal, 0 different, 0 closed"), "\n".join(lines)


@pytest.mark.timeout(240)
def test_every_recorded_script_of_share_groups_runs_as_with_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS)
    scripts, borders = (golden / "share-groups" / name for name in ("scripts.jsonl", "borders.jsonl"))
    found, printed = different(golden, "wire/coordinators", cluster.bootstrap, scripts, ["--threads", "32", borders])
    assert set(found) == set(DIFFERENT), printed


def test_where_a_share_group_begins_is_shown_set_and_deleted(kafka_cluster):
    kafka = kafka_cluster(nodes=1, config=SETTINGS)
    kafka.broker.create_topic("t", partitions=2)
    with fl.Producer(kafka.broker) as producer:
        for row in range(10):
            producer.send("t", value=b"%d" % row, partition=row % 2)
    with fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
        for place, group in ((kafka.broker, "embedded"), (cluster, "remote")):
            assert place.share_group_offsets(group) == {}
            assert place.lag(group) == {}
            place.alter_share_group_offsets(group, {("t", 0): 2, ("t", 1): 9})
            for reader in (kafka.broker, cluster):
                assert reader.share_group_offsets(group) == {("t", 0): (2, 3), ("t", 1): (9, -4)}
                (listed,) = [one for one in reader.groups() if one.group_id == group]
                assert (listed.group_type, listed.protocol_type, listed.state) == ("share", "share", "Empty")
                described = reader.describe_group(group)
                assert (described.state, described.protocol_type, described.protocol, described.members) == ("Empty", "share", "simple", [])
                with pytest.raises(InvalidArgumentError, match=f"{group} is a share group.*share_group_offsets.*has its start offsets and its lag"):
                    reader.lag(group)
            with pytest.raises(UnknownTopicOrPartitionError, match="t"):
                place.alter_share_group_offsets(group, {("t", 7): 0})
            with pytest.raises(UnknownTopicOrPartitionError, match="There is no offset information to delete"):
                kafka.broker.create_topic(f"other-{group}")
                place.delete_share_group_offsets(group, [f"other-{group}"])
            place.delete_share_group_offsets(group, ["t"])
            assert place.share_group_offsets(group) == {}
            place.delete_group(group)
            with pytest.raises(GroupIdNotFoundError):
                place.delete_share_group_offsets(group, ["t"])
    assert kafka.broker.groups() == []
