"""Part 1: the same flights through three producers while acknowledgements are lost and requests refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from demo.flights import CHUNK, SEQUENCE

if TYPE_CHECKING:
    from rich.progress import Progress

    from demo.flights import Flights
    from demo.report import Report

PARTITIONS = 6
NODES = 3
# how many requests are appended without an acknowledgement, or refused: each half
FAULTS = 0.04


@dataclass(frozen=True)
class Way:
    """One way to configure a producer, and what it must lead to."""

    topic: str
    label: str
    config: dict[str, Any]
    duplicates: bool
    inversions: bool


WAYS = (
    Way("flights-idempotent", "idempotent", {"enable.idempotence": True}, duplicates=False, inversions=False),
    Way("flights-regular", "regular, 5 in flight", {"max.in.flight.requests.per.connection": 5}, duplicates=True, inversions=True),
    Way("flights-muted", "regular, 1 in flight", {"max.in.flight.requests.per.connection": 1}, duplicates=True, inversions=False),
)
TOPIC = {
    # the flights are of 2013 and the demo must find them whenever it runs: no retention; a year fits into few segments
    "retention.ms": "-1",
    "segment.ms": str(400 * 86_400_000),
    # Kafka accepts any first sequence number of a producer that is new to a partition. If the very first request is refused
    # and the second one arrives, the first can never be delivered. This closes the gap for every seed.
    "fletchlog.strict.first.sequence": "true",
}
# Both back-offs only cost time here: nothing recovers meanwhile.
COMMON: dict[str, Any] = {"acks": "all", "linger.ms": 5, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 1}


def produce(broker: Any, flights: Flights, report: Report, progress: Progress, seed: int) -> None:
    """Sends everything three times, then reads each topic back and compares it with the sending order."""
    import fletchlog as fl

    report.heading("1. Produced three times, while acknowledgements were lost and requests refused")
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        broker.create_topic(way.topic, partitions=PARTITIONS, config=TOPIC)
        faults = fl.testing.FaultPlan()
        faults.random(seed=seed, rate=FAULTS, api="Produce", kinds=["lose_response", "error"])
        task = progress.add_task(f"producing: {way.label}", total=flights.count)
        with fl.Producer(broker, COMMON | way.config, faults=faults) as producer:
            for start in range(0, flights.count, CHUNK):
                # a chunk is complete before the first request leaves: the run depends on the seed alone, not on timing
                with faults.collect_sends():
                    producer.send_arrow(way.topic, flights.records.slice(start, CHUNK))
                producer.flush()
                progress.update(task, completed=min(start + CHUNK, flights.count))
        requests = faults.requests(api="Produce")
        rows.append({"producer": way.label, "sent": flights.count, **_compare(broker, way.topic, flights.count), **_count(requests)})
    report.data["produce"] = {"faults": FAULTS, "seed": seed, "topics": dict(zip((w.topic for w in WAYS), rows, strict=True))}
    report.rows(rows)
    report.say("duplicates: records that are in the log again. inversions: records that came after one that was sent later (first copies only, per partition).")
    for way, row in zip(WAYS, rows, strict=True):
        report.check(f"{way.label}: flights missing from the log", row["missing"], 0)
        report.check(f"{way.label}: records in the log", row["in_log"], flights.count + row["duplicates"])
        report.check_that(f"{way.label}: duplicates {'occur' if way.duplicates else 'do not occur'}", (row["duplicates"] > 0) == way.duplicates)
        report.check_that(f"{way.label}: inversions {'occur' if way.inversions else 'do not occur'}", (row["inversions"] > 0) == way.inversions)
        report.check_that(f"{way.label}: faults were injected", row["lost_acks"] > 0 and row["refusals"] > 0)


def sequences(broker: Any, topic: str) -> dict[int, Any]:
    """Place in the sending order of every record, per partition in offset order (numpy)."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[int, Any] = {}
    for description in broker.describe_topic(topic).partitions:
        pieces = []
        for batch in broker.scan(topic, partition=description.partition, include_headers=True):
            headers = batch.column("headers").flatten()
            if not pc.all(pc.equal(headers.field("key"), SEQUENCE)).as_py():
                raise ValueError(f"{topic}: a record has another header than {SEQUENCE}")
            pieces.append(headers.field("value").cast(pa.string()).cast(pa.int64()).to_numpy())
        found[description.partition] = np.concatenate(pieces) if pieces else np.array([], np.int64)
    return found


def _compare(broker: Any, topic: str, sent: int) -> dict[str, int]:
    import numpy as np

    in_log = distinct = inversions = 0
    for order in sequences(broker, topic).values():
        _, first = np.unique(order, return_index=True)
        kept = order[np.sort(first)]
        in_log += len(order)
        distinct += len(kept)
        highest = np.maximum.accumulate(kept)
        inversions += int((kept < highest).sum())
    return {"in_log": in_log, "missing": sent - distinct, "duplicates": in_log - distinct, "inversions": inversions}


def _count(requests: Any) -> dict[str, int]:
    return {
        "requests": len(requests),
        "lost_acks": sum(1 for request in requests if request.outcome == "response lost"),
        "refusals": sum(1 for request in requests if request.fault and request.errors),
    }
