"""Threads that share a broker, each with a part of its own: idempotent sends, transactions, a compacted topic, topics that come and
go, committed offsets. Each notes what it is about to do and what was acknowledged, as `history` explains."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import fletchlog as fl
from judges.kills.history import COMPACTED, CONFIG, GROUP, PARTITIONS, PRODUCERS, SENT, TOPICS, TRANSACTIONAL, TRANSACTIONAL_ID

KEYS, CHURNED = 5, 4
CODECS = ["none", "gzip", "lz4", "snappy", "zstd"]


def transact(producer: fl.Producer, note: Callable[..., object], name: str, records: int, *, commits: bool) -> None:
    """One transaction, noted before its first record and when its end is acknowledged."""
    note("transaction", name, records)
    producer.begin_transaction()
    for number in range(records):
        producer.send(TRANSACTIONAL, value=f"{name}/{number}".encode(), partition=number % 2)
    if commits:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    note("ended", name, commits)


class Workload:
    """Opens the directory and starts the threads; they stop when `stop` is set, or die with the process."""

    def __init__(self, directory: Path, run: int, rng: random.Random, note: Callable[..., None]) -> None:
        self.run, self.note, self.stop = run, note, threading.Event()
        cleaner = {"log.cleaner.enable": True, "log.cleaner.backoff.ms": 20} if rng.random() < 0.5 else {}
        self.broker = fl.Broker(directory, create=True, config=CONFIG | cleaner)
        there = self.broker.topics()
        for topic, (partitions, config) in TOPICS.items():
            if topic not in there:
                note("create", topic)
                self.broker.create_topic(topic, partitions, config=config)
                note("created", topic)
        parts: list[Callable[[random.Random], None]] = [self.transactions, self.compacted, self.topics, self.commits]
        parts += [lambda rng, producer=producer: self.sends(producer, rng) for producer in range(PRODUCERS)]
        seeds = [rng.randrange(1 << 30) for _ in parts]
        self.threads = [threading.Thread(target=self._guarded, args=(part, random.Random(seed)), daemon=True) for part, seed in zip(parts, seeds, strict=True)]
        for thread in self.threads:
            thread.start()

    def _guarded(self, part: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            part(rng)
        except BaseException as error:  # noqa: BLE001
            self.note("error", f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """Stops the threads and closes the broker."""
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.broker.close()

    def sends(self, number: int, rng: random.Random) -> None:
        """An idempotent producer: batches of any size, some under way while others are decided."""
        config = {"linger.ms": rng.choice([0, 2]), "batch.size": rng.choice([0, 200, 16384]), "compression.type": rng.choice(CODECS)}
        with fl.Producer(self.broker, config | {"enable.idempotence": True}) as producer:
            index = 0
            while not self.stop.is_set():
                value = f"{self.run}-{number}-{index}"

                def sent(metadata: fl.types.RecordMetadata | None, error: Exception | None, value: str = value) -> None:
                    if metadata is not None:
                        self.note("sent", value, metadata.partition, metadata.offset)
                    else:
                        self.note("error", f"{value}: {error}")

                producer.send(SENT, value=value.encode(), partition=index % PARTITIONS, callback=sent)
                if index % 8 == 7:
                    producer.flush()
                index += 1

    def transactions(self, rng: random.Random) -> None:
        """A transactional producer; three in ten are aborted."""
        with fl.Producer(self.broker, {"transactional.id": TRANSACTIONAL_ID}) as producer:
            producer.init_transactions()
            index = 0
            while not self.stop.is_set():
                name, records, commits = f"{self.run}.{index}", rng.randint(1, 5), rng.random() < 0.7
                transact(producer, self.note, name, records, commits=commits)
                index += 1

    def compacted(self, rng: random.Random) -> None:
        """New values of a few keys, and the cleaner over them."""
        with fl.Producer(self.broker, {"enable.idempotence": True}) as producer:
            index = 0
            while not self.stop.is_set():
                key, value = str(rng.randrange(KEYS)), f"{self.run}.{index}"
                self.note("keep", key, value)
                producer.send(COMPACTED, key=key.encode(), value=value.encode()).result(60)
                self.note("kept", key, value)
                index += 1
                if index % 15 == 0:
                    self.broker.clean_topic(COMPACTED, force=True)

    def topics(self, rng: random.Random) -> None:
        """Topics that are created, written to, and deleted."""
        index = 0
        while not self.stop.is_set():
            topic = f"churned-{rng.randrange(CHURNED)}"
            if topic in self.broker.topics():
                self.note("delete", topic)
                self.broker.delete_topic(topic)
                self.note("deleted", topic)
            else:
                self.note("create", topic)
                self.broker.create_topic(topic, rng.randint(1, 3))
                self.note("created", topic)
                with fl.Producer(self.broker) as producer:
                    producer.send(topic, value=f"{self.run}.{index}".encode(), partition=0).result(60)
                self.note("marked", topic, f"{self.run}.{index}")
            index += 1

    def commits(self, rng: random.Random) -> None:
        """A member of a group that commits where it has read to."""
        with fl.Consumer(self.broker, {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([(SENT, 0)])
            while not self.stop.is_set():
                consumer.poll(timeout_ms=rng.choice([0, 20]))
                offset = consumer.position((SENT, 0))
                self.note("commit", offset)
                consumer.commit({(SENT, 0): offset})
                self.note("committed", offset)
