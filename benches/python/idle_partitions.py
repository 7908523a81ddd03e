"""What partitions without news cost a consumer: polls with 1,000 assigned partitions, 990 of them idle, against polls with 10.

`backlog`: polls that hand out what was fetched. `tail`: one record is appended, then polled, with a fetch in between; the CPU time
of the polling thread. Run by run.py; alone: `python benches/python/idle_partitions.py`.
"""

from __future__ import annotations

import json
import statistics
import time

import fletchlog as fl

ACTIVE = 10
ASSIGNED = 1000
RECORDS = 20_000
ROUNDS = 300


def filled(partitions: int, records: int) -> fl.Broker:
    """A topic whose first ten partitions hold so many records each."""
    broker = fl.Broker.in_memory()
    broker.create_topic("t", partitions=partitions, config={"retention.ms": "-1"})
    with fl.Producer(broker, {"linger.ms": 1000}) as producer:
        for partition in range(ACTIVE):
            for _ in range(records):
                producer.send("t", value=b"0123456789", partition=partition)
    return broker


def reader(broker: fl.Broker, partitions: int) -> fl.Consumer:
    """All partitions, and what a consumer does once is done."""
    consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest"})
    consumer.assign([("t", partition) for partition in range(partitions)])
    for _ in range(3):
        consumer.poll(timeout_ms=10)
    return consumer


def backlog(partitions: int) -> float:
    """Median microseconds of a poll of 500 buffered records."""
    with filled(partitions, RECORDS) as broker, reader(broker, partitions) as consumer:
        costs = []
        for _ in range(ROUNDS):
            began = time.thread_time_ns()
            got = len(consumer.poll(timeout_ms=1000))
            if got == 500:
                costs.append(time.thread_time_ns() - began)
    return statistics.median(costs) / 1000


def tail(partitions: int) -> float:
    """Median microseconds until a record that was just appended is polled."""
    with filled(partitions, 0) as broker, reader(broker, partitions) as consumer, fl.Producer(broker, {"linger.ms": 0}) as producer:
        costs = []
        for number in range(ROUNDS):
            producer.send("t", value=b"0123456789", partition=number % ACTIVE).result()
            began = time.thread_time_ns()
            while not len(consumer.poll(timeout_ms=1000)):
                pass
            costs.append(time.thread_time_ns() - began)
    return statistics.median(costs) / 1000


def measure() -> dict[str, float]:
    """Microseconds with few and many partitions, the best of three, and how much more the many cost."""
    found: dict[str, float] = {}
    for name, cost in (("backlog", backlog), ("tail", tail)):
        few, many = (min(cost(partitions) for _ in range(3)) for partitions in (ACTIVE, ASSIGNED))
        found |= {f"{name}_{ACTIVE}_us": few, f"{name}_{ASSIGNED}_us": many, f"{name}_ratio": many / few}
    return found


if __name__ == "__main__":
    print(json.dumps({name: round(value, 2) for name, value in measure().items()}))
