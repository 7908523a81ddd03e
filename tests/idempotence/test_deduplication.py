"""Seed 001: a producer id and sequence numbers make a batch land once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.batches import batch, record

PRODUCER = 1


NOW = int(time.time() * 1000)


def message(number: int, producer: int = PRODUCER, epoch: int = 0, timestamp: int = NOW) -> bytes:
    """M<number>: a batch of one record with sequence number - 1 (Kafka counts from 0)."""
    return batch([record(0, f"M{number}".encode())], producer=(producer, epoch, number - 1), timestamp=timestamp)


def values(broker: fl.Broker, topic: str = "t") -> list[str]:
    return [value.decode() for value in broker.scan(topic).to_pyarrow().column("value").to_pylist()]


def test_seed_001_resent_messages_are_acknowledged_with_their_first_offset_and_not_written(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    offsets = [broker.append_batches("t", 0, message(n))[0] for n in (1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9, 10)]
    assert offsets == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9]
    assert values(broker) == [f"M{n}" for n in range(1, 11)]


def test_a_repeat_older_than_five_batches_is_refused(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    for n in range(1, 7):
        broker.append_batches("t", 0, message(n))
    assert broker.append_batches("t", 0, message(2))[0] == 1
    with pytest.raises(fl.errors.OutOfOrderSequenceError) as caught:
        broker.append_batches("t", 0, message(1))
    assert (caught.value.code, caught.value.name, caught.value.retriable) == (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False)


def test_a_gap_is_refused_and_nothing_is_written(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    broker.append_batches("t", 0, message(1))
    with pytest.raises(fl.errors.OutOfOrderSequenceError):
        broker.append_batches("t", 0, message(3))
    assert values(broker) == ["M1"]


def test_an_old_epoch_is_refused(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    broker.append_batches("t", 0, message(1, epoch=1))
    with pytest.raises(fl.errors.InvalidProducerEpochError):
        broker.append_batches("t", 0, message(1, epoch=0))


def test_after_a_clean_restart_the_last_batch_is_still_recognised(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=1)
        for n in (1, 2, 3):
            broker.append_batches("t", 0, message(n))
    with fl.Broker(tmp_path / "log") as broker:
        assert broker.append_batches("t", 0, message(3))[0] == 2
        assert broker.append_batches("t", 0, message(4))[0] == 3
        assert values(broker) == ["M1", "M2", "M3", "M4"]


def test_a_producer_that_was_silent_for_a_day_is_forgotten_at_the_restart(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=1)
        broker.append_batches("t", 0, message(1, timestamp=NOW - 2 * 86_400_000))
    with fl.Broker(tmp_path / "log") as broker:
        assert broker.append_batches("t", 0, message(1, timestamp=NOW - 2 * 86_400_000))[0] == 1


def test_a_restarted_producer_gets_a_fresh_id(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with fl.Broker(tmp_path / "log", create=True) as broker:
            if not ids:
                broker.create_topic("t", partitions=1)
            for _ in range(2):
                with fl.Producer(broker, {"enable.idempotence": True}) as producer:
                    producer.send("t", value=b"v").result(10)
                    ids.append(producer.producer_id)
    assert len(set(ids)) == 4
    assert all(epoch == 0 for _, epoch in ids)


def test_strict_first_sequence_refuses_an_unknown_producer_that_does_not_start_at_zero(broker: fl.Broker) -> None:
    broker.create_topic("kafka", partitions=1)
    broker.create_topic("strict", partitions=1, config={"fletchlog.strict.first.sequence": True})
    assert broker.append_batches("kafka", 0, message(5))[0] == 0
    with pytest.raises(fl.errors.KafkaError):
        broker.append_batches("strict", 0, message(5))
