"""`serialize` and `deserialize` take the frames, readers and arrays of other libraries, and what only has Arrow's C interface."""

import datetime as dt

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import fletchlog as fl
from fletchlog import serde

ROWS = {
    "topic": ["t", "t", "t"],
    "partition": [0, 0, 0],
    "offset": [0, 1, 2],
    "key": [b"a", None, b"c"],
    "value": [b'{"n":1}', b'{"n":2}', None],
}
TABLE = pa.table(ROWS, pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}))
N = serde.Json(pa.schema({"n": pa.int64()}))


class OnlyStream:
    def __init__(self, of):
        self._of = of

    def __arrow_c_stream__(self, requested_schema=None):
        return self._of.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __init__(self, of):
        self._of = of

    def __arrow_c_array__(self, requested_schema=None):
        return self._of.__arrow_c_array__(requested_schema)


def views(table):
    types = {pa.binary(): pa.binary_view(), pa.string(): pa.string_view()}
    return table.cast(pa.schema([field.with_type(types.get(field.type, field.type)) for field in table.schema]))


KINDS = {
    "RecordBatch": lambda table: table.to_batches()[0],
    "Table": lambda table: table,
    "Table of chunks": lambda table: pa.Table.from_batches(table.to_batches(max_chunksize=1)),
    "RecordBatchReader": lambda table: table.to_reader(max_chunksize=2),
    "Dataset": lambda table: pa.dataset.dataset(table).scanner().to_reader(),
    "StructArray": lambda table: table.to_struct_array().combine_chunks(),
    "pandas": lambda table: table.to_pandas(),
    "pandas with an index": lambda table: table.to_pandas().set_index(pd.Index([7, 5, 3], name="row")),
    "polars": pl.DataFrame,
    "polars of chunks": lambda table: pl.concat([pl.DataFrame(table[:1]), pl.DataFrame(table[1:])], rechunk=False),
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
    "only a stream": OnlyStream,
    "only an array": lambda table: OnlyArray(table.to_batches()[0]),
    "views": views,
    "views in a batch": lambda table: views(table).to_batches()[0],
    "large": lambda table: table.cast(pa.schema([field.with_type(pa.large_binary() if field.type == pa.binary() else field.type) for field in table.schema])),
    "dictionaries": lambda table: table.set_column(3, "key", table["key"].dictionary_encode()).set_column(4, "value", table["value"].dictionary_encode()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_is_decoded(kind):
    decoded = serde.deserialize(KINDS[kind](TABLE), key=serde.String(), value=N)
    assert isinstance(decoded, pa.RecordBatch if "atch" in kind and "Reader" not in kind else pa.Table)
    assert decoded.select(["topic", "partition", "offset", "key", "value"]).to_pylist() == [
        {"topic": "t", "partition": 0, "offset": 0, "key": "a", "value": {"n": 1}},
        {"topic": "t", "partition": 0, "offset": 1, "key": None, "value": {"n": 2}},
        {"topic": "t", "partition": 0, "offset": 2, "key": "c", "value": None},
    ]
    with pytest.raises(fl.errors.RecordDeserializationError, match="the key of t-0 at offset 0 cannot be decoded: Long takes 8 bytes") as caught:
        serde.deserialize(KINDS[kind](TABLE), key=serde.Long())
    assert (caught.value.topic_partition, caught.value.offset, caught.value.data) == (("t", 0), 0, b"a")
    collected = serde.deserialize(KINDS[kind](TABLE), key=serde.Long(), on_error="collect")
    assert [error and error["data"] for error in collected.column("key_error").to_pylist()] == [b"a", None, b"c"]


TYPED = pa.table({"key": ["a", None, "c"], "value": [{"n": 1, "s": "x", "l": [1.5]}, None, {"n": None, "s": "ü", "l": []}]})
TYPED_JSON = serde.Json(pa.schema({"n": pa.int64(), "s": pa.string(), "l": pa.list_(pa.float64())}))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dictionaries"])
@pytest.mark.parametrize(
    "serializer",
    [
        TYPED_JSON,
        serde.Json(),
        serde.Avro({
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "n", "type": ["null", "long"]},
                {"name": "s", "type": "string"},
                {"name": "l", "type": {"type": "array", "items": "double"}},
            ],
        }),
    ],
    ids=["Json", "inferred", "Avro"],
)  # fmt: skip
def test_data_of_every_kind_is_encoded(kind, serializer):
    # pandas makes numbers with nulls floats, within objects too
    table = TYPED[:1] if "pandas" in kind else TYPED
    data = table.to_pandas().set_index(pd.Index([7], name="row")) if kind == "pandas with an index" else KINDS[kind](table)
    made = serde.serialize(data, key=serde.String(), value=serializer)
    assert made.column("key").to_pylist() == [None if key is None else key.encode() for key in table["key"].to_pylist()]
    back = serde.deserialize(made, key=serde.String(), value=TYPED_JSON if serializer.type is None else serializer)
    assert back.select(["key", "value"]).to_pylist() == table.to_pylist()


def test_columns_of_polars_go_through_a_broker():
    at = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    frame = pl.DataFrame({
        "key": pl.Series(["a", "b"], dtype=pl.Categorical),
        "value": [{"at": at, "tags": ["x"], "n": 1}, {"at": None, "tags": None, "n": 2}],
    })  # fmt: skip
    value = serde.Json(pa.schema({"at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string()), "n": pa.int64()}))
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", serde.serialize(frame, key=serde.String(), value=value))
        back = serde.deserialize(broker.scan("t").to_polars(), key=serde.String(), value=value)
    assert back.select(["key", "value"]).to_pylist() == frame.to_dicts()


@pytest.mark.parametrize(
    "data",
    [
        [1],
        {"value": [b"x"]},
        None,
        pa.array([b"x"]),
        pa.chunked_array([[b"x"]]),
        pl.Series([b"x"]),
        pd.Series([b"x"]),
        pl.LazyFrame({"value": [b"x"]}),
        OnlyArray(pa.array([1])),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_has_no_columns_is_refused(data):
    for call in (serde.serialize, serde.deserialize):
        with pytest.raises(fl.errors.InvalidArgumentError, match=rf"a {type(data).__qualname__} has no columns to read: .*; give what poll and scan return"):
            call(data, value=serde.String())


def test_a_failure_of_a_foreign_stream_is_passed_on():
    def broken():
        yield TABLE.to_batches()[0]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        serde.deserialize(OnlyStream(pa.RecordBatchReader.from_batches(TABLE.schema, broken())), value=N)


def test_numbers_that_a_type_does_not_hold_are_refused():
    for serializer in (serde.Float(), serde.Avro("float"), serde.Json(pa.float32())):
        with pytest.raises(fl.errors.InvalidArgumentError, match=r"the value of row 1 cannot be encoded: .*the number 1e\+39 is beyond those of float"):
            serde.serialize(pa.table({"value": [1.5, 1e39]}), value=serializer)
    assert serde.Float()(float("inf")) == b"\x7f\x80\0\0"
