"""A broker with a topic of two partitions, and producers that have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fletchlog as fl

Producers = Callable[..., fl.Producer]


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture(params=["embedded", "cluster"])
def peer(request: pytest.FixtureRequest, broker: fl.Broker) -> Iterator[fl.Broker | str]:
    """What clients connect to."""
    if request.param == "embedded":
        yield broker
    else:
        with broker.listen() as listener:
            yield f"kafka://{listener.bootstrap}"


@pytest.fixture(params=["2.6", "4.4"], ids=["version-1", "version-2"])
def producers(broker: fl.Broker, request: pytest.FixtureRequest) -> Iterator[Producers]:
    """Makes producers that may begin, of a release that knows only version 1 of transactions, or version 2; closes them."""
    made: list[fl.Producer] = []

    def make(transactional_id: str = "id", init: bool = True, faults: fl.testing.FaultPlan | None = None, **config: Any) -> fl.Producer:
        properties = {"fletchlog.producer.version": request.param} | {name.replace("_", "."): value for name, value in config.items()}
        producer = fl.Producer(broker, {"transactional.id": transactional_id, "retry.backoff.ms": 5, **properties}, faults=faults)
        made.append(producer)
        if init:
            producer.init_transactions()
        return producer

    yield make
    for producer in made:
        producer.close(timeout_ms=0)
