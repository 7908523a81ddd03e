"""Kafka's deserializers of strings and numbers, column-wise."""

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fletchlog import serde
from fletchlog.errors import InvalidArgumentError

# bytes -> the text that Java's StringDeserializer made of them, as recorded
JAVA_TEXT = [
    ("41c3bf", "A\xff"),
    ("f4ed8fedbff1", "\ufffd" * 4),
    ("a080bfe1eda0", "\ufffd" * 5),
    ("f0edbfc3c2", "\ufffd" * 4),
    ("8fedbf", "\ufffd" * 2),
    ("eda080", "\ufffd"),
    ("edc390c08fc29fedbf", "\ufffd\u00d0\ufffd\ufffd\u009f\ufffd"),
    ("f09080", "\ufffd"),
    ("c080", "\ufffd\ufffd"),
]
NUMBERS = [
    (serde.Short(), ">h", st.integers(-(2**15), 2**15 - 1), pa.int16()),
    (serde.Integer(), ">i", st.integers(-(2**31), 2**31 - 1), pa.int32()),
    (serde.Long(), ">q", st.integers(-(2**63), 2**63 - 1), pa.int64()),
    (serde.Float(), ">f", st.floats(width=32), pa.float32()),
    (serde.Double(), ">d", st.floats(), pa.float64()),
]


@pytest.mark.parametrize(("data", "text"), JAVA_TEXT, ids=[data for data, _ in JAVA_TEXT])
def test_bytes_that_are_not_utf_8_become_what_java_makes_of_them(data, text):
    column, reasons = serde.String().decode(pa.array([b"ok", bytes.fromhex(data), None]))
    assert (column.to_pylist(), reasons) == (["ok", text, None], {})


@pytest.mark.parametrize(("number", "code", "values", "arrow_type"), NUMBERS, ids=[type(n[0]).__name__ for n in NUMBERS])
def test_numbers_are_big_endian_of_exactly_their_size(number, code, values, arrow_type):
    @given(st.lists(st.one_of(st.none(), values, st.binary(max_size=9)), max_size=30), st.integers(0, 5))
    def check(cells, skipped):
        raw = [struct.pack(code, cell) if isinstance(cell, int | float) else cell for cell in cells]
        size = struct.calcsize(code)
        column, reasons = number.decode(pa.array(raw, pa.binary())[skipped:])
        raw = raw[skipped:]
        expected = [struct.unpack(code, cell)[0] if cell is not None and len(cell) == size else None for cell in raw]
        assert column.type == number.type == arrow_type
        assert [repr(cell) for cell in column.to_pylist()] == [repr(cell) for cell in expected]
        assert set(reasons) == {row for row, cell in enumerate(raw) if cell is not None and len(cell) != size}
        column.validate(full=True)

    check()


def test_a_number_of_another_size_says_so():
    _, reasons = serde.Long().decode(pa.array([b"\x00" * 8, b"123"]))
    assert reasons == {1: "Long takes 8 bytes, the value has 3"}


def test_a_boolean_is_a_byte_0_or_1_as_in_java():
    values = pa.array([b"\0", b"\1", None, b"\2", b"\xff", b"", b"\1\0"], pa.binary())
    column, reasons = serde.Boolean().decode(values)
    assert column.to_pylist() == [False, True, None, None, None, None, None]
    assert reasons == {
        3: "Boolean takes a byte 0 or 1, the value is 2",
        4: "Boolean takes a byte 0 or 1, the value is 255",
        5: "Boolean takes 1 bytes, the value has 0",
        6: "Boolean takes 1 bytes, the value has 2",
    }
    assert serde.Boolean().encode(column[:3])[0].to_pylist() == [b"\0", b"\1", None]
    assert serde.Boolean()(True) == b"\1"


def test_a_double_keeps_what_is_not_a_number():
    column, _ = serde.Double().decode(pa.array([struct.pack(">d", math.nan), struct.pack(">d", -0.0)]))
    assert math.isnan(column[0].as_py())
    assert math.copysign(1, column[1].as_py()) == -1


