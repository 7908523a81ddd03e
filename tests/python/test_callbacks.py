"""`Producer.send(callback=...)`: Java's order, one at a time, before flush and close return (Kafka: `KafkaProducer#send`)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fletchlog as fl


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


def test_callbacks_have_been_called_in_order_when_flush_returns(broker: fl.Broker) -> None:
    called: list[tuple[int, Any, Any]] = []
    with fl.Producer(broker, {"batch.size": 1}) as producer:
        for i in range(200):
            producer.send("t", b"v", partition=0, callback=lambda metadata, error, i=i: called.append((i, metadata.offset, error)))
        producer.flush()
        assert called == [(i, i, None) for i in range(200)]
        producer.flush()
        assert len(called) == 200


def test_close_and_a_transaction_wait_for_callbacks(broker: fl.Broker) -> None:
    called = []
    producer = fl.Producer(broker, {"transactional.id": "x"})
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"v", partition=1, callback=lambda metadata, _: called.append(metadata))
    assert [(at.topic, at.partition, at.offset) for at in called] == [("t", 1, 0)]
    plain = fl.Producer(broker, {"linger.ms": 60_000})
    plain.send("t", b"v", partition=0, callback=lambda metadata, _: called.append(metadata))
    plain.close()
    assert len(called) == 2
    plain.close()


def test_a_callback_gets_the_exception_that_the_future_has(broker: fl.Broker) -> None:
    called: list[Any] = []
    faults = fl.testing.FaultPlan()
    faults.on(api="Produce", nth=1).error("INVALID_REQUIRED_ACKS")
    with fl.Producer(broker, {"enable.idempotence": False}, faults=faults) as producer:
        futures = [producer.send("t", b"v", partition=0, callback=lambda *outcome: called.append(outcome))]
        producer.flush()
        futures.append(producer.send("t", bytes(2_000_000), partition=0, callback=lambda *outcome: called.append(outcome)))
        producer.flush()
    for (metadata, error), future in zip(called, futures, strict=True):
        assert metadata is None
        assert str(error) == str(future.exception())
        assert type(error) is type(future.exception())
    assert isinstance(called[1][1], fl.errors.RecordTooLargeError)


def test_a_send_that_raises_calls_nobody(broker: fl.Broker) -> None:
    called: list[Any] = []
    with fl.Producer(broker) as producer:
        with pytest.raises(fl.errors.KafkaError):
            producer.send("t", b"v", partition=9, callback=lambda *outcome: called.append(outcome))
        with pytest.raises(fl.errors.InvalidArgumentError, match="callable"):
            producer.send("t", b"v", callback=3)  # type: ignore[arg-type]
        producer.flush()
    assert called == []
    with pytest.raises(fl.errors.ClosedError):
        producer.send("t", b"v", callback=print)


def test_a_callback_may_send_and_flush(broker: fl.Broker) -> None:
    threads = set()
    with fl.Producer(broker) as producer:

        def again(metadata: fl.types.RecordMetadata | None, _error: Exception | None) -> None:
            threads.add(threading.current_thread())
            assert metadata is not None
            if metadata.offset < 5:
                producer.send("t", b"v", partition=0, callback=again)
                producer.flush()

        producer.send("t", b"v", partition=0, callback=again)
        while broker.describe_topic("t").partitions[0].high_watermark < 6:
            producer.flush()
    assert broker.describe_topic("t").partitions[0].high_watermark == 6
    assert len(threads) == 1
    assert threading.main_thread() not in threads


def test_what_a_callback_raises_is_reported_and_the_others_are_called(broker: fl.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    raised, called = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: raised.append(args.exc_value))

    def fail(_metadata: object, _error: object) -> None:
        message = "mine"
        raise ValueError(message)

    with fl.Producer(broker) as producer:
        producer.send("t", b"1", partition=0, callback=fail)
        producer.send("t", b"2", partition=0, callback=lambda metadata, _: called.append(metadata.offset))
        producer.flush()
    assert called == [1]
    assert [str(error) for error in raised] == ["mine"]


@pytest.mark.parametrize("end", ["", "producer.close()", "raise SystemExit(0)", "del producer"])
def test_a_process_ends_with_callbacks_under_way(end: str) -> None:
    code = f"""
        import time
        import fletchlog as fl
        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        producer = fl.Producer(broker, {{"batch.size": 1}})
        for i in range(2000):
            producer.send("t", b"v", callback=lambda metadata, error: time.sleep(0.0001))
        {end}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
