"""Seed 000: three topics with 1,000,000 ten-byte messages each, read with the default settings.

"around 58000 messages read from one topic, before roughly the same amount was read from the next" is exactly 58,240:
64 whole batches of 910 records fit into `max.partition.fetch.bytes` (spec 7.10, recorded as poll-traces 225 and 226).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import fletchlog as fl

TOPICS = ["TopicA", "TopicB", "TopicC"]
RECORDS = 1_000_000
RUN = 58_240


@pytest.fixture(scope="module")
def filled() -> Iterator[fl.Broker]:
    """Three full topics, produced through the public producer."""
    values = pa.array([b"0123456789"] * 100_000, pa.binary())
    times = pa.array([1_700_000_000_000] * 100_000, pa.timestamp("ms", "UTC"))
    table = pa.table({"value": values, "timestamp": times})
    with fl.Broker.in_memory() as broker:
        for topic in TOPICS:
            broker.create_topic(topic, partitions=1)
            with fl.Producer(broker, {"linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as producer:
                for _ in range(RECORDS // len(table)):
                    producer.send_arrow(topic, table)
        yield broker


def drain(consumer: fl.Consumer) -> tuple[list[tuple[str, int]], int]:
    """Consecutive records of one topic merged into runs, and the number of polls."""
    runs: list[tuple[str, int]] = []
    total = polls = 0
    while total < len(TOPICS) * RECORDS:
        records = consumer.poll(timeout_ms=5000)
        polls += 1
        total += len(records)
        for run in records.runs():
            if runs and runs[-1][0] == run.topic:
                runs[-1] = (run.topic, runs[-1][1] + run.count)
            else:
                runs.append((run.topic, run.count))
    return runs, polls


def expected(order: str) -> list[tuple[str, int]]:
    """17 rounds of full fetches, then the rest of each topic."""
    names = [f"Topic{letter}" for letter in order]
    return [(name, RUN) for _ in range(17) for name in names] + [(name, RECORDS - 17 * RUN) for name in names]


@pytest.mark.parametrize(("version", "order", "polls"), [("2.6", "CBA", 6010), ("3.9", "CBA", 6010), ("4.3", "CBA", 6010)])
def test_an_assigned_consumer_reads_runs_of_exactly_58240(filled: fl.Broker, version: str, order: str, polls: int) -> None:
    with fl.Consumer(filled, {"auto.offset.reset": "earliest", "fletchlog.consumer.version": version}) as consumer:
        consumer.assign([fl.TopicPartition(topic, 0) for topic in TOPICS])
        assert drain(consumer) == (expected(order), polls)


@pytest.mark.parametrize(("version", "order", "polls"), [("2.6", "ACB", 6000), ("3.9", "CBA", 6000), ("4.3", "ABC", 6010)])
def test_a_subscribed_consumer_reads_runs_of_exactly_58240(filled: fl.Broker, version: str, order: str, polls: int) -> None:
    config = {
        "group.id": f"g{version}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fletchlog.consumer.version": version,
    }
    with fl.Consumer(filled, config) as consumer:
        consumer.subscribe(TOPICS)
        consumer.poll(timeout_ms=0)  # joins
        assert drain(consumer)[0] == expected(order)


@pytest.mark.parametrize("max_poll_records", [499, 5000])
def test_the_run_length_does_not_depend_on_max_poll_records(filled: fl.Broker, max_poll_records: int) -> None:
    with fl.Consumer(filled, {"auto.offset.reset": "earliest", "max.poll.records": max_poll_records}) as consumer:
        consumer.assign([fl.TopicPartition(topic, 0) for topic in TOPICS])
        assert drain(consumer)[0] == expected("CBA")


def test_kip_387_takes_turns_after_every_poll(filled: fl.Broker) -> None:
    with fl.Consumer(filled, {"auto.offset.reset": "earliest", "fletchlog.fetch.order": "kip-387"}) as consumer:
        consumer.assign([fl.TopicPartition(topic, 0) for topic in TOPICS])
        counts = [[(run.topic, run.count) for run in consumer.poll(timeout_ms=5000).runs()] for _ in range(9)]
    assert counts == [[(f"Topic{letter}", 500)] for letter in "CBACBACBA"]
