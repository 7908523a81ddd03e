"""The audit of a directory: each fault is counted where it was put, and agrees with a plain reader."""

import itertools
import json
import math
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import fletchlog as fl
from fletchlog.audit import audit
from fletchlog.audit.report import THRESHOLDS

START = 1_700_000_000_000


def fill(path, rows, *, partitions=2, topic="t", config=None):
    """Rows are (partition, key, value, ms after START)."""
    with fl.Broker(path) as broker:
        broker.create_topic(topic, partitions=partitions)
        with fl.Producer(broker, {"linger.ms": 10_000, **(config or {})}) as producer:
            for partition, key, value, ms in rows:
                producer.send(topic, key=key, value=value, partition=partition, timestamp_ms=START + ms)


def test_repeats_and_steps_back_are_counted_per_partition_and_per_key(tmp_path):
    rows = [
        (0, b"a", b"1", 0), (0, b"b", b"1", 5000), (0, b"a", b"2", 1000), (0, b"a", b"1", 800), (0, None, b"9", 7000),
        (1, b"a", b"1", 0), (1, None, b"9", 100), (1, None, b"9", 100),
    ]  # fmt: skip
    fill(tmp_path / "d", rows)
    report = audit(tmp_path / "d")
    zero, one = report.partitions
    assert (zero.records, zero.duplicate_records, zero.duplicate_values, zero.duplicate_keys) == (5, 1, 2, 2)
    assert (zero.timestamp_inversions, zero.inversion_max_ms, zero.lateness_max_ms) == (2, 4000, 4200)
    assert (one.records, one.duplicate_records, one.duplicate_keys, one.timestamp_inversions, one.behind_ms) == (3, 1, 0, 0, 6900)
    assert (zero.skew, one.skew) == (1.25, 0.75)
    assert report.keys_in_several_partitions == {"t": 1}
    assert [(k.key, k.records, k.partitions, k.duplicate_records, k.timestamp_inversions, k.inversion_max_ms) for k in report.keys] == [(b"a", 4, 2, 1, 1, 200)]
    assert sum(report.lateness["t"]) == 8
    assert report.lateness["t"][4] == 2  # 1 s to 10 s


def test_a_batch_that_was_appended_twice_shows_as_a_repeated_sequence(tmp_path):
    fill(tmp_path / "d", [(0, b"k", b"v", i) for i in range(5)], partitions=1, config={"enable.idempotence": True})
    assert audit(tmp_path / "d").partitions[0].duplicate_sequences == 0
    log = tmp_path / "d" / "t-0" / f"{0:020}.log"
    once = log.read_bytes()
    log.write_bytes(once + (5).to_bytes(8, "big") + once[8:])
    found = audit(tmp_path / "d").partitions[0]
    assert (found.records, found.duplicate_sequences, found.duplicate_records) == (10, 1, 9)


