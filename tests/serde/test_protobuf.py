"""Protobuf messages and JSON that follows a schema: what is written is read, alone and in Confluent's wire format."""

import datetime as dt
import json
import pickle

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog import serde

F = descriptor_pb2.FieldDescriptorProto


def field(name, number, kind, label=F.LABEL_OPTIONAL, type_name=None, *, optional=None):
    made = F(name=name, number=number, type=kind, label=label, type_name=type_name)
    if optional is not None:
        made.proto3_optional, made.oneof_index = True, optional
    return made


def messages():
    """A file with an Order, whose nested message is Order.Item, and a Second and a Tree message."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    order = file.message_type.add(name="Order")
    order.field.extend([
        field("id", 1, F.TYPE_SINT64),
        field("note", 2, F.TYPE_STRING, optional=0),
        field("tags", 3, F.TYPE_STRING, F.LABEL_REPEATED),
        field("counts", 4, F.TYPE_MESSAGE, F.LABEL_REPEATED, ".shop.Order.CountsEntry"),
        field("kind", 5, F.TYPE_ENUM, type_name=".shop.Kind"),
        field("item", 6, F.TYPE_MESSAGE, type_name=".shop.Order.Item"),
        field("items", 7, F.TYPE_MESSAGE, F.LABEL_REPEATED, ".shop.Order.Item"),
        field("at", 8, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
        field("raw", 9, F.TYPE_BYTES),
        field("big", 10, F.TYPE_FIXED64),
        field("price", 11, F.TYPE_DOUBLE),
        field("good", 12, F.TYPE_BOOL),
    ])  # fmt: skip
    order.oneof_decl.add(name="_note")
    order.nested_type.add(name="Item").field.extend([field("n", 1, F.TYPE_INT32), field("f", 2, F.TYPE_FLOAT)])
    entry = order.nested_type.add(name="CountsEntry")
    entry.field.extend([field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_MESSAGE, type_name=".shop.Order.Item")])
    entry.options.map_entry = True
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="A", number=0)
    kinds.value.add(name="B", number=1)
    file.message_type.add(name="Second").field.append(field("x", 1, F.TYPE_INT32))
    file.message_type.add(name="Tree").field.append(field("child", 1, F.TYPE_MESSAGE, type_name=".shop.Tree"))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Order.Item", "Second", "Tree")}


MESSAGES = messages()
ORDER = serde.Protobuf(MESSAGES["Order"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ITEMS = st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1), "f": st.floats(width=32, allow_nan=False)})
ORDERS = st.fixed_dictionaries({
    "id": st.integers(-(2**63), 2**63 - 1),
    "note": st.none() | TEXT,
    "tags": st.lists(TEXT, max_size=3),
    "counts": st.dictionaries(TEXT, ITEMS, max_size=3).map(lambda counts: sorted(counts.items())),
    "kind": st.sampled_from(["A", "B", "7"]),
    "item": st.none() | ITEMS,
    "items": st.lists(ITEMS, max_size=2),
    "at": st.none() | st.integers(-(10**15), 10**15).map(lambda us: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)),
    "raw": st.binary(max_size=5),
    "big": st.integers(0, 2**64 - 1),
    "price": st.floats(allow_nan=False),
    "good": st.booleans(),
})  # fmt: skip


def sorted_maps(rows):
    return [row and {**row, "counts": sorted(row["counts"], key=lambda entry: entry[0])} for row in rows]


@pytest.mark.parametrize("serializer", [ORDER, serde.Confluent({7: ORDER}, schema_id=7)], ids=["alone", "confluent"])
@settings(max_examples=60, deadline=None)
@given(orders=st.lists(st.none() | ORDERS, max_size=4))
def test_what_is_written_is_read_as_it_was(serializer, orders):
    table = pa.table({"value": pa.array(orders, ORDER.type)})
    written = serde.serialize(table, value=serializer)
    read = serde.deserialize(written, value=serializer)["value"]
    if orders and any(orders):
        assert read.type == ORDER.type
    assert sorted_maps(read.to_pylist()) == sorted_maps(table["value"].to_pylist())


def test_the_bytes_are_those_of_protobuf_and_of_confluent():
    order = MESSAGES["Order"](id=-1, kind=1)
    assert ORDER({"id": -1, "kind": "B"}) == order.SerializeToString() == b"\x08\x01\x28\x01"
    item = serde.Protobuf(MESSAGES["Order.Item"])
    for serializer, prefix in ((ORDER, b"\0"), (serde.Protobuf(MESSAGES["Second"]), b"\2\2"), (item, b"\4\0\0")):
        assert serde.Confluent({1: serializer}, schema_id=1)({}) == b"\0\0\0\0\1" + prefix
        assert serializer.after_schema_id.prefix() == prefix
    # the long form of the first message, which some clients write
    read, reasons = serde.Confluent({1: ORDER}).decode(pa.array([b"\0\0\0\0\1\2\0\x08\x01", b"\0\0\0\0\1\2\2\x08\x01", b"\0\0\0\0\1\0\x08"]))
    assert read[0].as_py()["id"] == -1
    assert reasons[1] == "it is shop.Second, another message of its file than shop.Order"
    assert reasons[2].startswith("not a shop.Order: ")
    assert read.to_pylist()[1:] == [None, None]


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (b"", "no message indexes of Confluent's wire format: their number and each of them, before the shop.Order"),
        (b"\x80", "no message indexes"),
        (b"\x08\x01", "no message indexes"),
        (b"\x02\x01\x08\x01", "no message indexes"),
        (b"\x01\x08\x01", "no message indexes"),
        (b"\x02", "no message indexes"),
        (b"\xff" * 20, "no message indexes"),
        (b"\x04\x00\x00\x08\x01", "it is shop.Order.Item, another message of its file than shop.Order"),
        (b"\x02\x06\x08\x01", "its message indexes are [3], orders.proto has no such message: are there indexes before the shop.Order?"),
        (b"\x04\x02\x00\x08\x01", "its message indexes are [1, 0], orders.proto has no such message"),
        (b"\x00\x08", "not a shop.Order: "),
    ],
)
def test_indexes_that_are_missing_or_another_messages_are_named(rest, reason):
    _, reasons = serde.Confluent({1: ORDER}).decode(pa.array([b"\0\0\0\0\1\0", b"\0\0\0\0\1" + rest]))
    assert list(reasons) == [1]
    assert reasons[1].startswith(reason)


def test_timestamps_are_what_their_numbers_say():
    stamps = [(253402300799, 999999999), (-62135596800, 0), (253402300800, 0), (-(2**40), 1000), (2**62, 0), (0, 999)]
    data = [MESSAGES["Order"](at={"seconds": seconds, "nanos": nanos}).SerializeToString() for seconds, nanos in stamps]
    decoded, reasons = ORDER.decode(pa.array(data))
    assert decoded.field("at").cast(pa.int64()).to_pylist() == [253402300799999999, -62135596800000000, 253402300800000000, -(2**40) * 10**6 + 1, None, 0]
    assert reasons == {4: "not a shop.Order: a Timestamp of 4611686018427387904 seconds is beyond timestamp[us]"}
    made, reasons = ORDER.encode(decoded)
    assert made[0].as_py() == MESSAGES["Order"](at={"seconds": 253402300799, "nanos": 999999000}).SerializeToString()
    assert made[1].as_py() == data[1]
    # Protobuf's own limit
    assert list(reasons) == [2, 3]
    assert "Timestamp is not valid" in reasons[2]


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({"kind": "C"}, "shop.Kind has no value 'C'"),
        ({"tags": ["a", None]}, "a null within shop.Order.tags: Protobuf has none in lists and maps"),
        ({"items": [None]}, "a null within shop.Order.items: "),
        ({"counts": [("a", None)]}, "a null within shop.Order.CountsEntry.value: "),
    ],
)
def test_what_protobuf_has_not_is_named_by_its_row(order, text):
    with pytest.raises(fl.errors.InvalidArgumentError, match=f"the value of row 1 cannot be encoded: {text}"):
        serde.serialize(pa.table({"value": pa.array([{}, order], ORDER.type)}), value=ORDER)


def test_a_framed_value_is_recognised_without_its_frame():
    for deserializer, rest in [
        (ORDER, b"\0\x08\x01"),
        (serde.Json(), b"{}"),
        (VALUES, b"{}"),
        (serde.JsonSchema(SCHEMA), b'{"n":1}'),
        (serde.Avro('"string"'), b"\x02a"),
    ]:
        _, reasons = deserializer.decode(pa.array([b"\0\0\0\0\1" + rest]))
        assert reasons[0].startswith("not ")
        assert reasons[0].endswith(" (it begins as in Confluent's wire format: give the deserializer to Confluent)")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff{", "not JSON: it is not UTF-8"),
        ('{"n":1}'.encode("utf-16"), "not JSON: it is not UTF-8"),
        ('{"n":1}'.encode("utf-32-be"), "not JSON: "),
        (b"", "not JSON: "),
        (b"[", "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b'{"n":-1}', "not as the JSON Schema says at /n: -1 is less than the minimum of 0"),
    ],
)
def test_a_reason_says_whether_it_is_no_json_or_does_not_follow_the_schema(data, reason):
    _, reasons = serde.JsonSchema(SCHEMA, VALUES).decode(pa.array([b'{"n":1}', data]))
    assert list(reasons) == [1]
    assert reasons[1].startswith(reason)


def test_what_can_never_work_is_refused_at_once():
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"shop\.Tree contains itself"):
        serde.Protobuf(MESSAGES["Tree"])
    with pytest.raises(fl.errors.InvalidArgumentError, match="a message class that protoc has made, or a name and a schema, got 5"):
        serde.Protobuf(5)
    with pytest.raises(fl.errors.InvalidArgumentError, match="not a JSON Schema"):
        serde.JsonSchema({"type": "no such type"})


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"], "additionalProperties": False}
VALUES = serde.Json(pa.schema({"n": pa.int64()}))


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["parsed", "text"])
@settings(max_examples=30, deadline=None)
@given(numbers=st.lists(st.none() | st.integers(0, 2**63 - 1), max_size=4))
def test_json_that_follows_its_schema_is_read_as_it_was_written(schema, numbers):
    follows = serde.JsonSchema(schema, VALUES)
    table = pa.table({"value": pa.array([n if n is None else {"n": n} for n in numbers], VALUES.type)})
    for serializer in (follows, serde.Confluent({3: follows}, schema_id=3)):
        written = serde.serialize(table, value=serializer)
        assert serde.deserialize(written, value=serializer)["value"].to_pylist() == table["value"].to_pylist()


def test_json_that_does_not_follow_its_schema_is_malformed_and_not_written():
    follows = serde.JsonSchema(SCHEMA, VALUES)
    read, reasons = follows.decode(pa.array([b'{"n":1}', b'{"n":-1}', b"{}", b"[", None]))
    assert read.to_pylist() == [{"n": 1}, None, None, None, None]
    assert sorted(reasons) == [1, 2, 3]
    assert reasons[1] == "not as the JSON Schema says at /n: -1 is less than the minimum of 0"
    assert follows({"n": 1}) == b'{"n":1}'
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"JsonSchema cannot encode \{'n': -1\}: .* is less than the minimum"):
        follows({"n": -1})
    with pytest.raises(fl.errors.InvalidArgumentError, match="the value of row 1 cannot be encoded: not as the JSON Schema says"):
        serde.serialize(pa.table({"value": [{"n": 1}, {"n": -1}]}), value=follows)


SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "item.proto";
message First { oneof one { int32 a = 1; string b = 2; } }
message Order {
  sint64 id = 1; optional string note = 2; repeated shop.parts.Item items = 3; google.protobuf.Timestamp at = 4;
  message Inner { bytes raw = 1; }
}
"""
FILES = {"shop.proto": SHOP, "item.proto": 'syntax = "proto3"; package shop.parts; message Item { int32 n = 1; }'}


