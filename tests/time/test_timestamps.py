"""Kafka's timestamps in every reader and writer: -1 is none, and what a column cannot hold is an error, never null or another time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.lib import ArrowInvalid

import fletchlog as fl
from tests.support.batches import batch, record

NONE = -1
NANOSECONDS = 1_700_000_000_000_000_000
LEAST, MOST = -(2**63), 2**63 - 1
# A day that microseconds in 64 bits hold, and the first millisecond that they do not.
LAST = MOST // 1000
HELD = [0, -2, -5000, 1_700_000_000_000, LAST, -LAST, 5]
BEYOND = [NANOSECONDS, LAST + 1, -LAST - 1, LEAST, MOST]
# Kafka has lower limits by default since 3.6. In one segment, so that one poll has all of them.
ANY = {"segment.ms": str(MOST), "message.timestamp.before.max.ms": str(MOST), "message.timestamp.after.max.ms": str(MOST)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[fl.Broker]:
    with fl.Broker(tmp_path) as opened:
        yield opened


def fill(broker: fl.Broker, times: list[int], topic: str = "t") -> None:
    broker.create_topic(topic, config=ANY)
    for number, time in enumerate(times):
        broker.append_batches(topic, 0, batch([record(0, b"%d" % number)], timestamp=time, max_timestamp=time))


def poll(broker: fl.Broker) -> fl.Records:
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0)])
        return consumer.poll(timeout_ms=10_000)


READERS: dict[str, Callable[..., pa.Table]] = {
    "scan": lambda broker, **options: broker.scan("t", **options).to_pyarrow(),
    "order": lambda broker, **options: broker.scan("t", order="timestamp", **options).to_pyarrow(),
    "poll": lambda broker, **options: poll(broker).to_pyarrow(**options),
    "polars": lambda broker, **options: poll(broker).to_polars(**options).to_arrow(),
    "pandas": lambda broker, **options: pa.Table.from_pandas(poll(broker).to_pandas(**options)),
}


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Callable[..., pa.Table]:
    return READERS[request.param]


def numbers(table: pa.Table) -> list[int | None]:
    return sorted(table["timestamp"].cast(pa.int64()).to_pylist(), key=lambda number: (number is not None, number))


def test_no_timestamp_is_null_and_every_other_one_is_that_time(broker: fl.Broker, read: Callable[..., pa.Table]) -> None:
    fill(broker, [NONE, *HELD, NONE])
    assert numbers(read(broker)) == [None, None, *sorted(time * 1000 for time in HELD)]
    assert numbers(read(broker, timestamp_unit="ms")) == [None, None, *sorted(HELD)]
    assert [found.timestamp for found in poll(broker)] == [NONE, *HELD, NONE]


@pytest.mark.parametrize("far", BEYOND)
@pytest.mark.parametrize("name", ["scan", "order", "poll"])
def test_a_timestamp_that_microseconds_cannot_hold_is_an_error_with_its_place(broker: fl.Broker, name: str, far: int) -> None:
    fill(broker, [3, far, 5])
    with pytest.raises(fl.errors.InvalidTimestampError, match=rf"t-0 at offset 1: the timestamp {far} \(ms\).*milliseconds") as raised:
        READERS[name](broker)
    assert (raised.value.topic_partition, raised.value.offset) == (("t", 0), 1)
    assert numbers(READERS[name](broker, timestamp_unit="ms")) == sorted([3, far, 5])


def test_what_needs_no_timestamp_reads_them_all(broker: fl.Broker) -> None:
    fill(broker, [3, *BEYOND, NONE])
    assert broker.scan("t", columns=["value"]).to_pyarrow().num_rows == 2 + len(BEYOND)
    assert [found.timestamp for found in poll(broker)] == [3, *BEYOND, NONE]
    with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        table = cluster.scan("t", timestamp_unit="ms").to_pyarrow()
        assert table["timestamp"].cast(pa.int64()).to_pylist() == [3, *BEYOND, None]
        with pytest.raises(fl.errors.InvalidTimestampError, match="t-0 at offset 1: "):
            cluster.scan("t").to_pyarrow()
        with pytest.raises(ArrowInvalid, match="t-0 at offset 1: "):
            pa.table(cluster.scan("t"))


def test_what_was_read_in_milliseconds_is_written_as_it_was(broker: fl.Broker) -> None:
    times = [7, -2, NANOSECONDS, LEAST, MOST, -5000]
    fill(broker, [*times, NONE])
    broker.create_topic("copy", config=ANY)
    with fl.Producer(broker, {"linger.ms": 50}) as producer:
        producer.send_arrow("copy", broker.scan("t", timestamp_unit="ms").to_pyarrow())
    copied = broker.scan("copy", timestamp_unit="ms").to_pyarrow()["timestamp"].cast(pa.int64()).to_pylist()
    assert copied[:-1] == times
    assert copied[-1] > 1_700_000_000_000, "a record without a timestamp gets the time of the append"


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("ms", "UTC")])
def test_kafkas_number_for_no_timestamp_means_now(broker: fl.Broker, kind: pa.DataType) -> None:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send_arrow("t", pa.table({"value": pa.array([b"a", b"b"]), "timestamp": pa.array([NONE, None], pa.int64()).cast(kind)}))
        for time in (NONE, -5):
            with pytest.raises(fl.errors.InvalidArgumentError, match=f"timestamp {time} is negative"):
                producer.send("t", b"c", timestamp_ms=time)
    assert all(time > 1_700_000_000_000 for time in numbers(broker.scan("t", timestamp_unit="ms").to_pyarrow()))


def test_another_unit_is_refused(broker: fl.Broker) -> None:
    fill(broker, [1])
    for call in (lambda: broker.scan("t", timestamp_unit="ns"), lambda: poll(broker).to_pyarrow(timestamp_unit="s")):
        with pytest.raises(fl.errors.InvalidArgumentError, match="expected us or ms"):
            call()
