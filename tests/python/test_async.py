"""Producers and consumers under asyncio, embedded and over sockets."""

import asyncio
import threading
import time

import pytest

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError, RecordTooLargeError, WakeupError


def consumer_of(peer, **config):
    """One that begins at the beginning."""
    consumer = fl.Consumer(peer, {"auto.offset.reset": "earliest", **config})
    consumer.assign([("t", 0), ("t", 1)])
    return consumer


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

    with fl.Producer(peer, {"linger.ms": 50}) as producer:
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


def test_polls_come_one_after_another_and_the_loop_goes_on(peer):
    async def run():
        with fl.Producer(peer) as producer, consumer_of(peer) as consumer:

            async def send():
                for i in range(30):
                    await producer.send("t", value=b"%d" % i, partition=i % 2)
                    await asyncio.sleep(0.002)

            sending, values = asyncio.create_task(send()), []
            async for records in consumer:
                assert len(records)
                values += [record.value for record in records]
                consumer.position(("t", 0))  # no thread uses it meanwhile
                if len(values) == 30:
                    break
            await sending
            assert sorted(values, key=int) == [b"%d" % i for i in range(30)]

    asyncio.run(run())


def test_a_cancelled_loop_frees_the_consumer_and_loses_nothing(peer):
    async def run():
        with fl.Producer(peer) as producer, consumer_of(peer, **{"max.poll.records": 1}) as consumer:
            values, sent = [], 0
            for round_ in range(40):
                if round_ % 2:
                    producer.send("t", value=b"%d" % sent, partition=0)
                    sent += 1
                began = time.monotonic()
                try:
                    async with asyncio.timeout(0.001 * (round_ % 5)):
                        async for records in consumer:
                            values += [record.value for record in records]
                except TimeoutError:
                    pass
                assert time.monotonic() - began < 0.9, "the poll was woken"
                consumer.position(("t", 1))
            producer.flush()
            while len(values) < sent:
                values += [record.value for record in consumer.poll(timeout_ms=1_000)]
            assert values == [b"%d" % i for i in range(sent)]

    asyncio.run(run())


def test_a_wake_up_of_somebody_else_ends_the_loop(peer):
    async def run():
        with consumer_of(peer) as consumer:
            threading.Timer(0.1, consumer.wakeup).start()
            with pytest.raises(WakeupError):
                async for _ in consumer:
                    pass

    asyncio.run(run())
