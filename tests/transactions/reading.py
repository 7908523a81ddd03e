"""What readers of either isolation see."""

from __future__ import annotations

import fletchlog as fl


def values(broker: fl.Broker, isolation: str = "read_committed", topic: str = "t") -> list[list[bytes]]:
    """Values per partition, from a consumer and from a scan, which have to agree."""
    partitions = len(broker.describe_topic(topic).partitions)
    consumed: list[list[bytes]] = [[] for _ in range(partitions)]
    with fl.Consumer(broker, {"isolation.level": isolation, "fetch.max.wait.ms": 0}) as consumer:
        consumer.assign([fl.TopicPartition(topic, p) for p in range(partitions)])
        consumer.seek_to_beginning()
        idle = 0
        while idle < 10:
            records = list(consumer.poll(timeout_ms=0))
            idle = 0 if records else idle + 1
            for record in records:
                consumed[record.partition].append(record.value or b"")
    scanned: list[list[bytes]] = [[] for _ in range(partitions)]
    for row in broker.scan(topic, isolation_level=isolation).to_pyarrow().to_pylist():
        scanned[row["partition"]].append(row["value"])
    assert consumed == scanned
    return consumed
