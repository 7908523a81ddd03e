"""What a record costs that Python sends: `send` with its future kept and `send_many`, against confluent-kafka's `produce`.

Ten-byte values, null keys, a topic of one partition, from the first call until everything is acknowledged. Ours goes to the broker in
this process and, as confluent-kafka does, through the listener of that broker; confluent-kafka also into the mock cluster that librdkafka
brings along, which keeps nothing on a disk. The rounds of all candidates take turns; the best of each counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import Producer

import fletchlog as fl
from report import report

VALUE = b"0123456789"
TOPIC = "t"


def rate(records: int, call: Callable[[int], object]) -> float:
    """Million records a second of one call."""
    start = time.perf_counter()
    call(records)
    return records / (time.perf_counter() - start) / 1e6


def futures(where: fl.Broker | str, linger: int, records: int) -> None:
    """`send`, each future kept and asked in the end."""
    with fl.Producer(where, {"linger.ms": linger}) as producer:
        send = producer.send
        kept = [send(TOPIC, VALUE) for _ in range(records)]
        producer.flush()
        if not all(future.done() for future in kept[:: max(1, records // 100)]) or kept[-1].result().offset < records - 1:
            raise SystemExit("flush has returned before every record was acknowledged")


def many(where: fl.Broker | str, linger: int, records: int) -> None:
    """`send_many` of a generator."""
    with fl.Producer(where, {"linger.ms": linger}) as producer:
        producer.send_many(TOPIC, (VALUE for _ in range(records)))
        producer.flush()


def produce(servers: str | None, records: int, *, reports: bool, linger: int = 5) -> None:
    """`produce` of confluent-kafka; with `reports` Python is called for each record, without only librdkafka knows."""
    config: dict[str, object] = {"linger.ms": linger, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True, "log_level": 3}
    producer = Producer(config | ({"bootstrap.servers": servers} if servers else {"test.mock.num.brokers": 1, "bootstrap.servers": "ignored"}))
    delivered = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered
        delivered += error is None

    keywords: dict[str, object] = {"on_delivery": on_delivery} if reports else {}
    call = producer.produce
    for _ in range(records):
        while True:
            try:
                call(TOPIC, VALUE, partition=0, **keywords)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(60)
    if left or (reports and delivered < records):
        raise SystemExit(f"confluent-kafka has {left} records left and reported {delivered} of {records}")


def measure(records: int = 500_000, rounds: int = 5) -> dict[str, float]:
    """The best rate of every candidate, in million records a second."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory, fl.Broker(f"{directory}/log", create=True) as broker, broker.listen() as listener:
            broker.create_topic(TOPIC, partitions=1)
            remote = f"kafka://{listener.bootstrap}"
            candidates: dict[str, Callable[[int], None]] = {
                "send, linger 0": lambda n, b=broker: futures(b, 0, n),
                "send": lambda n, b=broker: futures(b, 5, n),
                "send_many, linger 0": lambda n, b=broker: many(b, 0, n),
                "send_many": lambda n, b=broker: many(b, 5, n),
                "send, listener": lambda n, r=remote: futures(r, 5, n),
                "send_many, listener": lambda n, r=remote: many(r, 5, n),
                "produce, listener": lambda n, s=listener.bootstrap: produce(s, n, reports=False),
                "produce, listener, reports": lambda n, s=listener.bootstrap: produce(s, n, reports=True),
                "produce, mock": lambda n: produce(None, n, reports=False),
                "produce, mock, reports": lambda n: produce(None, n, reports=True),
                "produce, mock, linger 0": lambda n: produce(None, n, reports=False, linger=0),
            }
            for name, call in candidates.items():
                best[name] = max(best.get(name, 0.0), rate(records, call))
    return best


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target): ours over the fastest of confluent-kafka's with the same linger.ms."""
    lingering = max(value for name, value in rates.items() if name.startswith("produce") and not name.endswith("linger 0"))
    return [
        ("send / produce", rates["send"] / lingering, 1.0),
        ("send_many / produce", rates["send_many"] / lingering, 2.0),
        ("send / produce, linger 0", rates["send, linger 0"] / rates["produce, mock, linger 0"], 1.0),
    ]


def main() -> None:
    """Prints the rates and ratios, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rates = measure(arguments.records, arguments.rounds)
    print(f"{arguments.records:,} records of 10 bytes, best of {arguments.rounds}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    report(rates, ratios(rates))


if __name__ == "__main__":
    main()
