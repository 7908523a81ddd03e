"""One log for the tests of this folder, in memory and over a listener."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fletchlog as fl

NOW = 1_700_000_000_000
TOPICS = ("a", "b", "empty")


def fill(broker: fl.Broker) -> None:
    """Two topics with gaps: a deleted beginning, aborted records and markers, times that do not grow, and one without any record."""
    for topic in TOPICS:
        broker.create_topic(topic, partitions=3)
    with fl.Producer(broker, {"transactional.id": "t", "batch.size": 400, "transaction.timeout.ms": 900_000}) as producer:
        producer.init_transactions()
        number = 0
        for batch in range(40):
            producer.begin_transaction()
            for _ in range(1 + batch % 13):
                topic, partition = "ab"[number % 5 == 0], (0, 0, 0, 1, 2, 1, 0)[number % 7]
                when = NOW + (number * 7919) % 500 + number * 10
                value = None if number % 11 == 3 else b'{"amount": %d, "text": "t%d"}' % (number, number % 3)
                producer.send(topic, value, key=b"k%d" % (number % 6), partition=partition, timestamp_ms=when)
                number += 1
            producer.flush()  # an abort drops records that are not sent yet, so offsets would depend on time
            producer.abort_transaction() if batch % 9 == 4 else producer.commit_transaction()
    broker.delete_records("a", 0, 20)


@pytest.fixture(scope="session")
def filled() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        fill(broker)
        yield broker


@pytest.fixture(scope="session")
def address(filled: fl.Broker) -> Iterator[str]:
    with filled.listen() as listener:
        yield f"kafka://{listener.bootstrap}"


@pytest.fixture(params=["broker", "kafka"])
def source(request: pytest.FixtureRequest) -> fl.Broker | str:
    """The same log, embedded and as a cluster."""
    found: fl.Broker | str = request.getfixturevalue("filled" if request.param == "broker" else "address")
    return found


def time(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=ms)


def bytes_sent(listener: fl.types.Listener) -> int:
    return int(listener.stats().schema.metadata[b"bytes.sent"])


@pytest.fixture(scope="session")
def large() -> Iterator[fl.Broker]:
    """Two partitions of 20 MB, one record a second."""
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2, config={"retention.ms": "-1"})
        count = 20_000
        rows = {
            "value": pa.array([b"%0900d" % number for number in range(count)] * 2),
            "partition": pa.array([0] * count + [1] * count, pa.int32()),
            "timestamp": pa.array([NOW + 1000 * number for number in range(count)] * 2, pa.timestamp("ms", "UTC")),
        }
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", pa.table(rows))
        yield broker
