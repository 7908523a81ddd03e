"""A process that does to a directory everything that changes its files, until it is killed: `python -m judges.interop.wreck DIRECTORY SEED NAME`.

`NAME` begins the names of its topics. Only the name "main" uses groups and transactions: several directories can then be the log
directories of one broker, which has Kafka's own topics once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fletchlog as fl

from .generate import CODECS, blob, headers

MAIN = "main"
GROUPS = ["wreck-0", "wreck-1"]
PARTITIONS = 2
# small enough for segments to be closed and cleaned all the time
SMALL = {"index.interval.bytes": 100, "internal.segment.bytes": 3_000}
TOPICS: list[dict[str, Any]] = [
    SMALL,
    {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "delete.retention.ms": 0},
    {**SMALL, "message.timestamp.type": "LogAppendTime", "compression.type": "lz4", "retention.bytes": 20_000},
    {"cleanup.policy": "compact,delete", "internal.segment.bytes": 20_000},
]
BROKER = {
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 1,
    "offsets.topic.segment.bytes": 1_000,
    "transaction.state.log.segment.bytes": 1_000,
}


class Wreck:
    """One directory."""

    def __init__(self, directory: Path, rng: random.Random, name: str) -> None:
        self.rng = rng
        self.main = name == MAIN
        self.directory = directory
        self.topics = [f"{name}-{number}" for number in range(len(TOPICS))]
        self.open_broker()
        for topic, config in zip(self.topics, TOPICS, strict=True):
            self.broker.create_topic(topic, partitions=PARTITIONS, config=config)

    def open_broker(self) -> None:
        rng = self.rng
        self.broker = fl.Broker(self.directory, config=BROKER, create=True)
        config = {"linger.ms": rng.choice([0, 2]), "batch.size": rng.choice([1, 300, 2_000]), "enable.idempotence": True}
        self.producers = [fl.Producer(self.broker, {**config, "compression.type": rng.choice(CODECS)}) for _ in range(2)]
        self.transactional = None
        if self.main:
            self.transactional = fl.Producer(self.broker, {**config, "transactional.id": f"wreck-{rng.randrange(3)}", "transaction.timeout.ms": 900_000})
            self.transactional.init_transactions()

    def close_broker(self) -> None:
        for producer in [*self.producers, *([self.transactional] if self.transactional else [])]:
            producer.close()
        self.broker.close()

    def place(self) -> tuple[str, int]:
        return self.rng.choice(self.topics), self.rng.randrange(PARTITIONS)

    def send(self, producer: fl.Producer) -> None:
        topic, partition = self.place()
        for _ in range(self.rng.choice([1, 10, 60])):
            key = b"key-%d" % self.rng.randrange(20)
            producer.send(topic, blob(self.rng, [None, 1, 30, 300]), key, partition=partition, headers=headers(self.rng))
        if self.rng.random() < 0.5:
            producer.flush()

    def transaction(self) -> None:
        producer = self.transactional
        assert producer is not None
        producer.begin_transaction()
        for _ in range(self.rng.randrange(1, 4)):
            self.send(producer)
        with fl.Consumer(self.broker, {"group.id": self.rng.choice(GROUPS), "enable.auto.commit": False}) as consumer:
            group = consumer.group_metadata()
            assert group is not None
            producer.send_offsets_to_transaction({self.place(): self.rng.randrange(10**6)}, group)
        if self.rng.random() < 0.6:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def commit(self) -> None:
        with fl.Consumer(self.broker, {"group.id": self.rng.choice(GROUPS), "enable.auto.commit": False}) as consumer:
            for _ in range(self.rng.randrange(1, 10)):
                consumer.commit({self.place(): self.rng.randrange(10**6)})

    def step(self) -> None:
        """One deed."""
        kind = self.rng.random()
        if kind < 0.6:
            self.send(self.rng.choice(self.producers))
        elif kind < 0.75:
            if self.main:
                self.rng.choice([self.transaction, self.commit])()
        elif kind < 0.85:
            self.broker.clean_topic(self.topics[self.rng.choice([1, 3])], force=True)
        elif kind < 0.9:
            topic, partition = self.topics[0], self.rng.randrange(PARTITIONS)
            described = self.broker.describe_topic(topic).partitions[partition]
            self.broker.delete_records(topic, partition, self.rng.randrange(described.log_start_offset, described.high_watermark + 1))
        elif kind < 0.95:
            self.broker.run_retention()
        elif kind < 0.98:
            self.broker.flush()
        else:
            self.close_broker()
            self.open_broker()


def kill_one(directory: Path, seed: str, name: str) -> None:
    """Starts a process and kills it (signal 9) at a random moment of its first seconds."""
    rng = random.Random(seed)
    python_path = os.pathsep.join([str(Path(fl.__file__).parents[1]), str(Path(__file__).parents[2])])
    command = [sys.executable, "-m", "judges.interop.wreck", str(directory), seed, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": python_path}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(rng.uniform(0.1, 3))
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the writer ended by itself"


def main() -> None:
    directory, seed, name = sys.argv[1:]
    wreck = Wreck(Path(directory), random.Random(seed), name)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    while True:
        wreck.step()


if __name__ == "__main__":
    main()
