"""`serde.Json`: one JSON value per record, whatever is beside it."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fletchlog import serde

ORDER = pa.schema({"id": pa.int64(), "name": pa.string()})


def decode(values, schema=ORDER):
    column, reasons = serde.Json(schema).decode(pa.array(values, pa.binary()))
    assert len(column) == len(values)
    return column.to_pylist(), reasons


def test_fields_are_taken_by_name_and_the_rest_is_left_out():
    assert decode([b'{"name": "a", "id": 1, "more": [1]}', b"{}", b"null", None, b'{"id":\n2}']) == (
        [{"id": 1, "name": "a"}, {"id": None, "name": None}, None, None, {"id": 2, "name": None}],
        {},
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "not JSON: it is empty"),
        (b"{", "not JSON: EOF while parsing an object"),
        (b"{}{}", "not JSON: trailing characters"),
        (b'{"id":1}{"v":{}', "not JSON: trailing characters"),
        (b'{},"v":{}', "not JSON: trailing characters"),
        (b'{"name": "\xff"}', "not JSON: invalid unicode code point"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON: recursion limit exceeded"),
        (b'{"id": "x"}', "Column(/id) changed from number to string"),
        (b'{"id": 1.5}', "Failed to convert JSON to int64, couldn't parse:1.5"),
        (b'{"id": 99999999999999999999}', "Failed to convert JSON to int64"),
        (b'{"id": 1, "id": 2}', "Column(/id) was specified twice"),
        (b"[1]", "Column() changed from object to array"),
    ],
)
def test_a_malformed_value_does_not_touch_its_neighbours(bad, reason):
    rows, reasons = decode([b'{"id": 1}', bad, b'{"id": 3}'])
    assert rows == [{"id": 1, "name": None}, None, {"id": 3, "name": None}]
    assert list(reasons) == [1]
    assert reason in reasons[1]


def test_any_type_can_be_the_schema():
    assert decode([b"[1, 2]", b"[]"], pa.list_(pa.int32()))[0] == [[1, 2], []]
    assert decode([b'"2024-05-06T07:08:09Z"'], pa.timestamp("ms", "UTC"))[0] == [dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)]
    assert decode([b"true", b"1"], pa.bool_()) == ([True, None], {1: "Column() changed from boolean to number"})


def test_the_type_is_inferred_from_all_values_that_agree():
    rows, reasons = decode([b'{"a": 1}', b'{"a": 2.5, "b": "x"}', None], None)
    assert (rows, reasons) == ([{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}, None], {})
    rows, reasons = decode([b'{"a": 1}', b'{"a": "x"}', b'{"a": 3, "late": 1}', b"7"], None)
    assert rows == [{"a": 1}, None, {"a": 3}, None]
    assert list(reasons) == [1, 3]


def test_no_rows_and_only_nulls_have_a_type():
    for values in ([], [None, None], [b"null"]):
        assert serde.Json(ORDER).decode(pa.array(values, pa.binary()))[0].type == pa.struct(list(ORDER))
        assert serde.Json().decode(pa.array(values, pa.binary()))[0].type == pa.null()


def test_values_longer_than_a_block_and_many_blocks_are_read():
    values = [json.dumps({"id": i, "name": "n" * (3_000_000 if i == 5 else 1000)}).encode() for i in range(3000)]
    rows, reasons = decode(values)
    assert reasons == {}
    assert [row["id"] for row in rows] == list(range(3000))
    assert len(rows[5]["name"]) == 3_000_000


@pytest.mark.slow
def test_many_bad_rows_are_found_in_reasonable_time():
    rows, reasons = decode([b'{"id": "x"}' if i % 2 else b'{"id": %d}' % i for i in range(4000)])
    assert [row["id"] for row in rows if row] == list(range(0, 4000, 2))
    assert list(reasons) == list(range(1, 4000, 2))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.text('{}[]":,1av \n', max_size=8).map(str.encode))))
def test_a_row_is_decoded_as_if_it_were_alone(values):
    rows, reasons = decode(values, pa.int64())
    for row, value in enumerate(values):
        alone, why = decode([value], pa.int64())
        assert (rows[row], reasons.get(row)) == (alone[0], why.get(0))
