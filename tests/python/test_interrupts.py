"""Ctrl-C at any moment of any call: it ends the call soon, the handle goes on, nothing acknowledged is lost or doubled."""

from __future__ import annotations

import gc
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import fletchlog as fl
from tests.support.reading import values_of

TP = fl.TopicPartition("t", 0)
# Interrupts per kind of call. Their moments are random; the seed of a failing run is its number.
ROUNDS = 25
# A call that waits asks for signals every 50 ms; the rest is for a busy machine. Every wait below lasts at least twice this.
PROMPT_S = 5.0
# Longest time before the signal: calls that wait are certainly waiting then.
LATEST_S = 0.08


class Interrupt(KeyboardInterrupt):
    """What Ctrl-C raises here: pytest keeps the real one."""


def interrupted(call: Callable[[], object], after: float) -> float:
    """Repeats a call until a signal ends it, `after` seconds from now; returns how long it took to end, in seconds."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    due = time.monotonic() + after
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        while time.monotonic() < due + 30:
            call()
    except Interrupt:
        return time.monotonic() - due
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    raise AssertionError("the signal was lost")


def interrupt_often(call: Callable[[], object], check: Callable[[], object]) -> None:
    """Interrupts a call at random moments; after each the handles must do what `check` asks of them."""
    for seed in range(ROUNDS):
        delay = interrupted(call, random.Random(seed).uniform(0.0005, LATEST_S))
        assert delay < PROMPT_S, f"round {seed}: ended {delay:.2f} s after the signal"
        check()


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    """An exception raised in a finalizer that happens to run (of another test's objects) is swallowed by Python."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[fl.Broker]:
    """A broker on disk with some thousand records."""
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", pa.table({"value": [b"%d" % i for i in range(5000)]}))
        yield broker


def test_poll(log: fl.Broker) -> None:
    with fl.Consumer(log, {"auto.offset.reset": "earliest", "max.poll.records": 50}) as consumer:
        consumer.assign([TP])

        def poll() -> None:
            # What a poll has handed out is behind the position, what it has not is before it: an interrupt moves nothing.
            # (Python may drop a result between the call and its use, so the position is the judge, not a count.)
            for record in consumer.poll(timeout_ms=10_000):
                assert record.value == b"%d" % record.offset

        def check() -> None:
            position = consumer.position(TP)
            first = next(iter(consumer.poll(timeout_ms=10_000)), None) if position < 5000 else None
            assert first is None or first.offset == position
            if position >= 5000:
                consumer.seek(TP, 0)

        interrupt_often(poll, check)


def test_poll_of_a_group_that_waits_for_another_member(log: fl.Broker) -> None:
    config = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "max.poll.interval.ms": 60_000}
    silent, consumer = fl.Consumer(log, config), fl.Consumer(log, config)
    silent.subscribe(["t"])
    silent.poll(timeout_ms=200)
    # The first member does not poll, so the second one's join is not answered
    consumer.subscribe(["t"])
    interrupt_often(lambda: consumer.poll(timeout_ms=10_000), consumer.assignment)
    assert interrupted(consumer.close, 0.05) < PROMPT_S
    consumer.close(timeout_ms=0)
    silent.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["send", "send_many", "result", "flush", "send_arrow"])
def test_producing(log: fl.Broker, what: str) -> None:
    acknowledged: list[fl.Future] = []
    table = pa.table({"value": [b"row"] * 2000})
    with fl.Producer(log, {"linger.ms": 5, "enable.idempotence": True}) as producer:

        def send() -> None:
            acknowledged.append(producer.send("t", value=b"sent"))

        def flush() -> None:
            for _ in range(20):
                send()
            producer.flush()

        calls: dict[str, Callable[[], object]] = {
            "send": send,
            "send_many": lambda: producer.send_many("t", [b"row"] * 2000),
            "result": lambda: producer.send("t", value=b"sent").result(10),
            "flush": flush,
            "send_arrow": lambda: producer.send_arrow("t", table),
        }
        interrupt_often(calls[what], lambda: producer.send("t", value=b"after").result(10))
        producer.flush()
    offsets = [future.result(0).offset for future in acknowledged]
    assert len(set(offsets)) == len(offsets)
    found = values_of(log)
    assert all(found[offset] == b"sent" for offset in offsets)
    assert found.count(b"after") == ROUNDS


def test_a_flush_that_waits_for_answers_that_never_come(log: fl.Broker) -> None:
    faults = fl.testing.FaultPlan()
    faults.on(api="Produce").black_hole()
    config = {"request.timeout.ms": 60_000, "delivery.timeout.ms": 120_000}
    producer = fl.Producer(log, config, faults=faults)
    producer.send("t", value=b"never answered")
    interrupt_often(producer.flush, lambda: producer.send("t", value=b"nor this"))
    # Closing waits for the same answers: it can be interrupted, and a limit ends it
    assert interrupted(producer.close, 0.05) < PROMPT_S
    producer.close(timeout_ms=0)
    assert len(values_of(log)) == 5000


def test_scan(log: fl.Broker) -> None:
    def scan() -> None:
        assert log.scan("t", batch_rows=100).to_pyarrow().num_rows == 5000

    interrupt_often(scan, lambda: values_of(log))


def test_commit(log: fl.Broker) -> None:
    with fl.Consumer(log, {"group.id": "g"}) as consumer:
        consumer.assign([TP])
        sent = [0]

        def commit() -> None:
            sent[0] += 1
            consumer.commit({TP: sent[0]})

        def check() -> None:
            committed: Any = consumer.committed(TP)
            assert sent[0] - 1 <= getattr(committed, "offset", committed) <= sent[0]

        interrupt_often(commit, check)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_close_whose_commit_is_never_answered(log: fl.Broker, protocol: str) -> None:
    config = {"auto.offset.reset": "earliest", "group.protocol": protocol}
    with log.listen() as listener:
        consumer = fl.Consumer(f"kafka://{listener.bootstrap}", config, group="g", topics=["t"])
        while not consumer.poll(timeout_ms=10_000):
            pass
        commits = listener.faults.on(api="OffsetCommit").black_hole()
        assert interrupted(consumer.close, LATEST_S) < PROMPT_S
        assert commits.applied == 1
        consumer.close(timeout_ms=0)


def test_open_and_close(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with fl.Broker(path, create=True, nodes=3) as broker:
        broker.create_topic("t", partitions=30)

    def open_and_close() -> None:
        with fl.Broker(path) as broker, fl.Producer(broker) as producer:
            producer.send("t", value=b"v", partition=0)

    def check() -> None:
        # No lock is left behind, and the directory is as good as after a kill
        with fl.Broker(path) as broker, fl.Producer(broker) as producer:
            producer.send("t", value=b"check", partition=1).result(10)

    interrupt_often(open_and_close, check)
    with fl.Broker(path, read_only=True) as reader:
        assert reader.scan("t", partition=1).to_pyarrow().num_rows == ROUNDS


@pytest.mark.parametrize("client", [fl.Producer, fl.Consumer, fl.Cluster, lambda it: fl.Producer(fl.Broker.in_memory(), it)])
def test_an_argument_whose_type_check_is_interrupted(client: Callable[[Any], object]) -> None:
    """Whether an argument is a mapping is asked of Python code, and a signal's handler may run within it."""

    class Interrupted:
        @property
        def __class__(self) -> Any:
            raise Interrupt

    with pytest.raises(Interrupt):
        client(Interrupted())
