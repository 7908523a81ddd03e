"""`scan(start_time=, end_time=)` gives the rows that filtering a full scan gives, in their order, from a directory and from a cluster."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from tests.support.batches import batch, record

SMALL = {"retention.ms": "-1", "internal.segment.bytes": 400, "index.interval.bytes": 1, "min.cleanable.dirty.ratio": 0}


class Places(NamedTuple):
    """A broker, and the same as a cluster."""

    broker: fl.Broker
    cluster: fl.Cluster


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        yield Places(broker, cluster)


def milliseconds(table: pa.Table) -> pa.ChunkedArray:
    return table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())


def between(table: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """The rows of a full scan that a scan of these times has to give."""
    times = milliseconds(table)
    if start is not None:
        table, times = table.filter(pc.greater_equal(times, start)), times.filter(pc.greater_equal(times, start))
    return table if end is None else table.filter(pc.less(times, end))


def fill(broker: fl.Broker, topic: str, partitions: list[list[int]], **config: object) -> None:
    """Timestamps per partition, some in a batch."""
    broker.create_topic(topic, partitions=len(partitions), config=SMALL | {name.replace("_", "."): value for name, value in config.items()})
    with fl.Producer(broker, {"batch.size": 150}) as producer:
        for partition, times in enumerate(partitions):
            for number, time in enumerate(times):
                producer.send(topic, key=b"%d" % (number % 5), value=b"%d" % number, partition=partition, timestamp_ms=time)


# A batch: partition, timestamps, codec, how its transaction ends (None: it is in none).
BATCH = st.tuples(
    st.integers(0, 2),
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
    st.sampled_from(["none", "gzip", "lz4", "zstd"]),
    st.sampled_from([None, None, True, False]),
)


@pytest.mark.timeout(180)
@settings(max_examples=20)
@given(
    batches=st.lists(BATCH, min_size=1, max_size=20),
    stamped=st.booleans(),
    compact=st.booleans(),
    bounds=st.lists(st.tuples(st.none() | st.integers(-2, 70), st.none() | st.integers(-2, 70)), min_size=1, max_size=2),
    delete=st.integers(0, 10),
)
# a span that ends inside a batch, and none of whose records is in the range
@pytest.mark.slow
@example(batches=[(0, [0, 1, 0], "none", None), (1, [0], "none", None)], stamped=False, compact=False, bounds=[(None, 0)], delete=0)
def test_the_rows_are_those_of_a_full_scan(
    places: Places,
    batches: list[tuple[int, list[int], str, bool | None]],
    stamped: bool,
    compact: bool,
    bounds: list[tuple[int | None, int | None]],
    delete: int,
) -> None:
    broker, topic = places.broker, f"t{len(places.broker.topics())}"
    policy = {"cleanup.policy": "compact"} if compact else {}
    stamp = {"message.timestamp.type": "LogAppendTime"} if stamped else {}
    broker.create_topic(topic, partitions=3, config=SMALL | policy | stamp)
    for number, (partition, times, codec, commit) in enumerate(batches):
        config = {"compression.type": codec, "linger.ms": 1000}
        with fl.Producer(broker, config if commit is None else config | {"transactional.id": topic}) as producer:
            if commit is not None:
                producer.init_transactions()
                producer.begin_transaction()
            for time in times:
                producer.send(topic, key=b"%d" % (time % 7), value=b"%d" % number, partition=partition, timestamp_ms=time)
            if commit is not None:
                (producer.commit_transaction if commit else producer.abort_transaction)()
    if compact:
        broker.clean_topic(topic, force=True)
    else:
        end = broker.describe_topic(topic).partitions[0].high_watermark
        broker.delete_records(topic, 0, min(delete, end))
    everything = milliseconds(broker.scan(topic).to_pyarrow())
    begin = pc.min(everything).as_py() if stamped and len(everything) else 0
    for bound in bounds:
        start, end = (None if time is None else begin + time for time in bound)
        if start is not None and end is not None and start > end:
            start, end = end, start
        for more in ({}, {"isolation_level": "read_committed"}, {"order": "timestamp"}, {"start_offset": 10, "end_offset": 40}, {"batch_rows": 3}):
            for place in places:
                full = place.scan(topic, include_headers=True, **more).to_pyarrow()
                found = place.scan(topic, include_headers=True, start_time=start, end_time=end, **more)
                assert found.to_pyarrow().equals(between(full, start, end)), (place, start, end, more)


def test_a_column_that_is_not_asked_for_may_decide(places: Places) -> None:
    fill(places.broker, "columns", [[10, 30, 20, 40], [25]])
    for place in places:
        found = place.scan("columns", columns=["offset", "partition"], start_time=20, end_time=40).to_pyarrow()
        assert found.to_pydict() == {"offset": [1, 2, 0], "partition": [0, 0, 1]}
        assert place.scan("columns", columns=["value"], end_time=21).to_pyarrow()["value"].to_pylist() == [b"0", b"2"]


def test_times_are_datetimes_or_milliseconds(places: Places) -> None:
    day = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    begin = int(day.timestamp() * 1000)
    fill(places.broker, "days", [[begin - 1, begin, begin + 1, begin + 2]])
    east = dt.timezone(dt.timedelta(hours=2))

    def offsets(start: object, end: object = None) -> list[int]:
        return places.broker.scan("days", start_time=start, end_time=end).to_pyarrow()["offset"].to_pylist()

    for same in (begin, day, day.astimezone(east), pd.Timestamp(day)):
        assert offsets(same) == [1, 2, 3], same
        assert offsets(None, same) == [0], same
        assert offsets(same, same) == []
    # Between two milliseconds is behind the first of them.
    half = day + dt.timedelta(microseconds=500)
    assert (offsets(half), offsets(None, half)) == ([2, 3], [0, 1])
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)
    assert offsets(before) == offsets(None) == [0, 1, 2, 3]


def test_a_record_without_a_timestamp_is_before_1970(places: Places) -> None:
    places.broker.create_topic("none", config=SMALL)
    records = [record(0, b"a"), record(1, b"b", timestamp_delta=6)]
    places.broker.append_batches("none", 0, batch(records, timestamp=-1, max_timestamp=5))
    for place in places:
        for start, expected in ((-1, [b"a", b"b"]), (0, [b"b"]), (None, [b"a", b"b"]), (6, [])):
            assert place.scan("none", start_time=start).to_pyarrow()["value"].to_pylist() == expected
        assert place.scan("none", end_time=0).to_pyarrow()["value"].to_pylist() == [b"a"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"start_time": "yesterday"}, TypeError, "start_time: expected datetime or int"),
        ({"end_time": 1.5}, TypeError, r"end_time: expected datetime or int \(ms since 1970\), got float 1.5"),
        ({"end_time": dt.date(2024, 5, 1)}, TypeError, "end_time: expected datetime"),
        ({"start_time": 1 << 70}, TypeError, "start_time: expected"),
        ({"start_time": 9, "end_time": 4}, fl.errors.InvalidArgumentError, "start_time is 9 and end_time 4"),
    ],
)
def test_what_is_no_time_is_refused(places: Places, arguments: dict[str, object], error: type[Exception], text: str) -> None:
    for place in places:
        with pytest.raises(error, match=text):
            place.scan("t", **arguments)


def test_a_late_start_reads_little(places: Places) -> None:
    """The first offset at or after the time is looked up, and what is before it is not read: damage there is not seen."""
    fill(places.broker, "long", [list(range(1000))])
    assert repr(places.broker.scan("long", start_time=990)) == "<fletchlog.types.Scan: long-0[990..1000]>"
    assert repr(places.cluster.scan("long", start_time=990)) == "<fletchlog.types.Scan: long-0[990..1000]>"
    assert repr(places.cluster.scan("long", start_time=1000)) == "<fletchlog.types.Scan: >"
