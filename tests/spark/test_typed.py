"""`value.format` and `key.format`: typed columns instead of bytes, read and written."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import fletchlog as fl
from fletchlog import serde
from fletchlog.spark.arrow_types import selected, spark_type
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.schema import arrow_schema, kafka_schema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "customer",
                "type": {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}, {"name": "vip", "type": "boolean"}]},
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        ],
    }
)
TYPE = "struct<id:bigint,customer:struct<name:string,vip:boolean>,tags:array<string>,at:timestamp,price:decimal(9,2)>"
BIG_ENDIAN = '{"type": "fixed", "name": "Key", "size": 8}'
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Spark returns times
AVRO = {"value__format": "avro", "value__schema": ORDER}


BOTH = ("fletchlog", "fletchlog-columnar")


@pytest.fixture(params=[BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.slow)])
def source(request):
    """Both formats decode the same, Python's objects in one and Rust's in the other."""
    return request.param


def order(number):
    return {"id": number, "customer": {"name": f"c{number}", "vip": number % 2 == 0}, "tags": ["t"] * (number % 3), "at": number, "price": None}


@pytest.fixture
def orders(log):
    """Ten orders with numbers as keys in two partitions; in the topic `bad` there is one value that is none."""
    log.topic("orders", partitions=2).topic("bad")
    kind = serde.Avro(ORDER).type
    values, _ = serde.Avro(ORDER).encode(pa.array([order(number) for number in range(10)], kind))
    with fl.Producer(log.broker, key_serializer=serde.Long()) as producer:
        for number, value in enumerate(values.to_pylist()):
            producer.send("orders", value, number, partition=number % 2)
        producer.send("bad", values[0].as_py(), 0)
        producer.send("bad", b"\xff", 1)
    return log


def test_a_value_is_a_struct_and_a_key_a_number(orders, read):
    frame = read(subscribe="orders", key__format="avro", key__schema=BIG_ENDIAN, **AVRO)
    assert frame.schema["value"].dataType.simpleString() == TYPE
    assert frame.schema["key"].dataType.simpleString() == "binary"
    rows = frame.selectExpr("conv(hex(key), 16, 10)", "value.id", "value.customer.name", "size(value.tags)", "value.at", "value.price", "offset").collect()
    expected = [(str(n), n, f"c{n}", n % 3, EPOCH + dt.timedelta(milliseconds=n), None, n // 2) for n in range(10)]
    assert sorted(tuple(row) for row in rows) == expected


def test_a_schema_or_fields_leave_the_others_out(orders, read):
    frame = read("value struct<tags: array<string>, customer: struct<name: string>>", subscribe="orders", **AVRO)
    assert sorted(row.value.customer.name for row in frame.collect()) == [f"c{n}" for n in range(10)]
    chosen = read(subscribe="orders", value__fields="customer.name, id", **AVRO)
    assert chosen.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    assert sorted(row.value.id for row in chosen.collect()) == list(range(10))


def test_what_cannot_be_decoded_fails_or_is_null_or_has_a_column(orders, read):
    with pytest.raises(
        (PySparkException, Py4JJavaError), match=r"the value of bad-0 at offset 1 cannot be decoded: .*; the option value.on_error can be null or column"
    ):
        read(subscribe="bad", **AVRO).collect()
    assert [row.value and row.value.id for row in read(subscribe="bad", value__on_error="null", **AVRO).collect()] == [0, None]
    frame = read(subscribe="bad", value__on_error="column", **AVRO)
    assert frame.columns[-1] == "value_error"
    assert [row.value_error and bytes(row.value_error.data) for row in frame.collect()] == [None, b"\xff"]
    assert [row.value_error is None for row in frame.select("value_error").collect()] == [True, False]


def test_a_stream_is_typed_and_written_in_another_format(spark, orders, tmp_path, source):
    options = {"path": orders.path, "subscribe": "orders", "startingOffsets": "earliest", "value.format": "avro", "value.schema": ORDER}
    stream = spark.readStream.format(source).options(**options).load()
    copied = tmp_path / "copied"
    written = {"path": str(copied), "topic": "t", "partitions": 1, "checkpointLocation": str(tmp_path / "checkpoint")}
    json_of = {"value.format": "json", "value.schema": "name string, id bigint", "key.format": "string"}
    query = stream.selectExpr("struct(value.id as id, value.customer.name as name) as value", "cast(value.id as string) as key")
    sink = query.writeStream.format("fletchlog").options(**written, **json_of)
    sink.trigger(availableNow=True).start().awaitTermination()
    with fl.Broker(copied, read_only=True) as broker:
        found = broker.scan("t").to_pyarrow()
    assert sorted(found["value"].to_pylist()) == [b'{"name":"c%d","id":%d}' % (n, n) for n in range(10)]
    assert sorted(found["key"].to_pylist()) == [b"%d" % n for n in range(10)]


def test_what_was_written_with_a_schema_is_read_with_it(spark, orders, read, tmp_path):
    frame = read(subscribe="orders", format="fletchlog", key__format="long", **AVRO)
    target = {"path": str(tmp_path / "again"), "topic": "t", "partitions": 1, "key.format": "long", "value.format": "avro", "value.schema": ORDER}
    frame.select("key", "value").orderBy("key").write.format("fletchlog").options(**target).mode("append").save()
    again = spark.read.format("fletchlog").options(path=target["path"], subscribe="t", **{"value.format": "avro", "value.schema": ORDER}).load()
    assert [row.value for row in again.collect()] == [row.value for row in frame.orderBy("key").collect()]
    with pytest.raises(PySparkException, match=r"column value cannot be written as avro: value has no field nme there; fields are id"):
        frame.selectExpr("struct(1L as nme) as value").write.format("fletchlog").options(**target).mode("append").save()
    with pytest.raises(PySparkException, match=r"column key cannot be written as long"):
        frame.selectExpr("array(1) as key", "value").write.format("fletchlog").options(**target).mode("append").save()


def test_a_registry_says_what_each_value_is_and_gets_what_is_written(spark, orders, read, tmp_path, source):
    with orders.broker.schema_registry() as registry, serde.Registry(registry.url) as client:
        of_registry = {"value.format": "avro", "value.schema.registry": registry.url}
        target = {"path": str(tmp_path / "registered"), "topic": "t", "partitions": 1, **of_registry}
        frame = read(subscribe="orders", format="fletchlog", key__format="long", **AVRO).select("value").orderBy("key")
        frame.write.format("fletchlog").options(**target, **{"value.schema": ORDER}).mode("append").save()
        assert client.subjects() == ["t-value"]
        loaded = spark.read.format(source).options(path=target["path"], subscribe="t", **of_registry).load()
        assert loaded.schema["value"].dataType.simpleString() == TYPE
        # the newest version is written when there is no schema
        loaded.select("value").write.format("fletchlog").options(**target).mode("append").save()
        # a version with another field: all values are read as the newest
        newer = json.loads(ORDER)
        newer["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
        frame.write.format("fletchlog").options(**target, **{"value.schema": json.dumps(newer)}).mode("append").save()
        again = spark.read.format(source).options(path=target["path"], subscribe="t", **of_registry).load()
        assert again.schema["value"].dataType.simpleString() == TYPE.removesuffix(">") + ",note:string>"
        found = [row.value.asDict(recursive=True) for row in again.collect()]
        assert found == [row.value.asDict(recursive=True) | {"note": None} for row in frame.collect()] * 3
        with pytest.raises(PySparkException, match=r"several topics are read: give option value.subject, or option value.reader_schema"):
            read(subscribe="orders,bad", value__format="confluent", value__schema__registry=registry.url)


def test_values_of_protobuf_and_json_have_the_newest_type_and_ids_or_guids_in_headers(spark, log, source):
    # the newest version has another message in front, and another field
    messages = ["message M { int64 id = 1; }", "message First {} message M { int64 id = 1; string name = 2; }"]
    fields = [{"id": {"type": "integer"}}, {"id": {"type": "integer"}, "name": {"type": "string"}}]
    schemas = {
        "PROTOBUF": [f'syntax = "proto3"; package p; {text}' for text in messages],
        "JSON": [json.dumps({"type": "object", "properties": properties}) for properties in fields],
    }
    with log.broker.schema_registry() as registry, serde.Registry(registry.url) as client, fl.Producer(log.broker) as producer:
        client.set_config(compatibility="NONE")
        for kind, texts in schemas.items():
            log.topic(kind)
            for number, text in enumerate(texts):
                options = {"registry": registry.url, "schema": text, "kind": kind, "topic": kind, "message": "p.M" if kind == "PROTOBUF" else None}
                ours, header = serde.Confluent(**options), serde.Confluent(**options, in_header=True)
                producer.send(kind, ours({"id": number}))
                producer.send(kind, header({"id": number}), headers=[header.header()])
        producer.flush()
        for kind, form, none in (("PROTOBUF", "protobuf", ""), ("JSON", "json-schema", None), ("PROTOBUF", "confluent", ""), ("JSON", "confluent", None)):
            options = {"value.format": form, "value.schema.registry": registry.url} | ({"value.message": "p.M"} if kind == "PROTOBUF" else {})
            frame = spark.read.format(source).options(path=log.path, subscribe=kind, **options).load()
            assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
            assert [tuple(row.value) for row in frame.collect()] == [(0, none), (0, none), (1, none), (1, none)]
            assert [row.id for row in frame.selectExpr("value.id").collect()] == [0, 0, 1, 1]


NESTED = json.dumps(
    {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "small", "type": ["null", "int"]},
            {"name": "f", "type": "float"},
            {"name": "d", "type": ["null", "double"]},
            {"name": "text", "type": ["null", "string"]},
            {"name": "data", "type": "bytes"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "nanos", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
            {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "huge", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}]},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}, {"name": "amounts", "type": {"type": "array", "items": ["null", "long"]}}],
                    },
                },
            },
            {"name": "labels", "type": {"type": "map", "values": ["null", "string"]}},
            {
                "name": "inner",
                "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "boolean"]}]}],
            },
        ],
    }
)


def everything(n):
    """A row of every type of Avro's, with nulls wherever they may be."""
    rows = [{"sku": f"s{i}", "amounts": [None if i else n, n + i][: 1 + n % 2]} for i in range(n % 4)]
    return {
        "flag": n % 2 == 0, "small": None if n % 3 == 0 else -n, "f": n / 4, "d": None if n % 4 == 0 else -n / 8, "text": None if n % 5 == 0 else f"é{n}" * (n % 3),
        "data": b"\xff" * (n % 4), "kind": "AB"[n % 2], "day": n - 5, "clock": n * 1_000_001, "at": n - 5, "nanos": 1_700_000_000_000_000_000 + n, "here": n,
        "price": decimal.Decimal(n - 5) / 100, "huge": None if n % 2 else decimal.Decimal(n - 5) * 10**20, "lines": rows,
        "labels": [(f"k{i}", None if i else "v") for i in range(n % 3)], "inner": None if n % 3 == 1 else {"x": n, "y": None if n % 2 else True},
    }  # fmt: skip


