"""Protobuf values to typed columns and back: `serde.Protobuf` against ptars and Google's protobuf, on one core.

Two messages: five flat fields, and an order with a customer, items and tags. The column of bytes is decoded in one call, and the decoded column is
encoded again. In processor time, so that a busy machine changes little.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fletchlog import serde
from fletchlog.serde.protobuf_schema import descriptors
from report import best_rates, run

SCHEMA = """
syntax = "proto3";
message Flat { int64 id = 1; string name = 2; double price = 3; bool active = 4; int32 kind = 5; }
message Order { int64 id = 1; Customer customer = 2; repeated Item items = 3; repeated string tags = 4; repeated int64 scores = 5; }
message Customer { string name = 1; string city = 2; int32 age = 3; }
message Item { string sku = 1; int32 quantity = 2; double price = 3; }
"""


def message_class(name: str) -> Any:
    """A class of Google's for a message of the schema."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors(SCHEMA)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def flat(row: int) -> dict[str, Any]:
    """A value of five flat fields."""
    return {"id": row * 7919, "name": f"name-{row % 1000}", "price": row / 7, "active": row % 2 == 0, "kind": row % 5}


def order(row: int) -> dict[str, Any]:
    """A nested value with arrays."""
    return {
        "id": row,
        "customer": {"name": f"name-{row % 1000}", "city": "Zürich" if row % 3 else "Bern", "age": row % 90},
        "items": [{"sku": f"sku-{row + item}", "quantity": item + 1, "price": row / 3} for item in range(row % 4)],
        "tags": ["new", "paid"][: row % 3],
        "scores": list(range(row % 6)),
    }


def candidates(shape: str, make: Callable[[int], dict[str, Any]], rows: int) -> dict[str, Callable[[], object]]:
    """What is measured of one message."""
    import ptars

    of = message_class(shape)
    data = pa.array([of(**make(row)).SerializeToString() for row in range(rows)], pa.binary())
    ours = serde.Protobuf(of)
    decoded, reasons = ours.decode(data)
    encoded, why = ours.encode(decoded)
    if reasons or why or encoded != data:
        raise SystemExit(f"{shape}: decoded and encoded again, the values are others")
    handler = ptars.HandlerPool([of.DESCRIPTOR.file]).get_for_message(of.DESCRIPTOR)
    batch = handler.array_to_record_batch(data)
    return {
        f"{shape}: decode": lambda: ours.decode(data),
        f"{shape}: ptars decodes": lambda: handler.array_to_record_batch(data),
        f"{shape}: encode": lambda: ours.encode(decoded),
        f"{shape}: ptars encodes": lambda: handler.record_batch_to_array(batch),
    }


def measure(records: int = 500_000, rounds: int = 5) -> dict[str, float]:
    """The best rate of every candidate, in million records a second."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    calls = candidates("Flat", flat, records) | candidates("Order", order, records)
    return best_rates({name: (records, call) for name, call in calls.items()}, rounds)


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    found = []
    for shape in ("Flat", "Order"):
        found.append((f"{shape}: decode / ptars", rates[f"{shape}: decode"] / rates[f"{shape}: ptars decodes"], 1.0))
        found.append((f"{shape}: encode / decode", rates[f"{shape}: encode"] / rates[f"{shape}: decode"], 0.5))
    return found


if __name__ == "__main__":
    run(__doc__, measure, ratios, 500_000)
