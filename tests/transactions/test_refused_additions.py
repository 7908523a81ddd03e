"""A transaction to which something cannot be added can be aborted."""

from __future__ import annotations

import pytest

import fletchlog as fl
from fletchlog import errors

from .reading import values


def test_an_abort_drops_partitions_of_a_deleted_topic_and_the_producer_goes_on(broker: fl.Broker, peer: fl.Broker | str) -> None:
    broker.create_topic("c")
    config = {
        "transactional.id": "id",
        "max.block.ms": 20_000,
        "delivery.timeout.ms": 600,
        "request.timeout.ms": 500,
        "linger.ms": 0,
        "retry.backoff.ms": 20,
    }
    with fl.Producer(peer, config) as producer:
        producer.init_transactions()
        for with_others in (False, True):
            producer.begin_transaction()
            if with_others:
                broker.create_topic("c")
                producer.send("t", value=b"aborted", partition=0)
                producer.flush()
            producer.partitions_for("c")
            broker.delete_topic("c")
            lost = producer.send("c", value=b"v", partition=0)
            with pytest.raises(errors.KafkaError):
                lost.result()
            producer.abort_transaction()
            with producer.transaction():
                producer.send("t", value=b"committed", partition=0)
    assert values(broker)[0] == [b"committed"] * 2


def test_the_context_aborts_without_waiting_for_a_refused_addition(broker: fl.Broker, peer: fl.Broker | str) -> None:
    broker.create_topic("c")
    with fl.Producer(peer, {"transactional.id": "id", "max.block.ms": 20_000, "retry.backoff.ms": 20}) as producer:
        producer.init_transactions()
        producer.partitions_for("c")
        broker.delete_topic("c")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            lost = producer.send("c", value=b"v", partition=0)
            1 / 0  # noqa: B018
        with pytest.raises(errors.KafkaError, match="aborted"):
            lost.result()
        with producer.transaction():
            producer.send("t", value=b"committed", partition=1)
    assert values(broker)[1] == [b"committed"]
