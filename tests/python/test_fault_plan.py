"""`faults=plan` of the clients in this process: rules, their record, and what is refused."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

import fletchlog as fl

EARLIEST = {"auto.offset.reset": "earliest", "retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 5}
GROUP = {**EARLIEST, "group.id": "g", "client.id": "reader", "enable.auto.commit": False}


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    """A topic of two partitions with ten records each."""
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(20):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield broker


@pytest.fixture(params=["in this process", "sockets"])
def peer(request: pytest.FixtureRequest, broker: fl.Broker) -> Iterator[Any]:
    """Where clients connect."""
    if request.param == "sockets":
        with broker.listen() as listener:
            yield f"kafka://{listener.bootstrap}"
    else:
        yield broker


@pytest.fixture
def plan() -> fl.testing.FaultPlan:
    return fl.testing.FaultPlan()


def read(consumer: fl.Consumer, count: int = 20) -> list[bytes]:
    """Until so many records have come."""
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(200)]
    return sorted(found, key=int)


ALL = [b"%d" % number for number in range(20)]


def test_a_fetch_that_is_refused_is_repeated_and_nothing_is_lost(peer: Any, plan: fl.testing.FaultPlan) -> None:
    rule = plan.on(api="Fetch", topic="t", partition=1, nth=1).error("NOT_LEADER_OR_FOLLOWER")
    with fl.Consumer(peer, EARLIEST | {"client.id": "reader"}, faults=plan) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert read(consumer) == ALL
    assert rule.applied == 1
    first = plan.requests(api="Fetch", topic="t", client_id="read*")[0]
    assert (first.errors, first.outcome, first.partitions) == (["NOT_LEADER_OR_FOLLOWER"], "answered", [("t", 0), ("t", 1)])
    assert not plan.requests(api="Fetch", client_id="other")


@pytest.mark.parametrize("error", ["OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"])
def test_an_error_of_a_whole_fetch_is_met_by_every_partition(peer: Any, plan: fl.testing.FaultPlan, error: str) -> None:
    plan.on(api="Fetch", nth=1).error(error)
    with fl.Consumer(peer, EARLIEST, faults=plan) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert read(consumer) == ALL


@pytest.mark.parametrize("action", ["lose_response", "close"])
def test_a_commit_without_response_is_repeated(peer: Any, plan: fl.testing.FaultPlan, action: str) -> None:
    getattr(plan.on(api="OffsetCommit", group="g", nth=1), action)()
    with fl.Consumer(peer, GROUP, faults=plan) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 7)
        consumer.commit()
        assert consumer.committed([("t", 0)])[fl.TopicPartition("t", 0)].offset == 7
    outcomes = [request.outcome for request in plan.requests(api="OffsetCommit")]
    assert outcomes == [{"lose_response": "response lost", "close": "closed"}[action], "answered"]


def test_a_black_hole_ends_with_the_time_out_of_the_request(peer: Any, plan: fl.testing.FaultPlan) -> None:
    plan.on(api="ListOffsets", nth=1).black_hole()
    with fl.Consumer(peer, EARLIEST | {"request.timeout.ms": 200}, faults=plan) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert read(consumer) == ALL
    first, *_, last = (request.outcome for request in plan.requests(api="ListOffsets"))
    assert (first, last) == ("black hole", "answered")


def test_a_request_waits_at_a_barrier_until_it_is_released(peer: Any, plan: fl.testing.FaultPlan) -> None:
    gate = plan.on(api="JoinGroup", nth=1).hold()
    found: list[bytes] = []
    with fl.Consumer(peer, GROUP, faults=plan) as consumer:
        consumer.subscribe(["t"])
        reader = threading.Thread(target=lambda: found.extend(read(consumer)))
        reader.start()
        gate.wait()
        assert gate.held == 1
        assert not found
        gate.release()
        reader.join(20)
    assert found == ALL


@pytest.mark.parametrize("action", ["delay", "delay_response", "throttle"])
def test_time_passes_before_a_request_or_after_its_response(peer: Any, plan: fl.testing.FaultPlan, action: str) -> None:
    getattr(plan.on(api="Fetch", nth=1), action)(150)
    with fl.Consumer(peer, EARLIEST, faults=plan) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        start = time.monotonic()
        assert read(consumer) == ALL
        if action == "throttle":
            # the response has come; the next request waits
            while len(plan.requests(api="Fetch")) < 2:
                consumer.poll(20)
        assert 0.14 < time.monotonic() - start < 10


def test_another_action_comes_after_a_delay(peer: Any, plan: fl.testing.FaultPlan) -> None:
    rule = plan.on(api="Produce", nth=1, delay_ms=120).error("NOT_ENOUGH_REPLICAS")
    assert rule.rule == {"api": "Produce", "nth": 1, "delay_ms": 120, "error": "NOT_ENOUGH_REPLICAS"}
    with fl.Producer(peer, {"retry.backoff.ms": 1}, faults=plan) as producer:
        start = time.monotonic()
        assert producer.send("t", b"20", partition=0).result(10).offset == 10
        assert time.monotonic() - start > 0.11
    first, second = plan.requests(api="Produce")
    assert (first.errors, second.errors) == (["NOT_ENOUGH_REPLICAS"], [])
    with pytest.raises(fl.errors.InvalidArgumentError, match="delays another action"):
        plan.on(delay_ms=1).delay(2)


def test_the_batches_of_a_request_are_recorded_with_what_the_broker_said(peer: Any, plan: fl.testing.FaultPlan) -> None:
    plan.on(api="Produce", nth=1).lose_response()
    plan.on(api="Produce", partition=1, nth=3).error("UNKNOWN_SERVER_ERROR")
    with fl.Producer(peer, {"enable.idempotence": True, "retry.backoff.ms": 1}, faults=plan) as producer:
        producer.send("t", b"20", partition=0).result(10)
        identity = producer.producer_id
        producer.send("t", b"21", partition=1).result(10)
    lost, again, other = (request.batches[0] for request in plan.requests(api="Produce"))
    assert identity is not None
    assert lost == again == ("t", 0, *identity, 0, 1, None, 10)
    assert (other.partition, other.base_sequence, other.error, other.base_offset) == (1, 0, None, 10)
    table = plan.requests(api="Produce").to_pyarrow()
    assert table["batches"].to_pylist()[0] == [lost._asdict()]
    assert table["outcome"].to_pylist() == ["response lost", "answered", "answered"]


def test_a_listener_and_a_client_in_this_process_share_a_plan(broker: fl.Broker) -> None:
    with broker.listen() as listener:
        plan = listener.faults
        plan.record_requests()
        rule = plan.on(api="Produce", client_id="shop-*", nth=2).error("NOT_ENOUGH_REPLICAS")
        settings = {"retry.backoff.ms": 1}
        with (
            fl.Producer(broker, settings | {"client.id": "shop-1"}, faults=plan) as one,
            fl.Producer(f"kafka://{listener.bootstrap}", settings | {"client.id": "shop-2"}) as two,
        ):
            one.send("t", b"20", partition=0).result(10)
            two.send("t", b"21", partition=0).result(10)
        assert rule.applied == 1
        rows = plan.requests(api="Produce")
        assert [(row.client_id, row.errors) for row in rows] == [("shop-1", []), ("shop-2", ["NOT_ENOUGH_REPLICAS"]), ("shop-2", [])]
        assert rows[0].batches == [("t", 0, None, None, None, 1, None, 10)]


def test_the_plan_of_the_fixture_is_for_clients_of_its_broker_too(kafka: Any) -> None:
    topic = kafka.topic()
    kafka.faults.on(api="Produce", topic=topic, nth=1).error("NOT_ENOUGH_REPLICAS")
    with fl.Producer(kafka.broker, {"client.id": "own", "retry.backoff.ms": 1}, faults=kafka.faults) as producer:
        assert producer.send(topic, b"v").result(10).offset == 0
    assert [request.errors for request in kafka.requests(api="Produce", client_id="own")] == [["NOT_ENOUGH_REPLICAS"], []]


def test_requests_that_a_connection_takes_with_it_are_recorded_and_sent_again(broker: fl.Broker, plan: fl.testing.FaultPlan) -> None:
    plan.on(api="Produce", nth=1).close()
    with fl.Producer(
        broker, {"batch.size": 1, "linger.ms": 0, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "enable.idempotence": True}, faults=plan
    ) as producer:
        with plan.collect_sends():
            futures = [producer.send("t", b"%-40d" % number, partition=0) for number in range(20, 23)]
            assert not plan.requests(api="Produce")
        assert [future.result(10).offset for future in futures] == [10, 11, 12]
    requests = plan.requests(api="Produce")
    assert [request.outcome for request in requests] == ["closed", "connection lost", "connection lost", "answered", "answered", "answered"]
    assert [request.batches[0].base_sequence for request in requests] == [0, 1, 2, 0, 1, 2]
    assert [request.batches[0].base_offset for request in requests] == [None, None, None, 10, 11, 12]
    first = requests[0].number
    assert [request.after for request in requests[:4]] == [0, 0, 0, first]


def test_rules_about_bytes_are_refused_by_name(broker: fl.Broker, plan: fl.testing.FaultPlan) -> None:
    for add in (
        lambda: plan.on().cut(3),
        lambda: plan.on().slow(10),
        lambda: plan.on().wrong_correlation_id(),
        lambda: plan.on().refuse_connection(),
        lambda: plan.on().tls_failure(),
    ):
        with pytest.raises(fl.errors.InvalidArgumentError, match="bytes of a socket"):
            add()
    assert plan.rules == []
    with broker.listen() as listener:
        cut = listener.faults.on(api="Fetch").cut(3)
        with pytest.raises(fl.errors.InvalidArgumentError, match=r"rule 1 .*cut_after_bytes.*bytes of a socket"):
            fl.Consumer(broker, faults=listener.faults)
        cut.clear()
        with fl.Consumer(broker, faults=listener.faults), pytest.raises(fl.errors.InvalidArgumentError, match="bytes of a socket"):
            listener.faults.on(api="Fetch").cut(3)
        listener.faults.on(api="Fetch").cut(3)


@pytest.mark.parametrize("wrong", ["plan.toml", {"rules": []}, 3])
def test_what_is_no_plan_is_refused(broker: fl.Broker, wrong: Any) -> None:
    for client in (fl.Producer, fl.Consumer):
        with pytest.raises(TypeError, match=r"fletchlog\.testing\.FaultPlan"):
            client(broker, faults=wrong)


def test_a_condition_in_python_chooses_requests(peer: Any, plan: fl.testing.FaultPlan) -> None:
    seen: list[dict[str, Any]] = []
    plan.on(api="Fetch", when=lambda request: bool(seen.append(request)) or len(seen) == 2).error("NOT_LEADER_OR_FOLLOWER")
    with fl.Consumer(peer, EARLIEST, faults=plan) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert read(consumer) == ALL
        while len(seen) < 3:
            consumer.poll(20)
    assert seen[0]["topics"] == ["t"]
    assert len(plan.requests(api="Fetch")[1].errors) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_random_faults_lose_nothing(peer: Any, plan: fl.testing.FaultPlan, protocol: str) -> None:
    plan.random(seed=3, rate=0.2)
    config = GROUP | {"group.protocol": protocol, "request.timeout.ms": 2_000}
    with fl.Consumer(peer, config, faults=plan) as consumer:
        consumer.subscribe(["t"])
        assert read(consumer) == ALL
        consumer.commit()
    assert plan.drawn()["rules"]


def test_clients_of_asyncio_have_plans_too(peer: Any, plan: fl.testing.FaultPlan) -> None:
    plan.on(api="Produce", nth=1).error("NOT_ENOUGH_REPLICAS")
    plan.on(api="ListOffsets", nth=1).delay(100)
    gate = plan.on(api="Fetch", nth=1).hold()

    async def main() -> list[bytes]:
        async with fl.AsyncProducer(peer, {"retry.backoff.ms": 1}, faults=plan) as producer:
            await producer.send_and_wait("t", b"20", partition=0)
        async with fl.AsyncConsumer(peer, EARLIEST, faults=plan) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            start = time.monotonic()
            polled = asyncio.ensure_future(consumer.poll(20_000))
            await asyncio.to_thread(gate.wait)
            waited = time.monotonic() - start
            assert not polled.done()
            gate.release()
            found = [record.value for record in await polled]
            assert 0.09 < waited < 5
            assert time.monotonic() - start < 5, "a release ends the wait"
            while len(found) < 21:
                found += [record.value for record in await consumer.poll(1_000)]
            return found

    assert sorted(asyncio.run(main()), key=int) == [*ALL, b"20"]
    assert plan.never_applied() == []


def test_a_mistake_in_a_rule_names_the_argument_and_what_it_must_be() -> None:
    plan = fl.testing.FaultPlan()
    anything: Any = object()
    for mistake, words in (
        (lambda: plan.on(topic=cast("Any", b"x")), "topic must be a text or a number, not b'x'"),
        (lambda: plan.on(api=cast("Any", 0)), "api must be a name or several, not 0"),
        (lambda: plan.on(api="Fetch").error(cast("Any", fl.errors.KafkaError)), "error must be a text or a number"),
        (lambda: plan.on(when=cast("Any", "x")), "when must be a function"),
        (lambda: plan.load(cast("Any", [])), "a plan is a mapping with `rules`"),
        (lambda: plan.requests(partition=cast("Any", "0")), "partition must be a number, not '0'"),
        (lambda: plan.on(api="Fetch").hold().wait(cast("Any", "x")), "timeout must be a number of seconds, not 'x'"),
        (lambda: plan.random(seed=anything, rate=0.1), "seed must be a text or a number"),
    ):
        with pytest.raises(TypeError, match=re.escape(words)):
            mistake()
    with pytest.raises(fl.errors.InvalidArgumentError, match="timeout must be from 0"):
        plan.on(api="Fetch").hold().wait(-1)


def test_only_a_rule_that_holds_can_be_released() -> None:
    plan = fl.testing.FaultPlan()
    rule = plan.on(api="Fetch").error("NOT_LEADER_OR_FOLLOWER")
    for call in (rule.release, rule.wait):
        with pytest.raises(fl.errors.InvalidArgumentError, match="rule 1 holds no request"):
            call()
    assert not rule.is_cleared
    rule.clear()
    assert rule.is_cleared


def test_the_plan_that_a_report_prints_can_be_loaded_as_it_is() -> None:
    plan = fl.testing.FaultPlan()
    (rule,) = plan.load('{"rules": [{"api": "Fetch", "nth": 2, "close": "before"}]}')
    assert rule.rule == {"api": "Fetch", "nth": 2, "close": "before"}
    with pytest.raises(fl.errors.InvalidArgumentError, match="the text is no JSON"):
        plan.load("{rules")
    plan.random(seed=1, rate=0.5, kinds=cast("Any", "error"))
    assert plan.report().endswith("random faults of seed 1 were none"), "the seed is there before the first fault"
