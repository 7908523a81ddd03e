"""Records as both sides print them, in the same words."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import fletchlog as fl

from . import kafka

# offset, timestamp, timestamp type, key, value, headers
Row = tuple[Any, ...]


def text(data: bytes | None) -> str:
    """As `Text.of` in Java."""
    if data is None:
        return "-"
    return f"x{data.hex()}" if len(data) <= 256 else f"#{len(data)}:{hashlib.sha256(data).hexdigest()}"


def ours(directory: Path, isolation: str = "read_uncommitted") -> dict[tuple[str, int], list[Row]]:
    """What fletchlog reads, in the words of `ReadAll`."""
    rows = defaultdict(list)
    with fl.Broker(directory, read_only=True) as broker:
        for topic in broker.topics():
            table = broker.scan(topic, include_headers=True, isolation_level=isolation).to_pyarrow()
            table = table.set_column(table.column_names.index("timestamp"), "timestamp", table["timestamp"].cast("int64"))
            for row in table.to_pylist():
                named = ",".join(f"{text(h['key'].encode())}={text(h['value'])}" for h in row["headers"] or []) or "none"
                place = (row["offset"], row["timestamp"] // 1000, row["timestampType"])
                rows[topic, row["partition"]].append((*place, text(row["key"]), text(row["value"]), named))
    return dict(rows)


def theirs(address: str, client: str, isolation: str = "read_uncommitted") -> dict[tuple[str, int], list[Row]]:
    """What a Java consumer reads."""
    return read_all(address, client, isolation)[0]


def read_all(address: str, client: str, isolation: str) -> tuple[dict[tuple[str, int], list[Row]], dict[tuple[str, int], tuple[int, int]]]:
    """What a Java consumer reads, and between which offsets."""
    arguments = [f"bootstrap.servers={address}", f"isolation.level={isolation}", "max.poll.records=5000"]
    rows, ranges = defaultdict(list), {}
    for line in kafka.run("clients", [("kafka-clients", client)], "ReadAll", *arguments).splitlines():
        kind, topic, partition, *rest = line.split(" ")
        if kind == "record":
            rows[topic, int(partition)].append((int(rest[0]), int(rest[1]), int(rest[2]), *rest[3:]))
        else:
            ranges[topic, int(partition)] = (int(rest[0]), int(rest[1]))
    return dict(rows), ranges
