"""What idle partitions cost a consumer: polls with 1,000 assigned partitions, 990 of them idle, against polls with 10.

`backlog`: polls that hand out what was fetched. `tail`: one record is appended, then polled, with a fetch in between; the CPU time
of the polling thread. Both consumers have one broker and take turns: a thread that was just woken needs twice the time of another, and
how it is woken depends on the core of the thread that wakes it. Run by run.py; alone: `python benches/python/idle_partitions.py`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import fletchlog as fl

ACTIVE = 10
ASSIGNED = 1000
RECORDS = 20_000
ROUNDS = 300
# a number of partitions is the name of the topic that has so many
TOPICS = {str(partitions): partitions for partitions in (ACTIVE, ASSIGNED)}


def cost(consumer: fl.Consumer) -> tuple[int, float]:
    """Records of a poll, and its microseconds."""
    began = time.thread_time_ns()
    records = len(consumer.poll(timeout_ms=1000))
    return records, (time.thread_time_ns() - began) / 1000


def backlog(topic: str, number: int, consumer: fl.Consumer, producer: fl.Producer) -> float | None:
    """Microseconds of a poll of 500 buffered records, `None` if it had others."""
    records, spent = cost(consumer)
    return spent if records == 500 else None


def tail(topic: str, number: int, consumer: fl.Consumer, producer: fl.Producer) -> float:
    """Microseconds until a record that was just appended is polled."""
    producer.send(topic, value=b"0123456789", partition=number % ACTIVE).result()
    records, spent = cost(consumer)
    while not records:
        records, more = cost(consumer)
        spent += more
    return spent


def medians(records: int, work: Callable[[str, int, fl.Consumer, fl.Producer], float | None]) -> tuple[float, float]:
    """Of `work` with few and with many partitions, ten of which hold so many records each at the start."""
    with ExitStack() as opened:
        broker = opened.enter_context(fl.Broker.in_memory())
        consumers: dict[str, fl.Consumer] = {}
        for topic, partitions in TOPICS.items():
            broker.create_topic(topic, partitions=partitions, config={"retention.ms": "-1"})
            with fl.Producer(broker, {"linger.ms": 1000}) as producer:
                for partition in range(ACTIVE):
                    for _ in range(records):
                        producer.send(topic, value=b"0123456789", partition=partition)
            consumers[topic] = opened.enter_context(fl.Consumer(broker, {"auto.offset.reset": "earliest"}))
            consumers[topic].assign([(topic, partition) for partition in range(partitions)])
            # What a consumer does once is done.
            for _ in range(3):
                consumers[topic].poll(timeout_ms=10)
        producer = opened.enter_context(fl.Producer(broker, {"linger.ms": 0}))
        costs: dict[str, list[float]] = {topic: [] for topic in TOPICS}
        for number in range(ROUNDS):
            for topic, consumer in consumers.items():
                spent = work(topic, number, consumer, producer)
                if spent is not None:
                    costs[topic].append(spent)
    few, many = (statistics.median(costs[topic]) for topic in TOPICS)
    return few, many


def measure() -> dict[str, float]:
    """Microseconds with few and many partitions, and how much more the many cost: the middle one of three runs."""
    found: dict[str, float] = {}
    for name, records, work in (("backlog", RECORDS, backlog), ("tail", 0, tail)):
        few, many = sorted((medians(records, work) for _ in range(3)), key=lambda run: run[1] / run[0])[1]
        found |= {f"{name}_{ACTIVE}_us": few, f"{name}_{ASSIGNED}_us": many, f"{name}_ratio": many / few}
    return found


if __name__ == "__main__":
    print(json.dumps({name: round(value, 2) for name, value in measure().items()}))
