"""Results as Arrow data: the schema of Spark's kafka source, and every library that takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fletchlog as fl
from tests.support.batches import batch_of

SPARK = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


@pytest.fixture
def filled(broker: fl.Broker) -> fl.Broker:
    """Two partitions with every kind of field."""
    broker.create_topic("t", partitions=2)
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v0", key=b"k", partition=0, timestamp_ms=1500, headers=[("h", b"1"), ("h", None), ("é", b"")])
        producer.send("t", value=None, key=b"", partition=0, timestamp_ms=0)
        producer.send("t", value=b"", key=None, partition=1, timestamp_ms=1_700_000_000_123)
    return broker


@pytest.fixture(params=["scan", "poll"])
def source(request: pytest.FixtureRequest, filled: fl.Broker) -> Iterator[Any]:
    """The same rows from a scan and from a poll."""
    if request.param == "scan":
        yield filled.scan("t")
        return
    with fl.Consumer(filled, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([fl.TopicPartition("t", 0), fl.TopicPartition("t", 1)])
        records = consumer.poll(timeout_ms=500)
        while len(records) < 3:
            records = consumer.poll(timeout_ms=500)
        yield records


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = ("key", "value", "topic", "partition", "offset", "timestampType")
    return sorted(tuple(row[c] for c in columns) for row in table.to_pylist())[::1]


def by_place(table: pa.Table) -> pa.Table:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_the_schema_is_that_of_sparks_kafka_source(source: Any) -> None:
    assert source.schema == SPARK
    assert source.to_pyarrow().schema == SPARK


def test_pyarrow_takes_it_with_every_field(source: Any) -> None:
    for table in (pa.table(source), source.to_pyarrow(), pa.RecordBatchReader.from_stream(source).read_all()):
        got = by_place(table)
        assert got.column("key").to_pylist() == [b"k", b"", None]
        assert got.column("value").to_pylist() == [b"v0", None, b""]
        assert got.column("topic").to_pylist() == ["t"] * 3
        assert got.column("partition").to_pylist() == [0, 0, 1]
        assert got.column("offset").to_pylist() == [0, 1, 0]
        assert got.column("timestamp").cast(pa.int64()).to_pylist() == [1_500_000, 0, 1_700_000_000_123_000]
        assert got.column("timestampType").to_pylist() == [0, 0, 0]


def test_pandas_polars_and_duckdb_take_it(source: Any) -> None:
    table = by_place(source.to_pyarrow())
    frame = source.to_pandas().sort_values(["partition", "offset"])
    assert frame["value"].tolist() == [b"v0", None, b""]
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
    arrow_frame = source.to_pandas(types_mapper=pd.ArrowDtype)
    assert arrow_frame["offset"].sum() == 1
    assert pl.DataFrame(source).sort("partition", "offset").to_arrow().column("offset").equals(table.column("offset"))
    assert source.to_polars().height == 3
    assert duckdb.sql("select count(*), sum(octet_length(value)) from source").fetchall() == [(3, 2)]


def test_it_can_be_handed_over_twice(source: Any) -> None:
    assert pa.table(source).equals(pa.table(source))


def test_headers_come_when_asked_for(filled: fl.Broker) -> None:
    table = by_place(filled.scan("t", include_headers=True).to_pyarrow())
    assert table.schema.field("headers").type == HEADERS
    expected = [[("h", b"1"), ("h", None), ("é", b"")], None, None]
    assert [h and [(x["key"], x["value"]) for x in h] for h in table.column("headers").to_pylist()] == expected
    with fl.Consumer(filled, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([fl.TopicPartition("t", 0)])
        records = consumer.poll(timeout_ms=500)
        assert records.to_pyarrow(include_headers=True).schema.names[-1] == "headers"
        assert records.to_pyarrow().schema == SPARK
        assert [r.headers for r in records] == [expected[0], []]
        assert pa.record_batch(records).num_rows == 2


def test_records_iterate_as_tuples_with_every_field(filled: fl.Broker) -> None:
    with fl.Consumer(filled, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([fl.TopicPartition("t", 0)])
        records = consumer.poll(timeout_ms=500)
    first, second = records
    assert first == fl.Record("t", 0, 0, 1500, 0, b"k", b"v0", [("h", b"1"), ("h", None), ("é", b"")])
    assert type(first) is fl.Record
    assert first._replace(headers=[]) == (*first[:-1], [])
    assert (second.key, second.value, second.timestamp) == (b"", None, 0)
    assert [r.offset for r in records] == [0, 1]


def test_a_scan_is_cut_into_batches_of_the_asked_size(broker: fl.Broker) -> None:
    broker.create_topic("t")
    for _ in range(10):
        broker.append_batches("t", 0, batch_of(7, 180))
    sizes = [batch.num_rows for batch in broker.scan("t", batch_rows=16)]
    assert sizes == [16, 16, 16, 16, 6]
    assert broker.scan("t", batch_rows=16).to_pyarrow().column("offset").to_pylist() == list(range(70))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(None, None, range(70)), (3, None, range(3, 70)), (None, 5, range(5)), (6, 8, range(6, 8)), (70, None, []), (99, None, []),
     (5, 5, []), (0, 1000, range(70))],
)  # fmt: skip
def test_a_scan_reads_exactly_the_range(broker: fl.Broker, start: int | None, end: int | None, expected: range) -> None:
    broker.create_topic("t")
    for _ in range(10):
        broker.append_batches("t", 0, batch_of(7, 180))
    for batch_rows in (1, 3, 131_072):
        scan = broker.scan("t", partition=0, start_offset=start, end_offset=end, batch_rows=batch_rows)
        assert scan.to_pyarrow().column("offset").to_pylist() == list(expected)


def test_a_scan_walks_all_partitions_in_order(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=3)
    for partition in (2, 0, 1):
        broker.append_batches("t", partition, batch_of(7, 180))
    assert broker.scan("t").to_pyarrow().column("partition").to_pylist() == [0] * 7 + [1] * 7 + [2] * 7


def test_an_empty_topic_scans_to_an_empty_table_with_the_schema(broker: fl.Broker) -> None:
    broker.create_topic("t")
    assert broker.scan("t").to_pyarrow().equals(SPARK.empty_table())
    assert broker.scan("t").to_polars().height == 0


def test_memory_while_scanning_is_bounded_by_the_batch(broker: fl.Broker) -> None:
    broker.create_topic("t", config={"max.message.bytes": 2_000_000})
    for _ in range(64):
        broker.append_batches("t", 0, batch_of(1000, 1_000_000))
    largest = 0
    for batch in broker.scan("t"):
        largest = max(largest, batch.nbytes)
    assert 1 << 20 < largest < 3 << 20


LOGS_WHILE_PULLED = """
import logging, pathlib, sys
import fletchlog as fl
from tests.support.batches import batch_of
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
with fl.Broker(sys.argv[1], create=True) as broker:
    broker.create_topic("t", config={"internal.segment.bytes": 200})
    for _ in range(10):
        broker.append_batches("t", 0, batch_of(7, 180))
