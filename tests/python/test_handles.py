"""Handles: closing, two threads, forks, signals, pickling."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl

TP = fl.TopicPartition("t", 0)


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("t")
    return broker


def test_a_closed_broker_that_is_still_referred_to_has_no_open_files(tmp_path: Path) -> None:
    def opened() -> set[Path]:
        links = list(Path("/proc/self/fd").iterdir())
        return {link.readlink() for link in links if link.is_symlink() and tmp_path in link.readlink().parents}

    broker = fl.Broker(tmp_path / "log", create=True)
    broker.create_topic("t", partitions=3)
    with fl.Producer(broker) as producer:
        for partition in range(3):
            producer.send("t", b"v", partition=partition)
    assert opened()
    broker.close()
    assert opened() == set()


def waiting(consumer: fl.Consumer, timeout_ms: int = 20_000) -> tuple[threading.Thread, list[Any]]:
    """A thread inside poll, and what it will have seen."""
    seen: list[Any] = []
    inside = threading.Event()

    def run() -> None:
        inside.set()
        try:
            seen.append(consumer.poll(timeout_ms=timeout_ms))
        except Exception as error:  # noqa: BLE001
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    # `poll` holds the handle from its first instruction on: ask until it does
    for _ in range(1000):
        try:
            consumer.assignment()
        except fl.errors.ConcurrentAccessError:
            break
        time.sleep(0.001)
    return thread, seen


def test_a_second_thread_gets_an_error_at_once_and_nothing_changes(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TP])
        thread, seen = waiting(consumer)
        started = time.monotonic()
        for call in (lambda: consumer.poll(timeout_ms=5000), lambda: consumer.seek(TP, 5), consumer.close):
            with pytest.raises(fl.errors.ConcurrentAccessError):
                call()
        assert time.monotonic() - started < 1
        with fl.Producer(topic) as producer:
            producer.send("t", value=b"v")
        thread.join(timeout=10)
        assert [r.value for r in seen[0]] == [b"v"]
        assert consumer.position(TP) == 1


def test_wakeup_ends_a_poll_of_another_thread_with_no_position_moved(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TP])
        assert consumer.position(TP) == 0
        thread, seen = waiting(consumer)
        consumer.wakeup()
        thread.join(timeout=5)
        assert isinstance(seen[0], fl.errors.WakeupError)
        assert consumer.position(TP) == 0


def test_wakeup_does_not_end_a_close(topic: fl.Broker) -> None:
    consumer = fl.Consumer(topic, {"auto.offset.reset": "earliest"}, group="g", topics=["t"])
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    consumer.wakeup()
    consumer.close()
    assert topic.describe_group("g").state == "Empty"


def test_a_poll_wakes_when_another_thread_produces(topic: fl.Broker) -> None:
    with fl.Consumer(topic, {"auto.offset.reset": "earliest"}) as consumer, fl.Producer(topic) as producer:
        consumer.assign([TP])
        thread, seen = waiting(consumer)
        started = time.monotonic()
        producer.send("t", value=b"v")
        thread.join(timeout=10)
        assert len(seen[0]) == 1
        assert time.monotonic() - started < 2


def test_many_threads_may_share_a_producer(topic: fl.Broker) -> None:
    with fl.Producer(topic) as producer:

        def send(name: int) -> None:
            for i in range(200):
                producer.send("t", value=b"%d %d" % (name, i))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [tuple(map(int, v.split())) for v in topic.scan("t").to_pyarrow().column("value").to_pylist()]
    for name in range(8):
        assert [i for n, i in values if n == name] == list(range(200))


def test_closed_handles_say_so_and_closing_twice_is_fine(topic: fl.Broker) -> None:
    consumer, producer = fl.Consumer(topic), fl.Producer(topic)
    future = producer.send("t", value=b"v")
    consumer.assign([TP])
    for handle in (consumer, producer):
        handle.close()
        handle.close()
    assert future.result().offset == 0
    for call in (
        lambda: consumer.poll(timeout_ms=10),
        consumer.assignment,
        lambda: consumer.seek(TP, 0),
        lambda: producer.send("t", value=b"v").result(1),
    ):
        with pytest.raises(fl.errors.ClosedError):
            call()
    topic.close()
    topic.close()
    for broker_call in (topic.topics, lambda: topic.scan("t"), lambda: topic.create_topic("u"), topic.run_retention):
        with pytest.raises(fl.errors.ClosedError):
            broker_call()


def test_clients_of_a_closed_broker_say_so(topic: fl.Broker) -> None:
    consumer = fl.Consumer(topic, {"auto.offset.reset": "earliest"})
    consumer.assign([TP])
    scan = topic.scan("t")
    topic.close()
    with pytest.raises(fl.errors.KafkaError) as caught:
        consumer.poll(timeout_ms=200)
        consumer.position(TP, timeout_ms=200)
    assert not isinstance(caught.value, fl.errors.InternalError)
    with contextlib.suppress(fl.errors.KafkaError):
        assert scan.to_pyarrow().num_rows == 0
    with contextlib.suppress(fl.errors.KafkaError):
        consumer.close(timeout_ms=100)


@pytest.mark.parametrize("make", [lambda b: b, fl.Producer, fl.Consumer, lambda b: b.scan("t")])
def test_handles_cannot_be_pickled_or_copied_and_say_what_to_send(topic: fl.Broker, make: Callable[[fl.Broker], Any]) -> None:
    handle = make(topic)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"[Ss]end .* and open it there"):
            attempt(handle)


FORK = """
import os, sys, warnings
import fletchlog as fl
warnings.simplefilter("ignore")
broker = fl.Broker(sys.argv[1], create=True)
broker.create_topic("t")
producer = fl.Producer(broker)
future = producer.send("t", value=b"v")
future.result()
consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest"})
consumer.assign([("t", 0)])
pid = os.fork()
if pid == 0:
    names = []
    for call in (broker.topics, lambda: producer.send("t", value=b"x"), lambda: consumer.poll(timeout_ms=10), future.done,
                 broker.close, producer.close, consumer.close):
        try:
            call()
            names.append("no error")
        except fl.errors.KafkaError as error:
            names.append(type(error).__name__)
    with fl.Broker(sys.argv[1], read_only=True) as reader:
        names.append(str(reader.scan("t").to_pyarrow().num_rows))
    print(" ".join(names), flush=True)
    del broker, producer, consumer, future
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print(status, len(consumer.poll(timeout_ms=1000)), producer.send("t", value=b"y").result(5).offset)
try:
    fl.Broker(sys.argv[1])
