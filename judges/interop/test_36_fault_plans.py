"""Part 36: the same plans of faults on our listener and, through our proxy, on a real Kafka: the same outcome in the program, the same requests."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

import fletchlog as fl
from fletchlog.testing import FaultPlan
from pytest_fletchlog.kafka import Kafka

from . import kafka
from .kraft import Kraft, format_directory

PART = "36 plans of faults"
APP = "app"
# Requests whose number depends on time: librdkafka looks for its coordinator at intervals
UNCOUNTED = {"ApiVersions", "Metadata", "Fetch", "Heartbeat", "ListOffsets", "OffsetForLeaderEpoch", "FindCoordinator"}
# What a real broker answers by itself while it loads a coordinator, or ends the transaction before
PASSING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}


class Place(NamedTuple):
    """Where programs run."""

    bootstrap: str
    faults: FaultPlan


def librdkafka(place: Place, **config: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": place.bootstrap,
        "client.id": APP,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 40,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "socket.timeout.ms": 2000,
        "topic.metadata.refresh.interval.ms": -1,
        **config,
    }


def librdkafka_sends(place: Place, topic: str, **config: Any) -> list[Any]:
    """Five records, one request each: the error of each report."""
    errors: list[str] = []
    producer = confluent_kafka.Producer(librdkafka(place, **{"linger.ms": 0, "message.timeout.ms": 20000, **config}))
    for number in range(5):
        try:
            producer.produce(topic, str(number), partition=0, on_delivery=lambda error, _: errors.append(error.name() if error else "written"))
        except confluent_kafka.KafkaException as error:
            errors.append(f"not taken: {error.args[0].name()}")
        producer.flush(30)
    return errors


def ours_sends(place: Place, topic: str, **config: Any) -> list[Any]:
    """The same with fletchlog's producer."""
    errors: list[str] = []
    given = {"client.id": APP, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 40, "request.timeout.ms": 2000, "delivery.timeout.ms": 20000}
    with fl.Producer(f"kafka://{place.bootstrap}", given | config) as producer:
        for number in range(5):
            error = producer.send(topic, value=b"%d" % number, partition=0).exception()
            errors.append(type(error).__name__ if error else "written")
    return errors


def librdkafka_consumes(place: Place, topic: str, **config: Any) -> list[Any]:
    """Five records and two commits, the errors of the commits, and what is committed in the end."""
    found: list[Any] = []
    given = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 30000, **config}
    reader = confluent_kafka.Consumer(librdkafka(place, **given))
    reader.subscribe([topic])
    while len([value for value in found if isinstance(value, bytes)]) < 5:
        message = reader.poll(10)
        if message is None:
            return [*found, "nothing came"]
        if message.error():
            found.append(message.error().name())
            continue
        found.append(message.value())
        if message.value() in (b"1", b"4"):
            try:
                reader.commit(message, asynchronous=False)
                found.append("committed")
            except confluent_kafka.KafkaException as error:
                found.append(error.args[0].name())
    reader.close()
    return found


def ours_consumes(place: Place, topic: str, **config: Any) -> list[Any]:
    """The same with fletchlog's consumer."""
    found: list[Any] = []
    given = {
        "client.id": APP,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "retry.backoff.ms": 20,
        "session.timeout.ms": 30000,
    }
    with fl.Consumer(f"kafka://{place.bootstrap}", given | config) as reader:
        reader.subscribe([topic])
        while len([value for value in found if isinstance(value, bytes)]) < 5:
            try:
                records = list(reader.poll(timeout_ms=5000))
            except fl.KafkaError as error:
                found.append(type(error).__name__)
                continue
            for record in records:
                found.append(record.value)
                if record.value in (b"1", b"4"):
                    try:
                        reader.commit({(topic, 0): record.offset + 1})
                        found.append("committed")
                    except fl.KafkaError as error:
                        found.append(type(error).__name__)
    return found


def librdkafka_transacts(place: Place, topic: str) -> list[Any]:
    """Three transactions: the outcome of each."""
    found: list[str] = []
    producer = confluent_kafka.Producer(librdkafka(place, **{"transactional.id": topic, "linger.ms": 0}))
    try:
        producer.init_transactions(10)
        for number in range(3):
            producer.begin_transaction()
            producer.produce(topic, str(number), partition=0)
            try:
                producer.commit_transaction(10)
                found.append("committed")
            except confluent_kafka.KafkaException as error:
                found.append(error.args[0].name())
                if not error.args[0].txn_requires_abort():
                    break
                producer.abort_transaction(10)
    except confluent_kafka.KafkaException as error:
        found.append(error.args[0].name())
    return found


def ours_transacts(place: Place, topic: str) -> list[Any]:
    """The same with fletchlog's producer."""
    found: list[str] = []
    given = {"client.id": APP, "transactional.id": topic, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 40, "max.block.ms": 8000}
    with contextlib.suppress(fl.KafkaError), fl.Producer(f"kafka://{place.bootstrap}", given) as producer:
        try:
            producer.init_transactions()
            for number in range(3):
                with producer.transaction():
                    producer.send(topic, value=b"%d" % number, partition=0)
                found.append("committed")
        except fl.KafkaError as error:
            found.append(type(error).__name__)
    return found


Program = Callable[..., list[Any]]
SENDS: list[Program] = [librdkafka_sends, ours_sends]
CONSUMES: list[Program] = [librdkafka_consumes, ours_consumes]
TRANSACTS: list[Program] = [librdkafka_transacts, ours_transacts]


