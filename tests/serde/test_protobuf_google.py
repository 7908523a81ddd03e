"""`serde.Protobuf` against Google's protobuf: generated schemas of proto2, proto3 and editions, values, and bytes that are nearly values."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fletchlog import serde
from fletchlog.serde.columns import converted, mapped
from tests.support import google_protobuf as google

pytestmark = pytest.mark.timeout(180)
CASES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def raw(arrow_type):
    """The type with times as numbers."""
    return mapped(arrow_type, lambda part, _: pa.int64() if pa.types.is_timestamp(part) else None)


def cast(part, arrow_type):
    return part.cast(arrow_type)


def rows(array):
    return converted(array, raw(array.type), cast).to_pylist() if len(array) else []


def check(message_class, data):
    """Decodes a column of values, and compares with Google's parser."""
    read, reasons = serde.Protobuf(message_class).decode(pa.array(data, pa.binary()))
    read.validate(full=True)
    expected = [google.read(message_class, value) for value in data]
    if any("not UTF-8" in reason for reason in reasons.values()):
        # Google's parser may take such a string, and a later entry of a map with the same key may replace it
        expected = [None if "not UTF-8" in reasons.get(row, "") else value for row, value in enumerate(expected)]
    assert [row for row, value in enumerate(expected) if value is None] == list(reasons), (data, reasons)
    assert [google.comparable(value) for value in rows(read)] == [google.comparable(value) for value in expected], data


@CASES
@given(st.data())
def test_bytes_are_read_as_by_google(data):
    message_class = data.draw(google.classes())
    check(message_class, data.draw(st.lists(google.wire(message_class.DESCRIPTOR), min_size=1, max_size=6)))


@CASES
@given(st.data())
def test_values_and_what_is_nearly_one_are_read_as_by_google(data):
    message_class = data.draw(google.classes())
    values = data.draw(st.lists(google.values(message_class.DESCRIPTOR), min_size=1, max_size=4))
    written = [google.fill(message_class(), value).SerializePartialToString() for value in values]
    # values behind each other are merged
    check(message_class, [*written, b"".join(written), *(google.mutated(data.draw, value) for value in written)])


@CASES
@given(st.data())
def test_values_are_written_as_by_google(data):
    message_class = data.draw(google.classes())
    serializer = serde.Protobuf(message_class)
    values = data.draw(st.lists(st.none() | google.values(message_class.DESCRIPTOR), max_size=5))
    column = converted(pa.array(values, raw(serializer.type)), serializer.type, cast)
    made, reasons = serializer.encode(column)
    assert reasons == {}
    assert made.to_pylist() == [None if value is None else google.fill(message_class(), value).SerializeToString(deterministic=True) for value in values]
    again, reasons = serializer.decode(made)
    assert reasons == {}
    assert [google.comparable(value) for value in rows(again)] == [
        google.comparable(google.read(message_class, value)) if value is not None else None for value in made.to_pylist()
    ]