def test_a_schema_is_text_texts_or_descriptors():
    order = serde.Protobuf("shop.Order", FILES)
    items = pa.list_(pa.struct([("n", pa.int32())]))
    assert order.type == pa.struct([("id", pa.int64()), ("note", pa.string()), ("items", items), ("at", pa.timestamp("us", "UTC"))])
    assert order.of_bytes(order({"id": -1, "items": [{"n": 3}]})) == {"id": -1, "note": None, "items": [{"n": 3}], "at": None}
    assert serde.Protobuf("shop.Order", order.declared[0]).type == order.type
    assert serde.Protobuf(schema=FILES).type == pa.struct([("a", pa.int32()), ("b", pa.string())])
    assert serde.Protobuf(schema='syntax = "proto2"; message M { required int32 a = 1; }').type == pa.struct([("a", pa.int32())])
    copy = pickle.loads(pickle.dumps(order))
    assert copy == order
    assert copy({"id": 2}) == b"\x08\x04"
    assert pickle.loads(pickle.dumps(order.after_schema_id))({"id": 2}) == b"\x02\x02\x08\x04"


def test_the_indexes_of_confluent_name_the_message():
    inner = serde.Protobuf("shop.Order.Inner", FILES)
    assert serde.Confluent({1: inner}, schema_id=1)({"raw": b"a"}) == b"\0\0\0\0\1\4\2\0\x0a\1a"


