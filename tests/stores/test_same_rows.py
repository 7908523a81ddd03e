"""What a store gives equals what the directory gives: for generated logs, copied as they are or exported."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.transfer import export
from tests.support.s3_server import S3Server

TOPICS = {"plain": {"segment.bytes": 4_000}, "compacted": {"segment.bytes": 4_000, "cleanup.policy": "compact"}, "whole": {}}
# (codec, records of each batch: key, value size, headers; how its transaction ends)
batches = st.lists(
    st.tuples(
        st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.booleans()), min_size=1, max_size=8),
        st.sampled_from(["no", "commit", "abort"]),
    ),
    max_size=12,
)
logs = st.tuples(batches, st.sampled_from(["closed", "open transaction", "dropped"]), st.sampled_from(["", "torn", "garbage"]))
numbers = itertools.count()
NOW = 1_700_000_000_000


def write(directory: Path, log: tuple) -> None:
    written, end, tail = log
    # moto answers some 100 requests a second, and every partition has its files
    with fl.Broker(directory, create=True, config={"transaction.state.log.num.partitions": 1}) as broker:
        for topic, config in TOPICS.items():
            broker.create_topic(topic, partitions=2, config={"retention.ms": "-1", **config})
        for number, (codec, records, outcome) in enumerate(written):
            send(broker, number, codec, records, outcome)
        broker.clean_topic("compacted", force=True)
        if end == "open transaction":
            producer = fl.Producer(broker, {"transactional.id": "left"})
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("whole", b"open", partition=0, timestamp_ms=NOW)
            producer.flush()
            producer.close(timeout_ms=0)
    last = [max(logs) for partition in directory.glob("whole-*") if (logs := list(partition.glob("*.log")))]
    for path in last:
        data = path.read_bytes()
        if tail == "torn" and data:
            path.write_bytes(data[:-3])
        elif tail == "garbage":
            path.write_bytes(data + b"\x00" * 70)


def send(broker: fl.Broker, number: int, codec: str, records: list, outcome: str) -> None:
    config = {"compression.type": codec}
    if outcome != "no":
        config["transactional.id"] = f"t{number}"
    with fl.Producer(broker, config) as producer:
        if outcome != "no":
            producer.init_transactions()
            producer.begin_transaction()
        for topic in TOPICS:
            for place, (key, size, with_headers) in enumerate(records):
                headers = [("h", b"1"), ("n", None)] if with_headers else None
                at = NOW + number * 1000 - place * 300
                producer.send(topic, b"v" * size, key=b"%d" % key, partition=key % 2, timestamp_ms=at, headers=headers)
        if outcome == "commit":
            producer.commit_transaction()
        elif outcome == "abort":
            producer.flush()
            producer.abort_transaction()


def read(broker: fl.Broker) -> dict[object, object]:
    """Everything that can be asked of a broker that is read."""
    found: dict[object, object] = {"topics": broker.topics(include_internal=True)}
    for topic in TOPICS:
        found[topic] = [(p.partition, p.log_start_offset, p.high_watermark, p.last_stable_offset) for p in broker.describe_topic(topic).partitions]
        for isolation in ("read_uncommitted", "read_committed"):
            asked: list[dict[str, object]] = [{}, {"order": "timestamp"}, {"start_time": NOW + 1500, "end_time": NOW + 6500}, {"columns": ["offset", "key"]}]
            for arguments in asked:
                scan = broker.scan(topic, isolation_level=isolation, **{"include_headers": "columns" not in arguments, **arguments})
                found[topic, isolation, str(arguments)] = scan.to_pyarrow().combine_chunks()
            found[topic, isolation, "polled"] = polled(broker, topic, isolation)
    return found


def polled(broker: fl.Broker, topic: str, isolation: str) -> object:
    partitions = [(topic, 0), (topic, 1)]
    tables = []
    with fl.Consumer(broker, {"isolation.level": isolation, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        times = consumer.offsets_for_times(dict.fromkeys(partitions, NOW + 2500))
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            records = consumer.poll(timeout_ms=200)
            if len(records):
                tables.append(records.to_pyarrow())
    return times, pa.concat_tables(tables).combine_chunks() if tables else None


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(log=logs)
def test_of_generated_logs(s3: S3Server, log: tuple) -> None:
    check(s3, log)


def test_of_a_log_with_everything(s3: S3Server) -> None:
    records = [(key, 100 * key, key % 2 == 0) for key in range(6)]
    written = [(codec, records, outcome) for codec in ("none", "gzip", "snappy", "lz4", "zstd") for outcome in ("no", "commit", "abort")]
    for tail in ("torn", "garbage"):
        check(s3, (written, "open transaction", tail))


def check(s3: S3Server, log: tuple) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "log"
        write(directory, log)
        prefix = f"{s3.new_bucket()}/p"
        s3.upload(directory, prefix)
        exported = f"s3://{s3.new_bucket()}/deep/prefix"
        export(directory, exported, storage_options=s3.options)
        export(directory, Path(folder) / "copy")
        with fl.Broker(directory, read_only=True) as broker:
            expected = read(broker)
        for place in (f"s3://{prefix}", exported):
            with fl.Broker(place, read_only=True, storage_options=s3.options) as broker:
                assert read(broker) == expected, place
        with fl.Broker(Path(folder) / "copy", read_only=True) as broker:
            assert read(broker) == expected
        # sound for a writer too
        assert all(report.ok for report in fl.files.verify(Path(folder) / "copy"))
        with fl.Broker(Path(folder) / "copy", create=True) as broker:
            broker.create_topic("more")
