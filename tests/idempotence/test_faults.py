"""What a producer leaves in the log when the network misbehaves (spec 9.6)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import fletchlog as fl

# `batch.size` 1 with values of 40 bytes: every record is a batch of its own
BASE = {"batch.size": 1, "linger.ms": 0, "retry.backoff.ms": 1, "acks": "all"}
IDEMPOTENT = {**BASE, "enable.idempotence": True, "max.in.flight.requests.per.connection": 5}
REGULAR = {**BASE, "enable.idempotence": False, "max.in.flight.requests.per.connection": 5}
ONE_IN_FLIGHT = {**BASE, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}


def produce(broker: fl.Broker, config: Mapping[str, object], faults: fl.testing.Faults, numbers: range) -> list[int]:
    """Sends the numbers in order, in one go, and reads back what is in the log."""
    broker.create_topic("t", partitions=1)
    with fl.Producer(broker, dict(config), faults=faults) as producer:
        with faults.held():
            futures = [producer.send("t", value=b"%-40d" % n, partition=0) for n in numbers]
        producer.flush()
        assert all(future.exception() is None for future in futures)
    return [int(value) for value in broker.scan("t").to_pyarrow().column("value").to_pylist()]


def test_seed_001_through_a_producer_whose_acknowledgements_are_lost(broker: fl.Broker) -> None:
    faults = fl.testing.Faults(script={4: "lost-ack"})
    assert produce(broker, IDEMPOTENT, faults, range(1, 11)) == list(range(1, 11))
    actions = faults.log().to_pyarrow().column("action").to_pylist()
    assert "lost-ack" in actions
    assert len(actions) > 10  # resends


def test_a_regular_producer_with_five_in_flight_reorders(broker: fl.Broker) -> None:
    log = produce(broker, REGULAR, fl.testing.Faults(script={1: "refused:NOT_ENOUGH_REPLICAS"}), range(5))
    assert sorted(log) == list(range(5))
    assert log != list(range(5))
    assert log[0] == 1


def test_a_regular_producer_with_five_in_flight_duplicates(broker: fl.Broker) -> None:
    log = produce(broker, REGULAR, fl.testing.Faults(script={2: "lost-ack"}), range(5))
    assert set(log) == set(range(5))
    assert len(log) > 5


def test_one_in_flight_keeps_the_order_and_can_duplicate(broker: fl.Broker) -> None:
    faults = fl.testing.Faults(script={1: "refused:NOT_ENOUGH_REPLICAS", 3: "lost-ack"})
    log = produce(broker, ONE_IN_FLIGHT, faults, range(5))
    assert log == sorted(log)
    assert set(log) == set(range(5))
    assert len(log) == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_an_idempotent_producer_does_neither_under_any_seed(broker: fl.Broker, seed: int) -> None:
    faults = fl.testing.Faults(seed=seed, lost_ack=0.2, disconnect=0.1)
    assert produce(broker, IDEMPOTENT, faults, range(60)) == list(range(60))


def test_the_same_seed_is_the_same_run() -> None:
    logs = []
    for _ in range(2):
        faults = fl.testing.Faults(seed=7, lost_ack=0.2, refused=0.2, disconnect=0.1)
        with fl.Broker.in_memory() as broker:
            logs.append((produce(broker, REGULAR, faults, range(40)), faults.log().to_pyarrow().to_pylist()))
    assert logs[0] == logs[1]
    assert logs[0][0] != list(range(40))


def test_a_refusal_that_is_not_retriable_reaches_the_future(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    faults = fl.testing.Faults(script={1: "refused:MESSAGE_TOO_LARGE"})
    with fl.Producer(broker, {**BASE, "enable.idempotence": False, "batch.size": 1}, faults=faults) as producer:
        future = producer.send("t", value=b"v")
        with pytest.raises(fl.errors.RecordTooLargeError):
            future.result(10)
        assert isinstance(future.exception(), fl.errors.RecordTooLargeError)
        assert future.done()


def test_lost_requests_end_in_a_named_error_when_retries_are_used_up(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    config = {**BASE, "enable.idempotence": False, "retries": 0}
    with fl.Producer(broker, config, faults=fl.testing.Faults(script={1: "disconnect"})) as producer:
        with pytest.raises(fl.errors.NetworkError) as caught:
            producer.send("t", value=b"v").result(10)
        assert caught.value.retriable


@pytest.mark.parametrize(
    "arguments",
    [
        {"script": {0: "ok"}},
        {"script": {-1: "ok"}},
        {"script": {1: "explode"}},
        {"script": {1: "refused:NO_SUCH_CODE"}},
        {"seed": 1, "lost_ack": 1.5},
        {"seed": 1, "lost_ack": 0.6, "refused": 0.6},
        {"script": {1: "ok"}, "seed": 1},
    ],
)
def test_impossible_faults_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        fl.testing.Faults(**arguments)


def test_the_trace_of_a_producer_says_what_happened_to_each_batch(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    config = {**IDEMPOTENT, "fletchlog.trace": True}
    with fl.Producer(broker, config, faults=fl.testing.Faults(script={1: "refused:NOT_ENOUGH_REPLICAS"})) as producer:
        producer.send("t", value=b"v").result(10)
        kinds = producer.trace().to_pyarrow().column("kind").to_pylist()
    assert kinds.index("sent") < kinds.index("retried") < kinds.index("acknowledged")
