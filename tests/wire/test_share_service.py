"""Services in share groups under faults, through the fixture `kafka`: ended locks, lost acknowledgements, killed members, moved leaders."""

import subprocess
import sys

import pytest

import fletchlog as fl
from tests.support.members import ShareMember
from tests.support.waiting import until

GROUP = "billing"
EXPLICIT = {"share.acknowledgement.mode": "explicit", "client.id": "service"}
# a member in a process of its own, which says what it has got, and is killed
HOLDS = """
import sys
import fletchlog as fl
with fl.ShareConsumer(sys.argv[1], group="billing", topics=[sys.argv[2]]) as consumer:
    print(len(consumer.poll(10_000)), flush=True)
    sys.stdin.read()
"""


def queue(kafka, values=(), **config):
    """A topic with records, each of which is a batch, and a group that begins at its beginning."""
    kafka.broker.alter_group_config(GROUP, {"share.auto.offset.reset": "earliest"} | {name.replace("_", "."): value for name, value in config.items()})
    topic = kafka.topic()
    for value in values:
        kafka.produce(topic, [value])
    return topic


def member(kafka, topic, config=EXPLICIT, **arguments):
    return fl.ShareConsumer(f"kafka://{kafka.bootstrap}", config, group=GROUP, topics=[topic], **arguments)


def read(consumer, count=1):
    """So many records; they are acknowledged when more are needed."""
    records = []

    def step():
        records.extend(consumer.poll(200))
        return len(records) >= count

    assert until(step), records
    return records


def counts(records):
    return [(record.offset, record.delivery_count) for record in records]


def test_a_lock_ends_and_another_member_gets_the_record(kafka):
    topic = queue(kafka, ["0"])
    with member(kafka, topic) as slow, member(kafka, topic) as other:
        (record,) = read(slow)
        assert not other.poll(0)
        kafka.clock.advance(seconds=31)
        (again,) = read(other)
        assert counts([again]) == [(0, 2)]
        slow.acknowledge(record)
        (late,) = slow.commit().values()
        assert late.code == 121
        other.acknowledge(again)
        assert list(other.commit().values()) == [None]
    assert [row.errors for row in kafka.requests(api="ShareAcknowledge")][:2] == [["INVALID_RECORD_STATE"], []]


def test_a_renewed_lock_lasts_longer(kafka):
    topic = queue(kafka, ["0"])
    with member(kafka, topic) as slow, member(kafka, topic) as other:
        (record,) = read(slow)
        for _ in range(3):
            kafka.clock.advance(seconds=20)
            slow.acknowledge(record, "renew")
            (record,) = read(slow)
        assert not other.poll(100)
        slow.acknowledge(record)
        assert list(slow.commit().values()) == [None]


@pytest.mark.parametrize("action", ["lose_response", "close"])
def test_an_acknowledgement_is_lost_on_its_way(kafka, action):
    """The client cannot know which of the two it was; only the closed connection is a delivery more."""
    topic = queue(kafka, ["0"])
    getattr(kafka.faults.on(api="ShareAcknowledge", client_id="service", nth=1), action)()
    with member(kafka, topic) as consumer:
        consumer.acknowledge(read(consumer)[0])
        (error,) = consumer.commit(5000).values()
        assert error.retriable
        if action == "close":
            (again,) = read(consumer)
            assert counts([again]) == [(0, 2)]
            consumer.acknowledge(again)
            assert list(consumer.commit().values()) == [None]
        else:
            assert not consumer.poll(300)
    assert kafka.broker.share_state(GROUP, topic).to_pyarrow().num_rows == 0


@pytest.mark.parametrize("action", ["lose_response", "close"])
def test_a_fetch_with_acknowledgements_is_lost_on_its_way(kafka, action):
    topic = queue(kafka, ["0"])
    results = []
    with member(kafka, topic, on_acknowledgement=lambda _tp, offsets, error: results.append((offsets, error))) as consumer:
        consumer.acknowledge(read(consumer)[0])
        getattr(kafka.faults.on(api="ShareFetch", nth=1), action)()
        kafka.produce(topic, ["1"])
        seen = {}
        while 1 not in seen or (action == "close" and 0 not in seen):
            for record in read(consumer):
                seen[record.offset] = record.delivery_count
                consumer.acknowledge(record)
        assert list(consumer.commit().values()) in ([None], [])
    assert [offsets for offsets, error in results if error is not None] == [[0]]
    assert seen.get(0) == (2 if action == "close" else None)
    assert kafka.broker.share_state(GROUP, topic).to_pyarrow().num_rows == 0


