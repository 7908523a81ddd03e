"""An event loop beside a peer that is silent: it turns, and every operation ends by its own time limit or cancellation, with a clear error."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog import errors
from tests.support.silent_peer import Mode, SilentPeer

QUIET = ["nothing", "half", "black_hole"]
# Between two turns of the loop: half of max.block.ms, which a turn that waits for the engine would take.
MOST_S = 0.5
# What no test waits for.
FAR_MS = 60_000


def own_time() -> float:
    """Seconds, without those in which this thread could have run and the system let others run (Linux's schedstat)."""
    withheld_ns = 0
    with suppress(OSError):
        withheld_ns = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    return time.monotonic() - withheld_ns / 1e9


@asynccontextmanager
async def turning() -> AsyncIterator[None]:
    """The loop turns while the block runs; the second longest gap counts, as the machine may stop everything once."""
    turns = [own_time()]

    async def turn() -> None:
        while True:
            await asyncio.sleep(0.01)
            turns.append(own_time())

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    yield
    task.cancel()
    turns.append(own_time())
    gaps = sorted(later - earlier for earlier, later in pairwise(turns))
    assert gaps[-2] < MOST_S


@pytest.fixture(params=QUIET)
def peer(request: pytest.FixtureRequest) -> Iterator[SilentPeer]:
    with SilentPeer(request.param) as peer:
        yield peer


def producer_of(peer: SilentPeer, **config: object) -> fl.Producer:
    return fl.Producer(f"kafka://{peer.address}", {"max.block.ms": 1_000, **config})


def test_an_awaited_send_fails_after_max_block_ms(peer: SilentPeer) -> None:
    async def run() -> None:
        producer = producer_of(peer)
        async with turning():
            sends = [producer.send("t", value=b"%d" % i) for i in range(50)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, errors.KafkaTimeoutError)
            assert "no metadata for topic t" in str(outcome)
            assert "max.block.ms" in str(outcome)
        async with turning():
            await asyncio.to_thread(producer.close, timeout_ms=100)

    asyncio.run(run())


def test_a_send_may_be_cancelled_or_timed_out_and_the_record_fails_by_itself(peer: SilentPeer) -> None:
    async def run() -> None:
        producer = producer_of(peer)
        async with turning():
            future = producer.send("t", value=b"v")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await future

            async def send() -> None:
                await producer.send("t", value=b"v")

            task = asyncio.create_task(send())
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(errors.KafkaTimeoutError, match="no metadata for topic t"):
                await future
            producer.close(timeout_ms=0)

    asyncio.run(run())


def test_an_iteration_is_ended_by_its_time_limit_or_cancellation_at_once(peer: SilentPeer) -> None:
    async def run() -> None:
        consumers = [fl.AsyncConsumer(f"kafka://{peer.address}", {"group.id": "g"}) for _ in range(5)]

        async def read(consumer: fl.AsyncConsumer) -> None:
            async for _ in consumer:
                pass

        for consumer in consumers[:2]:
            consumer.subscribe(["t"])
        for consumer in consumers[2:]:
            consumer.assign([("t", 0)])
        async with turning():
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await read(consumers[0])
            tasks = [asyncio.create_task(read(consumer)) for consumer in consumers]
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
            assert time.monotonic() - began < 10
            # Each is free, and fails by its own limit.
            with pytest.raises(errors.KafkaTimeoutError):
                await consumers[3].position(("t", 0), 200)
            for consumer in consumers:
                await consumer.close(100)

    asyncio.run(run())


# An operation, by the address of its peer and its own time limit in ms.
Verb = Callable[[str, int], Coroutine[Any, Any, object]]
VERBS: dict[str, Verb] = {}


def verb(call: Verb) -> Verb:
    VERBS[call.__name__] = call
    return call


def consumer_of(address: str, limit_ms: int) -> fl.AsyncConsumer:
    consumer = fl.AsyncConsumer(address, {"group.id": "g", "default.api.timeout.ms": limit_ms})
    consumer.assign([("t", 0)])
    return consumer


@verb
async def poll(address: str, limit_ms: int) -> None:
    assert not await consumer_of(address, limit_ms).poll(limit_ms)


@verb
async def commit(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).commit({("t", 0): 1})


@verb
async def position(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).position(("t", 0))


@verb
async def committed(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).committed(("t", 0))


@verb
async def beginning_offsets(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).beginning_offsets(("t", 0))


@verb
async def end_offsets(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).end_offsets(("t", 0))


@verb
async def offsets_for_times(address: str, limit_ms: int) -> None:
    await consumer_of(address, limit_ms).offsets_for_times({("t", 0): 1})


@verb
async def close_of_a_member(address: str, limit_ms: int) -> None:
    consumer = fl.AsyncConsumer(address, {"group.id": "g"})
    consumer.subscribe(["t"])
    await consumer.poll(limit_ms)
    await consumer.close(limit_ms)


@verb
async def send(address: str, limit_ms: int) -> None:
    await (await fl.AsyncProducer(address, {"max.block.ms": limit_ms}).send("t", value=b"v"))


@verb
async def send_many(address: str, limit_ms: int) -> None:
    await fl.AsyncProducer(address, {"max.block.ms": limit_ms}).send_many("t", [b"v"])


@verb
async def partitions_for(address: str, limit_ms: int) -> None:
    await fl.AsyncProducer(address, {"max.block.ms": limit_ms}).partitions_for("t")


@verb
async def init_transactions(address: str, limit_ms: int) -> None:
    await fl.AsyncProducer(address, {"max.block.ms": limit_ms, "transactional.id": "x"}).init_transactions()


@verb
async def flush_and_close(address: str, limit_ms: int) -> None:
    producer = fl.AsyncProducer(address, {"max.block.ms": limit_ms})
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await producer.send("t", value=b"v")
    await producer.flush()
    await producer.close(limit_ms)


@verb
async def topics(address: str, limit_ms: int) -> None:
    await fl.AsyncCluster(address, {"default.api.timeout.ms": limit_ms}).topics()


@verb
async def describe_group(address: str, limit_ms: int) -> None:
    await fl.AsyncCluster(address, {"default.api.timeout.ms": limit_ms}).describe_group("g")


@verb
async def scan(address: str, limit_ms: int) -> None:
    await fl.AsyncCluster(address, {"default.api.timeout.ms": limit_ms}).scan("t")


@pytest.mark.parametrize("name", VERBS)
def test_the_loop_turns_while_a_verb_waits(peer: SilentPeer, name: str) -> None:
    async def run() -> None:
        verb = asyncio.create_task(VERBS[name](f"kafka://{peer.address}", FAR_MS))
        async with turning():
            for turn in range(20):
                await asyncio.sleep(0.01)
                assert not verb.done(), f"it was over before turn {turn}"
        verb.cancel()
        with pytest.raises(asyncio.CancelledError):
            await verb
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio")], "the loop's executor was used"

    asyncio.run(run())


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_ends_by_its_limit(peer: SilentPeer, name: str) -> None:
    async def run() -> None:
        with suppress(errors.KafkaTimeoutError):
            await VERBS[name](f"kafka://{peer.address}", 300)

    asyncio.run(run())


@pytest.mark.parametrize("name", [name for name in VERBS if name != "flush_and_close"])
def test_a_verb_may_be_timed_out(peer: SilentPeer, name: str) -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await VERBS[name](f"kafka://{peer.address}", FAR_MS)

    asyncio.run(run())


def test_with_one_answer_in_ten_sends_and_iterations_end_and_the_loop_turns(broker: fl.Broker) -> None:
    broker.create_topic("t")
    with socket.create_server(("127.0.0.1", 0)) as free:
        inside = free.getsockname()[1]
    times = {"request.timeout.ms": 100, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 10}
    with SilentPeer("one_in_ten", f"127.0.0.1:{inside}") as peer, broker.listen(port=inside, advertised=peer.address):

        async def send() -> fl.types.RecordMetadata:
            config = {"enable.idempotence": False, "linger.ms": 0, "delivery.timeout.ms": 50_000, "max.block.ms": 50_000}
            producer = fl.Producer(f"kafka://{peer.address}", times | config)
            outcome = await producer.send("t", value=b"v")
            await asyncio.to_thread(producer.close, timeout_ms=100)
            return outcome

        async def read() -> None:
            async with fl.AsyncConsumer(f"kafka://{peer.address}", times) as consumer:
                consumer.assign([("t", 0)])
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        async for _ in consumer:
                            pass

        async def run() -> None:
            async with turning():
                outcome, _ = await asyncio.gather(send(), read())
            assert outcome.topic == "t"

        asyncio.run(run())


def two_ports() -> int:
    """The first of two ports that follow each other and are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
                return port


@pytest.mark.parametrize("max_age_ms", [300, 300_000])
@pytest.mark.parametrize("mode", ["nothing", "black_hole"])
def test_sends_to_a_healthy_node_do_not_wait_for_the_answer_of_a_silent_one(mode: Mode, max_age_ms: int) -> None:
    outside, inside = two_ports(), two_ports()
    with (
        fl.Broker.in_memory(nodes=2) as broker,
        SilentPeer("all", f"127.0.0.1:{inside}", port=outside) as first,
        SilentPeer("all", f"127.0.0.1:{inside + 1}", port=outside + 1) as second,
        broker.listen(port=inside, advertised=f"127.0.0.1:{outside}"),
    ):
        broker.create_topic("t", partitions=2)
        peers = {1: first, 2: second}
        partitions = {node.leader: node.partition for node in broker.describe_topic("t").partitions}

        async def run() -> None:
            # The other node's answer would be waited for until request.timeout.ms, which the test does not wait for; nor for metadata that are due.
            config = {"bootstrap.servers": f"{first.address},{second.address}", "linger.ms": 0, "enable.idempotence": False, "metadata.max.age.ms": max_age_ms}
            producer = fl.Producer(config)
            await asyncio.gather(*(producer.send("t", value=b"first", partition=partition) for partition in partitions.values()))
            peers[1].mode = mode
            stuck = producer.send("t", value=b"stuck", partition=partitions[1])
            async with turning():
                for i in range(5):
                    outcome = await asyncio.wait_for(producer.send("t", value=b"%d" % i, partition=partitions[2]), 10)
                    assert outcome.offset == i + 1
                    await asyncio.sleep(0.2)
            assert not stuck.done()
            producer.close(timeout_ms=0)

        asyncio.run(run())
