"""Times: how long is an int of milliseconds or a timedelta, when is an int of milliseconds or a datetime; nothing else."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import re
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

import fletchlog as fl

MS = 1_700_000_000_000
WHEN = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
T0 = fl.TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for second in range(5):
                producer.send("t", value=b"%d" % second, timestamp_ms=WHEN + dt.timedelta(seconds=second))
        yield broker


@pytest.fixture
def consumer(broker: fl.Broker) -> Iterator[fl.Consumer]:
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
        consumer.assign([T0])
        yield consumer


def waits(consumer: fl.Consumer, given: object) -> list[Callable[[], object]]:
    """Every call with a time limit, with this one."""
    return [
        lambda: consumer.poll(given),  # type: ignore[arg-type]
        lambda: consumer.position(T0, given),  # type: ignore[arg-type]
        lambda: consumer.end_offsets([T0], given),  # type: ignore[arg-type]
        lambda: consumer.beginning_offsets([T0], timeout_ms=given),  # type: ignore[arg-type]
        lambda: consumer.offsets_for_times({T0: 0}, given),  # type: ignore[arg-type]
        lambda: consumer.commit({T0: 1}, given),  # type: ignore[arg-type]
        lambda: consumer.committed(T0, given),  # type: ignore[arg-type]
        lambda: consumer.close(given),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("given", [30_000, dt.timedelta(seconds=30), dt.timedelta(microseconds=29_999_999)])
def test_how_long_is_milliseconds_or_a_timedelta(consumer: fl.Consumer, given: object) -> None:
    polled, position, ends, beginnings, times, committing, committed, closed = (call() for call in waits(consumer, given))
    assert isinstance(polled, fl.Records)
    assert [record.value for record in polled] == [b"0", b"1", b"2", b"3", b"4"]
    assert (position, ends, beginnings, committing, closed) == (5, {T0: 5}, {T0: 0}, None, None)
    assert (times[T0].offset, committed.offset) == (0, 1)  # type: ignore[index, attr-defined]


@pytest.mark.parametrize("given", [200, dt.timedelta(milliseconds=200), dt.timedelta(microseconds=199_001)])
def test_a_poll_without_records_takes_as_long_as_it_was_given(consumer: fl.Consumer, given: object) -> None:
    consumer.seek_to_end([T0])
    assert consumer.position(T0) == 5
    begin = monotonic()
    assert len(consumer.poll(given)) == 0  # type: ignore[arg-type]
    # in another unit it would be over at once, or not before the test
    assert monotonic() - begin >= 0.19  # its clock has whole milliseconds


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (1.5, TypeError, "expected milliseconds as an int (1500), or a datetime.timedelta (timedelta(seconds=1.5)), got float 1.5"),
        ("5", TypeError, "expected milliseconds as an int, or a datetime.timedelta, got str '5'"),
        (True, TypeError, "got bool True"),
        (10**30, fl.errors.InvalidArgumentError, "int 1000000000000000000000000000000 is out of range"),
        (-1, fl.errors.InvalidArgumentError, "a wait of -1 ms is negative; give 0 or more milliseconds"),
        (dt.timedelta(seconds=-1), fl.errors.InvalidArgumentError, "a wait of -1000 ms is negative; give 0 or more milliseconds"),
    ],
)
def test_anything_else_is_refused_with_the_unit(consumer: fl.Consumer, given: object, error: type[Exception], text: str) -> None:
    for call in waits(consumer, given):
        with pytest.raises(error, match=re.escape(text)):
            call()


def test_a_datetime_without_a_zone_is_refused_everywhere(broker: fl.Broker, consumer: fl.Consumer) -> None:
    naive = WHEN.replace(tzinfo=None)
    with fl.Producer(broker) as producer, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        for call in (
            lambda: consumer.offsets_for_times({T0: naive}),
            lambda: consumer.seek(T0, naive),
            lambda: producer.send("t", b"", timestamp_ms=naive),
            lambda: broker.scan("t", start_time=naive),
            lambda: broker.scan("t", end_time=naive),
            lambda: cluster.scan("t", start_time=naive),
        ):
            with pytest.raises(fl.errors.InvalidArgumentError, match=r"has no time zone; give it one: .*astimezone"):
                call()


def test_a_seek_and_a_scan_begin_at_the_same_record_between_two_milliseconds(broker: fl.Broker, consumer: fl.Consumer) -> None:
    between = WHEN + dt.timedelta(microseconds=1)
    consumer.seek(T0, between)
    assert consumer.position(T0) == broker.scan("t", 0, start_time=between).to_pyarrow()["offset"][0].as_py() == 1


@pytest.mark.parametrize("given", [MS, WHEN, WHEN.astimezone(dt.timezone(dt.timedelta(hours=5)))])
def test_when_is_milliseconds_or_a_datetime(broker: fl.Broker, consumer: fl.Consumer, given: int | dt.datetime) -> None:
    found = consumer.offsets_for_times({T0: given})[T0]
    assert found is not None
    assert (found.offset, found.timestamp) == (0, MS)
    with fl.Producer(broker) as producer:
        assert producer.send("t", b"", timestamp_ms=given).result(30).timestamp == MS


def test_a_seek_to_a_datetime_is_looked_up(consumer: fl.Consumer) -> None:
    for time, offset in ((WHEN - dt.timedelta(days=1), 0), (WHEN + dt.timedelta(milliseconds=1001), 2), (WHEN + dt.timedelta(days=1), 5)):
        consumer.seek(T0, time)
        assert consumer.position(T0) == offset


@pytest.mark.parametrize("given", [1.5, "yesterday", WHEN.date()])
def test_another_point_in_time_is_refused(broker: fl.Broker, consumer: fl.Consumer, given: object) -> None:
    expected = "expected milliseconds since 1970 as an int, or a datetime"
    with pytest.raises(TypeError, match=expected):
        consumer.offsets_for_times({T0: given})  # type: ignore[dict-item]
    with fl.Producer(broker) as producer, pytest.raises(TypeError, match=expected):
        producer.send("t", b"", timestamp_ms=given)  # type: ignore[arg-type]


def test_a_point_in_time_that_no_log_can_have_is_an_error(broker: fl.Broker, consumer: fl.Consumer) -> None:
    with pytest.raises(fl.errors.InvalidArgumentError, match="out of range"):
        consumer.offsets_for_times({T0: 10**30})


def test_a_future_waits_for_seconds_as_pythons_do(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"linger.ms": 60_000}) as producer:
        future = producer.send("t", b"v")
        assert future.running()
        assert not future.done()
        assert (future.cancel(), future.cancelled()) == (False, False)
        for limit in ({"timeout": 0.01}, {"timeout": 0}, {"timeout": dt.timedelta(milliseconds=1)}, {"timeout_ms": 1}, {"timeout_ms": dt.timedelta(0)}):
            with pytest.raises(TimeoutError, match="still undecided after"):
                future.result(**limit)  # type: ignore[arg-type]
            with pytest.raises(fl.errors.KafkaTimeoutError):
                future.exception(**limit)  # type: ignore[arg-type]
        with pytest.raises(fl.errors.InvalidArgumentError, match="not both"):
            future.result(1, timeout_ms=1)
        with pytest.raises(fl.errors.InvalidArgumentError, match="timeout is -1; give 0 or more seconds"):
            future.result(-1)
        with pytest.raises(TypeError, match="expected milliseconds as an int"):
            future.result(timeout_ms=0.5)  # type: ignore[arg-type]
        producer.flush()
        assert (future.running(), future.done()) == (False, True)
        assert future.result(timeout=0).offset == 5


def test_a_future_of_pythons_has_the_same_outcome(broker: fl.Broker) -> None:
    broker.create_topic("small", config={"max.message.bytes": 100})
    with fl.Producer(broker, {"linger.ms": 0}) as producer:
        sent = [producer.send("t", b"v") for _ in range(20)]
        done, pending = concurrent.futures.wait([future.future() for future in sent], timeout=60)
        assert not pending
        assert sorted(future.result().offset for future in done) == list(range(5, 25))
        first = next(concurrent.futures.as_completed([producer.send("t", b"v").future()], timeout=60))
        assert first.result().offset == 25
        assert not producer.send("t", b"v").future().cancel()
        failed = producer.send("small", bytes(1000)).future()
        assert isinstance(failed.exception(timeout=60), fl.errors.RecordTooLargeError)