@pytest.fixture(scope="module")
def kafkas(golden, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka")
    with tarfile.open(golden / "directories" / "kafka-4.3.1-clean.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return next(path.parent for path in folder.rglob("meta.properties"))


def test_gaps_of_a_real_brokers_directory_are_explained(kafkas):
    report = audit(kafkas)
    by_topic = {}
    for p in report.partitions:
        by_topic.setdefault(p.topic, []).append(p)
        assert p.gaps == p.gaps_markers + p.gaps_compaction + p.gaps_unexplained
        assert p.gaps_unexplained == 0, p
    assert any(p.gaps_compaction for p in by_topic["g-compact"])
    assert any(p.gaps_markers for p in by_topic["g-txn"])
    assert all(p.gaps == 0 for p in by_topic["g-none"])
    assert by_topic["g-empty"][0].records == 0


def test_a_hole_without_a_reason_is_unexplained(tmp_path):
    fill(tmp_path / "d", [(0, b"k", b"v%d" % i, i) for i in range(3)], partitions=1)
    log = tmp_path / "d" / "t-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes() + (7).to_bytes(8, "big") + log.read_bytes()[8:])
    found = audit(tmp_path / "d").partitions[0]
    assert (found.first_offset, found.last_offset, found.gaps, found.gaps_unexplained) == (0, 9, 4, 4)
    assert audit(tmp_path / "d").breaches({"gaps_unexplained": 0}) == ["t-0: gaps_unexplained is 4, at most 0 are allowed"]


def model(rows):
    """The same in plain Python, one record after the other."""
    highest, late, times = None, [], [ms for *_, ms in rows]
    for ms in times:
        highest = ms if highest is None else max(highest, ms)
        late.append(highest - ms)
    late.sort()
    back = [a - b for a, b in itertools.pairwise(times) if b < a]
    keys = [key for _, key, _, _ in rows if key is not None]
    share = lambda part, whole: late[max(math.ceil(part * len(late) / whole), 1) - 1] if late else None  # noqa: E731
    return {
        "records": len(rows),
        "duplicate_records": len(rows) - len({(key, value) for _, key, value, _ in rows}),
        "duplicate_values": len(rows) - len({value for _, _, value, _ in rows}),
        "duplicate_keys": len(keys) - len(set(keys)),
        "timestamp_inversions": len(back),
        "inversion_max_ms": max(back, default=0 if rows else None),
        "lateness_p50_ms": share(50, 100),
        "lateness_p999_ms": share(999, 1000),
        "lateness_max_ms": share(1, 1),
    }


records = st.tuples(st.integers(0, 1), st.sampled_from([None, b"a", b"b"]), st.sampled_from([None, b"", b"1"]), st.integers(0, 50))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(records, max_size=30))
def test_the_audit_equals_a_plain_model(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("audit") / "d"
    fill(path, rows)
    report = audit(path)
    for p in report.partitions:
        expected = model([row for row in rows if row[0] == p.partition])
        assert {name: getattr(p, name) for name in expected} == expected
    spread = {key for _, key, _, _ in rows if key is not None and len({row[0] for row in rows if row[1] == key}) > 1}
    assert report.keys_in_several_partitions == {"t": len(spread)}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_counts_the_same(tmp_path, spark):
    pytest.importorskip("pyspark")
    from fletchlog.pipeline import audit as spark_audit

    fill(tmp_path / "d", [(i % 3, b"k%d" % (i % 7), b"%d" % (i % 40), 100 * i - (i % 11) * 950) for i in range(500)], partitions=3)
    df = spark.read.format("fletchlog").option("path", str(tmp_path / "d")).option("subscribe", "t").load()
    rows = {row.partition: row.asDict() for row in spark_audit(df).collect()}
    for p in audit(tmp_path / "d").partitions:
        row = rows[p.partition]
        shared = [name for name in row if name in THRESHOLDS]
        assert len(shared) >= 10
        assert {name: row[name] for name in shared} == {name: getattr(p, name) for name in shared}


def test_the_command_tells_writes_and_fails(tmp_path, cli):
    fill(tmp_path / "d", [(0, b"a", b"1", 5000), (0, b"a", b"1", 0)], partitions=1)
    said = cli("audit", tmp_path / "d", "--html", tmp_path / "a.html", "--max", "gaps_unexplained=0").out
    assert "timestamp_inversions" in said
    page = (tmp_path / "a.html").read_text()
    assert "furthest step back" in page
    assert "http" not in page
    found = json.loads(cli("audit", tmp_path / "d", "-t", "t", "--json").out)
    assert found["partitions"][0]["inversion_max_ms"] == 5000
    assert found["keys"][0]["key"] == "a"
    failed = cli("audit", tmp_path / "d", "--max", "duplicate_records=0", "--max", "timestamp_inversions=0", code=1).err
    assert "duplicate_records is 1, at most 0" in failed
    assert "timestamp_inversions is 1" in failed
    for words, text in ((("--max", "gap=0"), "no column gap"), (("--max", "gaps"), "COLUMN=NUMBER"), (("-t", "u"), "no topic u"), (("--keys", "-1"), "--keys is -1")):
        assert text in cli("audit", tmp_path / "d", *words, code=1).err


def test_keys_and_values_cannot_break_the_page(tmp_path):
    fill(tmp_path / "d", [(0, b"<script>alert(1)</script>", b"1", 0), (1, b"<script>alert(1)</script>", b"1", 0)])
    report = audit(tmp_path / "d")
    assert "<script>" not in report.html()
    assert report._repr_html_().startswith("<h2>")


def test_a_partition_without_records_has_no_lateness(tmp_path):
    fill(tmp_path / "d", [(0, None, b"v", 0)])
    found = audit(tmp_path / "d").partitions[1]
    assert (found.records, found.first_offset, found.lateness_max_ms, found.behind_ms, found.skew) == (0, -1, None, None, 0.0)