@pytest.fixture
def nested(log):
    log.topic("nested")
    avro = serde.Avro(NESTED)
    values, reasons = avro.encode(pa.array([everything(n) for n in range(40)], avro.type))
    assert not reasons
    with fl.Producer(log.broker) as producer:
        for n, value in enumerate(values.to_pylist()):
            producer.send("nested", value if n != 20 else None)
    return log


QUERIES = [
    ["value"],
    ["value.lines.sku", "value.inner.y"],
    ["value.huge", "value.price", "value.labels", "offset"],
    ["explode(value.lines) as line"],
    ["get(value.lines, 0).amounts", "value.text"],
    ["value.inner is null", "value.flag", "value.small", "value.f", "value.d", "topic"],
    ["value.clock", "value.nanos", "value.here", "value.day", "value.kind", "value.data"],
    ["count(value.labels['k0'])", "sum(value.small)"],
]


@pytest.mark.slow
@pytest.mark.parametrize("source", BOTH[1:])
def test_both_formats_give_the_same_rows_of_every_type(nested, read):
    options = {"subscribe": "nested", "value__format": "avro", "value__schema": NESTED}
    one, other = (read(format=source, **options) for source in BOTH)
    assert one.schema == other.schema
    for query in QUERIES:
        assert other.selectExpr(*query).collect() == one.selectExpr(*query).collect(), query
    part = (
        "offset bigint, value struct<inner: struct<y: boolean, x: int>, labels: map<string, string>, lines: array<struct<sku: string, amounts: array<bigint>>>>"
    )
    one, other = (read(part, format=source, **options) for source in BOTH)
    assert other.collect() == one.collect()


