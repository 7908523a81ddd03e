"""`metrics()`: Kafka's names, real counts, as a dict and as Arrow."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fletchlog as fl


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("small", config={"max.message.bytes": 100})
        yield broker


def test_a_producer_counts_records_batches_and_requests(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"linger.ms": 60_000}) as producer:
        before = producer.metrics()
        assert before["record-send-total"] == 0
        assert math.isnan(before["batch-size-avg"])
        assert math.isnan(before["record-queue-time-max"])
        for number in range(10):
            producer.send("t", b"x" * 100, partition=number % 2)
        producer.flush()
        after = producer.metrics()
        assert (after["record-send-total"], after["record-error-total"], after["record-retry-total"]) == (10, 0, 0)
        assert 500 < after["batch-size-avg"] <= after["batch-size-max"] < 1000
        assert after["records-per-request-avg"] == 10
        assert after["record-queue-time-max"] >= after["record-queue-time-avg"] >= 0
        assert after["request-total"] >= after["response-total"] >= 1
        assert after["request-latency-max"] >= after["request-latency-avg"] >= 0
        refused = producer.send("small", bytes(1000), partition=0)
        producer.flush()
        assert isinstance(refused.exception(), fl.errors.RecordTooLargeError)
        assert producer.metrics()["record-error-total"] == 1


def test_what_is_sent_again_is_counted_as_a_retry(broker: fl.Broker) -> None:
    faults = fl.testing.FaultPlan()
    faults.on(api="Produce", nth=1).lose_response()
    with fl.Producer(broker, {"retry.backoff.ms": 0}, faults=faults) as producer:
        producer.send("t", b"v", partition=0).result()
        metrics = producer.metrics()
        assert (metrics["record-send-total"], metrics["record-retry-total"], metrics["record-error-total"]) == (2, 1, 0)


def test_a_consumer_counts_what_it_handed_out_and_its_fetches(broker: fl.Broker) -> None:
    with fl.Producer(broker) as producer:
        for _ in range(10):
            producer.send("t", b"x" * 100, partition=0)
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 4}) as consumer:
        assert consumer.metrics()["records-consumed-total"] == 0
        assert math.isnan(consumer.metrics()["records-lag-max"])
        consumer.assign([("t", 0)])
        assert len(consumer.poll(30_000)) == 4
        metrics = consumer.metrics()
        assert (metrics["records-consumed-total"], metrics["records-lag-max"]) == (4, 6)
        assert 400 < metrics["bytes-consumed-total"] < 1000
        assert metrics["fetch-total"] >= 1
        assert metrics["fetch-size-max"] >= 1000
        assert metrics["fetch-latency-max"] >= metrics["fetch-latency-avg"] >= 0
        assert metrics["request-total"] >= metrics["response-total"] >= 3
        assert next(consumer).offset == 4
        assert consumer.metrics()["records-consumed-total"] == 5
        assert consumer.metrics()["time-between-poll-max"] >= 0


def test_a_share_consumer_counts_records_fetches_and_acknowledgements(broker: fl.Broker) -> None:
    broker.alter_group_config("g", {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0})
    with fl.Producer(broker) as producer:
        for _ in range(10):
            producer.send("t", b"x" * 100, partition=0)
    with fl.ShareConsumer(broker, {"share.acknowledgement.mode": "explicit"}, group="g", topics=["t"]) as consumer:
        assert consumer.metrics()["records-consumed-total"] == 0
        assert math.isnan(consumer.metrics()["fetch-latency-max"])
        first = consumer.poll(30_000)
        metrics = consumer.metrics()
        assert (metrics["records-consumed-total"], metrics["acknowledgements-send-total"]) == (len(first), 0)
        assert metrics["fetch-size-max"] >= metrics["bytes-consumed-total"] > 100 * len(first)
        assert metrics["fetch-total"] >= 1
        assert "records-lag-max" not in metrics
        consumer.acknowledge(first)
        assert list(consumer.commit().values()) == [None]
        assert consumer.metrics()["acknowledgements-send-total"] == len(first)
        with fl.Producer(broker) as producer:
            producer.send("t", b"late", partition=0)
        second = consumer.poll(30_000)
        broker.clock.advance(31_000)
        consumer.acknowledge(second)
        (late,) = consumer.commit().values()
        assert isinstance(late, fl.errors.InvalidRecordStateError)
        metrics = consumer.metrics()
        assert metrics["acknowledgements-error-total"] == len(second)
        assert metrics["time-between-poll-max"] >= 0
        assert metrics["request-total"] >= metrics["response-total"] >= metrics["fetch-total"]


def test_metrics_are_an_arrow_table(broker: fl.Broker) -> None:
    with fl.Producer(broker) as producer:
        metrics = producer.metrics()
    assert isinstance(metrics, dict)
    table = metrics.to_pyarrow()
    assert table.schema == pa.schema([("name", pa.string()), ("value", pa.float64())])
    assert table["name"].to_pylist() == list(metrics)


def test_a_broker_counts_what_its_clients_do() -> None:
    with fl.Broker.in_memory() as broker:
        fresh = broker.metrics()
        assert set(fresh.values()) == {0.0}
        broker.create_topic("t", partitions=3)
        with fl.Producer(broker, {"enable.idempotence": False}) as producer:
            for number in range(10):
                producer.send("t", value=b"v" * number, partition=0).result()
        with fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])
            read = 0
            while read < 10:
                read += len(consumer.poll(1000))
            consumer.commit()
            held = broker.metrics()
            assert held["incremental-fetch-session-count"] == 1
        metrics = broker.metrics()
        assert (metrics["messages-in-total"], metrics["produce-requests-total"], metrics["failed-produce-requests-total"]) == (10, 10, 0)
        assert metrics["bytes-in-total"] == broker.describe_topic("t").partitions[0].size_bytes == metrics["bytes-out-total"]
        assert metrics["fetch-requests-total"] >= 1
        assert metrics["failed-fetch-requests-total"] == 0
        assert (metrics["global-topic-count"], metrics["group-count"]) == (2, 1)
        assert metrics["log-size"] > metrics["bytes-in-total"]
    with pytest.raises(fl.errors.ClosedError):
        broker.metrics()


def test_what_a_broker_refuses_is_counted() -> None:
    with fl.Broker.in_memory() as broker, fl.Producer(broker, {"max.request.size": 10_000}) as producer:
        broker.create_topic("t", config={"max.message.bytes": 200})
        with pytest.raises(fl.errors.RecordTooLargeError):
            producer.send("t", value=bytes(1000)).result()
        assert broker.metrics()["failed-produce-requests-total"] == 1
        assert broker.metrics()["messages-in-total"] == 0
