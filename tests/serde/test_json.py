"""`serde.Json`: one JSON value per record, whatever is beside it."""

import datetime as dt
import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl
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
        (b'{"name": "\xff"}', "not JSON: it is not UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON: recursion limit exceeded"),
        (b'{"id": "x"}', "a string where the type is int64 at /id"),
        (b'{"id": 1.5}', "1.5 is no int64 at /id"),
        (b'{"id": 99999999999999999999}', "99999999999999999999 is no int64 at /id"),
        (b'{"id": 1, "id": 2}', 'the object has the name "id" twice'),
        (b"[1]", "an array where the type is struct"),
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
    assert decode([b"true", b"1"], pa.bool_()) == ([True, None], {1: "a number where the type is bool"})


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


TWICE, ONCE, TWO_KINDS = b'{"a":1,"a":2}', b'{"a":1}', b'{"a":[1,"x"]}'


@pytest.mark.parametrize(
    ("values", "rows", "why"),
    [
        ([TWICE, ONCE, b'{"a":2}'], [None, {"a": 1}, {"a": 2}], {0: 'the object has the name "a" twice'}),
        ([ONCE, TWICE, b'{"a":2}'], [{"a": 1}, None, {"a": 2}], {1: 'the object has the name "a" twice'}),
        ([b"", TWICE, TWICE, ONCE], [None, None, None, {"a": 1}], {0: "not JSON: it is empty", 1: "twice", 2: "twice"}),
        (
            [TWO_KINDS, b'{"a":[2]}', TWO_KINDS],
            [None, {"a": [2]}, None],
            {0: "an array has values of different kinds: a number and a string", 2: "of different kinds"},
        ),
        ([TWICE], [None], {0: "twice"}),
        ([TWICE, b"7", b'{"a":1}', b"8"], [None, 7, None, 8], {0: "twice", 2: "an object where the type is int64"}),
        ([TWICE, b"7", b"8.5", b'"x"', None], [None, 7.0, 8.5, None, None], {0: "twice", 3: "a string where the type is double"}),
    ],
)
def test_a_value_that_contradicts_itself_is_malformed_alone(values, rows, why):
    decoded, reasons = decode(values, None)
    assert decoded == rows
    assert list(reasons) == list(why)
    assert all(text in reasons[row] for row, text in why.items())


@pytest.mark.parametrize(
    ("arrow_type", "place"),
    [
        (pa.binary(), "Json has no"),
        (pa.binary(2), "Json has no"),
        (pa.large_binary(), "Json has no"),
        (pa.binary_view(), "Json has no"),
        (pa.month_day_nano_interval(), "Json has no"),
        (pa.sparse_union([pa.field("a", pa.int8())]), "Json has no"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "Json has no"),
        (pa.list_view(pa.int64()), "Json has no"),
        (pa.uuid(), "Json has no"),
        (pa.dictionary(pa.int8(), pa.binary()), "Json has no"),
        (pa.schema({"a": pa.struct({"b": pa.list_(pa.binary())})}), "at /a/b/items"),
        (pa.schema({"m": pa.map_(pa.list_(pa.string()), pa.string())}), "at /m"),
        (pa.schema({"m": pa.map_(pa.binary(), pa.string())}), "at /m/key"),
        (pa.schema({"m": pa.map_(pa.string(), pa.binary())}), "at /m/value"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "twice"),
        (5, "takes a pyarrow.Schema, a pyarrow.DataType or text such as 'id bigint, name string', got 5"),
        ('{"type": "object"}', "JsonSchema takes a JSON Schema"),
    ],
)
def test_a_schema_that_json_cannot_have_is_refused_at_once(arrow_type, place):
    with pytest.raises(fl.errors.InvalidArgumentError, match=place) as caught:
        serde.Json(arrow_type)
    assert str(caught.value).startswith(("Json has no", "a JSON object has no name twice", "Json takes"))


