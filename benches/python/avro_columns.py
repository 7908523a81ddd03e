"""Avro values to columns and back, on one core: `serde.Avro` against pyruhvro 0.4 on the same values.

Five flat fields, and nested records with arrays. Also what one value costs a consumer and a producer, against fastavro alone, and two threads against
one, alone and in a scan. All but what counts threads is measured in processor time, so that a busy machine changes little.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastavro
import pyarrow as pa
import pyruhvro

import fletchlog as fl
from fletchlog import serde
from report import best_rates, run

FLAT = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": "boolean"},
    ],
}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "double"}, {"name": "count", "type": "int"}]}
NESTED = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "address", "type": {"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": "int"}]}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
BATCH = 50_000
SCHEMAS = {"flat": FLAT, "nested": NESTED}


def value(kind: str, n: int) -> dict[str, Any]:
    """The value of one record."""
    if kind == "flat":
        return {"id": n * 7919, "customer": f"customer-{n % 1000}", "amount": n / 7, "note": None if n % 3 else f"note {n}", "paid": n % 2 == 0}
    lines = [{"item": f"item-{n + k}", "price": n / 3 + k, "count": k} for k in range(n % 4)]
    return {"id": n, "address": {"street": f"{n} Main Street", "zip": n % 100_000}, "lines": lines, "tags": [f"t{k}" for k in range(n % 3)]}


def written(kind: str, records: int) -> list[bytes]:
    """The values of a kind, by fastavro: a thousand of them, again and again."""
    schema, made = fastavro.parse_schema(SCHEMAS[kind]), []
    for n in range(1000):
        file = io.BytesIO()
        fastavro.schemaless_writer(file, schema, value(kind, n))
        made.append(file.getvalue())
    return [made[n % 1000] for n in range(records)]


def filled(column: pa.Array) -> fl.Broker:
    """A broker with the values in a topic of two partitions."""
    broker = fl.Broker.in_memory()
    broker.create_topic("t", partitions=2)
    with fl.Producer(broker) as producer:
        for begin in range(0, len(column), BATCH):
            values = column[begin : begin + BATCH]
            partitions = pa.array([begin // BATCH % 2] * len(values), pa.int32())
            producer.send_arrow("t", pa.record_batch({"value": values, "partition": partitions}))
    return broker


def scanned(broker: fl.Broker, avro: serde.Avro, threads: int) -> None:
    """All values, decoded batch by batch."""
    for _ in broker.scan("t", columns=["value"], value=avro, threads=threads):
        pass


def measure(records: int = 1_000_000, rounds: int = 9) -> dict[str, float]:
    """The best rate of every candidate, in million records a second."""
    candidates: dict[str, tuple[int, Callable[[], object]]] = {}
    for kind, schema in SCHEMAS.items():
        rows = written(kind, records)
        column = pa.array(rows, pa.binary())
        avro, text = serde.Avro(schema), json.dumps(schema)
        decoded, reasons = avro.decode(column)
        assert not reasons
        theirs = pyruhvro.deserialize_array(rows, text)
        assert decoded.slice(0, 1000).to_pylist() == theirs.slice(0, 1000).to_pylist()
        assert avro.encode(decoded)[0].equals(column)
        half, pruned, broker = len(column) // 2, avro.pruned(["id"]), filled(column)
        pool = ThreadPoolExecutor(2)
        candidates |= {
            f"{kind}: pyruhvro decodes": (records, lambda rows=rows, text=text: pyruhvro.deserialize_array(rows, text)),
            f"{kind}: serde.Avro decodes": (records, lambda avro=avro, column=column: avro.decode(column)),
            f"{kind}: pyruhvro encodes": (records, lambda theirs=theirs, text=text: pyruhvro.serialize_record_batch(theirs, text, 1)),
            f"{kind}: serde.Avro encodes": (records, lambda avro=avro, decoded=decoded: avro.encode(decoded)),
            f"{kind}: one of many fields": (records, lambda pruned=pruned, column=column: pruned.decode(column)),
            f"{kind}: one thread decodes": (records, lambda avro=avro, column=column: avro.decode(column)),
            f"{kind}: two threads decode": (
                records,
                lambda avro=avro, column=column, half=half, pool=pool: list(pool.map(avro.decode, [column[:half], column[half:]])),
            ),
        }
        for number, threads in (("one thread", 1), ("two threads", 2)):
            candidates[f"{kind}: typed scan, {number}"] = (
                records,
                lambda broker=broker, avro=avro, threads=threads: scanned(broker, avro, threads),
            )
        few, parsed = rows[:20_000], fastavro.parse_schema(schema)
        objects = [avro.of_bytes(one) for one in few]
        assert [avro(one) for one in objects] == few
        candidates |= {
            f"{kind}: fastavro, one value": (len(few), lambda few=few, parsed=parsed: [fastavro.schemaless_reader(io.BytesIO(one), parsed) for one in few]),
            f"{kind}: of_bytes, one value": (len(few), lambda few=few, avro=avro: [avro.of_bytes(one) for one in few]),
            f"{kind}: fastavro writes one": (
                len(few),
                lambda objects=objects, parsed=parsed: [fastavro.schemaless_writer(io.BytesIO(), parsed, one) for one in objects],
            ),
            f"{kind}: serde.Avro writes one": (len(few), lambda objects=objects, avro=avro: [avro(one) for one in objects]),
        }
    return best_rates(candidates, rounds, wall=[name for name in candidates if "thread" in name])


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    made = []
    for kind in SCHEMAS:
        ours = rates[f"{kind}: serde.Avro decodes"]
        made += [
            (f"{kind}: decode / pyruhvro", ours / rates[f"{kind}: pyruhvro decodes"], 1.0),
            (f"{kind}: encode / decode", rates[f"{kind}: serde.Avro encodes"] / ours, 0.5),
            (f"{kind}: encode / pyruhvro", rates[f"{kind}: serde.Avro encodes"] / rates[f"{kind}: pyruhvro encodes"], 1.0),
            (f"{kind}: two threads / one", rates[f"{kind}: two threads decode"] / rates[f"{kind}: one thread decodes"], 1.7),
            (f"{kind}: typed scan / decoding", rates[f"{kind}: typed scan, one thread"] / rates[f"{kind}: one thread decodes"], 0.5),
            (f"{kind}: typed scan, two / one", rates[f"{kind}: typed scan, two threads"] / rates[f"{kind}: typed scan, one thread"], 1.7),
            (f"{kind}: a value / fastavro", rates[f"{kind}: of_bytes, one value"] / rates[f"{kind}: fastavro, one value"], 1.0),
            (f"{kind}: writes a value / fastavro", rates[f"{kind}: serde.Avro writes one"] / rates[f"{kind}: fastavro writes one"], 0.5),
        ]
    return made


if __name__ == "__main__":
    run(__doc__, measure, ratios, 1_000_000)
