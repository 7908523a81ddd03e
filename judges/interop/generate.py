"""Generated directories: every kind of record, batch and file that fletchlog can write, from a seed.

As a program (`python -m judges.interop.generate DIRECTORY SEED TOPICS`) it writes until it is killed or done, and prints one line of
JSON per acknowledged record.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fletchlog as fl

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000


# a record larger than a small segment, and what is left of its transaction
TOO_LARGE = (fl.errors.RecordBatchTooLargeError, fl.errors.TransactionAbortableError)


class Acked(NamedTuple):
    """A record and where its acknowledgement says it is."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def topic_config(rng: random.Random, *, compacted: bool) -> dict[str, Any]:
    """Small segments, sparse and dense indexes, both timestamp types, recompression by the broker."""
    config: dict[str, Any] = {}
    if rng.random() < 0.8:
        config["internal.segment.bytes"] = rng.choice([1_000, 4_000, 10_000, 50_000, 200_000])
    if rng.random() < 0.7:
        config["index.interval.bytes"] = rng.choice([0, 1, 100, 700, 4096, 20_000])
    if rng.random() < 0.15:
        config["segment.index.bytes"] = rng.choice([24, 48, 120])
    if rng.random() < 0.3:
        config["segment.ms"] = rng.choice([1_000, 60_000])
    if rng.random() < 0.35:
        config["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.4:
        config["compression.type"] = rng.choice(["uncompressed", *CODECS[1:]])
    if compacted or rng.random() < 0.25:
        config["cleanup.policy"] = rng.choice(["compact", "compact,delete"])
        config["delete.retention.ms"] = rng.choice([0, 86_400_000])
    return config


def producer_config(rng: random.Random, transactional_id: str | None = None) -> dict[str, Any]:
    """Any codec, any batch size, with and without idempotence or transactions, by the rules of three releases."""
    config = {
        "fletchlog.producer.version": rng.choice(["2.6", "3.9", "4.3"]),
        "compression.type": rng.choice(CODECS),
        "batch.size": rng.choice([1, 200, 1_000, 16_384, 100_000]),
        "linger.ms": rng.choice([0, 1, 5]),
        "enable.idempotence": rng.random() < 0.6,
        "acks": "all",
        "max.in.flight.requests.per.connection": rng.choice([1, 5]),
    }
    if transactional_id is not None:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000, "enable.idempotence": True}
    return config


def blob(rng: random.Random, sizes: list[int | None]) -> bytes | None:
    """Null, or bytes of one of the sizes: incompressible or all alike."""
    size = rng.choice(sizes)
    if size is None:
        return None
    return rng.randbytes(size) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * size


def headers(rng: random.Random) -> list[tuple[str, bytes | None]]:
    """Mostly none; else a few, with repeated, empty and non-ASCII names and null values."""
    if rng.random() < 0.7:
        return []
    return [(rng.choice(["", "h", "trace-id", "größe", "h"]), blob(rng, [None, 0, 1, 20, 200])) for _ in range(rng.randrange(1, 4))]


def timestamps(rng: random.Random) -> Callable[[], int | None]:
    """How a producer stamps: now, one constant, rising, jumping to and fro."""
    now = START_MS + rng.randrange(10**9)
    kind = rng.choice(["now", "constant", "rising", "jumping", "zero"])

    def stamp() -> int | None:
        nonlocal now
        if kind == "now":
            return None
        if kind == "zero":
            return 0
        if kind == "rising":
            now += rng.choice([0, 0, 1, 1, 70, 5_000])
        elif kind == "jumping":
            now += rng.randrange(-40_000, 50_000)
        return now

    return stamp


class Writer:
    """A producer that may be transactional: it opens a transaction when it needs one, and ends it when it feels like it."""

    def __init__(self, rng: random.Random, broker: fl.Broker, name: str) -> None:
        self._rng = rng
        self._transactional = rng.random() < 0.35
        self._open = False
        self.producer = fl.Producer(broker, producer_config(rng, name if self._transactional else None))
        if self._transactional:
            self.producer.init_transactions()

    def begin(self) -> None:
        if self._transactional and not self._open:
            self.producer.begin_transaction()
            self._open = True

    def end(self, *, failed: bool) -> None:
        """Commits, aborts, or goes on; a transaction of which a record failed can only be aborted."""
        how = 1.0 if failed else self._rng.random()
        if not self._open or how < 0.25:
            return
        if how < 0.65:
            self.producer.commit_transaction()
        else:
            self.producer.abort_transaction()
        self._open = False

    def close(self) -> None:
        """An open transaction stays open, as a killed producer leaves it: a close in peace would abort it."""
        self.producer.close(0 if self._open else None)