def test_a_schema_may_be_text_in_the_ddl_of_spark():
    orders = serde.Json("id bigint, name string, tags array<string>")
    assert orders.type == pa.struct([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
    assert decode([b'{"id": 1, "more": 2}'], orders.schema) == ([{"id": 1, "name": None, "tags": None}], {})
    assert orders.of_bytes(orders({"id": 2, "tags": ["a"]})) == {"id": 2, "name": None, "tags": ["a"]}
    assert pickle.loads(pickle.dumps(orders)) == orders
    assert orders.pruned(["id"]).type == pa.struct([("id", pa.int64())])
    assert serde.Json("double").of_bytes(b"2.5") == 2.5
    with pytest.raises(fl.errors.InvalidArgumentError, match="'int64' is no type: a type expected"):
        serde.Json("int64")


DAY = 86_400


@pytest.mark.parametrize(
    ("arrow_type", "text", "number"),
    [
        (pa.date32(), b'"2024-05-06"', 19849),
        (pa.date32(), b"19849", 19849),
        (pa.date32(), b'"+10000-01-01"', 2932897),
        (pa.date32(), b'"0000-01-01"', -719528),
        (pa.date32(), b'"-0001-12-31"', -719529),
        (pa.date32(), b'"+5881580-07-11"', 2**31 - 1),
        (pa.date64(), b'"2024-05-06"', 19849 * DAY * 1000),
        (pa.date64(), b"1714953600000", 19849 * DAY * 1000),
        (pa.date64(), b'"+5881580-07-12"', 2**31 * DAY * 1000),
        (pa.time32("s"), b'"07:08:09"', 25689),
        (pa.time32("s"), b"25689", 25689),
        (pa.time32("ms"), b'"07:08:09.5"', 25689500),
        (pa.time64("ns"), b'"23:59:59.999999999"', DAY * 10**9 - 1),
        (pa.timestamp("s"), b'"2024-05-06"', 19849 * DAY),
        (pa.timestamp("ms"), b'"2024-05-06T00:00:00.005"', 19849 * DAY * 1000 + 5),
        (pa.timestamp("ms"), b'"2024-05-06T02:00:00+02:00"', 19849 * DAY * 1000),
        (pa.timestamp("us", "Europe/Berlin"), b'"2024-05-06T02:00:00+02:00"', 19849 * DAY * 10**6),
        (pa.timestamp("us", "Europe/Berlin"), b'"2024-05-06T00:00:00Z"', 19849 * DAY * 10**6),
        (pa.timestamp("us", "Europe/Berlin"), b'"2024-05-06 00:00:00"', 19849 * DAY * 10**6),
        (pa.timestamp("s", "UTC"), b'"+292277026596-12-04T15:30:07Z"', 2**63 - 1),
        (pa.timestamp("ns"), b'"1677-09-21T00:12:43.145224193"', -(2**63) + 1),
        (pa.duration("ms"), b"-5", -5),
    ],
)
def test_dates_and_times_are_texts_or_numbers(arrow_type, text, number):
    integer = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
    for schema, value in [(arrow_type, text), (pa.list_(arrow_type), b"[" + text + b"]"), (pa.map_(pa.string(), arrow_type), b'{"k":' + text + b"}")]:
        decoded, reasons = serde.Json(schema).decode(pa.array([value, None]))
        assert reasons == {}
        while decoded.type != arrow_type:
            decoded = decoded.items if pa.types.is_map(decoded.type) else decoded.flatten()
        assert decoded[:1].cast(integer).to_pylist() == [number]


@pytest.mark.parametrize(
    ("arrow_type", "value", "reason"),
    [
        (pa.date32(), b'"2024-13-01"', '"2024-13-01" is no date32[day] in ISO 8601'),
        (pa.date32(), b'"+12024-02-30"', '"+12024-02-30" is no date32[day] in ISO 8601'),
        (pa.date32(), b'"+99999999-01-01"', '"+99999999-01-01" is no date32[day] in ISO 8601'),
        (pa.date32(), b"1.5", "1.5 is no date32[day]"),
        (pa.date32(), b"99999999999", "99999999999 is no date32[day]"),
        (pa.time32("s"), b'"24:00:00"', '"24:00:00" is no time32[s] in ISO 8601'),
        (pa.time32("s"), b'"00:00:00.5"', '"00:00:00.5" is no time32[s] in ISO 8601'),
        (pa.time32("s"), b"86400", "86400 is no time32[s]"),
        (pa.timestamp("s"), b'"+999999999999-01-01"', '"+999999999999-01-01" is no timestamp[s] in ISO 8601'),
        (pa.timestamp("s"), b"5", "a number where the type is timestamp[s]"),
        (pa.duration("s"), b"1.5", "1.5 is no duration[s]"),
        (pa.float32(), b"1e39", "1e39 is beyond the numbers of float"),
        (pa.float16(), b"65520", "65520 is beyond the numbers of halffloat"),
        (pa.int8(), b"128", "128 is no int8"),
        (pa.null(), b'"x"', "a string where the type is null"),
        (pa.list_(pa.int8(), 2), b"[1]", "a list has 1 items, the type has 2"),
        (pa.map_(pa.string(), pa.int8()), b"[1]", "an array where the type is map"),
        (pa.map_(pa.string(), pa.int8()), b'{"a":1,"a":2}', 'a map has the key "a" twice'),
        (pa.map_(pa.string(), pa.int8()), b'{"a":300}', "300 is no int8 at /value"),
        (pa.map_(pa.int8(), pa.int8()), b'{"x":1}', 'the key "x" is no int8'),
        (pa.map_(pa.string(), pa.schema({"d": pa.date32()}).field(0).type), b'{"k":"x"}', '"x" is no date32[day] in ISO 8601 at /value'),
        (pa.struct({"m": pa.map_(pa.string(), pa.int8()), "a": pa.int8()}), b'{"a":1,"a":2}', 'the object has the name "a" twice'),
    ],
)
def test_a_value_that_the_type_does_not_hold_is_malformed_and_says_why(arrow_type, value, reason):
    decoded, reasons = serde.Json(arrow_type).decode(pa.array([b"null", value, b"null"]))
    assert decoded.null_count == 3
    assert list(reasons) == [1]
    assert reason in reasons[1]


def test_a_field_that_must_not_be_null_may_be_so_in_rows_that_are_null():
    required = [pa.field("a", pa.int64(), nullable=False), pa.field("d", pa.date32())]
    values = [None, b"null", b'{"a":1}', b"{}", b'{"a":null}', b"["]
    for schema in (pa.schema(required), pa.schema(required[:1])):
        decoded, reasons = serde.Json(schema).decode(pa.array(values))
        assert decoded.type == pa.struct(list(schema))
        assert [row and row["a"] for row in decoded.to_pylist()] == [None, None, 1, None, None, None]
        assert list(reasons) == [3, 4, 5]
        assert (reasons[3], reasons[4]) == ("it must not be null, and is missing at /a", "it must not be null at /a")
        decoded.validate(full=True)
    for outer, value in [
        (pa.list_(pa.field("item", pa.date32(), nullable=False)), b'["2024-01-01",null]'),
        (pa.list_(pa.field("item", pa.int8(), nullable=False), 1), b"[null]"),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), b'{"a":null}'),
        (pa.struct({"s": pa.struct(required)}), b'{"s":{}}'),
    ]:
        decoded, reasons = serde.Json(outer).decode(pa.array([b"null", value, None]))
        assert decoded.null_count == 3
        assert list(reasons) == [1]
        assert "must not be null" in reasons[1]


