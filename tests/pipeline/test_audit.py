"""What the audit says about logs whose faults are known."""

import datetime as dt
import itertools
import math

import pytest

pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fletchlog.pipeline import audit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def frame(spark, rows):
    """Rows are (partition, offset, milliseconds or None, key, value)."""
    return spark.createDataFrame(
        [
            (key, value, "t", partition, offset, None if ms is None else EPOCH + dt.timedelta(milliseconds=ms), 0)
            for partition, offset, ms, key, value in rows
        ],
        SCHEMA,
    )


def model(rows, keep=0.999):
    """The same in plain Python, one record after the other."""
    result = {}
    for partition in sorted({row[0] for row in rows}):
        mine = sorted((row for row in rows if row[0] == partition), key=lambda r: (r[1], -math.inf if r[2] is None else r[2]))
        offsets = [row[1] for row in mine]
        times = [row[2] for row in mine]
        highest, late = None, []
        for ms in times:
            if ms is not None:
                highest = ms if highest is None else max(highest, ms)
                late.append(highest - ms)
        late.sort()

        def share(p, late=late):
            return late[max(math.ceil(p * len(late) - 1e-9), 1) - 1] if late else None

        result[partition] = {
            "topic": "t",
            "partition": partition,
            "records": len(mine),
            "first_offset": offsets[0],
            "last_offset": offsets[-1],
            "gaps": len(set(range(offsets[0], offsets[-1] + 1)) - set(offsets)),
            "duplicate_offsets": len(offsets) - len(set(offsets)),
            "duplicate_records": len(mine) - len({(row[3], row[4]) for row in mine}),
            "timestamp_inversions": sum(
                1 for a, b in itertools.pairwise(times) if a is not None and b is not None and b < a
            ),
            "inversion_max_ms": max([a - b for a, b in itertools.pairwise(times) if a is not None and b is not None] + [0]) if late else None,
            "lateness_p50_ms": share(0.5),
            "lateness_p99_ms": share(0.99),
            "lateness_p999_ms": share(0.999),
            "lateness_p9999_ms": share(0.9999),
            "lateness_max_ms": late[-1] if late else None,
            "watermark_delay_ms": share(keep),
        }
    return [result[partition] for partition in sorted(result)]


def test_every_fault_is_counted_where_it_happened(spark):
    rows = [
        (0, 5, 1000, b"a", b"1"),
        (0, 6, 3000, b"a", b"2"),
        (0, 7, 2500, b"a", b"3"),  # 500 ms late
        (0, 10, 4000, b"a", b"4"),  # offsets 8 and 9 are missing
        (0, 11, 500, b"a", b"4"),  # the same record again, 3500 ms late
        (1, 0, 0, None, b"x"),
        (1, 1, 0, None, None),
        (1, 1, 10, None, None),  # offset 1 read twice
    ]
    first, second = (row.asDict() for row in audit(frame(spark, rows)).collect())
    assert first == {
        "topic": "t", "partition": 0, "records": 5, "first_offset": 5, "last_offset": 11, "gaps": 2, "duplicate_offsets": 0,
        "duplicate_records": 1, "timestamp_inversions": 2, "inversion_max_ms": 3500,
        "lateness_p50_ms": 0, "lateness_p99_ms": 3500, "lateness_p999_ms": 3500, "lateness_p9999_ms": 3500, "lateness_max_ms": 3500, "watermark_delay_ms": 3500,
    }  # fmt: skip
    assert second["duplicate_offsets"] == 1
    assert second["duplicate_records"] == 1
    assert second["gaps"] == 0
    assert second["timestamp_inversions"] == 0


def test_the_watermark_delay_keeps_the_share_asked_for_and_no_shorter_one_does(spark):
    rows = [(0, i, 10_000 * i - (i % 100) * 20_000, b"k", str(i).encode()) for i in range(1000)]
    for keep in (0.9, 0.95, 1.0):
        answer = audit(frame(spark, rows), keep=keep).collect()[0]["watermark_delay_ms"]
        highest, late = -(10**12), []
        for _, _, ms, _, _ in rows:
            highest = max(highest, ms)
            late.append(highest - ms)
        assert sum(1 for x in late if x <= answer) >= keep * len(late)
        assert sum(1 for x in late if x < answer) < keep * len(late)


def test_what_makes_records_the_same_is_the_callers_choice(spark):
    rows = [(0, 0, 0, b"a", b"1"), (0, 1, 1, b"b", b"1"), (0, 2, 2, b"a", b"2")]
    assert audit(frame(spark, rows)).collect()[0]["duplicate_records"] == 0
    assert audit(frame(spark, rows), same=["value"]).collect()[0]["duplicate_records"] == 1
    assert audit(frame(spark, rows), same=["key"]).collect()[0]["duplicate_records"] == 1


def test_an_empty_log_gives_no_row(spark):
    assert audit(frame(spark, [])).collect() == []


def test_the_order_of_rows_in_the_frame_does_not_matter(spark):
    rows = [(p, o, 1000 * o - (o % 7) * 5000, b"k", str(o).encode()) for p in range(3) for o in range(50)]
    expected = [row.asDict() for row in audit(frame(spark, rows)).collect()]
    assert [row.asDict() for row in audit(frame(spark, rows[::-1]).repartition(5)).collect()] == expected == model(rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"keep": 0}, "keep"), ({"keep": 1.5}, "keep"), ({"same": []}, "same"), ({"same": ["id"]}, "no column id")],
)
def test_bad_arguments_are_named(spark, arguments, words):
    with pytest.raises(ValueError, match=words):
        audit(frame(spark, []), **arguments)


def test_a_stream_is_refused_with_the_way_out(spark):
    stream = spark.readStream.format("rate").load().selectExpr("timestamp", "value offset")
    with pytest.raises(ValueError, match="foreachBatch"):
        audit(stream)


records = st.tuples(
    st.integers(0, 2),
    st.integers(0, 12),
    st.none() | st.integers(0, 30),
    st.sampled_from([None, b"", b"a", b"b"]),
    st.sampled_from([None, b"", b"1"]),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(records, min_size=1, max_size=25), keep=st.sampled_from([0.5, 0.9, 0.999, 1.0]))
def test_the_audit_equals_a_plain_model(spark, rows, keep):
    assert [row.asDict() for row in audit(frame(spark, rows), keep=keep).collect()] == model(rows, keep)
