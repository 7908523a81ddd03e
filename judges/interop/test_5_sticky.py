"""Part 5, without keys: when a real KafkaProducer goes on to another partition, and how it chooses.

The choice is random in Java and here. When to leave a partition is not: it follows from the sizes of the records.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

import fletchlog as fl

from . import kafka
from .conftest import CASES, SEED
from .generate import blob
from .kraft import Kraft, format_directory
from .test_5_producer import CLIENTS, PART, STAMP, Record, plain

# so many that a producer seldom returns to one
PARTITIONS = 200
RUNS = max(2, CASES // 20)
# of the same records: a choice that hits the same partition again, or one with an open batch, hides a change
REPEATS = 4
CHOICES, FEW = 2_000, 5
# records that a Java producer sends first
ASIDE = 4


class Run(NamedTuple):
    """What one producer sends to one topic."""

    topic: str
    config: dict[str, str]
    records: list[Record]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kraft]:
    scratch = tmp_path_factory.mktemp("sticky")
    with Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch) as running:
        yield running


def java(client: str, broker: Kraft, partitions: int, runs: list[Run]) -> list[list[int]]:
    """The partition of each record, per run; every run by a producer of its own.

    The broker stands still meanwhile, and the one request that the producer may have on its way is of another topic: a sender that
    drains one batch of a node drains every open one of that node with it, at a moment of its own.
    """
    aside = f"{runs[0].topic}-aside"
    lines = [f"topic {aside} 1", *(f"topic {topic} {partitions}" for topic in dict.fromkeys(of.topic for of in runs))]
    for of in runs:
        lines.append("producer p " + " ".join(f"{key}={value}" for key, value in of.config.items()))
        lines += [f"send p {of.topic} 0 {STAMP} - x", f"send p {aside} 0 {STAMP} - x", "flush p", f"signal STOP {broker.pid}"]
        # two, for a batch is full once there is another one
        lines += [f"send p {aside} 0 {STAMP} - {plain(bytes(50_000))}"] * 2 + ["inflight p"]
        lines += [f"send p {of.topic} -1 {stamp} {plain(key)} {plain(value)}" for key, value, stamp in of.records]
        lines += [f"signal CONT {broker.pid}", "flush p", "close p"]
    try:
        printed = kafka.run("clients", [("kafka-clients", client)], "Write", broker.address, stdin="\n".join(lines) + "\n").splitlines()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    places = iter([int(line.split(" ")[1]) for line in printed])
    return [[next(places) for _ in range(ASIDE + len(of.records))][ASIDE:] for of in runs]


def ours(client: str, partitions: int, runs: list[Run]) -> list[list[int]]:
    """The same of fletchlog."""
    places = []
    with fl.Broker.in_memory() as own:
        for topic in dict.fromkeys(of.topic for of in runs):
            own.create_topic(topic, partitions=partitions)
        for of in runs:
            faults = fl.testing.FaultPlan()
            with fl.Producer(own, {**of.config, "fletchlog.producer.version": client}, faults=faults) as producer:
                with faults.collect_sends():
                    futures = [producer.send(of.topic, value=value, key=key, timestamp_ms=stamp) for key, value, stamp in of.records]
                producer.flush()
                places.append([future.result(10).partition for future in futures])
    return places


def generate(rng: random.Random, client: str) -> Run:
    """Records around and above the batch size; keys where they are not looked at."""
    size = rng.choice([200, 500, 1_000, 4_000])
    config = {
        "batch.size": str(size),
        "linger.ms": "600000",
        "delivery.timeout.ms": "700000",
        "compression.type": "none",
        "max.in.flight.requests.per.connection": "1",
    }
    keys: list[int | None] = [None]
    if client != "2.6.3":
        config["partitioner.adaptive.partitioning.enable"] = rng.choice(["true", "false"])
        if rng.random() < 0.4:
            config["partitioner.ignore.keys"] = "true"
            keys = [None, 0, 4, 8]
    sizes = rng.choice([[size // 20], [size // 4, size // 3, 0], [None, size // 2, size], [size // 10, 2 * size], [10, size // 7, 3 * size]])
    return Run(f"sticky-{client}", config, [(blob(rng, keys), blob(rng, sizes), STAMP) for _ in range(rng.randrange(60, 200))])


def changes(places: list[int]) -> list[int]:
    """Numbers of the records at which another partition begins, up to the first return to one, whose end depends on what is open there."""
    found, visited = [], {places[0]}
    for number in range(1, len(places)):
        if places[number] != places[number - 1]:
            found.append(number)
            if places[number] in visited:
                break
            visited.add(places[number])
    return found


def common(repeats: list[list[int]]) -> list[int]:
    """What two of the repeats at least agree on: where one of them shows no change, others do."""
    found: list[int] = []
    while next_ones := [of[len(found)] for of in repeats if of[: len(found)] == found and len(of) > len(found)]:
        if next_ones.count(min(next_ones)) < 2:
            break
        found.append(min(next_ones))
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_records_without_keys_leave_a_partition_when_javas_do(client: str, broker: Kraft, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} sticky {client}")
    runs = [generate(rng, client) for _ in range(RUNS)]
    repeated = [of for of in runs for _ in range(REPEATS)]
    sides = []
    for places in (ours(client, PARTITIONS, repeated), java(client, broker, PARTITIONS, repeated)):
        found = [changes(of) for of in places]
        sides.append([common(found[i : i + REPEATS]) for i in range(0, len(found), REPEATS)])
    for of, own, other in zip(runs, *sides, strict=True):
        both = min(len(own), len(other))
        assert own[:both] == other[:both], (of.config, own, other)
        count(PART, changes_of_the_sticky_partition=both)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_next_partition_is_chosen_as_java_chooses(client: str, broker: Kraft, count: Callable[..., None]) -> None:
    """Evenly; up to 3.2 never the same one again."""
    config = {"batch.size": "100", "linger.ms": "0", "max.in.flight.requests.per.connection": "1"}
    if client != "2.6.3":
        config["partitioner.adaptive.partitioning.enable"] = "false"
    run = Run(f"choices-{client}", config, [(None, bytes(300), STAMP)] * CHOICES)  # each record is a batch, and more than two
    for places in (*ours(client, FEW, [run]), *java(client, broker, FEW, [run])):
        again = sum(one == other for one, other in pairwise(places))
        if client == "2.6.3":
            assert again == 0
        else:
            assert near(again, 1 / FEW), again
        assert all(near(number, 1 / FEW) for number in Counter(places).values()), Counter(places)
        assert len(set(places)) == FEW
        count(PART, choices_of_a_partition=len(places))


def near(number: int, probability: float) -> bool:
    """Within six standard deviations."""
    return abs(number - CHOICES * probability) < 6 * (CHOICES * probability * (1 - probability)) ** 0.5