def test_dates_as_numbers_and_as_texts_may_be_mixed():
    schema = pa.schema({"d": pa.date32(), "t": pa.time32("ms"), "id": pa.int64()})
    rows, reasons = decode([b'{"d":1,"t":"00:00:01"}', b'{"d":"1970-01-02","t":1000}', b'{"d":1,"id":"x"}', b"7"], schema)
    assert rows == [{"d": dt.date(1970, 1, 2), "t": dt.time(0, 0, 1), "id": None}] * 2 + [None, None]
    assert reasons == {2: "a string where the type is int64 at /id", 3: "a number where the type is struct"}


def test_a_map_keeps_what_its_object_has():
    schema = pa.schema({"m": pa.map_(pa.string(), pa.struct({"a": pa.int64(), "n": pa.map_(pa.int16(), pa.bool_())})), "x": pa.float64()})
    value = '{"more":{"m":1},"m":{"é\\n":{"a":9007199254740993,"n":{"-5":true}},"":null,"z":{}},"x":1e3}'.encode()
    rows, reasons = decode([value, b"{}", b'{"m":{}}', b'{"m":null}', b"{", None], schema)
    assert rows == [
        {"m": [("é\n", {"a": 9007199254740993, "n": [(-5, True)]}), ("", None), ("z", {"a": None, "n": None})], "x": 1000.0},
        {"m": None, "x": None},
        {"m": [], "x": None},
        {"m": None, "x": None},
        None,
        None,
    ]
    assert list(reasons) == [4]


def test_what_has_no_json_is_named_by_its_row():
    for column, text in [
        (pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())), "a"),
        (pa.array([1, 5], pa.date64()), "does not represent a whole number of days"),
        (pa.array([1.0, float("nan")]), "NaN has no JSON: it is not a finite number"),
        (pa.array([[(1.0, 1)], [(float("inf"), 1)]], pa.map_(pa.float64(), pa.int64())), "a key of a map is not a finite number"),
    ]:
        with pytest.raises(fl.errors.InvalidArgumentError, match=f"value of row [01] cannot be encoded: .*{text}"):
            serde.serialize(pa.table({"value": column}), value=serde.Json(column.type))
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"Json cannot encode .*timedelta has no JSON"):
        serde.Json()(dt.timedelta(1))
    assert serde.Json(pa.duration("s"))(dt.timedelta(1)) == b"86400"


def test_more_values_than_a_dictionary_has_codes_for_are_an_error():
    values = pa.array([b'"%d"' % number for number in range(200)])
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"do not fit into one column of dictionary<.*int8"):
        serde.Json(pa.dictionary(pa.int8(), pa.string())).decode(values)


@pytest.mark.parametrize("name", ["\0", "a\0b", "\U0010ffff", "\U0010ffff0\0"])
def test_a_name_may_have_any_character(name):
    schema = pa.schema({"n": pa.list_(pa.struct({name: pa.int64(), "": pa.string(), "x": pa.date32()}))})
    values = [json.dumps({"n": [{name: 1, "": "e"}, {}]}).encode(), json.dumps({"n": [{name: "x"}]}).encode(), None]
    column, reasons = serde.Json(schema).decode(pa.array(values))
    assert column.to_pylist() == [{"n": [{name: 1, "": "e", "x": None}, {name: None, "": None, "x": None}]}, None, None]
    assert list(reasons) == [1]
    assert column.type == pa.struct(list(schema))
    again, reasons = serde.Json(schema).encode(column)
    assert json.loads(again[0].as_py()) == column[0].as_py()
    assert reasons == {}
    inferred = serde.Json().encode(column)[0]
    assert inferred == again
    assert serde.Json().decode(again)[0].field("n").type.value_type.field(0).name == name
