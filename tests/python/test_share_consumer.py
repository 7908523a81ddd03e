"""`ShareConsumer` and `AsyncShareConsumer`, embedded and over sockets: acknowledgements, redeliveries, delivery counts, errors."""

import asyncio
import copy
import pickle
import threading
import time

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import testing
from fletchlog.errors import (
    ClosedError,
    ConcurrentAccessError,
    ConfigError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidGroupIdError,
    KafkaError,
    WakeupError,
)

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
GROUP = "billing"


@pytest.fixture
def group(broker):
    """A group that begins at the beginning."""
    broker.alter_group_config(GROUP, {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0})
    return GROUP


def send(broker, count, partition=0):
    with fl.Producer(broker) as producer:
        for number in range(count):
            producer.send("t", value=b"%d" % number, key=b"k", partition=partition)


def read(consumer, count, seconds=20):
    """The next records."""
    records, end = [], time.monotonic() + seconds
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} records"
        records += consumer.poll(500)
    return records


def test_the_next_poll_accepts_what_the_last_one_returned(broker, peer, group):
    send(broker, 5)
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        assert [record.value for record in read(consumer, 5)] == [b"%d" % number for number in range(5)]
        assert len(consumer.poll(0)) == 0
        assert consumer.acquisition_lock_timeout == 30_000
        assert consumer.subscription() == ["t"]
        send(broker, 1, partition=1)
        assert len(read(consumer, 1)) == 1
        assert consumer.commit() == {("t", 1): None}
        assert consumer.commit() == {}
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        assert len(consumer.poll(700)) == 0


def test_what_was_not_accepted_comes_again_and_counts(broker, peer, group):
    send(broker, 3)
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        assert [record.delivery_count for record in read(consumer, 3)] == [1, 1, 1]
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        again = read(consumer, 3)
        assert [record.delivery_count for record in again] == [2, 2, 2]
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="subscribe"):
            consumer.poll(0)
        consumer.subscribe(["t"])
        assert [record.delivery_count for record in read(consumer, 3)] == [3, 3, 3]
        consumer.commit()


def test_each_record_is_acknowledged_in_the_explicit_mode(broker, peer, group):
    send(broker, 4)
    told = []
    with fl.ShareConsumer(peer, EXPLICIT, group=group, topics=["t"], on_acknowledgement=lambda *given: told.append(given)) as consumer:
        records = read(consumer, 4)
        with pytest.raises(IllegalStateError, match="t-0 at offset 0 is not acknowledged"):
            consumer.poll(0)
        for record, kind in zip(records, ("accept", "release", "reject", "renew"), strict=True):
            consumer.acknowledge(record, kind)
        (renewed,) = read(consumer, 1)
        assert (renewed.value, renewed.delivery_count) == (b"3", 1)
        consumer.acknowledge(("t", 0, 3))
        with pytest.raises(IllegalStateError, match="cannot be acknowledged"):
            consumer.acknowledge(records[0])
        (released,) = read(consumer, 1)
        assert (released.value, released.delivery_count) == (b"1", 2)
        consumer.acknowledge(released)
        consumer.commit_async()
        assert len(consumer.poll(300)) == 0
    assert sorted(offset for _, offsets, error in told for offset in offsets if error is None) == [0, 1, 1, 2, 3, 3]
    assert {partition for partition, *_ in told} == {fl.TopicPartition("t", 0)}


def test_a_list_of_records_is_acknowledged(broker, peer, group):
    send(broker, 4)
    with fl.ShareConsumer(peer, EXPLICIT, group=group, topics=["t"]) as consumer:
        records = read(consumer, 4)
        consumer.acknowledge(records[::2])
        consumer.acknowledge([("t", 0, 1), records[3]], "release")
        again = read(consumer, 2)
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (3, 2)]
        with pytest.raises(TypeError, match="a list of records"):
            consumer.acknowledge([1])
        consumer.acknowledge(again)
        consumer.acknowledge([])


def test_a_topic_that_does_not_exist_is_logged_once(broker, peer, group, caplog):
    with fl.ShareConsumer(peer, {"retry.backoff.ms": 10}, group=group, topics=["nowhere"]) as consumer:
        for _ in range(3):
            assert not consumer.poll(100)
    assert [record.message.partition("; ")[0] for record in caplog.records if "nowhere" in record.message] == [
        "The metadata response from the cluster reported a recoverable issue: {nowhere=UNKNOWN_TOPIC_OR_PARTITION}"
    ]


