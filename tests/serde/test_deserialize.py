"""`serde.deserialize`: columns in place, errors that name the record, the same call in Spark."""

import json
import pickle
import struct
import subprocess
import sys

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde

AMOUNT = serde.Json(pa.schema({"amount": pa.int64()}))


@pytest.fixture
def orders(broker):
    """Three partitions; offset 1 of partition 1 has a malformed value and key."""
    broker.create_topic("orders", partitions=3)
    with fl.Producer(broker) as producer:
        for n in range(6):
            bad = n == 4
            producer.send(
                "orders",
                key=b"bad" if bad else struct.pack(">q", n),
                value=b"{" if bad else None if n == 5 else b'{"amount": %d}' % n,
                partition=n % 3,
            )
    return broker


def test_columns_are_replaced_in_place_and_rows_keep_their_order(orders):
    raw = orders.scan("orders").to_pyarrow()
    table = serde.deserialize(orders.scan("orders"), key=serde.Long(), value=AMOUNT, on_error="null")
    assert isinstance(table, pa.Table)
    assert table.column_names == raw.column_names
    assert table.drop(["key", "value"]) == raw.drop(["key", "value"])
    assert table["key"].to_pylist() == [0, 3, 1, None, 2, 5]
    assert table["value"].to_pylist() == [{"amount": 0}, {"amount": 3}, {"amount": 1}, None, {"amount": 2}, None]


def test_metadata_and_other_columns_are_left_alone(orders):
    table = orders.scan("orders", partition=0).to_pyarrow().append_column("more", pa.array([1, 2])).replace_schema_metadata({"made": "by hand"})
    for data in (table, table.to_batches()[0]):
        decoded = serde.deserialize(data, value=AMOUNT, on_error="collect")
        assert decoded.schema.metadata == {b"made": b"by hand"}
        assert decoded["more"].to_pylist() == [1, 2]


def test_records_batches_tables_and_scans_give_the_same(orders):
    consumer = fl.Consumer(orders, {"auto.offset.reset": "earliest"})
    consumer.assign([("orders", 0)])
    records = consumer.poll()
    expected = [{"amount": 0}, {"amount": 3}]
    assert serde.deserialize(records, value=AMOUNT)["value"].to_pylist() == expected
    assert serde.deserialize(records.to_pyarrow(), value=AMOUNT)["value"].to_pylist() == expected
    for batch in orders.scan("orders", partition=0):
        decoded = serde.deserialize(batch, value=AMOUNT)
        assert isinstance(decoded, pa.RecordBatch)
        assert decoded["value"].to_pylist() == expected
    consumer.close()


def test_by_default_the_first_bad_record_is_named_and_nothing_is_lost(orders):
    with pytest.raises(fl.errors.RecordDeserializationError) as caught:
        serde.deserialize(orders.scan("orders"), key=serde.Long(), value=AMOUNT)
    error = caught.value
    assert (error.topic_partition, error.offset, error.column, error.data) == (("orders", 1), 1, "key", b"bad")
    assert str(error).startswith("the key of orders-1 at offset 1 cannot be decoded: Long takes 8 bytes, the value has 3; ")
    again = pickle.loads(pickle.dumps(error))
    assert (again.offset, str(again)) == (1, str(error))
    with pytest.raises(ValueError, match="the value of orders-1 at offset 1 cannot be decoded: not JSON"):
        serde.deserialize(orders.scan("orders"), value=AMOUNT)


def test_collect_keeps_the_bytes_and_the_reason_beside_the_rows(orders):
    table = serde.deserialize(orders.scan("orders"), key=serde.Long(), value=AMOUNT, on_error="collect")
    assert table.column_names[-2:] == ["key_error", "value_error"]
    bad = table.filter(table["value_error"].is_valid()).to_pylist()
    assert [(row["partition"], row["offset"], row["value_error"]["data"]) for row in bad] == [(1, 1, b"{")]
    assert bad[0]["key_error"] == {"reason": "Long takes 8 bytes, the value has 3", "data": b"bad"}
    clean = serde.deserialize(orders.scan("orders", partition=0), value=AMOUNT, on_error="collect")
    assert clean.schema.field("value_error").type == table.schema.field("value_error").type
    assert clean["value_error"].null_count == 2


def test_a_row_of_a_later_chunk_is_named_rightly(orders):
    table = orders.scan("orders").to_pyarrow()
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=1))
    assert chunked["value"].num_chunks == 6
    for deserializer in (AMOUNT, serde.Json()):
        decoded = serde.deserialize(chunked, value=deserializer, on_error="collect")
        assert [row["offset"] for row in decoded.to_pylist() if row["value_error"]] == [1]
        assert decoded["value"].to_pylist()[2] == {"amount": 1}
    without_offsets = chunked.select(["value"])
    with pytest.raises(fl.errors.RecordDeserializationError, match="the value of row 3 cannot be decoded"):
        serde.deserialize(without_offsets, value=AMOUNT)


