"""Part 36: the same plans of faults on our listener and, through our proxy, on a real Kafka: the same outcome in the program, the same requests."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from pytest_fletchlog.kafka import Kafka

from . import kafka
from .kraft import Kraft, format_directory
from .programs import APP, CLIENTS, LIBRDKAFKA, PART, Client, Place, Program, compared, in_all_clients, load_coordinators, requests_of_app
from .test_16_wire_languages import go_program  # noqa: F401

# kafka-python does not have the new protocol, franz-go keeps it behind a switch, and that of 3.9 is not the final one
KIP_848 = {"librdkafka", "fletchlog", "java-4.4.0"}
BEAT = "ConsumerGroupHeartbeat"
# Requests whose number depends on time: librdkafka looks for its coordinator at intervals
UNCOUNTED = {"ApiVersions", "Metadata", "Fetch", "Heartbeat", "ListOffsets", "OffsetForLeaderEpoch", "FindCoordinator"}
# What a real broker answers by itself while it ends the transaction before
PASSING = {"CONCURRENT_TRANSACTIONS"}


Plan = tuple[str, list[dict[str, Any]], Program, dict[str, Any]]


def produce_plans(send: Program) -> Iterator[Plan]:
    """Of a program that sends."""
    broken = [{"lose_response": True}, {"close": "before"}, {"black_hole": "before"}, {"black_hole": "after"}, {"cut_after_bytes": 6}, {"delay_ms": 300}]
    broken += [{"delay_response_ms": 300}, {"throttle_time_ms": 100}, {"slow_bytes_per_second": 300}]
    for idempotent, action in itertools.product([False, True], broken):
        yield f"Produce {action} {idempotent}", [{"api": "Produce", "nth": 2, **action}], send, {"enable.idempotence": idempotent, "acks": "all"}
    errors = ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "UNKNOWN_TOPIC_OR_PARTITION", "MESSAGE_TOO_LARGE"]
    errors += ["TOPIC_AUTHORIZATION_FAILED", "CORRUPT_MESSAGE", "KAFKA_STORAGE_ERROR", "INVALID_RECORD"]
    for error in errors:
        yield f"Produce {error}", [{"api": "Produce", "nth": 2, "error": error}], send, {}
    yield "Produce twice", [{"api": "Produce", "nth": 2, "times": 2, "error": "NOT_ENOUGH_REPLICAS"}], send, {}
    yield "Produce handled", [{"api": "Produce", "nth": 2, "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "handled": True}], send, {}
    yield "InitProducerId", [{"api": "InitProducerId", "nth": 1, "error": "COORDINATOR_LOAD_IN_PROGRESS"}], send, {"enable.idempotence": True}


def group_plans(consume: Program) -> Iterator[Plan]:
    """Of a program that consumes in a group."""
    of_group = {
        "JoinGroup": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"],
        "SyncGroup": ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "NOT_COORDINATOR"],
        "OffsetCommit": ["NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "OFFSET_METADATA_TOO_LARGE", "GROUP_AUTHORIZATION_FAILED"],
        "OffsetFetch": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
        "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE"],
    }
    for api, codes in of_group.items():
        for code in codes:
            yield f"{api} {code}", [{"api": api, "nth": 1, "error": code}], consume, {}
        for action in ({"lose_response": True}, {"close": "before"}):
            yield f"{api} {action}", [{"api": api, "nth": 1, **action}], consume, {}
    yield "Fetch moved", [{"api": "Fetch", "topic": "*", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}], consume, {}
    yield "Fetch cut", [{"api": "Fetch", "nth": 1, "cut_after_bytes": 50}], consume, {}


def transaction_plans(transact: Program) -> Iterator[Plan]:
    """Of a program with transactions."""
    of_transaction = {
        "InitProducerId": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"],
        "AddPartitionsToTxn": ["CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "UNKNOWN_TOPIC_OR_PARTITION"],
        "EndTxn": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"],
    }
    for api, codes in of_transaction.items():
        for code in codes:
            yield f"{api} {code}", [{"api": api, "nth": 1, "error": code}], transact, {}
        yield f"{api} lost", [{"api": api, "nth": 1, "lose_response": True}], transact, {}


def metadata_plans(program: Program, config: dict[str, Any]) -> Iterator[Plan]:
    """Storms of Metadata: errors in a row, slow and lost responses."""
    for error, times in itertools.product(("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"), (1, 5)):
        yield f"Metadata {error} {times}", [{"api": "Metadata", "topic": "*", "nth": 1, "times": times, "error": error}], program, config
    for action in ({"delay_ms": 500}, {"lose_response": True}, {"close": "before"}, {"cut_after_bytes": 20}):
        yield f"Metadata {action}", [{"api": "Metadata", "topic": "*", "nth": 1, "times": 3, **action}], program, config


def protocol_plans(consume: Program) -> Iterator[Plan]:
    """Of a program that consumes in a group of KIP-848."""
    config = {"group.protocol": "consumer"}
    for nth, code in itertools.product((1, 2), ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH")):
        yield f"ConsumerGroupHeartbeat {nth} {code}", [{"api": "ConsumerGroupHeartbeat", "nth": nth, "error": code}], consume, config
    for action in ({"lose_response": True}, {"close": "before"}):
        yield f"ConsumerGroupHeartbeat {action}", [{"api": "ConsumerGroupHeartbeat", "nth": 1, **action}], consume, config
    for code in ("NOT_COORDINATOR", "STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
        yield f"OffsetCommit {code}", [{"api": "OffsetCommit", "nth": 1, "error": code}], consume, config


def plans(client: Client) -> Iterator[Plan]:
    """Name, rules, program and its configuration."""
    yield from produce_plans(client.sends)
    yield from group_plans(client.consumes)
    yield from transaction_plans(client.transacts)
    # Java sends InitProducerId behind Metadata on one connection: whether it is answered before that closes is chance
    yield from metadata_plans(client.sends, {"enable.idempotence": False})
    # librdkafka's consumer looks for its topic, its coordinator and nodes at once: two runs before one Kafka differ
    if client is not LIBRDKAFKA:
        yield from metadata_plans(client.consumes, {})
    if client.name in KIP_848:
        yield from protocol_plans(client.consumes)


@contextlib.contextmanager
def before_kafka(scratch: Path) -> Iterator[Place]:
    """Our proxy before a real broker."""
    config = {"group.min.session.timeout.ms": "100", "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with (
        Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=config) as broker,
        fl.Cluster(f"kafka://{broker.address}") as cluster,
        cluster.proxy() as proxy,
    ):
        place = Place(proxy.bootstrap, proxy.faults)
        cluster.create_topic("loaded", partitions=1)
        load_coordinators(place)
        yield place


def outcome(place: Place, topic: str, rules: list[dict[str, Any]], program: Program, config: dict[str, Any], filled: bool) -> dict[str, Any]:
    """What a program sees, what it asked for, and what is in the log; `filled`: of a topic that has records before."""
    with fl.Cluster(f"kafka://{place.bootstrap}", {"client.id": "admin"}) as cluster:
        cluster.create_topic(topic, partitions=1)
    with fl.Consumer(f"kafka://{place.bootstrap}", {"client.id": "admin"}) as consumer:
        # responds once the node leads it: Metadata shows a leader that may refuse requests for some ms
        consumer.end_offsets([fl.TopicPartition(topic, 0)])
    if filled:
        with fl.Producer(f"kafka://{place.bootstrap}", {"client.id": "filler"}) as filler:
            for number in range(5):
                filler.send(topic, value=b"%d" % number, partition=0)
    place.faults.record_requests()
    loaded = place.faults.load({"rules": [{"client_id": APP, **rule} for rule in rules]})
    seen = program(place, topic, **config)
    applied = [rule.applied for rule in loaded]
    for rule in loaded:
        rule.clear()
    rows = [row for row in requests_of_app(place) if row.fault or not (row.api in UNCOUNTED or PASSING.intersection(row.errors))]
    asked = [(row.api, row.errors, row.outcome if row.outcome != "client gone" else "closed") for row in rows if row.api != BEAT]
    # a thread sends them, before or after what the program asks for; their number depends on time
    beats = [(row.errors, row.outcome) for row in rows if row.api == BEAT and row.fault]
    with fl.Cluster(f"kafka://{place.bootstrap}", {"client.id": "reader"}) as cluster:
        written = cluster.scan(topic, isolation_level="read_committed").to_pyarrow()["value"].to_pylist()
    # A request that is repeated until it succeeds is repeated as often as time allows.
    return {"seen": seen, "applied": applied, "asked": [key for key, _ in itertools.groupby(asked)], "beats": beats, "written": written}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    """Our proxy before a real broker, and our listener."""
    scratch = tmp_path_factory.mktemp("broker")
    with Kafka(config={"group.min.session.timeout.ms": "100"}) as opened, before_kafka(scratch) as real:
        yield real, Place(opened.bootstrap, opened.faults)
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="module")
def clients(go_program: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:  # noqa: F811
    """By name."""
    with in_all_clients(go_program, tmp_path_factory.mktemp("clients")) as found:
        yield found


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", CLIENTS)
def test_programs_see_the_same_with_faults_before_kafka_and_on_our_listener(
    name: str, clients: dict[str, Client], places: tuple[Place, Place], count: Callable[..., None]
) -> None:
    different: list[str] = []
    client = clients[name]
    for number, (plan, rules, program, config) in enumerate(plans(client)):

        def run(
            place: Place, attempt: int, number: int = number, rules: Any = rules, program: Program = program, config: dict[str, Any] = config
        ) -> dict[str, Any]:
            return outcome(place, f"{name}-{number}-{attempt}", rules, program, config, filled=program is client.consumes)

        different += compared(f"{name} {plan}", places, run, count)
        count(PART, plans=1)
    assert not different, f"{len(different)} differ\n" + "\n".join(different)