def test_a_killed_member_holds_nothing_back(kafka):
    topic = queue(kafka, ["0", "1"])
    words = [sys.executable, "-c", HOLDS, f"kafka://{kafka.bootstrap}", topic]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert int(process.stdout.readline()) > 0
        process.kill()
    with member(kafka, topic) as other:
        records = read(other, 1)
        assert records[0].offset == 0
        assert records[0].delivery_count == 2
        for record in records:
            other.acknowledge(record)
        other.commit()


@pytest.mark.slow
def test_a_killed_member_of_librdkafka_holds_nothing_back(kafka_cluster, tmp_path):
    # it learns its partitions with its second heartbeat
    kafka = kafka_cluster(nodes=1, config={"group.share.min.heartbeat.interval.ms": "100", "group.share.heartbeat.interval.ms": "100"})
    topic = queue(kafka, [str(number) for number in range(40)])
    killed = ShareMember(topic, tmp_path / "killed", bootstrap_servers=kafka.bootstrap, group_id=GROUP)
    assert until(killed.delivered)
    killed.kill()
    with member(kafka, topic) as other:
        seen = {offset for _, offset in killed.delivered()}

        def is_done():
            records = other.poll(100)
            seen.update(record.offset for record in records)
            for record in records:
                other.acknowledge(record)
            other.commit()
            return seen == set(range(40)) and not records and not kafka.broker.share_state(GROUP, topic).to_pyarrow().num_rows

        assert until(is_done), seen


def test_records_come_from_the_new_leader(kafka_cluster):
    kafka = kafka_cluster(nodes=3)
    topic = queue(kafka, ["0", "1"])
    leader = kafka.broker.describe_topic(topic).partitions[0].leader
    with member(kafka, topic) as consumer:
        held = read(consumer, 1)
        kafka.move_leader(topic, 0, to=leader % 3 + 1)
        for record in held:
            consumer.acknowledge(record)
        consumer.commit(2000)
        kafka.produce(topic, ["2"])
        seen = {}
        while 2 not in seen:
            for record in read(consumer):
                seen[record.offset] = record.delivery_count
                consumer.acknowledge(record)
        assert list(consumer.commit().values()) == [None]
        nodes = {row.node for row in kafka.requests(api="ShareFetch", group=GROUP)}
        assert {leader, leader % 3 + 1} <= nodes
    assert kafka.broker.share_state(GROUP, topic).to_pyarrow().num_rows == 0


def test_requests_of_a_share_group_are_recorded_and_selected(kafka):
    topic = queue(kafka, ["0"])
    kafka.faults.on(api="ShareFetch", group=GROUP, nth=1).error("SHARE_SESSION_NOT_FOUND")
    with member(kafka, topic) as consumer:
        consumer.acknowledge(read(consumer)[0])
        described = kafka.describe()
        consumer.commit()
    first, second, *_ = kafka.requests(api="ShareFetch", client_id="service")
    assert first.errors == ["SHARE_SESSION_NOT_FOUND"]
    assert not second.errors
    assert kafka.requests(api="ShareGroupHeartbeat", group=GROUP)
    assert "billing: share group, Stable, 1 member" in described
    assert f"{topic}-0 at 0: acquired by service, 1st delivery" in described


def test_record_limit_never_returns_more_and_batches_are_not_split(kafka):
    topic = queue(kafka)
    kafka.produce(topic, map(str, range(20)))
    seen = []
    with member(kafka, topic, EXPLICIT | {"share.acquire.mode": "record_limit", "max.poll.records": 7}) as consumer:
        while len(seen) < 20:
            records = read(consumer)
            assert len(records) <= 7
            assert kafka.broker.share_state(GROUP, topic).to_pyarrow().num_rows
            for record in records:
                consumer.acknowledge(record)
            seen += [record.offset for record in records]
    assert seen == list(range(20))
    with fl.Producer(kafka.broker, {"linger.ms": 5_000}) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number)  # one batch
    with member(kafka, topic, EXPLICIT | {"share.acquire.mode": "batch_optimized", "max.poll.records": 7}) as consumer:
        records = read(consumer)
        assert [record.offset for record in records] == list(range(20, 40))
        for record in records:
            consumer.acknowledge(record)
