"""`fletchlog.fetch.order=timestamp`: all partitions by time, each in offset order, nothing lost on the way."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl

BY_TIME = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.max.wait.ms": 20, "fletchlog.fetch.order": "timestamp"}

Row = tuple[int, int, int]


def fill(broker: fl.Broker, topic: str, partitions: list[list[int]]) -> None:
    """Timestamps per partition."""
    broker.create_topic(topic, partitions=len(partitions), config={"retention.ms": "-1"})
    with fl.Producer(broker, {"batch.size": 200}) as producer:
        for partition, timestamps in enumerate(partitions):
            for timestamp in timestamps:
                producer.send(topic, value=b"v", partition=partition, timestamp_ms=timestamp)


def reader(broker: fl.Broker, topic: str, partitions: int, **config: object) -> fl.Consumer:
    consumer = fl.Consumer(broker, BY_TIME | {name.replace("_", "."): value for name, value in config.items()})
    consumer.assign([(topic, partition) for partition in range(partitions)])
    return consumer


def rows(records: fl.Records) -> list[Row]:
    table = records.to_pyarrow()
    milliseconds = table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    got = list(zip(milliseconds.to_pylist(), table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert got == [(record.timestamp, record.partition, record.offset) for record in records]
    assert sum(run.count for run in records.runs()) == len(got)
    return got


def read(consumer: fl.Consumer, wanted: int) -> list[Row]:
    got: list[Row] = []
    for _ in range(10 * wanted + 20):
        if len(got) >= wanted:
            break
        got += rows(consumer.poll(timeout_ms=100))
    return got


def test_rows_are_ordered_by_time_then_partition(broker: fl.Broker) -> None:
    fill(broker, "t", [[10, 20, 30], [5, 20, 40], [20]])
    consumer = reader(broker, "t", 3)
    records = consumer.poll(timeout_ms=1000)
    assert rows(records) == [(5, 1, 0), (10, 0, 0), (20, 0, 1), (20, 1, 1), (20, 2, 0), (30, 0, 2), (40, 1, 2)]
    assert records.partitions() == [("t", 1), ("t", 0), ("t", 2)]
    assert [(run.partition, run.count) for run in records.runs()] == [(1, 1), (0, 2), (1, 1), (2, 1), (0, 1), (1, 1)]
    assert consumer.late_records == 0


def test_offset_order_of_a_partition_comes_before_time_and_late_records_are_counted(broker: fl.Broker) -> None:
    fill(broker, "t", [[30, 10, 20], [15, 35]])
    consumer = reader(broker, "t", 2, fletchlog_trace=True)
    assert read(consumer, 5) == [(15, 1, 0), (30, 0, 0), (10, 0, 1), (20, 0, 2), (35, 1, 1)]
    assert consumer.late_records == 2
    late = [event for event in consumer.trace().to_pyarrow().to_pylist() if event["kind"] == "late"]
    assert sum(event["records"] for event in late) == 2


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_merge_is_a_stable_sort_and_a_restart_from_committed_offsets_repeats_nothing(nodes: int) -> None:
    partition = st.lists(st.integers(0, 50), max_size=12).map(sorted)

    @given(st.lists(partition, min_size=1, max_size=4), st.integers(1, 7), st.integers(1, 600), st.lists(st.integers(1, 4), max_size=4))
    def check(partitions: list[list[int]], most: int, fetch_bytes: int, restarts: list[int]) -> None:
        with fl.Broker.in_memory(nodes=nodes) as broker:
            fill(broker, "t", partitions)
            limits = {"group_id": "g", "max_poll_records": most, "max_partition_fetch_bytes": fetch_bytes, "fetch_max_wait_ms": 1}
            got: list[Row] = []
            for polls in restarts:
                with reader(broker, "t", len(partitions), **limits) as consumer:
                    for _ in range(polls):
                        got += rows(consumer.poll(timeout_ms=5))
                    consumer.commit()
            expected = sorted((timestamp, p, offset) for p, timestamps in enumerate(partitions) for offset, timestamp in enumerate(timestamps))
            with reader(broker, "t", len(partitions), **limits) as consumer:
                got += read(consumer, len(expected) - len(got))
            assert got == expected

    check()


def test_a_rebalance_loses_and_repeats_nothing_and_keeps_partitions_in_order(broker: fl.Broker) -> None:
    fill(broker, "t", [list(range(p, 400, 4)) for p in range(4)])
    settings = BY_TIME | {"group.id": "g", "enable.auto.commit": True, "heartbeat.interval.ms": 20, "max.poll.records": 3, "max.partition.fetch.bytes": 300}
    got: list[Row] = []
    with fl.Consumer(broker, settings) as first, fl.Consumer(broker, settings) as second:
        first.subscribe(["t"])
        while len(got) < 60:
            got += rows(first.poll(timeout_ms=20))
        assert got == sorted(got)
        first.pause(first.assignment())  # until the rebalance, so that there is something left to share
        second.subscribe(["t"])
        for _ in range(2000):
            mine, theirs = rows(first.poll(timeout_ms=10)), rows(second.poll(timeout_ms=10))
            assert (mine, theirs) == (sorted(mine), sorted(theirs))
            got += mine + theirs
            if len(got) >= 400:
                break
        assert (len(first.assignment()), len(second.assignment())) == (2, 2)
    assert sorted(got) == [(timestamp, timestamp % 4, timestamp // 4) for timestamp in range(400)]
    for p in range(4):
        assert [offset for _, partition, offset in got if partition == p] == list(range(100))


def test_a_quiet_partition_is_waited_for_as_long_as_max_idle_says(broker: fl.Broker) -> None:
    fill(broker, "t", [[10], []])
    patient = reader(broker, "t", 2, fletchlog_timestamp_max_idle_ms=3_600_000)
    assert rows(patient.poll(timeout_ms=50)) == []
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v", partition=1, timestamp_ms=5)
    assert rows(patient.poll(timeout_ms=1000)) == [(5, 1, 0)]
    assert rows(reader(broker, "t", 2, fletchlog_timestamp_max_idle_ms=100).poll(timeout_ms=5000)) == [(5, 1, 0)]
    hurried = reader(broker, "t", 2)
    assert read(hurried, 2) == [(5, 1, 0), (10, 0, 0)]
    bounded = reader(broker, "t", 2, fletchlog_timestamp_max_idle_ms=3_600_000, fletchlog_timestamp_max_lateness_ms=100)
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v", partition=0, timestamp_ms=110)
    assert read(bounded, 2) == [(5, 1, 0), (10, 0, 0)]


def test_a_paused_partition_waits_and_holds_nothing_back(broker: fl.Broker) -> None:
    fill(broker, "t", [[1, 3], [2]])
    consumer = reader(broker, "t", 2)
    consumer.pause([("t", 1)])
    assert read(consumer, 2) == [(1, 0, 0), (3, 0, 1)]
    consumer.resume([("t", 1)])
    assert read(consumer, 1) == [(2, 1, 0)]
    consumer.seek(("t", 0), 1)
    consumer.seek(("t", 1), 0)
    assert read(consumer, 2) == [(2, 1, 0), (3, 0, 1)]


def test_log_append_time_is_the_time_that_counts(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=2, config={"message.timestamp.type": "LogAppendTime"})
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"first", partition=1, timestamp_ms=2_000_000_000_000).result()
        producer.send("t", value=b"second", partition=0, timestamp_ms=1).result()
    got = read(reader(broker, "t", 2), 2)
    assert got == sorted(got)
    assert {row[1:] for row in got} == {(0, 0), (1, 0)}


def test_another_order_or_a_negative_time_is_refused(broker: fl.Broker) -> None:
    for name, value in [("fletchlog.fetch.order", "time"), ("fletchlog.timestamp.max.idle.ms", -1), ("fletchlog.timestamp.max.lateness.ms", -1)]:
        with pytest.raises(fl.errors.ConfigError, match=name):
            fl.Consumer(broker, {name: value})


def scanned(scan: fl.types.Scan) -> list[Row]:
    table = scan.to_pyarrow()
    milliseconds = table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return list(zip(milliseconds.to_pylist(), table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4), st.integers(1, 8))
def test_a_scan_by_timestamp_gives_what_a_consumer_by_timestamp_reads(partitions: list[list[int]], batch_rows: int) -> None:
    with fl.Broker.in_memory() as broker:
        fill(broker, "t", partitions)
        by_time = scanned(broker.scan("t", order="timestamp", batch_rows=batch_rows))
        by_offset = scanned(broker.scan("t"))
        assert sorted(by_time) == sorted(by_offset)
        assert by_time == read(reader(broker, "t", len(partitions)), len(by_offset))
        if all(timestamps == sorted(timestamps) for timestamps in partitions):
            assert by_time == sorted(by_offset)


def test_a_scan_by_timestamp_keeps_to_its_range_and_its_batches(broker: fl.Broker) -> None:
    fill(broker, "t", [list(range(0, 100, 2)), list(range(1, 101, 2))])
    scan = broker.scan("t", order="timestamp", start_offset=3, end_offset=45, batch_rows=10, include_headers=True)
    assert [row[0] for row in scanned(scan)] == list(range(6, 90))
    assert [batch.num_rows for batch in scan] == [10] * 8 + [4]
    assert scanned(scan) == scanned(scan)
    assert scanned(broker.scan("t", partition=1, order="timestamp")) == scanned(broker.scan("t", partition=1))
    with pytest.raises(fl.errors.InvalidArgumentError, match="order is `time`; expected offset or timestamp"):
        broker.scan("t", order="time")


def test_a_scan_by_timestamp_reads_on_where_a_read_ends(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=3, config={"retention.ms": "-1"})
    with fl.Producer(broker, {"batch.size": 20_000}) as producer:
        for number in range(3000):
            producer.send("t", value=b"x" * 300, partition=number % 3, timestamp_ms=number)
    assert [row[0] for row in scanned(broker.scan("t", order="timestamp"))] == list(range(3000))
