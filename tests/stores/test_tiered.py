"""The objects of Aiven's tiered storage plug-in are read as the log that was uploaded."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.audit import run as audit
from tests.support import tiered_storage as tiered
from tests.support.command_line import invoke
from tests.support.s3_server import S3Server

CONFIG = {"segment.bytes": 4_000, "retention.ms": "-1"}
NOW = 1_700_000_000_000


def fill(directory: Path, sizes: list[int], partitions: int = 1, topic: str = "orders") -> None:
    """A batch a size, every third one in a transaction, half of which are aborted."""
    with fl.Broker(directory, create=True) as broker:
        broker.create_topic(topic, partitions=partitions, config=CONFIG)
        with fl.Producer(broker) as plain, fl.Producer(broker, {"transactional.id": "t"}) as transactional:
            transactional.init_transactions()
            for number, size in enumerate(sizes):
                producer = plain if number % 3 else transactional
                if producer is transactional:
                    producer.begin_transaction()
                for partition in range(partitions):
                    producer.send(topic, b"%0*d" % (size, number), key=b"k", partition=partition, timestamp_ms=NOW + 1_000 * number, headers=[("h", b"1")])
                producer.flush()
                if producer is transactional and number % 2:
                    producer.abort_transaction()
                elif producer is transactional:
                    producer.commit_transaction()


def uploaded(source: Path, **how: object) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for topic in ("orders", "payments"):
        for segment in tiered.rolled(source, topic):
            files |= tiered.objects(segment, **how)  # type: ignore[arg-type]
    return files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory of many small segments."""
    fill(tmp_path / "log", [300] * 60, partitions=2)
    fill(tmp_path / "log", [900] * 30, topic="payments")
    return tmp_path / "log"


def ends_of(source: Path) -> dict[tuple[str, int], int]:
    """Where the rolled segments end."""
    return {(segment.topic, segment.partition): segment.end for topic in ("orders", "payments") for segment in tiered.rolled(source, topic)}


def answers(broker: fl.Broker, ends: dict[tuple[str, int], int], stable: dict[tuple[str, int], int]) -> dict[object, object]:
    """What is asked of a broker about offsets below the ends, and of the readers of transactions below the last stable offsets."""
    found: dict[object, object] = {"topics": broker.topics()}
    for (topic, partition), end in ends.items():
        found[topic, "id"] = broker.describe_topic(topic).topic_id
        for isolation, bound in (("read_uncommitted", end), ("read_committed", stable[topic, partition])):
            scan = broker.scan(topic, partition=partition, end_offset=bound, isolation_level=isolation, include_headers=True)
            found[topic, partition, isolation] = scan.to_pyarrow().to_pylist()
        tp = fl.TopicPartition(topic, partition)
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            for time in [NOW + 1_000 * number + shift for number in range(0, 30, 4) for shift in (-1, 0, 1)]:
                at = consumer.offsets_for_times({tp: time})[tp]
                found[topic, partition, time] = None if at is None or at.offset >= end else (at.offset, at.timestamp)
            consumer.assign([tp])
            polled: list[tuple[int, bytes | None]] = []
            while consumer.position(tp) < end:
                polled += [(record.offset, record.value) for record in consumer.poll(timeout_ms=200)]
            found[topic, partition, "polled"] = [record for record in polled if record[0] < end]
    return found


def check_same(source: Path, place: str | Path, options: dict[str, str] | None = None) -> None:
    ends = ends_of(source)
    with fl.Broker(source, read_only=True) as local, fl.Broker(place, read_only=True, storage_options=options) as read:
        described = {(topic, partition): read.describe_topic(topic).partitions[partition] for topic, partition in ends}
        assert {tp: part.high_watermark for tp, part in described.items()} == ends
        stable = {tp: part.last_stable_offset for tp, part in described.items()}
        assert answers(read, ends, stable) == answers(local, ends, stable)


