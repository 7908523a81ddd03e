"""Groups of group.protocol=consumer (KIP-848): our members embedded and over sockets, beside classic ones and beside librdkafka's."""

import time
from contextlib import nullcontext

import pytest

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError

BROKER = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
}
MEMBER = {"group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
ALL = [("t", partition) for partition in range(4)]


@pytest.fixture
def broker():
    with fl.Broker.in_memory(config=BROKER) as broker:
        broker.create_topic("t", partitions=4)
        yield broker


@pytest.fixture(params=["embedded", "cluster"])
def peer(request, broker):
    """Where the members are: beside the broker, or behind its listener."""
    if request.param == "embedded":
        yield broker
    else:
        with broker.listen() as listener:
            yield f"kafka://{listener.bootstrap}"


def fill(broker, count=40):
    with fl.Producer(broker) as producer:
        for i in range(count):
            producer.send("t", value=b"%d" % i, partition=i % 4)


def poll_until(members, reached):
    """Polls the members in turns; the records that each got."""
    read = [[] for _ in members]
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end, [member.assignment() for member in members]
        for member, values in zip(members, read, strict=True):
            values.extend(record.value for record in member.poll(20))
    return read


def shares(*members):
    return sorted(len(member.assignment()) for member in members)


def test_what_stays_is_read_on_while_the_rest_moves(peer, broker):
    fill(broker)
    heard = []
    with fl.Consumer(peer, MEMBER) as first, fl.Consumer(peer, MEMBER) as second:
        first.subscribe(["t"], on_assigned=lambda tps: heard.append(("+", sorted(tps))), on_revoked=lambda tps: heard.append(("-", sorted(tps))))
        poll_until([first], lambda: sorted(first.assignment()) == ALL)
        kept = first.position(("t", 0))
        second.subscribe(["t"])
        poll_until([first, second], lambda: shares(first, second) == [2, 2] and broker.describe_group("g").state == "Stable")
        with fl.Cluster(peer) if isinstance(peer, str) else nullcontext(broker) as admin:
            described = admin.describe_group("g")
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "uniform")
        assert sorted(tp for member in described.members for tp in member.partitions) == ALL
        assert sorted(first.assignment() + second.assignment()) == ALL
        assert heard[0] == ("+", ALL)
        revoked = next(tps for sign, tps in heard if sign == "-")
        assert sorted(revoked + first.assignment()) == ALL, "only what moves is revoked"
        if ("t", 0) in first.assignment():
            assert first.position(("t", 0)) >= kept
        first.close()
        poll_until([second], lambda: sorted(second.assignment()) == ALL)
    assert broker.describe_group("g").state == "Empty"


def test_offsets_are_committed_with_the_epoch_and_the_next_member_goes_on(peer, broker):
    fill(broker)
    with fl.Consumer(peer, MEMBER) as consumer:
        consumer.subscribe(["t"])
        values = []
        [values] = poll_until([consumer], lambda: consumer.assignment() and sum(consumer.position(tp) for tp in consumer.assignment()) == 40)
        consumer.commit()
        assert consumer.group_metadata().generation_id > 0
    assert sorted(values, key=int) == [b"%d" % i for i in range(40)]
    fill(broker, 4)
    with fl.Consumer(peer, MEMBER) as consumer:
        consumer.subscribe(["t"])
        [values] = poll_until([consumer], lambda: consumer.assignment() and sum(consumer.position(tp) for tp in consumer.assignment()) == 44)
    assert sorted(values) == [b"0", b"1", b"2", b"3"]


def test_a_static_member_comes_back_to_what_it_had(peer, broker):
    static = {**MEMBER, "group.instance.id": "one"}
    with fl.Consumer(peer, MEMBER) as other:
        other.subscribe(["t"])
        first = fl.Consumer(peer, static)
        first.subscribe(["t"])
        poll_until([first, other], lambda: shares(first, other) == [2, 2])
        had = sorted(first.assignment())
        first.close()
        again = fl.Consumer(peer, static)
        again.subscribe(["t"])
        poll_until([again], lambda: sorted(again.assignment()) == had)
        assert shares(again, other) == [2, 2]
        again.close()


def test_a_pattern_is_resolved_by_the_coordinator_also_for_topics_that_come_later(peer, broker):
    with fl.Consumer(peer, {**MEMBER, "metadata.max.age.ms": 100}) as consumer:
        consumer.subscribe(pattern="[tu]")
        poll_until([consumer], lambda: sorted(consumer.assignment()) == ALL)
        if peer is broker:
            broker.create_topic("xu")
            assert sorted(consumer.assignment()) == ALL


def test_a_classic_member_is_taken_over_and_the_group_goes_back_when_the_last_new_one_leaves(peer, broker):
    fill(broker)
    classic = {**MEMBER, "group.protocol": "classic", "heartbeat.interval.ms": 50}
    with fl.Consumer(peer, classic) as old, fl.Consumer(peer, MEMBER) as new:
        old.subscribe(["t"])
        poll_until([old], lambda: sorted(old.assignment()) == ALL)
        new.subscribe(["t"])
        poll_until([old, new], lambda: shares(old, new) == [2, 2])
        new.close()
        poll_until([old], lambda: sorted(old.assignment()) == ALL)


def test_properties_of_the_other_protocol_and_unknown_assignors_are_named(peer, broker):
    with pytest.raises((ConfigError, InvalidArgumentError), match=r"session.timeout.ms.*broker decides"):
        fl.Consumer(peer, {**MEMBER, "session.timeout.ms": 10000})
    with pytest.raises((ConfigError, InvalidArgumentError), match=r"group.remote.assignor.*group.protocol=consumer"):
        fl.Consumer(peer, {"group.id": "g", "group.remote.assignor": "range"})
    with fl.Consumer(peer, {**MEMBER, "group.protocol": "CONSUMER", "group.remote.assignor": "nobody"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(fl.KafkaError, match="refused the member"):
            poll_until([consumer], lambda: False)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_librdkafka_and_our_members_share_a_group(broker, assignor):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    fill(broker)
    with broker.listen() as listener, fl.Consumer(broker, {**MEMBER, "group.remote.assignor": assignor}) as ours:
        theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": listener.bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "group.remote.assignor": assignor,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        theirs.subscribe(["t"])
        ours.subscribe(["t"])
        values, end = [], time.monotonic() + 30
        while len(set(values)) < 40 or len(ours.assignment()) != 2 or len(theirs.assignment()) != 2:
            assert time.monotonic() < end, (ours.assignment(), theirs.assignment())
            values += [record.value for record in ours.poll(20)]
            values += [message.value() for message in theirs.consume(100, 0.02) if message.error() is None]
        partitions = sorted([*ours.assignment(), *((tp.topic, tp.partition) for tp in theirs.assignment())])
        assert partitions == ALL
        theirs.close()
        poll_until([ours], lambda: sorted(ours.assignment()) == ALL)
