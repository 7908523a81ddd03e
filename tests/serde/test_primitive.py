"""Kafka's deserializers of strings and numbers, column-wise."""

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fletchlog import serde

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