@pytest.mark.parametrize(
    ("message", "schema", "text"),
    [
        ("M", "message M {\n  int32 a = 1\n}", "not a Protobuf schema: schema.proto:3:1: "),
        ("M", 'import "a.proto";', "not a Protobuf schema: .*import 'a.proto' not found"),
        ("M", 'syntax = "proto3"; message N {}', "the descriptors have no Protobuf message M"),
        (None, 'syntax = "proto3";', r"the Protobuf schema has no message"),
        (
            "M",
            'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }',
            "google.protobuf.Struct contains itself",
        ),
        ("M", b"\xff", "not the descriptors of .proto files"),
        ("M", 5, "a Protobuf schema is a text, texts by file names, or bytes of a FileDescriptorSet, got 5"),
        (MESSAGES["Order"], FILES, "with a schema it is the full name of a message"),
    ],
)
def test_what_is_no_schema_is_refused(message, schema, text):
    with pytest.raises(fl.errors.InvalidArgumentError, match=text):
        serde.Protobuf(message, schema)


def test_other_well_known_types_are_the_messages_that_they_are():
    schema = """
    syntax = "proto3";
    import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
    message M { google.protobuf.Any any = 1; google.protobuf.Duration duration = 2; google.protobuf.Int32Value number = 3; }
    """
    known = serde.Protobuf("M", schema)
    any_type = pa.struct([("type_url", pa.string()), ("value", pa.binary())])
    duration = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
    assert known.type == pa.struct([("any", any_type), ("duration", duration), ("number", pa.struct([("value", pa.int32())]))])
    assert known.of_bytes(b"\x1a\0")["number"] == {"value": 0}