@pytest.mark.parametrize("how", [{}, {"compression": True, "chunk_size": 500}, {"chunk_size": 777, "prefix": "tiered/"}], ids=["plain", "compressed", "prefix"])
def test_a_store_reads_as_the_log_that_was_uploaded(s3: S3Server, bucket: str, source: Path, how: dict[str, object]) -> None:
    for key, data in uploaded(source, **how).items():
        s3.put(f"{bucket}/{key}", data)
    check_same(source, f"s3://{bucket}", s3.options)


def test_a_directory_of_objects_is_read_too(source: Path, tmp_path: Path) -> None:
    tiered.write(tmp_path / "objects", uploaded(source, compression=True))
    check_same(source, tmp_path / "objects")
    topic = next((tmp_path / "objects").glob("orders-*"))
    with fl.Broker(topic, read_only=True) as broker:
        assert broker.topics() == ["orders"]


def test_a_prefix_that_does_not_end_a_folder_is_no_part_of_the_name(source: Path, tmp_path: Path) -> None:
    tiered.write(tmp_path / "objects", uploaded(source, prefix="cluster-7-"))
    check_same(source, tmp_path / "objects")


def last(source: Path, topic: str, partition: int, ends: dict[tuple[str, int], int]) -> int:
    """The offset of the last record below the end."""
    with fl.Broker(source, read_only=True) as broker:
        offsets = broker.scan(topic, partition=partition, end_offset=ends[topic, partition]).to_pyarrow()["offset"]
    return int(offsets[-1].as_py())


def test_the_commands_read_it(source: Path, tmp_path: Path) -> None:
    tiered.write(tmp_path / "objects", uploaded(source, compression=True))
    listed = invoke(["topics", "list", str(tmp_path / "objects"), "--json"])
    assert [topic["topic"] for topic in json.loads(listed.stdout)] == ["orders", "payments"]
    assert invoke(["consume", str(tmp_path / "objects"), "orders", "--max", "5"]).stdout.count(" h=1 ") == 5
    ends = ends_of(source)
    report = audit(tmp_path / "objects", ["orders"])
    assert [part.last_offset for part in report.partitions] == [last(source, "orders", partition, ends) for partition in (0, 1)]
    refused = invoke(["export", str(tmp_path / "objects"), str(tmp_path / "copy")])
    assert refused.exit_code == 1
    assert "object stores are read-only; to export" in refused.stderr


