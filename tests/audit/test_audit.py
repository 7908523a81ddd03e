"""The audit of a directory: each fault is counted where it was put, and agrees with a plain reader."""

import itertools
import json
import math
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.audit import log, spool
from fletchlog.audit import run as audit
from fletchlog.audit.order import Lateness
from fletchlog.audit.report import THRESHOLDS

START = 1_700_000_000_000


def fill(path, rows, *, partitions=2, topic="t", config=None):
    """Rows are (partition, key, value, ms after START)."""
    with fl.Broker(path, create=True) as broker:
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


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_counts_the_same(tmp_path, spark):
    from fletchlog.pipeline import audit as spark_audit

    fill(tmp_path / "d", [(i % 3, b"k%d" % (i % 7), b"%d" % (i % 40), 100 * i - (i % 11) * 950) for i in range(500)], partitions=3)
    df = spark.read.format("fletchlog").option("path", str(tmp_path / "d")).option("subscribe", "t").load()
    rows = {row.partition: row.asDict() for row in spark_audit(df).collect()}
    for p in audit(tmp_path / "d").partitions:
        row = rows[p.partition]
        shared = [name for name in row if name in THRESHOLDS]
        assert len(shared) >= 10
        assert {name: row[name] for name in shared} == {name: getattr(p, name) for name in shared}


def test_the_command_prints_writes_and_fails(tmp_path, cli):
    fill(tmp_path / "d", [(0, b"a", b"1", 5000), (0, b"a", b"1", 0)], partitions=1)
    said = cli("audit", tmp_path / "d", "--html", tmp_path / "a.html", "--max", "gaps_unexplained=0").out
    assert "by up" in said
    assert "5 s" in said
    page = (tmp_path / "a.html").read_text()
    assert "furthest step back" in page
    assert "http" not in page
    found = json.loads(cli("audit", tmp_path / "d", "-t", "t", "--json").out)
    assert found["partitions"][0]["inversion_max_ms"] == 5000
    assert found["keys"][0]["key"] == "a"
    failed = cli("audit", tmp_path / "d", "--max", "duplicate_records=0", "--max", "timestamp_inversions=0", code=1).err
    assert "duplicate_records is 1, at most 0" in failed
    assert "timestamp_inversions is 1" in failed
    for words, text in (
        (("--max", "gap=0"), "no column gap"),
        (("--max", "gaps"), "COLUMN=NUMBER"),
        (("-t", "u"), "there is no topic u"),
        (("--keys", "-1"), "--keys is -1"),
    ):
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


PEAK = """
import resource, sys
from fletchlog.audit import run as audit, log, spool
from fletchlog.audit.order import Lateness
report = audit(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, report.partitions[0].records, report.partitions[0].duplicate_records)
"""


@pytest.mark.timeout(120)
def test_memory_does_not_grow_with_the_partition(tmp_path):
    """Ten times the records, the same memory: a table of them alone would be 100 MiB more."""
    value = b"x" * 24
    peaks = []
    for records in (200_000, 2_000_000):
        path = tmp_path / str(records)
        with fl.Broker(path, create=True) as broker:
            broker.create_topic("t", partitions=1)
            with fl.Producer(broker, {"linger.ms": 1000}) as producer:
                for start in range(0, records, 100_000):
                    numbers = [b"%b%08d" % (value, n - n % 1000 // 999) for n in range(start, start + 100_000)]
                    producer.send_arrow("t", pa.table({"key": [b"k%d" % (n % 100) for n in range(100_000)], "value": numbers}))
        said = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True).stdout.split()
        assert said[1:] == [str(records), "0"]
        peaks.append(int(said[0]))
    assert peaks[1] - peaks[0] < 110, peaks


def test_what_does_not_fit_in_memory_is_counted_the_same(tmp_path, monkeypatch):
    rows = [(i % 2, b"k%d" % (i % 5), b"%d" % (i % 40), 100 * i - (i % 11) * 950) for i in range(300)]
    fill(tmp_path / "d", rows)
    expected = audit(tmp_path / "d")
    monkeypatch.setattr(spool, "MEMORY", 100)
    assert audit(tmp_path / "d") == expected
    assert expected.partitions[0].duplicate_records == 150 - len({row[1:3] for row in rows if row[0] == 0})


numbers = st.lists(st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2), st.integers(-1, 3)), max_size=40)


@given(chunks=st.lists(numbers, max_size=4), memory=st.sampled_from([0, 100, 1 << 20]))
def test_repeats_are_those_of_a_set(chunks, memory):
    """The owners that are returned are as many per pair as it repeats, whatever the chunks and wherever they were kept."""
    returned = []
    with pytest.MonkeyPatch.context() as patch, spool.Spool() as kept:
        patch.setattr(spool, "MEMORY", memory)
        for chunk in chunks:
            one, two, owner = (np.array([row[i] for row in chunk], kind) for i, kind in enumerate((np.uint64, np.uint64, np.int64)))
            returned += kept.add(one, two, owner).tolist()
        for owners in kept.repeats():
            returned += owners.tolist()
    rows = [row for chunk in chunks for row in chunk]
    assert len(returned) == len(rows) - len({row[:2] for row in rows})
    # an owner that has a pair alone is returned as often as the pair repeats
    alone = [pair for pair in {row[:2] for row in rows} if len({row[2] for row in rows if row[:2] == pair}) == 1]
    for owner in {row[2] for row in rows}:
        repeats = sum(sum(row == (*pair, owner) for row in rows) - 1 for pair in alone if (*pair, owner) in rows)
        assert returned.count(owner) >= repeats


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=5), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_lateness_is_that_of_a_sorted_list(chunks, share):
    late = Lateness()
    for chunk in chunks:
        late.add(np.array(chunk, np.int64))
        late._settle()
    every = sorted(itertools.chain(*chunks))
    assert late.total() == len(every)
    assert late.at(share) == (every[max(math.ceil(share * len(every) - 1e-9), 1) - 1] if every else None)
    assert late.decades()[:3] == [sum(low <= x < high for x in every) for low, high in ((0, 1), (1, 10), (10, 100))]
    assert sum(late.decades()) == len(every)