def test_no_rows_keep_their_types(broker):
    broker.create_topic("empty")
    table = serde.deserialize(broker.scan("empty"), key=serde.String(), value=AMOUNT, on_error="collect")
    assert (table.num_rows, table.schema.field("value").type) == (0, AMOUNT.type)
    assert serde.deserialize(broker.scan("empty"), value=serde.Json()).num_rows == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "nothing to decode"),
        ({"value": AMOUNT, "on_error": "ignore"}, "on_error is 'ignore'; expected one of raise, null, collect"),
    ],
)
def test_calls_that_cannot_be_meant_are_refused(orders, options, text):
    with pytest.raises(fl.errors.InvalidArgumentError, match=text):
        serde.deserialize(orders.scan("orders"), **options)


def test_a_class_or_something_else_in_place_of_a_deserializer_is_refused(orders):
    table = orders.scan("orders").to_pyarrow()
    for call, verb in ((serde.deserialize, "decode"), (serde.serialize, "encode")):
        with pytest.raises(fl.errors.InvalidArgumentError, match=rf"value= takes an object that can {verb}, .* got <class .*; give value=Json\(\)"):
            call(table, value=serde.Json)
        with pytest.raises(fl.errors.InvalidArgumentError, match=rf"key= takes an object that can {verb}, .* got 'utf-8'"):
            call(table, key="utf-8")


def test_columns_that_are_missing_or_decoded_already_are_refused(orders):
    table = serde.deserialize(orders.scan("orders"), value=AMOUNT, on_error="null")
    with pytest.raises(fl.errors.InvalidArgumentError, match="not binary: was it decoded before"):
        serde.deserialize(table, value=AMOUNT)
    with pytest.raises(fl.errors.InvalidArgumentError, match="no column 'key'"):
        serde.deserialize(table.select(["value"]), key=serde.Long())


def test_avro_and_json_need_no_other_library():
    code = """
import sys
sys.modules["fastavro"] = None
from fletchlog import serde
assert "pyarrow" not in sys.modules
assert serde.Avro('"long"').of_bytes(b"\\x02") == 1
import pyarrow as pa
print(serde.JsonSchema({"type": "integer"}).decode(pa.array([b"1"]))[0].to_pylist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1]\n"


def test_threads_decode_chunks_and_change_nothing():
    asked = []

    def schema_of(schema_id):
        asked.append(schema_id)
        return "long" if schema_id == 1 else None

    chunks = [pa.array([None if n % 7 == 0 else b"\0\0\0\0" + bytes([n % 3, 2 * n % 128]) for n in range(part, part + 50)], pa.binary()) for part in range(9)]
    table = pa.table({"value": pa.chunked_array(chunks)})
    one, many = (serde.deserialize(table, value=serde.Confluent(schema_of, "double"), on_error="collect", threads=threads) for threads in (1, 4))
    assert many == one
    assert sorted(asked) == [0, 0, 1, 1, 2, 2]
    assert serde.deserialize(table.slice(0, 0), value=serde.Confluent(schema_of, "double"), threads=2)["value"].to_pylist() == []
    with pytest.raises(fl.errors.InvalidArgumentError, match="threads is 0"):
        serde.deserialize(table, value=serde.Long(), threads=0)


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_in_spark_the_same_call_goes_into_map_in_arrow(spark, tmp_path):
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("orders", partitions=2)
        with fl.Producer(broker) as producer:
            for n in range(100):
                producer.send("orders", value=b"{" if n == 42 else json.dumps({"amount": n}).encode(), partition=n % 2)
    orders = AMOUNT

    def decode(batches):
        for batch in batches:
            yield serde.deserialize(batch, value=orders, on_error="collect").select(["partition", "offset", "value", "value_error"])

    frame = spark.read.format("fletchlog").option("path", str(tmp_path / "log")).option("subscribe", "orders").load()
    types = "partition int, offset bigint, value struct<amount: bigint>, value_error struct<reason: string, data: binary>"
    rows = frame.mapInArrow(decode, types).collect()
    assert sorted(row.value.amount for row in rows if row.value) == [n for n in range(100) if n != 42]
    assert [(row.partition, row.offset, bytes(row.value_error.data)) for row in rows if row.value_error] == [(0, 21, b"{")]
