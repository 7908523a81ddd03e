"""confluent-kafka's ShareConsumer on the listener: acknowledgements of each kind, commits, callbacks, ends of locks, close, subscriptions.

The cases are those of its own integration tests, which it runs with a real Kafka.
"""

import gc
from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType, IllegalStateException, KafkaError, KafkaException, ShareConsumer

from tests.support.waiting import until

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture
def kafka(kafka_cluster):
    """A cluster whose members learn of their partitions soon."""
    return kafka_cluster(nodes=1, config={"group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "100"})


@pytest.fixture
def share(kafka):
    """Makes members of a group that begins at its beginning, in explicit mode; closes them."""
    members = []

    def make(*topics, group="g", **config):
        kafka.broker.alter_group_config(group, {"share.auto.offset.reset": "earliest"})
        properties = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 0}
        member = ShareConsumer(properties | {name.replace("_", "."): value for name, value in config.items()})
        members.append(member)
        member.subscribe(list(topics))
        return member

    yield make
    for member in members:
        member.close()


def poll(member, timeout=0.2):
    """What it is given."""
    return [message for message in member.poll(timeout) if message.error() is None]


def first(member):
    """Its first records."""
    batch = []
    assert until(lambda: batch.extend(poll(member)) or batch)
    return batch


def drain(member, count, kind=ACCEPT):
    """This number of records; each is acknowledged, `None`: implicitly by the next poll."""
    found = []

    def step():
        batch = poll(member)
        for message in batch if kind is not None else ():
            member.acknowledge(message, kind)
        found.extend(batch)
        return len(found) >= count

    assert until(step), found
    return found


def nothing(member, polls=4):
    """Nothing is left for it."""
    return not any(poll(member, 0.3) for _ in range(polls))


def at(messages):
    return sorted((message.topic(), message.partition(), message.offset()) for message in messages)


def codes(result):
    """The errors of a commit by partition; `None`: there was none."""
    return {partition.partition: error and error.args[0].code() for partition, error in result.items()}


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
@pytest.mark.parametrize("how", ["close", "commit_sync", "commit_async"])
def test_what_is_accepted_or_rejected_does_not_come_again(kafka, share, kind, how):
    topic = kafka.topic()
    kafka.produce(topic, ["0", "1", "2"])
    member = share(topic)
    found = drain(member, 3, kind)
    assert [message.value() for message in found] == [b"0", b"1", b"2"]
    if how == "commit_sync":
        assert codes(member.commit_sync(10)) == {0: None}
        assert member.commit_sync(2) == {}
    elif how == "commit_async":
        assert member.commit_async() is None
    member.close()
    assert nothing(share(topic))


@pytest.mark.parametrize("commit", [False, True])
def test_what_is_released_comes_again_until_its_limit(kafka, share, commit):
    topic = kafka.topic()
    kafka.produce(topic, ["0"])
    member = share(topic)
    counts = []
    for _ in range(5):
        (message,) = first(member)
        counts.append(message.delivery_count())
        member.acknowledge(message, RELEASE)
        if commit:
            assert codes(member.commit_sync(10)) == {0: None}
    assert counts == [1, 2, 3, 4, 5]
    assert nothing(member)


def test_kinds_of_one_batch_each_have_their_effect(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, [str(n) for n in range(6)])
    member = share(topic)
    batch = first(member)
    assert len(batch) == 6
    # in any order, and the last kind of a record counts
    for message, kind in zip(reversed(batch), [ACCEPT, RELEASE, REJECT] * 2, strict=True):
        member.acknowledge(message, RELEASE)
        member.acknowledge(message, kind)
    assert codes(member.commit_sync(10)) == {0: None}
    again = drain(member, 2)
    assert [(message.offset(), message.delivery_count()) for message in again] == [(1, 2), (4, 2)]
    assert nothing(member)


def test_a_part_of_a_batch_holds_the_next_poll_back(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, ["0", "1", "2"])
    member = share(topic)
    batch = first(member)
    member.acknowledge(batch[0], ACCEPT)
    assert codes(member.commit_sync(10)) == {0: None}
    with pytest.raises(IllegalStateException):
        member.poll(0.1)
    for message in batch[1:]:
        member.acknowledge_offset(topic, 0, message.offset(), ACCEPT)
    assert codes(member.commit_sync(10)) == {0: None}
    with pytest.raises(IllegalStateException):
        member.acknowledge_offset(topic, 0, batch[0].offset(), ACCEPT)
    assert nothing(member)


def test_implicitly_the_next_poll_accepts(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, ["0", "1", "2"])
    member = share(topic, share_acknowledgement_mode="implicit")
    (*_, last) = drain(member, 3, None)
    with pytest.raises(IllegalStateException):
        member.acknowledge(last, ACCEPT)
    assert nothing(member, 1)
    assert member.commit_sync(2) == {}
    member.close()
    assert nothing(share(topic))


@pytest.mark.parametrize("how", ["close", "del"])
def test_what_a_member_holds_comes_again_after_it_has_ended(kafka, share, how):
    topic = kafka.topic()
    kafka.produce(topic, ["0", "1", "2", "3"])
    kafka.broker.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    properties = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "share.acknowledgement.mode": "explicit", "log_level": 0}
    member = ShareConsumer(properties)
    member.subscribe([topic])
    batch = first(member)
    for message in batch[:2]:
        member.acknowledge(message, ACCEPT)
    held = at(batch[2:])
    if how == "close":
        member.close()
    else:
        member.commit_sync(10)
    del member
    gc.collect()
    again = drain(share(topic), len(held))
    assert at(again) == held
    assert {message.delivery_count() for message in again} == {2}