def test_delivery_counts_are_a_column(broker, peer, group):
    send(broker, 3)
    with fl.ShareConsumer(peer, EXPLICIT, group=group, topics=["t"]) as consumer:
        first = consumer.poll(5000)
        assert first.schema.names[-1] == "delivery_count"
        assert first.to_pyarrow()["delivery_count"].to_pylist() == [1, 1, 1]
        consumer.acknowledge(first[:1])
        consumer.acknowledge(first[1:], "release")
        again = consumer.poll(5000)
        table = again.to_pyarrow(include_headers=True)
        assert table.schema.field("delivery_count").type == pa.int16()
        assert table.select(["offset", "delivery_count"]).to_pydict() == {"offset": [1, 2], "delivery_count": [2, 2]}
        assert again.to_polars()["delivery_count"].to_list() == [2, 2]
        consumer.acknowledge(again)
        empty = consumer.poll(0)
        assert empty.to_pyarrow().schema == again.to_pyarrow().schema
    assert fl.scan(broker, "t").to_pyarrow().schema.names[-1] == "timestampType"


def test_a_record_of_a_share_group_is_a_record(broker, peer, group):
    send(broker, 1)
    with fl.ShareConsumer(peer, group=group, topics=["t"], value_deserializer=int) as consumer:
        (record,) = read(consumer, 1)
    topic, *_, value, headers = record
    assert (topic, value, headers, record.delivery_count) == ("t", 0, [], 1)
    assert pickle.loads(pickle.dumps(record)).delivery_count == copy.copy(record).delivery_count == 1
    assert record == record._replace(value=0)
    (plain,) = fl.scan(broker, "t").records()
    assert plain.delivery_count is None


def test_an_iteration_accepts_only_what_it_has_handed_out(broker, peer, group):
    send(broker, 5)
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                break
        assert consumer.commit() == {("t", 0): None}
    assert seen == [0, 1, 2]
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        assert [record.offset for record in read(consumer, 2)] == [3, 4]
        consumer.commit()


def test_two_members_share_one_partition(broker, peer, group):
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as first, fl.ShareConsumer(peer, group=group, topics=["t"]) as second:
        first.poll(300)
        second.poll(300)
        send(broker, 1000)
        seen, end = [], time.monotonic() + 20
        while len(seen) < 1000 and time.monotonic() < end:
            for consumer in (first, second):
                seen += [record.offset for record in consumer.poll(100)]
        first.commit()
        second.commit()
    assert sorted(seen) == list(range(1000)), "each record once"


def test_a_lock_that_has_ended_is_reported(broker, group):
    broker.create_topic("t")
    send(broker, 2)
    with fl.ShareConsumer(broker, EXPLICIT, group=group, topics=["t"]) as consumer:
        records = consumer.poll(5000)
        broker.clock.advance(31_000)
        consumer.acknowledge(records)
        (late,) = consumer.commit().values()
        assert isinstance(late, KafkaError)
        assert late.code == 121
        again = consumer.poll(5000)
        assert again.to_pyarrow()["delivery_count"].to_pylist() == [2, 2]
        consumer.acknowledge(again)


def test_a_callback_that_raises_loses_no_record(broker, peer, group):
    send(broker, 2)

    def fails(*_):
        raise ValueError("told")

    with fl.ShareConsumer(peer, EXPLICIT, group=group, topics=["t"], on_acknowledgement=fails) as consumer:
        first = read(consumer, 2)
        consumer.acknowledge(first[0])
        consumer.acknowledge(first[1], "release")
        with pytest.raises(ValueError, match="told"):
            consumer.poll(5000)
        again = consumer.poll(5000)
        assert [record.offset for record in again] == [1]
        consumer.acknowledge(again)
        with pytest.raises(ValueError, match="told"):
            consumer.commit()
        assert consumer.commit() == {}