def plans() -> Iterator[tuple[str, list[dict[str, Any]], Program, dict[str, Any]]]:
    """Name, rules, program and its configuration."""
    broken = [{"lose_response": True}, {"close": "before"}, {"black_hole": "before"}, {"black_hole": "after"}, {"cut_after_bytes": 6}, {"delay_ms": 300}]
    broken += [{"delay_response_ms": 300}, {"throttle_time_ms": 100}, {"slow_bytes_per_second": 300}]
    for send, (idempotent, action) in itertools.product(SENDS, itertools.product([False, True], broken)):
        yield f"Produce {action} {idempotent}", [{"api": "Produce", "nth": 2, **action}], send, {"enable.idempotence": idempotent, "acks": "all"}
    errors = ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "UNKNOWN_TOPIC_OR_PARTITION", "MESSAGE_TOO_LARGE"]
    errors += ["TOPIC_AUTHORIZATION_FAILED", "CORRUPT_MESSAGE", "KAFKA_STORAGE_ERROR", "INVALID_RECORD"]
    for send, error in itertools.product(SENDS, errors):
        yield f"Produce {error}", [{"api": "Produce", "nth": 2, "error": error}], send, {}
    for send in SENDS:
        yield "Produce twice", [{"api": "Produce", "nth": 2, "times": 2, "error": "NOT_ENOUGH_REPLICAS"}], send, {}
        yield "Produce handled", [{"api": "Produce", "nth": 2, "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "handled": True}], send, {}
        yield "InitProducerId", [{"api": "InitProducerId", "nth": 1, "error": "COORDINATOR_LOAD_IN_PROGRESS"}], send, {"enable.idempotence": True}
    of_group = {
        "JoinGroup": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"],
        "SyncGroup": ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "NOT_COORDINATOR"],
        "OffsetCommit": ["NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "OFFSET_METADATA_TOO_LARGE", "GROUP_AUTHORIZATION_FAILED"],
        "OffsetFetch": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
        "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE"],
    }
    for consume, (api, codes) in itertools.product(CONSUMES, of_group.items()):
        for code in codes:
            yield f"{api} {code}", [{"api": api, "nth": 1, "error": code}], consume, {}
        for action in ({"lose_response": True}, {"close": "before"}):
            yield f"{api} {action}", [{"api": api, "nth": 1, **action}], consume, {}
    for consume in CONSUMES:
        yield "Fetch moved", [{"api": "Fetch", "topic": "*", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}], consume, {}
        yield "Fetch cut", [{"api": "Fetch", "nth": 1, "cut_after_bytes": 50}], consume, {}
    of_transaction = {
        "InitProducerId": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"],
        "AddPartitionsToTxn": ["CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION"],
        "EndTxn": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"],
    }
    for transact, (api, codes) in itertools.product(TRANSACTS, of_transaction.items()):
        for code in codes:
            yield f"{api} {code}", [{"api": api, "nth": 1, "error": code}], transact, {}
        yield f"{api} lost", [{"api": api, "nth": 1, "lose_response": True}], transact, {}


@contextlib.contextmanager
def before_kafka(scratch: Path) -> Iterator[Place]:
    """Our proxy before a real broker."""
    config = {"group.min.session.timeout.ms": "100"}
    with (
        Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=config) as broker,
        fl.Cluster(f"kafka://{broker.address}") as cluster,
        cluster.proxy() as proxy,
    ):
        proxy.faults.record_requests()
        yield Place(proxy.bootstrap, proxy.faults)


def outcome(place: Place, topic: str, rules: list[dict[str, Any]], program: Program, config: dict[str, Any]) -> dict[str, Any]:
    """What a program sees, what it asked for, and what is in the log."""
    with fl.Cluster(f"kafka://{place.bootstrap}", {"client.id": "admin"}) as cluster:
        cluster.create_topic(topic, partitions=1)
    if program in CONSUMES:
        with fl.Producer(f"kafka://{place.bootstrap}", {"client.id": "filler"}) as filler:
            for number in range(5):
                filler.send(topic, value=b"%d" % number, partition=0)
    place.faults.record_requests()
    loaded = place.faults.load({"rules": [{"client_id": APP, **rule} for rule in rules]})
    seen = program(place, topic, **config)
    applied = [rule.applied for rule in loaded]
    for rule in loaded:
        rule.clear()
    rows = [row for row in place.faults.requests(client_id=APP) if row.api not in UNCOUNTED and (row.fault or not PASSING.intersection(row.errors))]
    asked = [(row.api, row.errors, row.outcome if row.outcome != "client gone" else "closed") for row in rows]
    with fl.Cluster(f"kafka://{place.bootstrap}", {"client.id": "reader"}) as cluster:
        written = cluster.scan(topic, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()
    # A request that is repeated until it succeeds is repeated as often as time allows.
    return {"seen": seen, "applied": applied, "asked": [key for key, _ in itertools.groupby(asked)], "written": written}


@pytest.mark.timeout(1500)
def test_programs_see_the_same_with_faults_before_kafka_and_on_our_listener(scratch: Path, count: Callable[..., None]) -> None:
    different: list[str] = []
    with Kafka(config={"group.min.session.timeout.ms": "100"}) as opened, before_kafka(scratch) as real:
        ours = Place(opened.bootstrap, opened.faults)
        for number, (name, rules, program, config) in enumerate(plans()):
            topic = f"plan-{number}"
            expected, found = (outcome(place, topic, rules, program, config) for place in (real, ours))
            count(PART, plans=1)
            if expected != found:
                lines = [f"  {key}\n    kafka {expected[key]}\n    ours  {found[key]}" for key in expected if expected[key] != found[key]]
                different.append("\n".join([f"{program.__name__} {name}", *lines]))
    assert not different, f"{len(different)} differ\n" + "\n".join(different)