def test_an_acknowledgement_after_its_lock_is_refused(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, ["0"])
    member, seen = share(topic), []
    member.set_acknowledgement_commit_callback(lambda offsets, error: seen.append((offsets, error)))
    (message,) = first(member)
    kafka.clock.advance(seconds=31)
    member.acknowledge(message, ACCEPT)
    assert codes(member.commit_sync(10)) == {0: KafkaError.INVALID_RECORD_STATE}
    ((offsets, error),) = seen
    assert list(offsets.values()) == [{0}]
    assert type(error) is KafkaException
    (again,) = drain(share(topic), 1)
    assert again.delivery_count() == 2


def test_a_member_whose_lock_has_ended_cannot_accept_for_another_one(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, ["0"])
    slow = share(topic)
    (message,) = first(slow)
    other = share(topic)
    assert nothing(other, 2)
    kafka.clock.advance(seconds=31)
    (again,) = first(other)
    slow.acknowledge(message, ACCEPT)
    assert codes(slow.commit_sync(10)) == {0: KafkaError.INVALID_RECORD_STATE}
    other.acknowledge(again, ACCEPT)
    assert codes(other.commit_sync(10)) == {0: None}


@pytest.mark.parametrize("how", ["poll", "commit_sync", "close"])
def test_the_callback_has_every_partition_with_its_offsets(kafka, share, how):
    topic = kafka.topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, ["0", "1"], partition=partition)
    member, seen = share(topic), []
    member.set_acknowledgement_commit_callback(lambda offsets, error: seen.append((offsets, error)))
    drain(member, 6)
    if how == "poll":
        member.commit_async()
        assert until(lambda: poll(member) or sum(len(*offsets.values()) for offsets, _ in seen) == 6)
    elif how == "commit_sync":
        member.commit_sync(10)
    else:
        member.commit_async()
        member.close()
    assert all(error is None and len(offsets) == 1 for offsets, error in seen)
    confirmed = Counter((partition.partition, offset) for offsets, _ in seen for partition, all_of in offsets.items() for offset in all_of)
    assert confirmed == Counter((partition, offset) for partition in range(3) for offset in range(2))


def test_commits_without_acknowledgements_send_nothing(kafka, share):
    topic = kafka.topic()
    member, seen = share(topic), []
    member.set_acknowledgement_commit_callback(lambda offsets, error: seen.append(offsets))
    assert member.commit_async() is None
    assert member.commit_sync(2) == {}
    assert nothing(member, 2)
    assert member.commit_sync(2) == {}
    assert not seen
    with pytest.raises(IllegalStateException):
        member.acknowledge_offset(topic, 0, 99, ACCEPT)


def test_topics_come_and_go(kafka, share):
    one, other = kafka.topic(), kafka.topic()
    member = share(one, other, share_acknowledgement_mode="implicit")
    kafka.produce(one, [("k", "1")])
    kafka.produce(other, ["2"])
    found = sorted(drain(member, 2, None), key=lambda message: message.value())
    assert [(message.topic(), message.key()) for message in found] == [(one, b"k"), (other, None)]
    member.subscribe([other])
    assert nothing(member, 2)
    kafka.produce(one, ["3"])
    kafka.produce(other, ["4"])
    (only,) = drain(member, 1, None)
    assert only.value() == b"4"
    assert nothing(member, 2)
    member.unsubscribe()
    assert member.subscription() == []


def test_a_group_without_a_reset_begins_at_the_end(kafka, share):
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    member = share(topic, group="late")
    kafka.broker.alter_group_config("late", {"share.auto.offset.reset": "latest"})
    assert nothing(member, 8)
    kafka.produce(topic, ["after"])
    assert [message.value() for message in drain(member, 1)] == [b"after"]


def test_members_share_a_group_and_groups_share_nothing(kafka, share):
    topic = kafka.topic(partitions=3)
    members = [share(topic) for _ in range(3)]
    others = share(topic, group="other")
    for member in members:
        nothing(member, 2)
    for n in range(300):
        kafka.produce(topic, [str(n)], partition=n % 3)
    found = []

    def step():
        for member in members:
            for message in poll(member, 0.05):
                member.acknowledge(message, ACCEPT)
                found.append(message)
        return len(found) >= 300

    assert until(step), len(found)
    whole = [(topic, partition, offset) for partition in range(3) for offset in range(100)]
    assert at(found) == whole
    assert at(drain(others, 300)) == whole


def test_ten_thousand_records_by_two_members(kafka, share):
    topic = kafka.topic(partitions=6)
    for partition in range(6):
        kafka.produce(topic, [str(n) for n in range(1_700)], partition=partition)
    members, found = [share(topic, share_acknowledgement_mode="implicit") for _ in range(2)], []

    def step():
        for member in members:
            if batch := poll(member):
                found.extend(batch)
                assert set(codes(member.commit_sync(10)).values()) == {None}
        return len(found) >= 10_200

    assert until(step), len(found)
    assert at(found) == [(topic, partition, offset) for partition in range(6) for offset in range(1_700)]