ITEM = "id bigint, name string, tags array<string>, more map<string, double>, day date, price decimal(9, 2)"
ITEM_SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}})
ITEM_PROTO = 'syntax = "proto3"; message Item { int64 id = 1; string name = 2; repeated double marks = 3; Inner inner = 4; message Inner { bool ok = 1; } }'
WRITTEN = [
    (serde.Long(), [5, None], {"format": "long"}),
    (serde.Double(), [1.5, None], {"format": "double"}),
    (serde.Boolean(), [True, None, False], {"format": "boolean"}),
    (serde.String(), ["é", None], {"format": "string"}),
    (serde.Json(), [{"id": 1, "tags": ["a", None], "more": {"x": 1.5}, "day": "2024-05-06", "price": "1.25"}, {}], {"format": "json", "schema": ITEM}),
    (serde.Json(), [{"id": 1, "tags": ["a"]}, {}], {"format": "json-schema", "schema": ITEM_SCHEMA}),
    (serde.Protobuf("Item", ITEM_PROTO), [{"id": 7, "name": "n", "marks": [1.0], "inner": {"ok": True}}], {"format": "protobuf", "schema": ITEM_PROTO}),
]


@pytest.mark.slow
def test_both_formats_read_every_format_of_values(log, read):
    for number, (serializer, values, options) in enumerate(WRITTEN):
        log.topic(f"t{number}")
        with fl.Producer(log.broker, value_serializer=serializer) as producer:
            for value in values:
                producer.send(f"t{number}", value)
        given = {f"value__{name}": text for name, text in options.items()}
        one, other = (read(subscribe=f"t{number}", format=source, **given) for source in BOTH)
        assert one.schema == other.schema, options
        rows = one.select("value", "offset").collect()
        assert len(rows) == len(values)
        assert other.select("value", "offset").collect() == rows, options
        if one.schema["value"].dataType.typeName() == "struct":
            assert other.select("value.id").collect() == one.select("value.id").collect()


