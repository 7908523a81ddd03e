"""A record that was not written leaves a trace: its future, its callback, `flush`, or else a warning."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.waiting import until

KEYLESS = "Compacted topic cannot accept message without key"


@pytest.fixture
def compacted(broker: fl.Broker) -> fl.Broker:
    broker.create_topic("c", config={"cleanup.policy": "compact"})
    return broker


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def dropped(producer: fl.Producer) -> None:
    for _ in range(100):
        producer.send("c", b"v")
    producer.flush()


def kept_and_dropped(producer: fl.Producer) -> None:
    # there is one warning a second, and another test may have had it
    time.sleep(1.1)
    futures = [producer.send("c", b"v") for _ in range(100)]
    producer.flush()
    del futures


@pytest.mark.parametrize("send", [dropped, kept_and_dropped])
def test_a_failure_that_nobody_sees_is_a_warning(compacted: fl.Broker, send: Callable[[fl.Producer], None], caplog: pytest.LogCaptureFixture) -> None:
    with fl.Producer(compacted) as producer:
        send(producer)
    gc.collect()
    # a thread of its own delivers what the engine's threads log
    assert until(lambda: warnings(caplog))
    said = warnings(caplog)
    assert all("which only this warning reports" in text and KEYLESS in text for text in said)
    # not one for each record
    assert len(said) < 10


def asked(producer: fl.Producer) -> None:
    futures = [producer.send("c", b"v") for _ in range(100)]
    producer.flush()
    assert all(KEYLESS in str(future.exception()) for future in futures)


def called_back(producer: fl.Producer) -> None:
    errors: list[BaseException | None] = []
    for _ in range(100):
        producer.send("c", b"v", callback=lambda _, error: errors.append(error))
    producer.flush()
    assert len(errors) == 100


def raised(producer: fl.Producer) -> None:
    producer.send_many("c", [b"v"] * 100)
    with pytest.raises(fl.errors.KafkaError, match=KEYLESS):
        producer.flush()


def written(producer: fl.Producer) -> None:
    for _ in range(100):
        producer.send("c", b"v", b"k")
    producer.flush()


@pytest.mark.parametrize("send", [asked, called_back, raised, written])
def test_one_that_somebody_sees_is_none(compacted: fl.Broker, send: Callable[[fl.Producer], None], caplog: pytest.LogCaptureFixture) -> None:
    with fl.Producer(compacted) as producer:
        send(producer)
    gc.collect()
    compacted.topics()
    assert warnings(caplog) == []


def test_an_aborted_transaction_warns_of_nothing(broker: fl.Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("t")
    with fl.Producer(broker, {"transactional.id": "x", "linger.ms": 1000}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.abort_transaction()
    gc.collect()
    assert warnings(caplog) == []


def test_records_that_were_queued_when_their_broker_was_closed_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t")
        producer = fl.Producer(broker, {"linger.ms": 60_000})
        for _ in range(1000):
            producer.send("t", b"v")
    producer.close()
    assert until(lambda: any(text.startswith("1000 records were not written") for text in warnings(caplog)))