except fl.errors.DirectoryLockedError:
    print("still locked")
producer.close(); consumer.close(); broker.close()
"""


def test_a_forked_child_gets_errors_and_the_parent_goes_on(tmp_path: Any) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "log")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    child, parent, locked = done.stdout.splitlines()
    assert child == " ".join(["ForkedHandleError"] * 7) + " 1"
    assert parent == "0 1 1"
    assert locked == "still locked"


CTRL_C = """
import signal, sys, time
import fletchlog as fl
what = sys.argv[1]
broker = fl.Broker.in_memory()
broker.create_topic("t")
consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest", "group.id": "g"})
consumer.assign([("t", 0)])
assert consumer.position(("t", 0)) == 0
producer = fl.Producer(broker, {"linger.ms": 30_000, "request.timeout.ms": 1000, "delivery.timeout.ms": 60_000})
sent = []
def handler(number, frame):
    sent.append(time.monotonic())
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
calls = {
    "poll": lambda: consumer.poll(timeout_ms=20_000),
    "result": lambda: producer.send("t", value=b"v").result(),
}
try:
    calls[what]()
except KeyboardInterrupt:
    now = time.monotonic()
    print(round((now - sent[0]) * 1000))
print(consumer.position(("t", 0)))
producer.send("t", value=b"w"); producer.flush()
rows = 0
for _ in range(5):
    rows += len(consumer.poll(timeout_ms=200))
print(rows)
"""


@pytest.mark.parametrize(("what", "rows"), [("poll", 1), ("result", 2)])
def test_ctrl_c_leaves_a_wait_within_100_ms_with_no_position_moved(what: str, rows: int) -> None:
    done = subprocess.run([sys.executable, "-c", CTRL_C, what], capture_output=True, text=True, check=True)
    delay, position, after = map(int, done.stdout.split())
    assert delay < 100
    assert (position, after) == (0, rows)


def test_a_real_sigint_ends_a_poll(tmp_path: Any) -> None:
    script = """
import sys, time
import fletchlog as fl
broker = fl.Broker.in_memory()
broker.create_topic("t")
consumer = fl.Consumer(broker)
consumer.assign([("t", 0)])
try:
    print("ready", flush=True)
    consumer.poll(timeout_ms=20_000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    # it is asleep in the poll
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.001)
    started = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    assert child.communicate(timeout=10)[0].strip() == "interrupted"
    assert time.monotonic() - started < 2


def test_the_gil_is_free_while_the_engine_waits(topic: fl.Broker) -> None:
    with fl.Consumer(topic) as consumer:
        consumer.assign([TP])
        thread, _ = waiting(consumer, timeout_ms=300)
        count = 0
        while thread.is_alive():
            count += 1
        assert count > 1000
