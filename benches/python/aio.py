"""What asyncio costs: sends awaited one by one and in batches, against aiokafka and confluent-kafka's AIO client; the latency of many consumers.

All producers send ten-byte values to the same listener, with the same linger, acks=all and idempotence; the rounds of all candidates take turns, and
the best of each counts. The consumers read from a broker in this process, all in one event loop: a record for one of them at a time, measured
from its append to its return from `async for`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka.aio import AIOProducer

import fletchlog as fl
from report import report

VALUE = b"0123456789"
TOPIC = "t"
BATCH = 1_000
# how long a candidate sends
SECONDS = 2.0


async def ours(servers: str, *, batch: int) -> float:
    async with fl.AsyncProducer(f"kafka://{servers}", {"linger.ms": 0, "acks": "all"}) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        sent, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            sent += batch
            if batch == 1:
                await producer.send_and_wait(TOPIC, VALUE)
            else:
                futures = [await producer.send(TOPIC, VALUE) for _ in range(batch)]
                for future in futures:
                    await future
        return sent / (time.perf_counter() - start)


async def aiokafka(servers: str, *, batch: int) -> float:
    producer = AIOKafkaProducer(bootstrap_servers=servers, linger_ms=0, enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, VALUE)
        sent, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            sent += batch
            if batch == 1:
                await producer.send_and_wait(TOPIC, VALUE)
            else:
                futures = [await producer.send(TOPIC, VALUE) for _ in range(batch)]
                for future in futures:
                    await future
        return sent / (time.perf_counter() - start)
    finally:
        await producer.stop()


async def confluent(servers: str, *, batch: int) -> float:
    config = {"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True, "log_level": 3}
    producer = AIOProducer(config, batch_size=batch, buffer_timeout=0.001 if batch == 1 else 0.1)
    try:
        await (await producer.produce(TOPIC, VALUE))
        sent, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            sent += batch
            futures = [await producer.produce(TOPIC, VALUE) for _ in range(batch)]
            if batch > 1:
                await producer.flush()
            for future in futures:
                await future
        return sent / (time.perf_counter() - start)
    finally:
        await producer.close()


async def latencies(consumers: int, records: int) -> list[float]:
    """From an append to the return of `async for`, in ms, of records for consumers at random; the others wait."""
    with fl.Broker.in_memory() as broker, fl.Producer(broker, {"linger.ms": 0}) as producer:
        broker.create_topic(TOPIC, partitions=consumers)
        sent, taken = 0.0, asyncio.Event()
        found: list[float] = []

        async def read(partition: int) -> None:
            async with fl.AsyncConsumer(broker) as consumer:
                consumer.assign([(TOPIC, partition)])
                async for _ in consumer:
                    found.append((time.perf_counter() - sent) * 1000)
                    taken.set()

        tasks = [asyncio.create_task(read(partition)) for partition in range(consumers)]
        await asyncio.sleep(2)
        threads = threading.active_count()
        chance = random.Random(1)
        for _ in range(records):
            sent = time.perf_counter()
            producer.send(TOPIC, VALUE, partition=chance.randrange(consumers))
            await taken.wait()
            taken.clear()
        if threading.active_count() > threads:
            raise SystemExit("the consumers use threads")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--consumers", type=int, default=1_000)
    args = parser.parse_args()
    candidates: dict[str, Callable[..., Awaitable[float]]] = {"fletchlog": ours, "aiokafka": aiokafka, "confluent-kafka aio": confluent}
    rates: dict[str, float] = {}
    with fl.Broker.in_memory() as broker, broker.listen() as listener:
        broker.create_topic(TOPIC)
        for _ in range(args.rounds):
            for name, candidate in candidates.items():
                for way, batch in (("one by one", 1), (f"in batches of {BATCH}", BATCH)):
                    rate: Any = asyncio.run(candidate(listener.bootstrap, batch=batch))  # type: ignore[arg-type]
                    key = f"{name}, {way}"
                    rates[key] = max(rates.get(key, 0.0), rate / 1e6)
    ratios = [
        (f"ours / {other}, {way}", rates[f"fletchlog, {way}"] / rates[f"{other}, {way}"], 3.0)
        for way in ("one by one", f"in batches of {BATCH}")
        for other in ("aiokafka", "confluent-kafka aio")
    ]
    found = asyncio.run(latencies(args.consumers, 500))
    print(
        f"  {args.consumers} consumers in one loop: median {statistics.median(found):.2f} ms, 99 of 100 within {sorted(found)[len(found) * 99 // 100]:.2f} ms"
    )
    report(rates, ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