def test_the_page_names_the_lateness_beyond_its_last_decade_and_topics_without_any(tmp_path):
    with fl.Broker(tmp_path / "d", create=True) as broker:
        for topic in ("late", "punctual"):
            broker.create_topic(topic)
            with fl.Producer(broker) as producer:
                for ms in (1_700_000_000_000, 0 if topic == "late" else 1_700_000_000_001):
                    producer.send(topic, value=b"v", timestamp_ms=ms)
        broker.create_topic("empty")
    page = audit(tmp_path / "d").html()
    assert "115.7 d and more" in page
    assert "1,157" not in page
    assert "How late records of late are" in page
    assert "How late records of punctual are" not in page
    assert "No record is late in empty, punctual." in page
    # a partition without records has no offsets
    assert ">-1<" not in page


@pytest.fixture
def late(tmp_path):
    with fl.Broker(tmp_path / "d", create=True) as broker:
        broker.create_topic("orders", partitions=2)
        with fl.Producer(broker) as producer:
            for ms in (1_700_000_000_000, 1_700_000_000_000 - 7_200_000):
                producer.send("orders", value=b"v", timestamp_ms=ms, partition=0)
    return tmp_path / "d"


def test_the_page_gives_a_verdict_and_marks_what_exceeds_a_threshold(late):
    report = audit(late)
    failed = report.html({"lateness_max_ms": 60_000, "gaps_unexplained": 0})
    assert "Failed: 1 of 2 partitions exceed a threshold." in failed
    assert "orders-0: lateness_max_ms is 7,200,000 ms (2 h), at most 60,000 ms (1 min) are allowed" in failed
    assert '<td class="breach">2 h <small>≤ 1 min</small></td>' in failed
    assert failed.count('class="kept"') == 2
    passed = report.html({"gaps_unexplained": 0})
    assert "Passed: every partition keeps the thresholds." in passed
    assert 'class="breach"' not in passed
    assert "No thresholds were given." in report.html()
    with pytest.raises(fl.errors.InvalidArgumentError, match="no column nonsense"):
        report.html({"nonsense": 1})


def test_the_command_shows_a_row_for_each_partition_and_a_line_for_each_breach(late):

    from tests.support.command_line import invoke

    done = invoke(["audit", str(late), "--max", "lateness_max_ms=60000", "--max", "records=1"])
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("orders-")]
    assert [row[0] for row in rows] == ["orders-0", "orders-1"]
    assert "2 h" in done.stdout
    assert done.stderr.splitlines() == [
        "fletchlog: 2 values exceed a threshold:",
        "  orders-0: lateness_max_ms is 7,200,000 ms (2 h), at most 60,000 ms (1 min) are allowed",
        "  orders-0: records is 2, at most 1 are allowed",
    ]
    with fl.Broker(late, create=True) as broker:
        broker.create_topic("a-topic-with-a-name-that-needs-room", partitions=12)
    printed = invoke(["audit", str(late)], env={"COLUMNS": "60"}).stdout
    assert all(f"a-topic-with-a-name-that-needs-room-{p}" in printed for p in range(12))


def test_an_open_broker_is_audited_as_its_directory(kafkas, tmp_path):
    fill(tmp_path / "d", [(i % 2, b"k%d" % (i % 3), b"%d" % (i % 7), i * 37 % 400) for i in range(3000)], config={"batch.size": 500})
    for directory in (kafkas, tmp_path / "d"):
        of_files = audit(directory)
        with fl.Broker(directory, read_only=True) as broker:
            of_broker = audit(broker)
        assert (of_broker.partitions, of_broker.keys, of_broker.lateness) == (of_files.partitions, of_files.keys, of_files.lateness)
        assert of_broker.source == "a broker in this process"


def test_a_broker_in_memory_is_audited_with_its_gaps_and_what_begins_behind_offset_0(monkeypatch):
    monkeypatch.setattr(log, "READ_BYTES", 200)
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker, {"transactional.id": "x", "linger.ms": 0}) as producer:
            producer.init_transactions()
            for _ in range(3):
                with producer.transaction():
                    for number in range(20):
                        producer.send("t", key=b"k", value=b"%d" % number, timestamp_ms=START + number)
        broker.delete_records("t", 0, 5)
        (found,) = audit(broker, ["t"]).partitions
        assert (found.first_offset, found.last_offset, found.records) == (5, 61, 55)
        assert (found.gaps, found.gaps_markers, found.gaps_unexplained) == (2, 2, 0)
        assert found.timestamp_inversions == 2
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="a broker in this process has no topic u; it has t"):
            audit(broker, ["u"])
