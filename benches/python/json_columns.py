"""JSON values to columns and back, on one core: `serde.Json` with a type against pyarrow's JSON reader on the same values as lines.

Five flat fields, and nested records with arrays. Also records of a topic: a consumer and a scan whose values become columns against decoding alone. In
processor time, so that a busy machine changes little.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

import fletchlog as fl
from fletchlog import serde
from report import best_rates, run

LINE = pa.struct({"sku": pa.string(), "count": pa.int32(), "price": pa.float64()})
SCHEMAS = {
    "flat": pa.schema({"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "paid": pa.bool_(), "count": pa.int32()}),
    "nested": pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string()), "lines": pa.list_(LINE), "by": pa.struct({"id": pa.int64(), "name": pa.string()})}),
}


def value(kind: str, n: int) -> dict[str, Any]:
    """The value of one record."""
    if kind == "flat":
        return {"id": n * 7919, "name": f"customer-{n % 1000}", "price": n / 7, "paid": n % 2 == 0, "count": n % 100}
    lines = [{"sku": f"s{n + k}", "count": k, "price": n / 3 + k} for k in range(n % 4)]
    return {"id": n, "tags": [f"t{k}" for k in range(n % 3)], "lines": lines, "by": {"id": n, "name": "eve"}}


def written(kind: str, records: int) -> list[bytes]:
    """The values of a kind: a thousand of them, again and again."""
    made = [json.dumps(value(kind, n)).encode() for n in range(1000)]
    return [made[n % 1000] for n in range(records)]


def by_pyarrow(lines: bytes, schema: pa.Schema) -> pa.Table:
    """The values of lines, on one thread."""
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pj.read_json(pa.BufferReader(lines), pj.ReadOptions(use_threads=False), options)


def consumed(broker: fl.Broker, deserializer: serde.Json) -> None:
    """Polls the topic to its end; the values of each poll become a column."""
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 100_000}) as consumer:
        consumer.assign(("orders", 0))
        end = consumer.end_offsets([("orders", 0)])["orders", 0]
        while consumer.position(("orders", 0)) < end:
            serde.deserialize(consumer.poll(timeout_ms=1000), value=deserializer)


def scanned(broker: fl.Broker, deserializer: serde.Json) -> None:
    """Scans the topic; the values of each batch become a column."""
    for batch in broker.scan("orders"):
        serde.deserialize(batch, value=deserializer)


def measure(records: int = 500_000, rounds: int = 5) -> dict[str, float]:
    """The best rate of every candidate, in million records a second."""
    candidates: dict[str, Callable[[], object]] = {}
    for kind, schema in SCHEMAS.items():
        rows = written(kind, records)
        column, lines, own = pa.array(rows, pa.binary()), b"\n".join(rows), serde.Json(schema)
        decoded, reasons = own.decode(column)
        assert not reasons
        assert decoded.slice(0, 1000).to_pylist() == by_pyarrow(lines, schema).slice(0, 1000).to_pylist()
        candidates |= {
            f"{kind}: serde.Json decodes": lambda own=own, column=column: own.decode(column),
            f"{kind}: pyarrow decodes": lambda lines=lines, schema=schema: by_pyarrow(lines, schema),
            f"{kind}: serde.Json encodes": lambda own=own, decoded=decoded: own.encode(decoded),
        }
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders")
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": pa.array(written("flat", records), pa.binary())}))
        flat = serde.Json(SCHEMAS["flat"])
        candidates |= {
            "flat: scan and decode": lambda: scanned(broker, flat),
            "flat: consume and decode": lambda: consumed(broker, flat),
        }
        return best_rates({name: (records, work) for name, work in candidates.items()}, rounds)


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    made = []
    for kind in SCHEMAS:
        ours = rates[f"{kind}: serde.Json decodes"]
        made += [
            (f"{kind}: decode / pyarrow", ours / rates[f"{kind}: pyarrow decodes"], 2.0),
            (f"{kind}: encode / decode", rates[f"{kind}: serde.Json encodes"] / ours, 0.5),
        ]
    return [*made, ("flat: consume / scan, both decoded", rates["flat: consume and decode"] / rates["flat: scan and decode"], 0.5)]


if __name__ == "__main__":
    run(__doc__, measure, ratios, 500_000)
