"""`Producer.send_many`: the rules of `send`, each value queued before the next is asked for."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=3)
        yield broker


def rows(broker: fl.Broker) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of every record, by partition and offset."""
    table = broker.scan("t").to_pyarrow()
    return sorted(
        zip(table["partition"].to_pylist(), table["key"].to_pylist(), table["value"].to_pylist(), strict=True),
        key=lambda row: row[0],
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=9)), max_size=60), st.sampled_from([1, 200, 16384]))
def test_records_go_where_send_puts_them(records: list[tuple[bytes | None, bytes | None]], batch_size: int) -> None:
    values, keys = [value for value, _ in records], [key for _, key in records]
    logs = []
    for many in (True, False):
        with fl.Broker.in_memory() as broker:
            broker.create_topic("t", partitions=3)
            with fl.Producer(broker, {"batch.size": batch_size}) as producer:
                if many:
                    assert producer.send_many("t", values, iter(keys)) == len(records)
                else:
                    for value, key in records:
                        producer.send("t", value, key)
            logs.append(rows(broker))
    # Where a record without a key goes is the sticky partition's, which moves with time
    placed = [[row for row in log if row[1] is not None] for log in logs]
    assert placed[0] == placed[1]
    assert sorted(map(repr, (row[1:] for row in logs[0]))) == sorted(map(repr, (row[1:] for row in logs[1])))


def test_more_than_the_memory_arrives_in_order(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"buffer.memory": 100_000, "linger.ms": 0}) as producer:
        assert producer.send_many("t", (b"%d" % i for i in range(50_000)), partition=2) == 50_000
    assert rows(broker) == [(2, None, b"%d" % i) for i in range(50_000)]


def test_a_value_is_sent_before_the_next_one_is_asked_for(broker: fl.Broker) -> None:
    def values() -> Iterator[bytes]:
        for i in range(3):
            yield b"%d" % i
            # Another producer's record comes after it, which it could not while a chunk is gathered
            end = threading.Event()
            while broker.describe_topic("t").partitions[0].high_watermark <= i:
                end.wait(0.001)

    with fl.Producer(broker, {"linger.ms": 0}) as producer:
        assert producer.send_many("t", values(), partition=0) == 3


def test_serializers_are_called(broker: fl.Broker) -> None:
    with fl.Producer(broker, key_serializer=str.encode, value_serializer=lambda value: b"%d" % value) as producer:
        assert producer.send_many("t", [1, None, 3], ["a", None, "c"], partition=1) == 3
    assert rows(broker) == [(1, b"a", b"1"), (1, None, None), (1, b"c", b"3")]


@pytest.mark.parametrize(
    ("arguments", "error", "match", "queued"),
    [
        (([b"1", b"2", "3"],), TypeError, "value: expected bytes, got str '3'; encode it, or give the producer a value_serializer", 2),
        (([b"1", b"2"], [b"k", 5]), TypeError, "key: expected bytes, got int 5", 1),
        (([b"1", b"2"], [b"k"]), fl.errors.InvalidArgumentError, "fewer keys than values", 1),
        (([b"1"], [b"k", b"l"]), fl.errors.InvalidArgumentError, "more keys than values", 1),
        ((b"12",), TypeError, "values: expected a list or another iterable of values, got bytes", 0),
        ((3,), TypeError, "values: expected a list or another iterable of values, got int 3", 0),
        (([b"1"], "k"), TypeError, "keys: expected a list or another iterable of keys, got str 'k'", 0),
        ((map(int, ["x"]),), ValueError, "invalid literal", 0),
        (([b"1", bytes(2_000_000), b"2"],), fl.errors.RecordTooLargeError, "row 1: .* the 1 rows before it are queued", 1),
    ],
)
def test_what_is_wrong_is_raised_with_what_was_queued(broker: fl.Broker, arguments: tuple[Any, ...], error: type[Exception], match: str, queued: int) -> None:
    with fl.Producer(broker) as producer:
        with pytest.raises(error, match=match) as raised:
            producer.send_many("t", *arguments)
        assert raised.value.__notes__ == [f"send_many has queued {queued} records before this"]
        producer.flush()
        assert len(rows(broker)) == queued
        with pytest.raises(fl.errors.InvalidArgumentError, match="no partition 3"):
            producer.send_many("t", [b"v"], partition=3)
    with pytest.raises(fl.errors.ClosedError):
        producer.send_many("t", [b"v"])
    with fl.Producer(broker) as producer:
        assert producer.send_many("t", []) == 0


def test_flush_raises_the_first_failure_and_later_records_arrive(broker: fl.Broker) -> None:
    faults = fl.testing.FaultPlan()
    faults.on(api="Produce", nth=1).error("INVALID_REQUIRED_ACKS")
    with fl.Producer(broker, {"linger.ms": 60_000}, faults=faults) as producer:
        assert producer.send_many("t", [b"lost"], partition=0) == 1
        with pytest.raises(fl.errors.KafkaError, match="acks"):
            producer.flush()
        assert producer.send_many("t", [b"kept"], partition=0) == 1
        producer.flush()
    assert rows(broker) == [(0, None, b"kept")]


def test_a_transaction_takes_its_records_or_none(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        with pytest.raises(fl.errors.IllegalStateError):
            producer.send_many("t", [b"outside"])
        with producer.transaction():
            producer.send_many("t", [b"1", b"2"], partition=0)
        producer.begin_transaction()
        producer.send_many("t", [b"aborted"], partition=0)
        producer.abort_transaction()
    table = broker.scan("t", isolation_level="read_committed").to_pyarrow()
    assert table["value"].to_pylist() == [b"1", b"2"]


def test_ctrl_c_ends_an_endless_iterable_that_runs_no_python(broker: fl.Broker) -> None:
    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with fl.Producer(broker, {"linger.ms": 5}) as producer:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt) as raised:
                producer.send_many("t", itertools.repeat(b"v"), partition=0)
            queued = int(raised.value.__notes__[0].split()[3])
            assert producer.send("t", b"w", partition=0).result(30).offset == queued
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_run_meanwhile(broker: fl.Broker) -> None:
    stop, ran = threading.Event(), 0

    def count() -> None:
        nonlocal ran
        while not stop.wait(0.001):
            ran += 1

    thread = threading.Thread(target=count)
    with fl.Producer(broker, {"linger.ms": 5}) as producer:
        thread.start()
        producer.send_many("t", itertools.repeat(b"v", 3_000_000), partition=0)
        stop.set()
        thread.join()
    # Without the GIL it would have run at the beginning and at the end
    assert ran > 3


FORK = """
import os, sys
import fletchlog as fl
broker = fl.Broker.in_memory()
broker.create_topic("t")
producer = fl.Producer(broker)
future = producer.send("t", b"v")
producer.flush()
pid = os.fork()
if pid == 0:
    again = os.fork()
    names = []
    for call in (lambda: producer.send("t", b"x"), lambda: producer.send_many("t", [b"x"]), future.done):
        try:
            call()
        except fl.errors.ForkedHandleError as error:
            names.append(type(error).__name__)
    if again:
        assert os.waitpid(again, 0)[1] == 0
    os._exit(0 if names == ["ForkedHandleError"] * 3 else 5)
assert os.waitpid(pid, 0)[1] == 0
assert producer.send_many("t", [b"w"]) == 1
producer.close()
print(broker.scan("t").to_pyarrow()["value"].to_pylist())
"""


def test_children_and_their_children_get_errors(tmp_path: Any) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[b'v', b'w']\n", "")
