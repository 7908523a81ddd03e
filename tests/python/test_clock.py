"""`Broker.clock`: what is due happens when a test sets the clock ahead, and not while it is frozen."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.errors import ClosedError, ForkedHandleError, InvalidArgumentError

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def frozen() -> Iterator[fl.Broker]:
    """A broker whose clock is frozen, with a topic."""
    with fl.Broker.in_memory(config={"log.retention.check.interval.ms": 300_000}) as broker:
        broker.create_topic("orders")
        broker.clock.freeze()
        yield broker


def test_how_far_is_a_number_of_seconds_or_a_timedelta(frozen: fl.Broker) -> None:
    clock = frozen.clock
    began = clock.now_ms
    for given, ms in [(45, 45_000), (0.0004, 1), (0, 0), (dt.timedelta(microseconds=1), 1), (HOUR, 3_600_000)]:
        clock.advance(given)
        began += ms
        assert clock.now_ms == began
    for units, ms in [({"seconds": 1}, 1000), ({"milliseconds": 250}, 250), ({"minutes": 0.7}, 42_000), ({"seconds": 16.1}, 16_100)]:
        clock.advance(**units)  # type: ignore[arg-type]
        began += ms
        assert clock.now_ms == began
    clock.advance(HOUR, days=1, hours=2, minutes=3, milliseconds=4)
    began += 97_380_004
    for wrong in [-1, -0.0001, -HOUR, float("nan"), float("inf"), 1e12, dt.timedelta(days=40_000)]:
        with pytest.raises(InvalidArgumentError, match="a clock is set ahead by 0 seconds to 100 years"):
            clock.advance(wrong)
    for other in ["45", None, True, dt.datetime.now(dt.UTC)]:
        with pytest.raises(TypeError, match="expected seconds"):
            clock.advance(other)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"got minutes=-1: it cannot go back"):
        clock.advance(seconds=5, minutes=-1)
    with pytest.raises(TypeError, match="expected minutes as a number"):
        clock.advance(minutes=HOUR)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="milliseconds=, minutes=, hours=, days="):
        clock.advance()
    assert clock.now_ms == began


def test_it_runs_on_from_where_it_was_stopped(broker: fl.Broker) -> None:
    clock = broker.clock
    assert not clock.is_frozen
    assert abs(clock.now_ms - time.time() * 1000) < 5000
    clock.freeze()
    stopped = clock.now_ms
    time.sleep(0.003)
    assert (clock.is_frozen, clock.now_ms, repr(clock)) == (True, stopped, "<fletchlog.types.Clock: frozen>")
    clock.resume()
    assert stopped <= clock.now_ms < stopped + 5000
    clock.advance(HOUR)
    assert 0 <= clock.now_ms - stopped - 3_600_000 < 5000
    assert repr(broker.clock) == "<fletchlog.types.Clock: running>"


def test_a_closed_broker_has_no_time_to_set() -> None:
    with fl.Broker.in_memory() as broker:
        clock = broker.clock
    for call in (lambda: clock.advance(1), clock.freeze, clock.resume):
        with pytest.raises(ClosedError):
            call()
    assert not clock.is_frozen
    with pytest.raises(TypeError):
        pickle.dumps(clock)


def test_a_forked_child_cannot_set_it(broker: fl.Broker) -> None:
    def child(results: Any) -> None:
        try:
            broker.clock.advance(1)
        except ForkedHandleError as error:
            results.put(str(error))

    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    process = context.Process(target=child, args=(results,))
    process.start()
    assert "process" in results.get(timeout=30)
    process.join()


def test_members_transactions_and_records_are_as_old_as_the_clock_says(frozen: fl.Broker) -> None:
    clock = frozen.clock
    began = clock.now_ms
    with fl.Producer(frozen, {"transactional.id": "t", "transaction.timeout.ms": 60_000}) as producer:
        producer.init_transactions()
        with pytest.raises(fl.errors.KafkaError), producer.transaction():
            producer.send("orders", value=b"open").result()
            clock.advance(60)
            assert [t.state for t in frozen.transactions()] == ["Ongoing"]
            clock.advance(10)  # checked every 10 s
            assert [t.state for t in frozen.transactions()] == ["CompleteAbort"]
    with fl.Producer(frozen) as producer:
        assert producer.send("orders", value=b"later").result().timestamp == began + 70_000
    with fl.Consumer(frozen, {"group.id": "g", "max.poll.interval.ms": 60_000}) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll(timeout_ms=100)
        clock.advance(59.999)
        assert len(frozen.describe_group("g").members) == 1
        clock.advance(0.001)
        assert frozen.describe_group("g").state == "Empty"


def test_retention_deletes_what_has_become_too_old(frozen: fl.Broker) -> None:
    frozen.create_topic("short", config={"retention.ms": 3_600_000})
    with fl.Producer(frozen) as producer:
        producer.send("short", value=b"v").result()
    frozen.clock.advance(HOUR)
    assert frozen.scan("short").to_pyarrow().num_rows == 1
    frozen.clock.advance(seconds=300)
    assert frozen.scan("short").to_pyarrow().num_rows == 0


def test_a_client_keeps_its_time_limit_while_the_clock_is_frozen(frozen: fl.Broker) -> None:
    with fl.Consumer(frozen) as consumer:
        consumer.assign([("orders", 0)])
        began = time.monotonic()
        assert len(consumer.poll(timeout_ms=30)) == 0
        assert 0.02 < time.monotonic() - began < 10


def test_an_advance_in_another_thread_ends_what_waits_here(frozen: fl.Broker) -> None:
    config = {"fetch.max.wait.ms": 50_000, "fetch.min.bytes": 1_000_000}
    with fl.Producer(frozen) as producer:
        producer.send("orders", value=b"too little to be fetched at once").result()
    with fl.Consumer(frozen, config | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0)])
        stop = threading.Event()

        def advance() -> None:
            while not stop.wait(0.01):
                frozen.clock.advance(seconds=50)

        other = threading.Thread(target=advance)
        other.start()
        try:
            assert len(consumer.poll(timeout_ms=40_000)) == 1
        finally:
            stop.set()
            other.join()
