"""Clients under asyncio, embedded and over sockets: nothing blocks the loop, nothing waits in a thread, a cancelled call changes nothing."""

import asyncio
import inspect
import random
import socket
import threading
from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog.errors import (
    ClosedError,
    ConcurrentAccessError,
    InvalidArgumentError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
)

FIRST = {"auto.offset.reset": "earliest"}


def run(main, *, factory=None):
    """Runs a coroutine in a loop of its own, which must not have used its executor."""
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        result = runner.run(main)
        if factory is None:
            assert loop._default_executor is None, "the loop's executor was used"
        return result


def python_threads():
    """Those that Python started. An engine's thread that delivers lines of the log is known to Python, too, but no call waits in it."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}


def consumer_of(peer, **config):
    """One that begins at the beginning."""
    consumer = fl.AsyncConsumer(peer, {**FIRST, **config})
    consumer.assign([("t", 0), ("t", 1)])
    return consumer


async def read(consumer, count):
    """The values of the next records."""
    values = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


def test_sends_are_awaited_while_the_loop_goes_on(peer):
    async def run():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        with fl.Producer(peer, {"linger.ms": 100}) as producer:
            futures = [producer.send("t", value=b"%d" % i, partition=0) for i in range(50)]
            assert not futures[0].done()
            outcomes = await asyncio.gather(*futures)
            assert [outcome.offset for outcome in outcomes] == list(range(50))
            assert ticks > 0
            assert (await futures[3]).offset == 3, "again, when it is decided"
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", value=bytes(2_000_000))
        ticker.cancel()

    asyncio.run(run())


def test_a_wait_that_is_given_up_leaves_the_record_alone(peer):
    async def run():
        with fl.Producer(peer, {"linger.ms": 300}) as producer:
            future = producer.send("t", value=b"v", partition=0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await future
            assert (await future).offset == 0

    asyncio.run(run())


def test_a_future_whose_loop_is_gone_harms_nobody(peer):
    with fl.Producer(peer, {"linger.ms": 300}) as producer:
        future = producer.send("t", value=b"v", partition=0)

        async def give_up():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(wait())), 0.01)

        async def wait():
            return await future

        asyncio.run(give_up())
        assert future.result().offset == 0


def test_callbacks_run_in_order_in_the_producers_thread_or_at_once(peer):
    seen = []

    def note(future):
        seen.append((future.result(0).offset, threading.current_thread().name))

    with fl.Producer(peer, {"linger.ms": 60_000}) as producer:
        futures = [producer.send("t", value=b"v", partition=0) for _ in range(20)]
        for future in futures:
            future.add_done_callback(note)
        producer.flush()
        assert seen == [(i, "fletchlog-callbacks") for i in range(20)]
        futures[5].add_done_callback(note)
        assert seen[-1] == (5, threading.current_thread().name)
        with pytest.raises(InvalidArgumentError, match="callback"):
            futures[5].add_done_callback(1)
    futures[6].add_done_callback(note)
    assert seen[-1][0] == 6, "also when the producer is closed"


def test_records_come_one_by_one_while_others_send(peer):
    async def main():
        async with fl.AsyncProducer(peer) as producer, consumer_of(peer) as consumer:

            async def send():
                for i in range(30):
                    await producer.send_and_wait("t", value=b"%d" % i, partition=i % 2)
                    await asyncio.sleep(0.002)

            sending = asyncio.create_task(send())
            values = await read(consumer, 30)
            await sending
            assert sorted(values, key=int) == [b"%d" % i for i in range(30)]
            assert await consumer.position(("t", 0)) == 15

    run(main())


def test_polls_and_iterations_return_what_those_of_a_consumer_return(peer):
    with fl.Producer(peer) as producer:
        producer.send_many("t", [b"%d" % i for i in range(1_000)], partition=0)
        producer.send_many("t", [b"%d" % i for i in range(1_000)], partition=1)

    async def main():
        async with consumer_of(peer, **{"max.poll.records": 100}) as consumer:
            polls = [[(r.partition, r.offset) for r in await consumer.poll()] for _ in range(10)]
            one_by_one = []
            async for record in consumer:
                one_by_one.append((record.partition, record.offset))
                if len(one_by_one) == 1_000:
                    break
            return polls, one_by_one

    with fl.Consumer(peer, {**FIRST, "max.poll.records": 100}) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        polls = [[(r.partition, r.offset) for r in consumer.poll()] for _ in range(10)]
        one_by_one = [(record.partition, record.offset) for record in islice(consumer, 1_000)]
    assert run(main()) == (polls, one_by_one)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_cancelled_at_any_moment_loses_and_repeats_nothing(peer, seed):
    chance = random.Random(seed)

    async def main():
        async with fl.AsyncProducer(peer, {"linger.ms": 0}) as producer, consumer_of(peer, **{"max.poll.records": 3}) as consumer:
            values, sent = [], 0
            for _ in range(150):
                for _ in range(chance.randrange(4)):
                    await producer.send("t", value=b"%d" % sent, partition=0)
                    sent += 1
                try:
                    async with asyncio.timeout(chance.choice([0, 0, 0.0005, 0.001, 0.003])):
                        if chance.random() < 0.5:
                            async for record in consumer:
                                values.append(record.value)
                        else:
                            values += [record.value for record in await consumer.poll(1_000)]
                except TimeoutError:
                    pass
            await producer.flush()
            while len(values) < sent:
                values += [record.value for record in await consumer.poll()]
            assert values == [b"%d" % i for i in range(sent)]

    run(main())


def test_a_thousand_consumers_wait_in_one_loop_without_a_thread(broker):
    broker.create_topic("t", partitions=1_000)

    async def main():
        consumers = [fl.AsyncConsumer(broker, FIRST) for _ in range(1_000)]
        for partition, consumer in enumerate(consumers):
            consumer.assign([("t", partition)])
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"first", partition=0).result()
            threads = python_threads()
            waiting = [asyncio.create_task(read(consumer, 2)) for consumer in consumers]
            await asyncio.sleep(0.1)
            for turn in range(2):
                for partition in range(1_000):
                    producer.send("t", value=b"%d %d" % (turn, partition), partition=partition)
                producer.flush()
            values = await asyncio.gather(*waiting)
            assert python_threads() <= threads
        assert values[0] == [b"first", b"0 0"]
        assert values[1:] == [[b"0 %d" % i, b"1 %d" % i] for i in range(1, 1_000)]
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    run(main())


def test_a_call_that_waits_uses_no_thread(peer):
    async def main():
        async with consumer_of(peer) as consumer:
            await consumer.poll(0)
            threads = python_threads()
            polling = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.1)
            assert python_threads() <= threads
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling

    run(main())


def test_two_tasks_on_one_consumer_get_a_clear_error(peer):
    async def main():
        async with consumer_of(peer) as consumer:
            polling = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)
            for other in (consumer.poll(0), consumer.position(("t", 0)), consumer.commit(), consumer.close()):
                with pytest.raises(ConcurrentAccessError, match="another"):
                    await other
            with pytest.raises(ConcurrentAccessError, match="each task its own consumer"):
                consumer.pause([("t", 0)])
            assert not polling.done()
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling

    run(main())


def test_a_block_that_fails_and_cannot_close_shows_both_errors(peer):
    async def main():
        async with consumer_of(peer) as consumer:
            polling = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)
            assert not polling, "what went wrong"

    with pytest.raises(ConcurrentAccessError, match="another") as failed:
        asyncio.run(main())
    assert "what went wrong" in str(failed.value.__context__)


def test_lookups_commits_and_positions_are_awaited(peer):
    async def main():
        async with fl.AsyncProducer(peer) as producer:
            for i in range(4):
                await producer.send_and_wait("t", value=b"v", partition=0, timestamp_ms=1_000 + i)
        tp = fl.TopicPartition("t", 0)
        async with consumer_of(peer, **{"group.id": "g"}) as consumer:
            assert await consumer.beginning_offsets([tp]) == {tp: 0}
            assert await consumer.end_offsets(tp) == {tp: 4}
            found = await consumer.offsets_for_times({tp: 1_002})
            assert found[tp].offset == 2
            assert await consumer.committed(tp) is None
            consumer.seek(tp, 3)
            assert await consumer.position(tp) == 3
            with pytest.raises(InvalidArgumentError, match="offsets_for_times"):
                consumer.seek(tp, datetime.now(UTC))
            await consumer.commit()
            await consumer.commit({("t", 1): 0})
            assert (await consumer.committed(tp)).offset == 3
            assert (await consumer.committed([("t", 1)]))[fl.TopicPartition("t", 1)].offset == 0
            consumer.pause(tp)
            assert consumer.paused() == [tp]
            with pytest.raises(KafkaTimeoutError, match="no offsets for nowhere-0"):
                await consumer.end_offsets(("nowhere", 0), timeout_ms=50)
        with pytest.raises(ClosedError):
            await consumer.poll()
        await consumer.close()

    run(main())


def test_rebalance_callbacks_may_be_coroutine_functions_and_use_the_consumer(peer):
    async def main():
        seen = []

        async def assigned(partitions):
            await asyncio.sleep(0)
            for partition in partitions:
                seen.append(("assigned", partition.partition, await consumer.position(partition)))
                consumer.seek(partition, 1)

        def revoked(partitions):
            seen.append(("revoked", *sorted(partition.partition for partition in partitions)))

        async with fl.AsyncProducer(peer) as producer:
            await producer.send_many("t", [b"0", b"1"], partition=0)
        async with fl.AsyncConsumer(peer, {**FIRST, "group.id": "g"}) as consumer:
            consumer.subscribe(["t"], on_assigned=assigned, on_revoked=revoked)
            assert await read(consumer, 1) == [b"1"]
            await consumer.unsubscribe()
            assert consumer.assignment() == []
            with pytest.raises(InvalidArgumentError, match="unsubscribe"):
                consumer.subscribe([])
            consumer.subscribe(["t"], on_revoked=revoked)
            while not consumer.assignment():
                await consumer.poll(100)
        assert seen == [("assigned", 0, 0), ("assigned", 1, 0), ("revoked", 0, 1), ("revoked", 0, 1)]

    run(main())


def test_a_callback_that_fails_or_is_cancelled_loses_no_record(peer):
    async def main():
        failures = iter([ValueError("first"), None])

        async def assigned(_):
            await asyncio.sleep(0.05)
            if failure := next(failures, None):
                raise failure

        async with fl.AsyncProducer(peer) as producer:
            await producer.send_many("t", [b"0", b"1"], partition=0)
        async with fl.AsyncConsumer(peer, {**FIRST, "group.id": "g"}) as consumer:
            consumer.subscribe(["t"], on_assigned=assigned)
            with pytest.raises(ValueError, match="first"):
                await read(consumer, 1)
            assert await read(consumer, 2) == [b"0", b"1"]

    run(main())


def test_members_of_a_group_share_partitions_in_one_loop(peer):
    async def main():
        async with fl.AsyncProducer(peer) as producer:
            await producer.send_many("t", [b"%d" % i for i in range(50)], partition=0)
            await producer.send_many("t", [b"%d" % i for i in range(50, 100)], partition=1)
            await producer.flush()
        config = {**FIRST, "group.id": "g", "max.poll.records": 5}
        seen = []

        async def member():
            async with fl.AsyncConsumer(peer, config) as consumer:
                consumer.subscribe(["t"])
                while len(seen) < 100:
                    seen.extend(record.value for record in await consumer.poll(50))
                    await consumer.commit()

        await asyncio.gather(member(), member(), member())
        assert sorted(map(int, seen)) == list(range(100))

    run(main())


def test_a_closed_broker_ends_what_waits(broker):
    broker.create_topic("t", partitions=2)

    async def main():
        async with consumer_of(broker) as consumer:
            polling = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)
            broker.close()
            with pytest.raises(ClosedError):
                await polling

    run(main())


def test_a_consumer_goes_on_in_the_next_loop(peer):
    consumer = consumer_of(peer)

    async def send_and_read(value):
        async with fl.AsyncProducer(peer) as producer:
            reading = asyncio.create_task(read(consumer, 1))
            await asyncio.sleep(0.05)
            await producer.send("t", value=value, partition=0)
            return await reading

    assert run(send_and_read(b"0")) == [b"0"]
    assert run(send_and_read(b"1")) == [b"1"]
    run(consumer.close())


def test_a_full_buffer_is_awaited_and_records_keep_their_order(peer):
    async def main():
        config = {"buffer.memory": 40_000, "batch.size": 10_000, "linger.ms": 5}
        async with fl.AsyncProducer(peer, config) as producer:
            futures = [await producer.send("t", value=b"%6d" % i + bytes(3_000), partition=0) for i in range(100)]
            assert [(await future).offset for future in futures] == list(range(100))
            assert await producer.send_many("t", [b"%6d" % i + bytes(3_000) for i in range(100, 200)], partition=0) == 100
            table = pa.table({"value": [b"%6d" % i + bytes(3_000) for i in range(200, 300)], "partition": pa.array([0] * 100, pa.int32())})
            assert await producer.send_arrow("t", table) == 100
            await producer.flush()
        async with consumer_of(peer) as consumer:
            values = await read(consumer, 300)
            assert [int(value[:6]) for value in values] == list(range(300))

    run(main())


def test_the_number_of_records_that_wait_is_bounded(broker):
    """Nothing is written: with `send` of a plain producer, any number of records would wait beside the buffer."""
    broker.create_topic("t")

    async def main():
        faults = fl.testing.FaultPlan()
        faults.on(api="Produce", nth=1).black_hole()
        config = {
            "buffer.memory": 40_000,
            "batch.size": 10_000,
            "linger.ms": 0,
            "max.block.ms": 300,
            "request.timeout.ms": 60_000,
            "delivery.timeout.ms": 60_000,
        }
        producer = fl.AsyncProducer(broker, config, faults=faults)
        sent = 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                while True:
                    await producer.send("t", value=bytes(3_000))
                    sent += 1
        assert 4 <= sent <= 14
        with pytest.raises(fl.errors.BufferExhaustedError):
            await producer.send_and_wait("t", value=bytes(3_000))
        await producer.close(timeout_ms=0)

    run(main())


def test_transactions_are_awaited(peer):
    async def main():
        config = {"transactional.id": "x"}
        async with fl.AsyncProducer(peer, config) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", value=b"written", partition=0)
            with pytest.raises(ValueError, match="out"):
                async with producer.transaction():
                    await producer.send_and_wait("t", value=b"aborted", partition=0)
                    raise ValueError("out")
            async with fl.AsyncConsumer(peer, {**FIRST, "group.id": "g", "isolation.level": "read_committed"}) as consumer:
                consumer.assign([("t", 0)])
                assert await read(consumer, 1) == [b"written"]
                producer.begin_transaction()
                await producer.send_offsets_to_transaction({("t", 0): 1}, consumer.group_metadata())
                await producer.commit_transaction()
                assert (await consumer.committed(("t", 0))).offset == 1
                producer.begin_transaction()
                await producer.send("t", value=b"aborted", partition=0)
                await producer.abort_transaction()
                assert not await consumer.poll(200)
            async with fl.AsyncProducer(peer, config) as newer:
                await newer.init_transactions()
                with pytest.raises(ProducerFencedError):
                    async with producer.transaction():
                        await producer.send_and_wait("t", value=b"late", partition=0)

    run(main())


def test_metadata_of_a_topic_are_awaited(peer):
    async def main():
        async with fl.AsyncProducer(peer) as producer:
            assert await producer.partitions_for("t") == 2
            assert (await producer.send_and_wait("t", value=b"v", partition=1)).partition == 1
        assert repr(producer).startswith("<fletchlog.AsyncProducer")
        with pytest.raises(ClosedError):
            await producer.send("t", value=b"v")

    run(main())


def test_serializers_run_once_for_each_record(peer):
    calls = []

    def text(value):
        calls.append(value)
        return value.encode()

    async def main():
        async with fl.AsyncProducer(peer, key_serializer=text, value_serializer=text) as producer:
            await producer.send("t", value="v0", key="k0")
            await producer.send_many("t", ["v1", "v2"], ["k1", "k2"])
            with pytest.raises(InvalidArgumentError, match="fewer keys") as failed:
                await producer.send_many("t", ["v3", "v4"], ["k3"])
            assert failed.value.__notes__ == ["send_many has queued 1 records before this"]

    run(main())
    assert sorted(calls) == ["k0", "k1", "k2", "k3", "v0", "v1", "v2", "v3", "v4"]


def test_every_verb_of_a_cluster_is_awaited(broker):
    def public(of):
        return {name for name in dir(of) if not name.startswith("_")}

    assert public(fl.Cluster) == public(fl.AsyncCluster)
    for name in public(fl.AsyncCluster):
        assert inspect.iscoroutinefunction(getattr(fl.AsyncCluster, name)), name
        assert getattr(fl.AsyncCluster, name).__doc__, name

    async def main():
        with broker.listen() as listener:
            async with fl.AsyncCluster(f"kafka://{listener.bootstrap}") as cluster:
                await cluster.create_topic("u", partitions=3)
                assert await cluster.topics() == ["u"]
                assert await cluster.nodes() == [1]
                assert await cluster.controller() == 1
                assert await cluster.cluster_id() == broker.cluster_id
                assert len((await cluster.describe_topic("u")).partitions) == 3
                with await cluster.proxy() as proxy:
                    async with fl.AsyncCluster(f"kafka://{proxy.bootstrap}") as behind:
                        assert await behind.topics() == ["u"]
                async with fl.AsyncProducer(f"kafka://{listener.bootstrap}") as producer:
                    await producer.send_and_wait("u", value=b"v", partition=0)
                await cluster.alter_offsets("g", {("u", 0): 0})
                assert (await cluster.lag("g"))[fl.TopicPartition("u", 0)].lag == 1
                assert (await cluster.beginning_offsets([("u", 0)]), await cluster.end_offsets([("u", 0)])) == ({("u", 0): 0}, {("u", 0): 1})
                assert (await cluster.offsets_for_times({("u", 0): 0}))["u", 0].offset == 0
                scan = await cluster.scan("u", 0)
                assert (await asyncio.get_running_loop().run_in_executor(None, scan.to_pyarrow)).num_rows == 1
                assert await cluster.delete_records("u", 0, -1) == 1
                assert [group.group_id for group in await cluster.groups()] == ["g"]

    asyncio.run(main())


def test_two_tasks_on_one_cluster_get_a_clear_error():
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with fl.AsyncCluster(f"kafka://127.0.0.1:{silent.getsockname()[1]}") as cluster:
                waiting = asyncio.create_task(cluster.groups())
                await asyncio.sleep(0.05)
                with pytest.raises(ConcurrentAccessError, match="each task its own cluster"):
                    await cluster.topics()
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting

    run(main())


def test_the_public_methods_of_a_client_are_those_of_the_blocking_one():
    def public(of):
        return {name for name in dir(of) if not name.startswith("_")}

    assert public(fl.Consumer) - public(fl.AsyncConsumer) == {"read_to_end", "wakeup"}
    assert public(fl.AsyncConsumer) <= public(fl.Consumer)
    assert public(fl.ShareConsumer) - public(fl.AsyncShareConsumer) == {"wakeup"}
    assert public(fl.AsyncShareConsumer) <= public(fl.ShareConsumer)
    assert public(fl.AsyncProducer) - public(fl.Producer) == {"send_and_wait"}
    assert public(fl.Producer) <= public(fl.AsyncProducer)


def test_under_uvloop_too(peer):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with fl.AsyncProducer(peer) as producer, consumer_of(peer, **{"group.id": "g"}) as consumer:
            reading = asyncio.create_task(read(consumer, 10))
            await asyncio.sleep(0.05)
            for i in range(10):
                await producer.send_and_wait("t", value=b"%d" % i, partition=0)
            assert await reading == [b"%d" % i for i in range(10)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await consumer.poll(60_000)
            await consumer.commit()

    run(main(), factory=uvloop.new_event_loop)


def test_an_outcome_that_is_decided_is_awaited_without_a_turn_of_the_loop(peer):
    async def main():
        async with fl.AsyncProducer(peer) as producer:
            written = await producer.send("t", b"v", partition=0)
            failed = await producer.send("t", b"v" * 2_000_000)
            await producer.flush()
            turns = []
            asyncio.get_running_loop().call_soon(turns.append, 1)
            assert (await written, await written) == (written.result(0), written.result(0))
            with pytest.raises(fl.errors.RecordTooLargeError):
                await failed
            assert turns == []
            assert await asyncio.gather(written, written) == [written.result(0)] * 2

    asyncio.run(main())