for index in pathlib.Path(sys.argv[1], "t-0").glob("*.index"):
    index.unlink()
with fl.Broker(sys.argv[1], read_only=True) as broker:
    print(broker.scan("t", isolation_level="read_committed").to_pyarrow().num_rows)
"""


def test_a_stream_that_logs_takes_the_gil_first(tmp_path: Path) -> None:
    """pyarrow pulls without the GIL; a missing index is rebuilt and logged in the middle of it."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", LOGS_WHILE_PULLED, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(root)])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "70\n"), done.stderr
    assert "index rebuilt in memory" in done.stderr


NO_PYARROW = """
import sys
for name in ("pyarrow", "pandas", "polars"):
    sys.modules[name] = None
import fletchlog as fl
with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v")
    assert broker.scan("t").__arrow_c_stream__() is not None
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0)])
        records = consumer.poll()
        assert [r.value for r in records] == [b"v"]
        assert records.__arrow_c_stream__() is not None
    try:
        records.to_pyarrow()
    except ImportError as error:
        print(error)
"""


def test_nothing_needs_pyarrow_until_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", NO_PYARROW], capture_output=True, text=True, check=True)
    assert "pip install 'fletchlog[arrow]'" in done.stdout


def test_headers_of_a_record_are_a_dict_too_in_which_the_last_of_a_key_counts() -> None:
    with fl.Broker.in_memory() as broker, fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v", headers=[("a", b"1"), ("b", None), ("a", b"2")])
            producer.send("t", b"v")
        consumer.assign([("t", 0)])
        with_headers, without = consumer.poll()
    assert with_headers.headers == [("a", b"1"), ("b", None), ("a", b"2")]
    assert with_headers.headers_dict() == {"a": b"2", "b": None}
    assert (with_headers.header("a"), with_headers.header("b"), with_headers.header("c", b"none")) == (b"2", None, b"none")
    assert without.headers_dict() == {}


ALL = [*SPARK.names, "headers"]


def test_the_columns_asked_for_come_in_that_order(filled: fl.Broker) -> None:
    full = filled.scan("t", include_headers=True).to_pyarrow()
    with filled.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        for names in (*([name] for name in ALL), ["offset", "key"], ["headers", "timestamp", "topic"], ALL[::-1], tuple(ALL)):
            for place in (filled, cluster):
                scan = place.scan("t", columns=names)
                assert scan.schema == full.select(names).schema
                assert scan.to_pyarrow().equals(full.select(names)), names
        assert filled.scan("t", columns=iter(["value"]), batch_rows=1).to_pyarrow()["value"].to_pylist() == [b"v0", None, b""]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"columns": []}, fl.errors.InvalidArgumentError, "columns is empty; name one or more of key, value"),
        ({"columns": ["timestamp_type"]}, fl.errors.InvalidArgumentError, "no column `timestamp_type`; the columns are key, .*, timestampType, headers"),
        ({"columns": ["key", "offset", "key"]}, fl.errors.InvalidArgumentError, "names `key` twice"),
        ({"columns": ["key"], "include_headers": True}, fl.errors.InvalidArgumentError, "does not name `headers`"),
        ({"columns": "value"}, TypeError, r"expected a list of column names, got str; write \['value'\]"),
        ({"columns": [b"value"]}, TypeError, "expected a column name, got bytes"),
    ],
)
def test_columns_that_make_no_schema_are_refused(filled: fl.Broker, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        filled.scan("t", **arguments)


def test_more_rows_of_narrow_columns_fit_into_a_batch(broker: fl.Broker) -> None:
    """A batch is cut at 2 MiB of what is asked for: values that are not asked for do not count."""
    broker.create_topic("wide")
    with fl.Producer(broker) as producer:
        for _ in range(20):
            producer.send("wide", value=bytes(900_000))
    assert len(list(broker.scan("wide"))) > 1
    # on several threads no batch goes beyond a part of the log
    assert [batch.num_rows for batch in broker.scan("wide", columns=["offset"], threads=1)] == [20]