def send_some(rng: random.Random, writers: list[Writer], topic: str, partitions: int, compacted: bool) -> Iterator[list[Acked]]:
    """Sends rounds of records through the producers in turn; yields what was acknowledged."""
    sizes = rng.choice([[10], [None, 0, 1, 10, 100], [0, 50, 900], [None, 20, 3_000, 40_000]])
    keys = rng.choice([[None], [8], [None, 0, 1, 30]])
    stamps = [timestamps(rng) for _ in writers]
    for _ in range(rng.randrange(1, 8)):
        sent, failed = [], set()
        for writer in writers:
            writer.begin()
        for _ in range(rng.choice([1, 3, 20, 150, 400])):
            which = rng.randrange(len(writers))
            key = b"key-%d" % rng.randrange(30) if compacted else blob(rng, keys)
            record = (key, blob(rng, sizes), stamps[which](), headers(rng))
            partition = rng.randrange(partitions)
            try:
                future = writers[which].producer.send(topic, record[1], record[0], partition=partition, timestamp_ms=record[2], headers=record[3])
            except fl.errors.TransactionAbortableError:  # an earlier record was too large
                failed.add(which)
            else:
                sent.append((which, record, future))
        for writer in writers:
            writer.producer.flush()
        acked = []
        for which, (key, value, _, named), future in sent:
            if isinstance(future.exception(10), TOO_LARGE):
                failed.add(which)
                continue
            at = future.result(10)
            acked.append(Acked(topic, at.partition, at.offset, at.timestamp, key, value, named))
        yield acked
        for which, writer in enumerate(writers):
            writer.end(failed=which in failed)


def write(directory: Path, seed: int, topics: int, *, compacted: bool = False) -> Iterator[list[Acked]]:
    """Writes a directory; yields acknowledged records as they come. Reopens it between topics, one in four of them `compacted` if not all."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(fl.Broker(directory, create=True))
        for number in range(topics):
            config, partitions = topic_config(rng, compacted=compacted), rng.randrange(1, 4)
            topic = f"t{number}"
            broker.create_topic(topic, partitions=partitions, config=config)
            with contextlib.ExitStack() as closing:
                writers = [closing.enter_context(contextlib.closing(Writer(rng, broker, f"{topic}-{i}"))) for i in range(rng.randrange(1, 4))]
                yield from send_some(rng, writers, topic, partitions, "compact" in config.get("cleanup.policy", ""))
            if rng.random() < 0.2:
                broker.flush()
            if rng.random() < 0.2:
                broker.close()
                broker = stack.enter_context(fl.Broker(directory))


def clean_some(directory: Path, seed: int) -> set[str]:
    """Compacts most of the topics that may be compacted, some of them once more after new records; returns which."""
    rng = random.Random(f"{seed} clean")
    cleaned = set()
    with fl.Broker(directory, create=True) as broker:
        for topic in broker.topics(include_internal=True):
            described = broker.describe_topic(topic)
            if "compact" not in described.config.get("cleanup.policy", "") or rng.random() < 0.2:
                continue
            cleaned.add(topic)
            broker.clean_topic(topic, force=True)
            if rng.random() < 0.5 and not topic.startswith("__"):
                with contextlib.closing(Writer(rng, broker, f"{topic}-more")) as writer:
                    for _ in send_some(rng, [writer], topic, len(described.partitions), compacted=True):
                        pass
                broker.clean_topic(topic, force=True)
    return cleaned


def write_and_kill(directory: Path, seed: int, topics: int) -> list[Acked]:
    """Kills a writing process (signal 9) at a random acknowledgement; returns what had been acknowledged."""
    rng = random.Random(seed)
    python_path = os.pathsep.join([str(Path(fl.__file__).parents[1]), str(Path(__file__).parents[2])])
    command = [sys.executable, "-m", "judges.interop.generate", str(directory), str(seed), str(topics)]
    acked = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": python_path}) as writer:
        assert writer.stdout is not None
        for line, _ in zip(writer.stdout, range(rng.randrange(1, 300 * topics)), strict=False):
            record = Acked(*json.loads(line))
            bytes_of = lambda text: None if text is None else bytes.fromhex(text)  # noqa: E731
            headers = [(name, bytes_of(value)) for name, value in record.headers]
            acked.append(record._replace(key=bytes_of(record.key), value=bytes_of(record.value), headers=headers))
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode in (0, -signal.SIGKILL), "the writer ended by itself"
    return acked


def hexed(data: bytes | None) -> str | None:
    """For JSON."""
    return None if data is None else data.hex()


def main() -> None:
    """Writes and reports."""
    directory, seed, topics = sys.argv[1:]
    for acked in write(Path(directory), int(seed), int(topics)):
        for record in acked:
            named = [(name, hexed(value)) for name, value in record.headers]
            sys.stdout.write(json.dumps(record._replace(key=hexed(record.key), value=hexed(record.value), headers=named)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
