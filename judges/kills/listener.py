"""Kills `fletchlog serve` under writers and a reader of other clients, starts it again on its directory, and holds what is there
against what was acknowledged.

An idempotent producer of librdkafka and one of kafka-python that is not write without pause, a member of a group of librdkafka
reads. The process dies at random times. Afterwards everything that was acknowledged is there; of the idempotent producer once and
in order; and the reader has seen that, too, in order.

`python -m judges.kills.listener` prints one line for each violation, then `listener-kills: N, V violations (..)`. LISTENER_KILLS (default
500), TIME_LIMIT (seconds) and SEED are taken from the environment; PLANTED=yes cuts records off a log at every kill.
"""

# ruff: noqa: T201

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer
from settings import count, seconds

import fletchlog as fl
from judges.kills.difference import difference
from judges.kills.served import PARTITIONS, TOPIC, Served

NAME = "listener-kills"
# How long the writers and the reader may need to catch up at the end.
LAST_SECONDS = 20


class Clients:
    """Two writers and a reader, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.stop = threading.Event()
        self.acknowledged: dict[str, list[int]] = {"idempotent": [], "plain": []}
        self.read: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.sent = self.assigned = 0
        self.failures: list[str] = []
        self.written = threading.Event()
        self.threads = [threading.Thread(target=self.guard, args=(act,), daemon=True) for act in (self.write_idempotent, self.write_plain, self.read_all)]
        for thread in self.threads:
            thread.start()

    def guard(self, act: Callable[[], None]) -> None:
        """A thread that fails is a violation."""
        try:
            act()
        except Exception as error:  # noqa: BLE001
            self.failures.append(f"{getattr(act, '__name__', act)} failed: {error!r}")
            self.written.set()

    def write_idempotent(self) -> None:
        """librdkafka: number n to partition n % 2."""

        def delivered(error: object, message: Any) -> None:
            if error:
                self.failures.append(f"an idempotent record was given up: {error}")
            else:
                self.acknowledged["idempotent"].append(int(message.value().split()[1]))

        config = {
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
        producer = Producer({"bootstrap.servers": self.bootstrap, "retry.backoff.ms": 20, "queue.buffering.max.messages": 2000, **config})
        while not self.stop.is_set():
            try:
                producer.produce(TOPIC, f"idempotent {self.sent}".encode(), partition=self.sent % PARTITIONS, on_delivery=delivered)
                self.sent += 1
            except BufferError:
                producer.poll(0.05)
            producer.poll(0.0005)
        if producer.flush(0 if self.failures else LAST_SECONDS):
            self.failures.append("the idempotent producer did not get rid of its records")
        self.written.set()

    def write_plain(self) -> None:
        """kafka-python, which may repeat records."""
        config = {"acks": "all", "enable_idempotence": False, "retries": 1000, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, retry_backoff_ms=20, **config)
        number = 0
        while not self.stop.is_set():
            future = producer.send(TOPIC, f"plain {number}".encode(), partition=number % PARTITIONS)
            future.add_callback(lambda _, n=number: self.acknowledged["plain"].append(n))
            number += 1
            time.sleep(0.002)
        producer.close(timeout=LAST_SECONDS)

    def read_all(self) -> None:
        """A member of a group, from the beginning."""

        def assigned(consumer: Consumer, partitions: list[Any]) -> None:
            self.assigned += 1
            consumer.assign(partitions)

        config = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 30_000, "log_level": 0}
        reader = Consumer({"bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, **config})
        reader.subscribe([TOPIC], on_assign=assigned)
        deadline = float("inf")
        while time.monotonic() < deadline:
            if self.written.is_set():
                deadline = min(deadline, time.monotonic() + LAST_SECONDS)
                if self.failures or sum(map(len, self.read)) >= self.sent:
                    break
            message: Any = reader.poll(0.2)
            if message is not None and message.error() is None and message.value().startswith(b"idempotent"):
                self.read[message.partition()].append(int(message.value().split()[1]))
        reader.close()

    def wait_for_more(self) -> None:
        """Until both writers are at it again, for at most 10 seconds."""
        before, end = {kind: len(numbers) for kind, numbers in self.acknowledged.items()}, time.monotonic() + 10
        while time.monotonic() < end and any(len(self.acknowledged[kind]) == had for kind, had in before.items()):
            time.sleep(0.001)

    def finish(self) -> None:
        """Sends what is under way, reads it, and ends the threads."""
        self.stop.set()
        for thread in self.threads:
            thread.join()


def violations(directory: Path, clients: Clients) -> list[str]:
    """What the directory and the reader lack, or have too often, or in another order."""
    wrong = list(clients.failures)
    logs: list[dict[str, list[int]]] = []
    with fl.Broker(directory, read_only=True) as broker:
        for partition in range(PARTITIONS):
            log: dict[str, list[int]] = {"idempotent": [], "plain": []}
            for value in broker.scan(TOPIC, partition=partition).to_pyarrow()["value"].to_pylist():
                kind, number = value.split()
                log[kind.decode()].append(int(number))
            logs.append(log)
    for partition, log in enumerate(logs):
        expected = list(range(partition, clients.sent, PARTITIONS))
        if log["idempotent"] != expected:
            wrong.append(f"partition {partition}: {difference(log['idempotent'], expected)}")
        if clients.read[partition] != expected:
            wrong.append(f"the reader of partition {partition}: {difference(clients.read[partition], expected)}")
    lost = sorted(set(clients.acknowledged["plain"]) - {n for log in logs for n in log["plain"]})
    if lost:
        wrong.append(f"{len(lost)} acknowledged records of the plain producer are lost: {lost[:5]}")
    return wrong


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "LISTENER_KILLS", 500), seconds(NAME, 3600), count(NAME, "SEED", 0)
    rng, deadline = random.Random(seed), time.monotonic() + limit
    done = 0
    with tempfile.TemporaryDirectory(prefix="fletchlog-kills-") as root:
        with fl.Broker(root, create=True) as broker:
            broker.create_topic(TOPIC, partitions=PARTITIONS)
        served = Served(Path(root))
        clients = Clients(served.bootstrap)
        while done < wanted and time.monotonic() < deadline and not clients.failures:
            clients.wait_for_more()
            time.sleep(10 ** rng.uniform(-3, 0))
            served.kill()
            done += 1
        clients.finish()
        served.end()
        wrong = violations(Path(root), clients)
    for line in wrong[:10]:
        print(f"{NAME}: after {done} kills of seed {seed}: {line}", flush=True)
    counts = f"{sum(map(len, clients.acknowledged.values()))} acknowledged records, {clients.assigned} assignments, seed {seed}"
    print(f"{NAME}: {done}, {len(wrong)} violations ({counts})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
