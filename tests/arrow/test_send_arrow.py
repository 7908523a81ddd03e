"""`send_arrow`: columns in, records out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl

ROWS = [
    {"value": b"a", "key": b"k", "partition": 0, "timestamp": 1000, "headers": [("h", b"x")]},
    {"value": None, "key": None, "partition": 1, "timestamp": 2000, "headers": []},
    {"value": b"", "key": b"", "partition": 0, "timestamp": 3000, "headers": [("h", None), ("h", b"")]},
]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TABLE = pa.table(
    {
        "value": pa.array([r["value"] for r in ROWS], pa.binary()),
        "key": pa.array([r["key"] for r in ROWS], pa.binary()),
        "partition": pa.array([r["partition"] for r in ROWS], pa.int32()),
        "timestamp": pa.array([r["timestamp"] for r in ROWS], pa.timestamp("ms", "UTC")),
        "headers": pa.array([[{"key": k, "value": v} for k, v in r["headers"]] for r in ROWS], HEADERS),
    }
)


@pytest.fixture
def producer(broker: fl.Broker) -> Iterator[fl.Producer]:
    broker.create_topic("t", partitions=2)
    with fl.Producer(broker) as producer:
        yield producer


def written(broker: fl.Broker) -> list[dict[str, Any]]:
    """Rows in the log, comparable with ROWS."""
    table = broker.scan("t", include_headers=True).to_pyarrow().to_pylist()
    rows = [
        {
            "value": row["value"],
            "key": row["key"],
            "partition": row["partition"],
            "timestamp": round(row["timestamp"].timestamp() * 1000),
            "headers": [(h["key"], h["value"]) for h in row["headers"] or []],
        }
        for row in table
    ]
    return sorted(rows, key=lambda row: row["timestamp"])


def test_every_column_arrives(broker: fl.Broker, producer: fl.Producer) -> None:
    assert producer.send_arrow("t", TABLE) == 3
    producer.flush()
    assert written(broker) == ROWS


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table.to_reader(),
        lambda table: table.to_batches()[0],
        lambda table: pl.from_arrow(table),
        lambda table: table.cast(table.schema.set(0, pa.field("value", pa.large_binary()))),
        lambda table: table.cast(table.schema.set(3, pa.field("timestamp", pa.timestamp("ns", "UTC")))),
        lambda table: duckdb.from_arrow(table).to_arrow_table(),
    ],
    ids=["reader", "record-batch", "polars", "large-binary", "nanoseconds", "duckdb"],
)
def test_whatever_speaks_arrow_is_taken(broker: fl.Broker, producer: fl.Producer, convert: Any) -> None:
    assert producer.send_arrow("t", convert(TABLE)) == 3
    producer.flush()
    assert written(broker) == ROWS


def test_pandas_frames_are_taken(broker: fl.Broker, producer: fl.Producer) -> None:
    producer.send_arrow("t", pd.DataFrame({"value": [b"x", b"y"], "partition": [0, 1]}))
    producer.flush()
    assert sorted(row["value"] for row in written(broker)) == [b"x", b"y"]


def test_a_python_generator_feeds_the_stream(broker: fl.Broker, producer: fl.Producer) -> None:
    batches = (pa.record_batch({"value": [b"%d" % i]}) for i in range(50))
    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches)
    assert producer.send_arrow("t", reader) == 50
    producer.flush()
    assert sorted(int(row["value"]) for row in written(broker)) == list(range(50))


def test_an_error_of_the_callers_stream_is_raised_and_what_came_before_is_sent(broker: fl.Broker, producer: fl.Producer) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"first"]})
        message = "the caller's own trouble"
        raise RuntimeError(message)

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    with pytest.raises(fl.errors.KafkaError, match="the caller's own trouble"):
        producer.send_arrow("t", reader)
    producer.flush()
    assert [row["value"] for row in written(broker)] == [b"first"]


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (pa.table({"key": [b"k"]}), "value"),
        (pa.table({"value": [1]}), "value"),
        (pa.table({"value": [b"v"], "topik": ["t"]}), "topik"),
        (pa.table({"value": [b"v"], "partition": ["0"]}), "partition"),
        (pa.table({"value": [b"v"], "timestamp": ["now"]}), "timestamp"),
        (pa.table({"value": [b"v"], "headers": [1]}), "headers"),
        (pa.schema([("key", pa.binary())]).empty_table(), "value"),
    ],
)
def test_a_wrong_column_is_named_and_nothing_is_sent(broker: fl.Broker, producer: fl.Producer, table: pa.Table, match: str) -> None:
    with pytest.raises(fl.errors.SchemaError, match=match):
        producer.send_arrow("t", table)
    producer.flush()
    assert written(broker) == []


def test_what_is_not_arrow_is_a_type_error(producer: fl.Producer) -> None:
    for data in ([{"value": b"v"}], b"v", None):
        with pytest.raises(TypeError, match="__arrow_c_stream__"):
            producer.send_arrow("t", data)


def test_a_partition_that_does_not_exist_is_refused(producer: fl.Producer) -> None:
    with pytest.raises(fl.errors.KafkaError, match="9"):
        producer.send_arrow("t", pa.table({"value": [b"v"], "partition": pa.array([9], pa.int32())}))


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40), st.integers(0, 2**41)),
        max_size=60,
    ),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
)
def test_any_rows_come_back_as_they_were_sent(rows: list[tuple[bytes | None, bytes | None, int]], codec: str) -> None:
    table = pa.table(
        {
            "value": pa.array([r[0] for r in rows], pa.binary()),
            "key": pa.array([r[1] for r in rows], pa.binary()),
            "timestamp": pa.array([r[2] for r in rows], pa.timestamp("ms", "UTC")),
        }
    )
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
        with fl.Producer(broker, {"compression.type": codec, "batch.size": 256}) as producer:
            producer.send_arrow("t", table)
        got = broker.scan("t").to_pyarrow()
    assert got.select(["value", "key"]).to_pylist() == table.select(["value", "key"]).to_pylist()
    assert got.column("timestamp").cast(pa.int64()).to_pylist() == [r[2] * 1000 for r in rows]
    assert got.column("offset").to_pylist() == list(range(len(rows)))
