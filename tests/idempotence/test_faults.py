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


def plan(**actions: str) -> fl.testing.FaultPlan:
    """What happens to the first Produce requests: `_1="lose_response"`, or `_1="NOT_ENOUGH_REPLICAS"` for an error."""
    plan = fl.testing.FaultPlan()
    for nth, action in actions.items():
        chosen = plan.on(api="Produce", nth=int(nth[1:]))
        if action.isupper():
            chosen.error(action)
        else:
            getattr(chosen, action)()
    return plan


def produce(broker: fl.Broker, config: Mapping[str, object], faults: fl.testing.FaultPlan, numbers: range) -> list[int]:
    """Sends the numbers in order, in one go, and reads back what is in the log."""
    broker.create_topic("t", partitions=1)
    with fl.Producer(broker, dict(config), faults=faults) as producer:
        with faults.collect_sends():
            futures = [producer.send("t", value=b"%-40d" % n, partition=0) for n in numbers]
        producer.flush()
        assert all(future.exception() is None for future in futures)
    return [int(value) for value in broker.scan("t").to_pyarrow().column("value").to_pylist()]


def test_seed_001_through_a_producer_whose_acknowledgements_are_lost(broker: fl.Broker) -> None:
    faults = plan(_4="lose_response")
    assert produce(broker, IDEMPOTENT, faults, range(1, 11)) == list(range(1, 11))
    requests = faults.requests(api="Produce")
    assert [request.number for request in requests if request.outcome == "response lost"] == [requests[3].number]
    assert len(requests) > 10  # resends
    assert {batch.base_sequence for request in requests for batch in request.batches} == set(range(10))
    assert requests[3].batches[0].base_offset == 3, "the broker had appended it"


def test_a_regular_producer_with_five_in_flight_reorders(broker: fl.Broker) -> None:
    log = produce(broker, REGULAR, plan(_1="NOT_ENOUGH_REPLICAS"), range(5))
    assert sorted(log) == list(range(5))
    assert log != list(range(5))
    assert log[0] == 1


def test_a_regular_producer_with_five_in_flight_duplicates(broker: fl.Broker) -> None:
    log = produce(broker, REGULAR, plan(_2="lose_response"), range(5))
    assert set(log) == set(range(5))
    assert len(log) > 5


def test_one_in_flight_keeps_the_order_and_can_duplicate(broker: fl.Broker) -> None:
    faults = plan(_1="NOT_ENOUGH_REPLICAS", _3="lose_response")
    log = produce(broker, ONE_IN_FLIGHT, faults, range(5))
    assert log == sorted(log)
    assert set(log) == set(range(5))
    assert len(log) == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_an_idempotent_producer_does_neither_under_any_seed(broker: fl.Broker, seed: int) -> None:
    faults = fl.testing.FaultPlan()
    faults.random(seed=seed, rate=0.3, api="Produce", kinds=["lose_response", "close"])
    assert produce(broker, IDEMPOTENT, faults, range(60)) == list(range(60))


def test_the_same_seed_is_the_same_run() -> None:
    logs = []
    for _ in range(2):
        faults = fl.testing.FaultPlan()
        faults.random(seed=7, rate=0.5, api="Produce", kinds=["lose_response", "error", "close"])
        with fl.Broker.in_memory() as broker:
            log = produce(broker, REGULAR, faults, range(40))
        done = [(request.outcome, request.fault, request.after, request.batches) for request in faults.requests(api="Produce")]
        logs.append((log, done, faults.drawn()))
    assert logs[0] == logs[1]
    assert logs[0][0] != list(range(40))


def test_a_refusal_that_is_not_retriable_reaches_the_future(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    faults = plan(_1="MESSAGE_TOO_LARGE")
    with fl.Producer(broker, {**BASE, "enable.idempotence": False, "batch.size": 1}, faults=faults) as producer:
        future = producer.send("t", value=b"v")
        with pytest.raises(fl.errors.RecordTooLargeError):
            future.result(10)
        assert isinstance(future.exception(), fl.errors.RecordTooLargeError)
        assert future.done()


def test_lost_requests_end_in_a_named_error_when_retries_are_used_up(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    config = {**BASE, "enable.idempotence": False, "retries": 0}
    with fl.Producer(broker, config, faults=plan(_1="close")) as producer:
        with pytest.raises(fl.errors.NetworkError) as caught:
            producer.send("t", value=b"v").result(10)
        assert caught.value.retriable


def test_a_script_of_former_words_is_refused_with_the_words_of_a_plan() -> None:
    with pytest.raises(fl.errors.InvalidArgumentError) as caught:
        fl.testing.Faults(script={1: "lost-ack"})
    for word in ("FaultPlan", "lost-ack is lose_response()", "drop is black_hole()", "late:MS is delay_response(MS)", "held() is collect_sends()"):
        assert word in str(caught.value)


def test_the_trace_of_a_producer_says_what_happened_to_each_batch(broker: fl.Broker) -> None:
    broker.create_topic("t", partitions=1)
    config = {**IDEMPOTENT, "fletchlog.trace": True}
    with fl.Producer(broker, config, faults=plan(_1="NOT_ENOUGH_REPLICAS")) as producer:
        producer.send("t", value=b"v").result(10)
        kinds = producer.trace().to_pyarrow().column("kind").to_pylist()
    assert kinds.index("sent") < kinds.index("retried") < kinds.index("acknowledged")
