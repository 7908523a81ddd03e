"""What the audit says about logs whose faults are known."""

import datetime as dt
import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import functions as F

import fletchlog as fl
from fletchlog.audit import KeyAudit
from fletchlog.errors import InvalidArgumentError
from fletchlog.pipeline import audit, audit_keys, audit_report, partials

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def frame(spark, rows):
    """Rows of topic `t` are (partition, offset, milliseconds or None, key, value)."""
    return frame_of(spark, {"t": rows})


def frame_of(spark, topics):
    """Rows by topic."""
    return spark.createDataFrame(
        [
            (key, value, topic, partition, offset, None if ms is None else EPOCH + dt.timedelta(milliseconds=ms), 0)
            for topic, rows in topics.items()
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
            "timestamp_inversions": sum(1 for a, b in itertools.pairwise(times) if a is not None and b is not None and b < a),
            "inversion_max_ms": max([a - b for a, b in itertools.pairwise(times) if a is not None and b is not None] + [0]) if late else None,
            "lateness_p50_ms": share(0.5),
            "lateness_p99_ms": share(0.99),
            "lateness_p999_ms": share(0.999),
            "lateness_p9999_ms": share(0.9999),
            "lateness_max_ms": late[-1] if late else None,
            "watermark_delay_ms": share(keep),
            "newest_ms": highest,
        }
    times = [found["newest_ms"] for found in result.values() if found["newest_ms"] is not None]
    for found in result.values():
        newest = found.pop("newest_ms")
        found["skew"] = round(found["records"] * len(result) / len(rows), 3)
        found["behind_ms"] = None if newest is None else max(times) - newest
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
        "skew": 1.25, "behind_ms": 0,
    }  # fmt: skip
    assert second["duplicate_offsets"] == 1
    assert second["duplicate_records"] == 1
    assert second["gaps"] == 0
    assert second["timestamp_inversions"] == 0
    assert (second["skew"], second["behind_ms"]) == (0.75, 3990)


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