def test_pruned_fields_alone_have_columns_and_the_rest_is_skipped():
    few = ORDER.pruned(["at", ("item", "f"), "items.n", "counts.n"])
    counts = pa.map_(pa.string(), pa.struct([("n", pa.int32())]))
    item, items = pa.struct([("f", pa.float32())]), pa.list_(pa.struct([("n", pa.int32())]))
    assert few.type == pa.struct([("counts", counts), ("item", item), ("items", items), ("at", pa.timestamp("us", "UTC"))])
    whole = MESSAGES["Order"](id=3, tags=["a"], item={"n": 1, "f": 2}, items=[{"n": 4, "f": 5}], counts={"k": {"n": 6, "f": 7}})
    read, reasons = few.decode(pa.array([whole.SerializeToString(), b"\x1a\x01\xff", b"\x1a\x05a"]))
    assert read.to_pylist() == [
        {"counts": [("k", {"n": 6})], "item": {"f": 2.0}, "items": [{"n": 4}], "at": None},
        {"counts": [], "item": None, "items": [], "at": None},
        None,
    ]
    assert list(reasons) == [2]
    assert pickle.loads(pickle.dumps(serde.Protobuf("shop.Order", FILES).pruned(["id"]))).type == pa.struct([("id", pa.int64())])
    assert serde.Confluent({1: few}).decode(pa.array([b"\0\0\0\0\1\0" + whole.SerializeToString()]))[0][0].as_py()["item"] == {"f": 2.0}
    for fields in (["none"], ["item.none"], ["id.none"]):
        with pytest.raises(fl.errors.InvalidArgumentError, match=r"has no field"):
            ORDER.pruned(fields)
