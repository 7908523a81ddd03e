"""An event loop never waits for the engine: sends without metadata or memory, many consumers, loops that end in the middle."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import fletchlog as fl
from fletchlog import errors

# far more than a busy machine needs for one turn of the loop, far less than any wait of the engine
MOST_S = 1.0


@asynccontextmanager
async def ticking(most_s: float = MOST_S) -> AsyncIterator[Callable[[], int]]:
    """The loop turns while the block runs, with no gap longer than this."""
    ticks, longest = 0, 0.0

    async def tick() -> None:
        nonlocal ticks, longest
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            ticks, longest, last = ticks + 1, max(longest, now - last), now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    yield lambda: ticks
    ticker.cancel()
    assert longest < most_s


def test_a_send_to_a_cluster_that_is_away_fails_after_max_block_ms_while_the_loop_goes_on() -> None:
    async def run() -> None:
        producer = fl.Producer("kafka://127.0.0.1:1", {"max.block.ms": 1500})
        async with ticking() as ticks:
            with pytest.raises(errors.KafkaTimeoutError, match=r"no metadata for topic t after \d+ ms \(max\.block\.ms\)"):
                await producer.send("t", value=b"x")
            assert ticks() > 10
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("t", value=b"x"), 0.1)
        producer.close(timeout_ms=0)

    asyncio.run(run())


def test_sends_of_a_loop_keep_their_order_with_those_that_did_not_have_to_wait(peer: fl.Broker | str) -> None:
    called: list[int] = []

    async def run() -> None:
        with fl.Producer(peer) as producer:
            sends = [
                producer.send("t", value=b"%d" % i, key=b"k", headers=[("h", b"1"), ("n", None)], partition=0, callback=lambda _m, _e, i=i: called.append(i))
                for i in range(300)
            ]
            outcomes = await asyncio.gather(*sends)
            assert [outcome.offset for outcome in outcomes] == list(range(300))
            # A thread without a loop goes behind them, too.
            futures = [producer.send("t", value=b"%d" % i, partition=1) for i in range(100)]
            last = await asyncio.to_thread(producer.send, "t", value=b"last", partition=1)
            await last
            assert all(future.done() for future in futures)
            assert last.result().offset == 100
            await asyncio.to_thread(producer.flush)
            assert called == list(range(300))

    asyncio.run(run())
    consumer = fl.Consumer(peer, {"auto.offset.reset": "earliest"})
    with consumer:
        consumer.assign([("t", 0)])
        records = []
        while len(records) < 300:
            records += list(consumer.poll(1000))
    assert [record.value for record in records] == [b"%d" % i for i in range(300)]
    assert (records[0].key, records[0].headers) == (b"k", [("h", b"1"), ("n", None)])
    assert [record.timestamp for record in records] == sorted(record.timestamp for record in records)


def test_a_full_buffer_does_not_stop_the_loop(broker: fl.Broker) -> None:
    broker.create_topic("t")

    async def run() -> None:
        faults = fl.testing.FaultPlan()
        with fl.Producer(broker, {"buffer.memory": 65_536, "max.block.ms": 60_000}, faults=faults) as producer:
            async with ticking() as ticks:
                with faults.collect_sends():
                    futures = [producer.send("t", value=bytes(1000), partition=0) for _ in range(200)]
                    before = ticks()
                    await asyncio.sleep(0.2)
                    assert ticks() > before
                    assert not any(future.done() for future in futures)
                outcomes = await asyncio.gather(*futures)
            assert [outcome.offset for outcome in outcomes] == list(range(200))
        with fl.Producer(broker, {"buffer.memory": 65_536, "max.block.ms": 300}, faults=faults) as producer:
            with faults.collect_sends():
                futures = [producer.send("t", value=bytes(1000), partition=0) for _ in range(200)]
                with pytest.raises(errors.BufferExhaustedError, match=r"max\.block\.ms"):
                    await futures[-1]
                assert not futures[0].done()
            decided = await asyncio.gather(*futures, return_exceptions=True)
            written = [one for one in decided if not isinstance(one, errors.BufferExhaustedError)]
            assert 0 < len(written) <= 65
            assert [one.offset for one in written] == list(range(200, 200 + len(written)))
            assert (await producer.send("t", value=b"next", partition=0)).offset == 200 + len(written), "those that failed are not sent"

    asyncio.run(run())


def test_what_a_blocking_send_raises_is_raised_by_the_await(peer: fl.Broker | str) -> None:
    async def run() -> None:
        producer = fl.Producer(peer, {"max.block.ms": 500})
        for topic, partition, match in [("nope", None, "nope"), ("t", 9, "no partition 9")]:
            with pytest.raises(errors.KafkaError, match=match):
                await producer.send(topic, value=b"v", partition=partition)
        with pytest.raises(errors.KafkaError):
            await producer.send("t", value=bytes(2_000_000))
        assert (await producer.send("t", value=b"v", partition=0)).offset == 0, "the others did not harm it"
        producer.close()
        with pytest.raises(errors.ClosedError):
            await producer.send("t", value=b"v")

    asyncio.run(run())


def test_flush_close_and_commit_wait_for_records_that_wait(peer: fl.Broker | str) -> None:
    async def run() -> None:
        for end in ("flush", "close"):
            producer = fl.Producer(peer)
            future = producer.send("t", value=b"v", partition=0)
            getattr(producer, end)()
            assert future.result(0).partition == 0
            producer.close()
        producer = fl.Producer(peer, {"transactional.id": "x", "max.block.ms": 5_000})
        await asyncio.to_thread(producer.init_transactions)
        with pytest.raises(errors.IllegalStateError, match="no transaction is open"):
            await producer.send("t", value=b"outside", partition=0)
        early = producer.send("t", value=b"outside", partition=0)
        producer.begin_transaction()
        future = producer.send("t", value=b"1", partition=0)
        await asyncio.to_thread(producer.commit_transaction)
        assert future.result(0).offset >= 0
        assert isinstance(early.exception(0), errors.IllegalStateError), "it does not slip into a later transaction"
        # A record that cannot be sent, and nobody looks at its future: the transaction is not committed without it.
        producer.begin_transaction()
        producer.send("t", value=b"2", partition=9)
        with pytest.raises(errors.TransactionAbortableError, match="no partition 9"):
            await asyncio.to_thread(producer.commit_transaction)
        await asyncio.to_thread(producer.abort_transaction)
        producer.begin_transaction()
        lost = producer.send("nowhere" if isinstance(peer, str) else "t", value=b"3", partition=1)
        await asyncio.to_thread(producer.abort_transaction)
        if isinstance(peer, str):
            assert lost.exception(0) is not None
        await asyncio.to_thread(producer.close)

    asyncio.run(run())


@pytest.mark.parametrize("count", [24, 100])
def test_many_consumers_in_a_loop_whose_executor_is_busy_get_their_records(peer: fl.Broker | str, count: int) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        executor = concurrent.futures.ThreadPoolExecutor(1)
        loop.set_default_executor(executor)
        released = threading.Event()
        blocked = loop.run_in_executor(None, released.wait)
        consumers = [fl.AsyncConsumer(peer, {"auto.offset.reset": "earliest"}) for _ in range(count)]
        arrived = [asyncio.Queue[bytes]() for _ in consumers]

        async def read(consumer: fl.AsyncConsumer, values: asyncio.Queue[bytes]) -> None:
            async for record in consumer:
                values.put_nowait(record.value)

        for consumer in consumers:
            consumer.assign([("t", 0)])
        async with ticking():
            tasks = [asyncio.create_task(read(*pair)) for pair in zip(consumers, arrived, strict=True)]
            with fl.Producer(peer) as producer:
                for value in (b"1", b"2"):
                    await producer.send("t", value=value, partition=0)
                    for values in arrived:
                        assert await asyncio.wait_for(values.get(), 20) == value
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for consumer in consumers:
                assert await consumer.position(("t", 0)) == 2
                await consumer.close()
        released.set()
        await blocked

    asyncio.run(run())


def test_a_loop_that_is_closed_in_the_middle_of_a_poll_frees_the_consumer_and_loses_nothing(peer: fl.Broker | str) -> None:
    consumer = fl.AsyncConsumer(peer, {"auto.offset.reset": "earliest", "max.poll.records": 1})
    consumer.assign([("t", 0)])
    values: list[bytes] = []

    async def read() -> None:
        async for record in consumer:
            values.append(record.value)
            if len(values) == 10:
                return

    with fl.Producer(peer) as producer:
        for i in range(10):
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # the task is destroyed while it is pending, on purpose
            task = loop.create_task(read())
            loop.run_until_complete(asyncio.sleep(0.005 * (i % 3)))
            producer.send("t", value=b"%d" % i, partition=0).result()
            loop.close()
            del task
            gc.collect()
            consumer.pause([("t", 0)])  # no call of the former loop has the consumer
            consumer.resume([("t", 0)])
    if len(values) < 10:
        asyncio.run(read())
    assert values == [b"%d" % i for i in range(10)]
    asyncio.run(consumer.close())


def test_loops_in_several_threads_have_consumers_of_their_own(peer: fl.Broker | str) -> None:
    seen: list[bytes] = []

    async def first() -> None:
        async with fl.AsyncConsumer(peer, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("t", 1)])
            async for record in consumer:
                seen.append(record.value)
                return

    threads = [threading.Thread(target=lambda: asyncio.run(first())) for _ in range(8)]
    for thread in threads:
        thread.start()
    with fl.Producer(peer) as producer:
        producer.send("t", value=b"v", partition=1).result()
    for thread in threads:
        thread.join(20)
    assert seen == [b"v"] * 8


@pytest.mark.parametrize("daemon", [False, True])
@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_a_process_ends_with_an_iteration_under_way(end: str, daemon: bool) -> None:
    code = f"""
        import asyncio, threading, time
        import fletchlog as fl
        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        consumer = fl.AsyncConsumer(broker)
        consumer.assign([("t", 0)])
        async def read():
            async for record in consumer:
                pass
        loop = asyncio.new_event_loop()
        task = loop.create_task(read())
        if {daemon}:
            threading.Thread(target=loop.run_forever, daemon=True).start()
            time.sleep(0.2)
        else:
            loop.set_exception_handler(lambda *_: None)
            loop.run_until_complete(asyncio.sleep(0.2))
        {end}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", ["poll", "position", "iteration", "share poll"])
def test_calls_that_need_not_wait_let_other_tasks_have_turns(peer: fl.Broker | str, what: str) -> None:
    async def run() -> None:
        async with (
            fl.AsyncProducer(peer) as producer,
            fl.AsyncConsumer(peer, {"auto.offset.reset": "earliest"}) as consumer,
            fl.AsyncShareConsumer(peer, group="s", topics=["t"]) as share,
        ):
            await producer.send_many("t", [b"x"] * 1000, partition=0)
            await producer.flush()
            consumer.assign([("t", 0)])

            async def calls() -> None:
                while True:
                    if what == "poll":
                        await consumer.poll(0)
                    elif what == "position":
                        await consumer.position(("t", 0))
                    elif what == "share poll":
                        await share.poll(0)
                    else:
                        consumer.seek(("t", 0), 0)
                        await anext(consumer)

            # a task without turns would never be cancelled
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(calls(), 0.1)
            assert len(await consumer.poll()) + (await consumer.position(("t", 0))) > 0

    asyncio.run(run())