def packed(rows, block_bits, rows_at_once):
    """What Spark hands to `pack`: (partition, offset, ms or None, key, value) as columns, hashed as two numbers; a batch per three rows."""
    names = {pair: i for i, pair in enumerate(sorted({row[3:] for row in rows}, key=str))}
    columns = {
        "topic": pa.array(["t"] * len(rows), pa.string()),
        "partition": pa.array([row[0] for row in rows], pa.int32()),
        "offset": pa.array([row[1] for row in rows], pa.int64()),
        "ms": pa.array([row[2] for row in rows], pa.int64()),
        # two of them share a first hash, others a second one
        "one": pa.array([(names[row[3:]] // 2 << 59) - 7 for row in rows], pa.int64()),
        "two": pa.array([names[row[3:]] % 3 - 1 for row in rows], pa.int32()),
    }
    tasks = [pa.table(columns).take(list(range(start, len(rows), 2))) for start in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "BLOCK_BITS", block_bits)
        patch.setattr(partials, "ROWS", rows_at_once)
        batches = [batch for task in tasks for batch in partials.pack(task.to_batches(max_chunksize=3))]
    table = pa.Table.from_batches(batches)
    by = [(name, "ascending") for name in ("topic", "partition", "lane", "block")]
    return table.sort_by(by).to_batches(max_chunksize=2)


records = st.tuples(
    st.integers(0, 2),
    st.integers(0, 12),
    st.none() | st.integers(0, 30) | st.just(2**40),
    st.sampled_from([None, b"", b"a", b"b"]),
    st.sampled_from([None, b"", b"1"]),
)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(records, min_size=2, max_size=40), keep=st.sampled_from([0.5, 0.9, 0.999, 1.0]), bits=st.integers(1, 4), at_once=st.integers(1, 20))
def test_packing_and_finding_equal_a_plain_model(rows, keep, bits, at_once):
    found = [row for batch in partials.find(keep)(packed(rows, bits, at_once)) for row in batch.to_pylist()]
    expected = model(rows, keep)
    assert [row["partition"] for row in found] == [row["partition"] for row in expected]
    for mine, plain in zip(found, expected, strict=True):
        assert {name: mine[name] for name in partials.NUMBERS if name != "newest_ms"} == {name: plain[name] for name in partials.NUMBERS if name != "newest_ms"}
        assert sum(mine["lateness"]) == sum(row[2] is not None for row in rows if row[0] == mine["partition"])


def test_workers_need_nothing_of_fletchlog(tmp_path):
    """What Spark sends to them runs where there is no fletchlog."""
    (tmp_path / "job").write_bytes(cloudpickle.dumps((partials.pack, partials.find(0.999))))
    columns = {"topic": ["t"] * 3, "partition": pa.array([0] * 3, pa.int32()), "offset": [1, 2, 4], "ms": [5, 3, 9], "one": [1, 1, 2]}
    with pa.OSFile(str(tmp_path / "rows"), "wb") as file, pa.ipc.new_stream(file, pa.table(columns | {"two": pa.array([0] * 3, pa.int32())}).schema) as stream:
        stream.write_table(pa.table(columns | {"two": pa.array([0] * 3, pa.int32())}))
    script = (
        "import sys, pickle, pyarrow as pa; sys.modules['fletchlog'] = None\n"
        "pack, find = pickle.load(open('job', 'rb')); rows = pa.ipc.open_stream(open('rows', 'rb').read())\n"
        "row, = next(find(pack(rows))).to_pylist(); print(row['records'], row['gaps'], row['duplicate_records'], row['lateness_max_ms'])"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout == "3 1 1 2\n", found.stderr


def test_partitions_of_several_topics_are_kept_apart(spark):
    rows = frame(spark, [(p, o, o, b"k", b"v") for p in range(2) for o in range(4)])
    both = rows.union(rows.selectExpr("key", "value", "'u' topic", "partition", "offset + 5 offset", "timestamp", "timestampType")).repartition(3)
    found = [(row.topic, row.partition, row.records, row.first_offset) for row in audit(both).collect()]
    assert found == [("t", 0, 4, 0), ("t", 1, 4, 0), ("u", 0, 4, 5), ("u", 1, 4, 5)]


@pytest.mark.slow
def test_workers_print_nothing(tmp_path):
    """A session of its own, because the tests' one has no standard error to itself. Rows are many more than fit into a socket."""
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", pa.table({"value": pa.array([b"v"] * 200_000, pa.binary())}))
    script = (
        "import sys; from tests.support import spark_session; from fletchlog.pipeline import audit\n"
        "df = spark_session.start().read.format('fletchlog').option('path', sys.argv[1]).option('subscribe', 't').load()\n"
        "print(audit(df).collect()[0].records)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])}
    # A worker with which Spark plans may find its socket closed when it has given its answer, now and then. Rows left unread are reported each time.
    for last in (False, False, True):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "log")], capture_output=True, text=True, check=False, env=env)
        assert done.stdout == "200000\n", done.stderr
        if last or "Traceback" not in done.stderr:
            break
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_row_without_a_place_is_named(spark):
    rows = frame(spark, [(0, 0, 0, b"k", b"v")])
    for change in ("topic", "offset"):
        with pytest.raises(Exception, match="no topic, partition or offset"):
            audit(rows.union(rows.withColumn(change, F.lit(None).cast(rows.schema[change].dataType)))).collect()


def test_a_report_has_tables_thresholds_and_keys(spark):
    rows = [(0, 0, 1000, b"a", b"1"), (0, 1, 400, b"a", b"1"), (0, 3, 2000, b"b", b"2"), (1, 0, 0, b"a", b"3"), (1, 1, 5, None, b"3")]
    report = audit_report(frame(spark, rows), keys=5, source="five rows")
    zero, one = report.partitions
    assert (zero.records, zero.gaps, zero.duplicate_records, zero.inversion_max_ms, zero.skew, one.behind_ms) == (3, 1, 1, 600, 1.2, 1995)
    assert report.keys == [KeyAudit("t", b"a", 3, 2, 1, 1, 600)]
    assert report.keys_in_several_partitions == {"t": 1}
    assert sum(report.lateness["t"]) == 5
    assert report.breaches({"duplicate_records": 0}) == ["t-0: duplicate_records is 1, at most 0 are allowed"]
    with pytest.raises(InvalidArgumentError, match="rows alone do not tell gaps_unexplained"):
        report.breaches({"gaps_unexplained": 0})
    assert "five rows" in report.html()
    with pytest.raises(ValueError, match="keys is -1"):
        audit_report(frame(spark, rows), keys=-1)
    assert {row.key: row.records for row in audit_keys(frame(spark, rows)).collect()} == {b"a": 3, b"b": 1}
    with pytest.raises(ValueError, match="no column key"):
        audit_keys(frame(spark, rows).drop("key"))


# A Spark job costs seconds, so one takes many logs, each a topic.
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(logs=st.lists(st.lists(records, min_size=1, max_size=25), min_size=3, max_size=9), keep=st.sampled_from([0.5, 0.9, 0.999, 1.0]))
def test_the_audit_equals_a_plain_model(spark, logs, keep):
    topics = {f"t{number}": rows for number, rows in enumerate(logs)}
    found = [row.asDict() for row in audit(frame_of(spark, topics), keep=keep).collect()]
    assert found == [row | {"topic": topic} for topic, rows in topics.items() for row in model(rows, keep)]