@pytest.mark.parametrize(("action", "again"), [("lose_response", 0), ("close", 2)])
def test_a_lost_acknowledgement_is_reported(broker, peer, group, action, again):
    send(broker, 2)
    plan = testing.FaultPlan()
    getattr(plan.on(api="ShareAcknowledge", nth=1), action)()
    with fl.ShareConsumer(peer, group=group, topics=["t"], faults=plan) as consumer:
        read(consumer, 2)
        (error,) = consumer.commit(5000).values()
        assert error.code == 13
        assert [record.delivery_count for record in read(consumer, again)] == [2] * again
        assert consumer.commit() == ({("t", 0): None} if again else {})


@pytest.mark.parametrize("error", ["SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"])
def test_another_session_is_opened_after_an_error(broker, peer, group, error):
    plan = testing.FaultPlan()
    plan.on(api="ShareFetch", nth=2).error(error)
    send(broker, 1)
    with fl.ShareConsumer(peer, group=group, topics=["t"], faults=plan) as consumer:
        assert len(read(consumer, 1)) == 1
        send(broker, 1, partition=1)
        assert len(read(consumer, 1)) >= 1
        consumer.commit()


def test_errors_say_what_is_wrong(broker, peer, group):
    with pytest.raises(InvalidGroupIdError, match=r"group\.id"):
        fl.ShareConsumer(peer)
    with pytest.raises(ConfigError, match=r"share\.auto\.offset\.reset"):
        fl.ShareConsumer(peer, {"auto.offset.reset": "earliest"}, group=group)
    with pytest.raises(InvalidArgumentError, match="two groups"):
        fl.ShareConsumer(peer, {"group.id": "a"}, group="b")
    with pytest.raises(InvalidArgumentError, match="on_acknowledgement"):
        fl.ShareConsumer(peer, group=group, on_acknowledgement=1)
    send(broker, 1)
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        (record,) = read(consumer, 1)
        with pytest.raises(IllegalStateError, match=r"share\.acknowledgement\.mode=explicit"):
            consumer.acknowledge(record)
        with pytest.raises(InvalidArgumentError, match="accept, release, reject or renew"):
            consumer.acknowledge(record, "nack")
        with pytest.raises(TypeError, match="a record"):
            consumer.acknowledge("t")
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(consumer)
        assert "billing" in repr(consumer)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(0)
    with fl.Consumer(peer, {"group.id": "classic"}) as classic:
        classic.subscribe(["t"])
        classic.poll(500)
        with fl.ShareConsumer(peer, group="classic", topics=["t"]) as consumer, pytest.raises(KafkaError, match="no share group"):
            consumer.poll(5000)


def test_wakeup_ends_a_poll(peer, group):
    with fl.ShareConsumer(peer, group=group, topics=["t"]) as consumer:
        threading.Timer(0.3, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(20_000)


def test_under_asyncio_the_loop_goes_on(broker, peer, group):
    told = []

    async def on_acknowledgement(*given):
        await asyncio.sleep(0)
        told.append(given)

    async def main():
        turns = 0

        async def turn():
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        beside = asyncio.create_task(turn())
        async with fl.AsyncShareConsumer(peer, EXPLICIT, group=group, topics=["t"], on_acknowledgement=on_acknowledgement) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.4):
                    await consumer.poll(60_000)
            assert turns > 5
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)
            with pytest.raises(ConcurrentAccessError):
                await consumer.poll(0)
            await asyncio.to_thread(send, broker, 3)
            records = await waiting
            read = len(records)
            while read < 3:
                consumer.acknowledge(records)
                records = await consumer.poll()
                read += len(records)
            consumer.acknowledge(records)
            assert await consumer.commit() == {("t", 0): None}
        beside.cancel()

    asyncio.run(main())
    assert ("t", 0) in {given[0] for given in told}


def test_a_cancelled_poll_loses_no_record(broker, peer, group):
    async def main():
        seen = []
        async with fl.AsyncShareConsumer(peer, group=group, topics=["t"]) as consumer:
            send(broker, 200)
            while len(seen) < 200:
                try:
                    async with asyncio.timeout(0.005):
                        seen += [record.offset for record in await consumer.poll(1000)]
                except TimeoutError:
                    pass
            await consumer.commit()
        return seen

    assert sorted(asyncio.run(asyncio.wait_for(main(), 30))) == list(range(200))