# (items, list, bytes), as ListSerializer of kafka-clients 4.4.0 wrote them
JAVA_LISTS = [
    (serde.Integer(), [1, None, -2], "0000000001000000010000000300000001fffffffe"),
    (serde.Integer(), [], "000000000000000000"),
    (serde.Integer(), [None, None], "0000000002000000000000000100000002"),
    (serde.Long(), [5], "0000000000000000010000000000000005"),
    (serde.Short(), [7], "0000000000000000010007"),
    (serde.Double(), [1.5], "0000000000000000013ff8000000000000"),
    (serde.Float(), [1.5, None], "000000000100000001000000023fc00000"),
    (serde.Boolean(), [True, None, False], "01000000030000000101ffffffff0000000100"),
    (serde.String(), ["a", None, "", "é"], "01000000040000000161ffffffff0000000000000002c3a9"),
]
# (items, bytes, what ListDeserializer of 4.4.0 read; None: it refused them)
JAVA_READS = [
    (serde.Integer(), "00000000000000000200000001000000", None),
    (serde.Integer(), "0000000000000000020000000100000002ff", [1, 2]),
    (serde.Integer(), "000000000000000001", None),
    (serde.Integer(), "00000000000000000100", None),
    (serde.Integer(), "01000000020000000400000001ffffffff", [1, None]),
    (serde.Integer(), "010000000100000002ffff", None),
    (serde.Integer(), "02", None),
    (serde.Integer(), "", None),
    (serde.Integer(), "00ffffffff", None),
    (serde.Integer(), "0000000000ffffffff", None),
    (serde.Integer(), "00000000020000000300000000000000020000000100000002", [None, 1]),
    (serde.Integer(), "000000000100000000000000020000000900000001", [None, 9]),
    (serde.Integer(), "0000000001ffffffff0000000100000001", [1]),
    (serde.Integer(), "0000000001000000050000000100000001", [1]),
    (serde.Integer(), "00000000007fffffff", None),
    (serde.String(), "00000000000000000161", None),
    (serde.String(), "010000000300000001" + "61" + "ffffffff" + "00000000", ["a", None, ""]),
    (serde.String(), "0100000001fffffffe", None),
    (serde.String(), "01000000010000000561", None),
    (serde.String(), "01000000020000000161", None),
    (serde.String(), "01000000010000000161ff", ["a"]),
    (serde.String(), "0100000000", []),
    (serde.String(), "01ffffffff", None),
    (serde.String(), "017fffffff", None),
    (serde.Boolean(), "01000000010000000101", [True]),
    (serde.Boolean(), "00000000000000000101", None),
]


@pytest.mark.parametrize(("items", "values", "data"), JAVA_LISTS, ids=[data for _, _, data in JAVA_LISTS])
def test_lists_have_the_bytes_of_java(items, values, data):
    lists = serde.List(items)
    assert lists(values).hex() == data
    assert lists.of_bytes(bytes.fromhex(data)) == values
    column = pa.array([values, None, [], values], pa.list_(items.type))
    made, reasons = lists.encode(column)
    assert (made[3].as_py().hex(), made[1].as_py(), reasons) == (data, None, {})
    assert lists.decode(made) == (column, {})
    assert lists.encode(column[3:])[0] == made[3:]


@pytest.mark.parametrize(("items", "data", "values"), JAVA_READS, ids=[data or "nothing" for _, data, _ in JAVA_READS])
def test_lists_are_read_as_java_reads_them(items, data, values):
    column, reasons = serde.List(items).decode(pa.array([b"\1\0\0\0\0", bytes.fromhex(data), b"\1\0\0\0\0"], pa.binary()))
    assert column.to_pylist() == [[], values, []]
    assert (1 in reasons) == (values is None)
    column.validate(full=True)


@given(st.lists(st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=3), max_size=4), st.binary(max_size=40))
def test_lists_of_lists_and_bytes_that_are_none(rows, noise):
    lists = serde.List(serde.List(serde.Short()))
    column = pa.array(rows, lists.type)
    assert lists.decode(lists.encode(column)[0]) == (column, {})
    for noisy in (serde.List(serde.Short()), serde.List(serde.String()), lists):
        made, reasons = noisy.decode(pa.array([noise, b"\1" + noise, b"\0" + noise, b"\1\0\0\0\0"], pa.binary()))
        made.validate(full=True)
        assert made[3].as_py() == []
        assert all(made[row].as_py() is None for row in reasons)


def test_a_list_says_what_its_items_can_be():
    assert serde.List(serde.Avro({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]})).pruned(
        ["y"]
    ).type == pa.list_(pa.struct([("y", pa.int32())]))
    for items in (serde.Json(), serde.Confluent({1: '"int"'}), serde.Long, "long"):
        with pytest.raises(InvalidArgumentError, match="Long"):
            serde.List(items)
    with pytest.raises(InvalidArgumentError, match="cannot write"):
        serde.List(serde.JsonSchema({"type": "string"}))(["a"])
