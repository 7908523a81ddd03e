"""`Producer.flush(timeout)`: it waits no longer, and nothing is lost."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import fletchlog as fl


@pytest.mark.parametrize("limit", [30, timedelta(milliseconds=30)])
def test_records_stay_queued_after_the_time_is_over(limit: int | timedelta) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        faults = fl.testing.FaultPlan()
        faults.on(api="Produce", nth=1).black_hole()
        with fl.Producer(broker, {"request.timeout.ms": 1_000, "retry.backoff.ms": 1}, faults=faults) as producer:
            future = producer.send("t", b"v")
            with pytest.raises(fl.errors.KafkaTimeoutError, match="not everything is decided after 30 ms: the records stay queued"):
                producer.flush(timeout_ms=limit)
            assert not future.done()
            producer.flush()
            assert future.result(0).offset == 0
            producer.flush(60)
        assert broker.scan("t").to_pyarrow().num_rows == 1


def test_records_that_wait_in_the_producer_count() -> None:
    import asyncio

    async def unreachable() -> None:
        producer = fl.Producer("kafka://127.0.0.1:1", {"max.block.ms": 500})
        future = producer.send("t", b"v")
        with pytest.raises(fl.errors.KafkaTimeoutError, match="not everything is decided after 20 ms"):
            await asyncio.to_thread(producer.flush, 0.02)
        assert not future.done()
        with pytest.raises(fl.errors.KafkaTimeoutError, match=r"max\.block\.ms"):
            await future
        await asyncio.to_thread(producer.close)

    asyncio.run(unreachable())


def test_callbacks_that_still_run_are_waited_for_as_long() -> None:
    going_on = threading.Event()
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v", callback=lambda *_: going_on.wait())
            with pytest.raises(fl.errors.KafkaTimeoutError, match="callbacks have not returned after 300 ms"):
                producer.flush(timeout_ms=300)
            going_on.set()
            producer.flush(60)


def test_a_failure_is_raised_by_the_flush_that_waits_for_it() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", config={"max.message.bytes": 100})
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b"v" * 1000])
            with pytest.raises(fl.errors.RecordTooLargeError):
                producer.flush(60)
            producer.flush(0)


def test_a_float_is_no_number_of_milliseconds() -> None:
    with fl.Broker.in_memory() as broker, fl.Producer(broker) as producer:
        with pytest.raises(TypeError, match="timedelta"):
            producer.flush(timeout_ms=1.5)  # type: ignore[arg-type]
        with pytest.raises(fl.errors.InvalidArgumentError, match="-1 ms is negative"):
            producer.flush(timeout_ms=-1)