def test_it_is_not_written(source: Path, tmp_path: Path) -> None:
    tiered.write(tmp_path / "objects", uploaded(source))
    with fl.Broker(tmp_path / "objects", read_only=True) as broker, pytest.raises(fl.errors.KafkaError, match="object stores are read-only"):
        broker.create_topic("new")
    with pytest.raises(fl.errors.DirectoryError, match="no broker's directory"):
        fl.Broker(tmp_path / "objects", create=True)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(1, 3_000), min_size=12, max_size=30),
    chunk_size=st.integers(60, 5_000),
    compression=st.booleans(),
    reads=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9_000)), max_size=8),
)
def test_batches_from_any_offset_are_those_of_the_segment(sizes: list[int], chunk_size: int, compression: bool, reads: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, objects = Path(folder) / "log", Path(folder) / "objects"
        fill(source, sizes)
        segments = list(tiered.rolled(source, "orders"))
        tiered.write(objects, uploaded(source, chunk_size=chunk_size, compression=compression))
        if not segments:
            return
        with fl.Broker(objects, read_only=True) as read, fl.Broker(source, read_only=True) as local:
            assert read._segments("orders", 0) == local._segments("orders", 0)[:-1]
            for segment in segments:
                assert read.read_batches("orders", 0, segment.base, 1 << 20) == segment.log
            for offset, length in reads:
                if offset < segments[-1].end:
                    assert read.read_batches("orders", 0, offset, length) == local.read_batches("orders", 0, offset, length)


def leaders(source: Path, cuts: list[list[int]]) -> Iterator[dict[str, bytes]]:
    """Uploads of leaders with the same records, who rolled their segments before other batches."""
    segments = list(tiered.rolled(source, "orders"))
    for number, at in enumerate(cuts):
        for part in tiered.of_other_leader(segments, at):
            yield tiered.objects(part, compression=number % 2 == 1, chunk_size=300, uuid=f"AAAAAAAAAAAAAAAAAAAA{number:02}", event=number)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_segments_of_several_leaders_overlap_and_each_record_is_read_once(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, objects = Path(folder) / "log", Path(folder) / "objects"
        fill(source, [400] * 40)
        segments = list(tiered.rolled(source, "orders"))
        count = sum(len(list(tiered.batches(segment.log))) for segment in segments)
        cut = st.lists(st.integers(1, count - 1), max_size=6, unique=True).map(lambda cuts: [0, *sorted(cuts)])
        uploaded_offsets: set[int] = set()
        for files in leaders(source, data.draw(st.lists(cut, min_size=1, max_size=3))):
            if data.draw(st.integers(0, 4)) > 0 or "00000000000000000000-" in next(iter(files)):
                tiered.write(objects, files)
                (manifest,) = (json.loads(text)["remoteLogSegmentMetadata"] for key, text in files.items() if key.endswith("manifest"))
                uploaded_offsets.update(range(manifest["startOffset"], manifest["endOffset"] + 1))
        with fl.Broker(objects, read_only=True) as read, fl.Broker(source, read_only=True) as local:
            there = read.scan("orders").to_pyarrow().to_pylist()
            offsets = {row["offset"] for row in there}
            end = read.describe_topic("orders").partitions[0].high_watermark
            expected = local.scan("orders", end_offset=end).to_pyarrow().to_pylist()
            assert there == [row for row in expected if row["offset"] in offsets]
            if not uploaded_offsets.issuperset(range(end)):
                return  # a segment that is missing may have had the marker that aborts a transaction
            committed = read.scan("orders", isolation_level="read_committed").to_pyarrow().to_pylist()
            stable = read.describe_topic("orders").partitions[0].last_stable_offset
            rows = local.scan("orders", isolation_level="read_committed", end_offset=stable).to_pyarrow().to_pylist()
            assert committed == rows


def test_offsets_that_no_object_has_are_logged(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = uploaded(source)
    bases = sorted(segment.base for segment in tiered.rolled(source, "orders") if segment.partition == 0)
    files = {key: data for key, data in files.items() if not ("orders" in key and "/0/" in key and f"{bases[2]:020}" in key)}
    tiered.write(tmp_path / "objects", files)
    with caplog.at_level(logging.WARNING), fl.Broker(tmp_path / "objects", read_only=True) as broker:
        offsets = broker.scan("orders", partition=0).to_pyarrow()["offset"].to_pylist()
    assert f"orders-0: no object has the offsets {bases[2]} to {bases[3] - 1}" in caplog.text
    assert not set(offsets) & set(range(bases[2], bases[3]))
    assert max(offsets) >= bases[-1]


def test_a_log_starts_where_the_newest_segment_says(source: Path, tmp_path: Path) -> None:
    segments = [segment for segment in tiered.rolled(source, "orders") if segment.partition == 0]
    start = segments[2].base + 3
    files: dict[str, bytes] = {}
    for segment in segments:
        newest = segment is segments[-1]
        files |= tiered.objects(tiered.replace(segment, epochs={0: start}) if newest else segment)
    tiered.write(tmp_path / "objects", files)
    with fl.Broker(tmp_path / "objects", read_only=True) as broker:
        described = broker.describe_topic("orders").partitions[0]
        assert (described.log_start_offset, described.high_watermark) == (start, segments[-1].end)
        assert described.segments == sum(segment.end > start for segment in segments)
        assert broker.scan("orders").to_pyarrow()["offset"][0].as_py() >= start


def opens_with(s3: S3Server, place: str, error: type[Exception] = fl.errors.DirectoryError) -> str:
    with pytest.raises(error) as caught:
        fl.Broker(f"s3://{place}", read_only=True, storage_options=s3.options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "what"),
    [
        (".log", "it is missing, and "),
        (".indexes", "it is missing, and "),
        (".log cut", "and its manifest says"),
        (".rsm-manifest cut", "it is no whole segment manifest"),
        (".rsm-manifest encrypted", "the segment is encrypted, and only the plug-in has the keys; read it through Kafka"),
        (".rsm-manifest version", 'its version is "2", and only "1" is known; a newer fletchlog may read it'),
    ],
)
def test_an_object_that_cannot_be_read_is_named(s3: S3Server, bucket: str, source: Path, suffix: str, what: str) -> None:
    files = uploaded(source, compression=True)
    suffix, _, damage = suffix.partition(" ")
    key = sorted(key for key in files if key.endswith(suffix))[1]
    if not damage:
        del files[key]
    elif damage == "cut":
        files[key] = files[key][:-20]
    else:
        change = {"encryption": {"dataKey": "k:AAAA", "aad": "AAAA"}} if damage == "encrypted" else {"version": "2"}
        files[key] = json.dumps(json.loads(files[key]) | change).encode()
    for name, data in files.items():
        s3.put(f"{bucket}/p/{name}", data)
    text = opens_with(s3, f"{bucket}/p")
    assert text.startswith(f"s3://{bucket}/p: {key}: ")
    assert what in text


def test_a_topic_that_was_made_again_is_opened_by_its_folder(s3: S3Server, bucket: str, source: Path) -> None:
    for segment in tiered.rolled(source, "payments"):
        for topic_id in (segment.topic_id, tiered.ID):
            for key, data in tiered.objects(tiered.replace(segment, topic_id=topic_id)).items():
                s3.put(f"{bucket}/{key}", data)
    text = opens_with(s3, bucket)
    assert "topic payments with another id than payments-" in text
    assert "open one of the two" in text
    with fl.Broker(f"s3://{bucket}/payments-{tiered.ID}", read_only=True, storage_options=s3.options) as broker:
        assert broker.describe_topic("payments").topic_id == tiered.ID


def test_a_chunk_that_is_damaged_ends_the_read(source: Path, tmp_path: Path) -> None:
    files = uploaded(source, compression=True, chunk_size=300)
    key = max((key for key in files if key.startswith("orders") and key.endswith(".log")), key=lambda key: len(files[key]))
    files[key] = files[key][:-200] + bytes(200)
    tiered.write(tmp_path / "objects", files)
    with fl.Broker(tmp_path / "objects", read_only=True) as broker, pytest.raises(fl.errors.StorageError, match=r"\.log: chunk \d+ .*; restore the object"):
        broker.scan("orders").to_pyarrow()


def test_few_requests_open_it(s3: S3Server, bucket: str, source: Path) -> None:
    files = uploaded(source)
    for key, data in files.items():
        s3.put(f"{bucket}/{key}", data)
    with s3.counted() as opening, fl.Broker(f"s3://{bucket}", read_only=True, storage_options=s3.options):
        pass
    # every manifest, and the leader epochs of every partition
    assert opening["GET"] == len(files) // 3 + 3
    assert opening["LIST"] == 1


@pytest.mark.spark
def test_spark_reads_it_by_its_path(spark, s3: S3Server, bucket: str, source: Path, tmp_path: Path) -> None:
    files = uploaded(source, compression=True)
    tiered.write(tmp_path / "objects", files)
    for key, data in files.items():
        s3.put(f"{bucket}/{key}", data)
    ends = ends_of(source)
    with fl.Broker(source, read_only=True) as local:
        tables = [local.scan("orders", partition=partition, end_offset=ends["orders", partition]).to_pyarrow() for partition in (0, 1)]
    expected = {(row["partition"], row["offset"], row["value"]) for row in pa.concat_tables(tables).to_pylist()}
    store = {f"store.{name}": value for name, value in s3.options.items()}
    for options in ({"path": f"s3://{bucket}", **store}, {"path": str(tmp_path / "objects")}):
        rows = spark.read.format("fletchlog").options(**options, subscribe="orders").load().select("partition", "offset", "value").collect()
        assert len(rows) == len(expected)
        assert {(row.partition, row.offset, bytes(row.value)) for row in rows} == expected