PLACE = {"path": "/data", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value.format": "avr"}, "option value.format is avr; expected one of"),
        ({"value.format": "avro"}, "option value.format is avro, which needs option value.schema"),
        ({"key.format": "long", "key.schema": "x"}, "option key.schema is given, and long takes no schema"),
        ({"value.on_error": "null"}, "option value.on_error is for values that are decoded: give value.format"),
        ({"value.format": "long", "value.on_error": "raise"}, "option value.on_error is raise; expected one of fail, null, column"),
        ({"value.format": "confluent"}, "option value.format is confluent, which needs option value.schema.registry"),
        ({"value.format": "avro", "value.schema.registry.user": "x"}, "unknown option value.schema.registry.user; there are schema.registry"),
        ({"value.fromat": "long"}, "unknown option value.fromat .*did you mean value.format"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options, said):
    with pytest.raises(OptionError, match=said):
        SourceOptions.parse(PLACE | options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value.format": "json"}, "option value.format is json, which needs value.schema in Spark"),
        ({"value.format": "json-schema", "value.schema": "{}"}, "needs value.reader_schema in Spark"),
        ({"value.format": "avro", "value.schema": ORDER, "value.fields": "idd"}, "option value.fields: there is no field idd; fields are id, customer"),
        ({"value.format": "avro", "value.schema": ORDER, "value.fields": "id.x"}, "option value.fields: there is no field x, it is bigint"),
    ],
)
def test_a_type_that_a_frame_cannot_have_is_refused_when_it_is_loaded(options, said):
    with pytest.raises(OptionError, match=said):
        kafka_schema(include_headers=False, typed=SourceOptions.parse(PLACE | options).typed)


UNSIGNED = pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.uint32())), ("c", pa.map_(pa.string(), pa.float16())), ("d", pa.time64("us"))])


def test_types_that_spark_lacks_become_the_next_larger_ones():
    assert spark_type(UNSIGNED, "value").simpleString() == "struct<a:decimal(20,0),b:array<bigint>,c:map<string,float>,d:bigint>"
    rows = [{"a": 2**64 - 1, "b": [2**32 - 1, None], "c": [("k", 0.5)], "d": dt.time(0, 0, 1)}, None]
    kind = arrow_schema(kafka_like(UNSIGNED)).field("value").type
    found = selected(pa.array(rows, UNSIGNED), kind).to_pylist()
    assert found[1] is None
    assert (int(found[0]["a"]), found[0]["b"], found[0]["c"], found[0]["d"]) == (2**64 - 1, [2**32 - 1, None], [("k", 0.5)], 1_000_000)


def test_a_type_that_spark_has_nothing_for_is_named():
    with pytest.raises(OptionError, match=r"value.x.element is decimal256\(50, 2\), which Spark does not have; leave it out with the option value.fields"):
        spark_type(pa.struct([("x", pa.list_(pa.decimal256(50, 2)))]), "value")


def kafka_like(kind):
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField("value", spark_type(kind, "value"))])


def test_a_task_decodes_only_the_columns_that_are_asked_for(orders):
    options = SourceOptions.parse({"path": orders.path, "subscribe": "bad", "value.format": "avro", "value.schema": ORDER})
    schema = kafka_schema(include_headers=False, typed=options.typed)
    offsets = type(schema)([schema["offset"]])
    (batch,) = read_ranges((OffsetRange("bad", 0, 0, 2),), options, offsets)
    assert batch.to_pydict() == {"offset": [0, 1]}
