"""Rules for faults at the listener, as clients of several languages meet them, and the record of their requests."""

import json
import socket
import struct
import time
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError
from fletchlog.testing import FaultPlan, Request

# ApiVersions 0 of client id "raw", correlation id 7
API_VERSIONS = struct.pack(">hhih3s", 18, 0, 7, 3, b"raw")


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


def connected(kafka):
    host, _, port = kafka.bootstrap.rpartition(":")
    return closing(socket.create_connection((host, int(port)), timeout=5))


def received(peer, count):
    """Bytes until there are so many, or until the end."""
    found = b""
    while len(found) < count and (more := peer.recv(count - len(found))):
        found += more
    return found


def written(kafka, topic):
    """Values by partition."""
    rows = kafka.records(topic).to_pylist()
    return {partition: [row["value"] for row in rows if row["partition"] == partition] for partition in {row["partition"] for row in rows}}


def producer(kafka, **config):
    return Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer", "retry.backoff.ms": 5, "retry.backoff.max.ms": 10, "linger.ms": 0} | config)


def send(client, topic, values, partition=0):
    """Sends one value after the other; returns the errors of the reports."""
    errors = []
    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert client.flush(20) == 0
    return [error.name() for error in errors if error]


def test_the_third_produce_request_is_refused_once_and_the_client_repeats_it(kafka):
    topic = kafka.topic(name="orders")
    kafka.topic(name="others")
    rule = kafka.faults.on(api="Produce", topic="ord*", nth=3).error("NOT_ENOUGH_REPLICAS")
    client = producer(kafka)
    assert send(client, "others", [b"x"] * 3) == []
    assert (rule.matched, rule.applied) == (0, 0)
    assert send(client, topic, [b"1", b"2", b"3", b"4"]) == []
    assert (rule.matched, rule.applied) == (5, 1)
    assert written(kafka, topic) == {0: [b"1", b"2", b"3", b"4"]}
    produced = kafka.requests(api="Produce", topic=topic, client_id="wri*")
    assert [row.errors for row in produced] == [[], [], ["NOT_ENOUGH_REPLICAS"], [], []]
    assert [row.fault is not None for row in produced] == [False, False, True, False, False]
    assert all(row.partitions == [(topic, 0)] and row.outcome == "answered" for row in produced)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_lost_acknowledgement_writes_twice_unless_the_producer_is_idempotent(kafka, idempotent):
    topic = kafka.topic()
    kafka.faults.on(api="Produce", nth=1).lose_response()
    assert send(producer(kafka, **{"enable.idempotence": idempotent}), topic, [b"1"]) == []
    assert written(kafka, topic) == {0: [b"1"] * (1 if idempotent else 2)}
    assert [row.outcome for row in kafka.requests(api="Produce")] == ["response lost", "answered"]


@pytest.mark.parametrize("handled", [False, True])
def test_an_error_is_in_the_selected_partitions_alone(kafka, handled):
    topic = kafka.topic(partitions=3)
    rule = kafka.faults.on(api="Produce", topic=topic, partition=1).error("TOPIC_AUTHORIZATION_FAILED", handled=handled)
    client = fl.Producer(f"kafka://{kafka.bootstrap}", {"linger.ms": 1000, "enable.idempotence": False, "acks": "all"})
    sent = [client.send(topic, value=str(p).encode(), partition=p) for p in range(3)]
    client.flush()
    errors = [future.exception() for future in sent]
    client.close()
    assert [error is None for error in errors] == [True, False, True]
    assert "not authorized for the topic" in str(errors[1])
    assert written(kafka, topic) == {0: [b"0"], 2: [b"2"]} | ({1: [b"1"]} if handled else {})
    assert rule.applied == 1


def test_a_fetch_meets_an_error_in_its_session_and_goes_on(kafka):
    topic = kafka.topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, [str(n) for n in range(3)], partition=partition)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "client.id": "reader"})
    consumer.subscribe([topic])
    values = [consumer.poll(10).value() for _ in range(6)]
    rule = kafka.faults.on(api="Fetch", topic=topic, partition=1, nth=1, times=2).error("NOT_LEADER_OR_FOLLOWER")
    while rule.applied < 2:
        consumer.poll(0.01)
    kafka.produce(topic, ["last"], partition=1)
    assert consumer.poll(10).value() == b"last"
    consumer.close()
    assert sorted(values) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    refused = [row for row in kafka.requests(api="Fetch", client_id="reader") if row.errors]
    assert [row.errors for row in refused] == [["NOT_LEADER_OR_FOLLOWER"]] * 2


def test_a_commit_whose_response_is_lost_is_in_the_broker(kafka):
    topic = kafka.topic()
    kafka.produce(topic, ["1"])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    message = consumer.poll(10)
    kafka.faults.on(api="OffsetCommit", group="billing", nth=1).lose_response()
    try:
        consumer.commit(message, asynchronous=False)
    except KafkaException as error:
        assert "TRANSPORT" in str(error)  # noqa: PT017 - a newer librdkafka may repeat the request
    assert kafka.broker.group_offsets("billing")[topic, 0].offset == 1
    consumer.close()


def test_a_barrier_holds_requests_until_it_is_released(kafka):
    topic = kafka.topic()
    gate = kafka.faults.on(api="JoinGroup", group="held").hold()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "held"})
    consumer.subscribe([topic])
    consumer.poll(0)
    gate.wait()
    assert gate.held == 1
    assert [row.outcome for row in kafka.requests(api="JoinGroup")] == ["pending"]
    assert "held" not in [group.group_id for group in kafka.broker.groups()]
    gate.release()
    while not consumer.assignment():
        consumer.poll(0.01)
    kafka.wait_for_group("held", members=1)
    consumer.close()
    assert gate.held == 0
    unmet = kafka.faults.on(api="DeleteGroups", optional=True).hold()
    with pytest.raises(TimeoutError, match=r"no request is held after 0.05 s .*DeleteGroups.* 0 requests matched it"):
        unmet.wait(timeout=0.05)


def test_a_late_request_is_carried_out_after_its_client_has_gone(kafka):
    topic = kafka.topic()
    gate = kafka.faults.on(api="Produce").hold()
    client = producer(kafka, **{"request.timeout.ms": 100, "message.timeout.ms": 150, "socket.timeout.ms": 100})
    assert send(client, topic, [b"zombie"]) == ["_MSG_TIMED_OUT"]
    del client
    gate.wait()
    assert written(kafka, topic) == {}
    gate.release()
    deadline = time.monotonic() + 10
    while written(kafka, topic) != {0: [b"zombie"]}:
        assert time.monotonic() < deadline


def test_connections_and_responses_fail_in_every_way(kafka):
    faults, whole = kafka.faults, framed(API_VERSIONS)
    with connected(kafka) as peer:
        peer.sendall(whole)
        size = struct.unpack(">i", received(peer, 4))[0]
        assert received(peer, size)[:4] == struct.pack(">i", 7)
    answer = 4 + size
    first = int(kafka.requests()[0].connection)
    for number, (rule, expected) in enumerate(
        [
            (lambda on: on.close(), b""),
            (lambda on: on.lose_response(), b""),
            (lambda on: on.cut(after_bytes=9), struct.pack(">iih", size, 7, 0)[:9]),
            (lambda on: on.wrong_correlation_id(), struct.pack(">ii", size, 8)),
            (lambda on: on.error(35), struct.pack(">iihi", 10, 7, 35, 0)),
        ],
        first + 1,
    ):
        rule(faults.on(connection=number, api="ApiVersions"))
        with connected(kafka) as peer:
            peer.sendall(whole)
            assert received(peer, max(len(expected), 1)) == expected, number
    faults.on(connection=first + 6).refuse_connection()
    faults.on(connection=first + 7).tls_failure()
    for expected in [b"", bytes([21, 3, 3, 0, 2, 2, 40])]:
        with connected(kafka) as peer:
            assert received(peer, 100) == expected
    faults.on(connection=first + 8).black_hole()
    faults.on(connection=first + 9).slow(bytes_per_second=answer * 4)
    faults.on(connection=first + 10).delay_response(timedelta(milliseconds=80))
    with connected(kafka) as peer:
        peer.sendall(whole)
        peer.settimeout(0.1)
        with pytest.raises(TimeoutError):
            peer.recv(1)
    for least in (0.15, 0.08):
        with connected(kafka) as peer:
            began = time.monotonic()
            peer.sendall(whole)
            assert len(received(peer, answer)) == answer
            assert time.monotonic() - began >= least
    outcomes = [row.outcome for row in kafka.requests()]
    assert outcomes[:4] == ["answered", "closed", "response lost", "response cut"]
    assert kafka.requests(connection=first + 8)[0].outcome == "black hole"
    with pytest.raises(InvalidArgumentError, match="no API `produce`; did you mean Produce"):
        kafka.requests(api="produce")


def test_a_throttled_client_sees_the_pause(kafka):
    topic = kafka.topic()
    kafka.faults.on(api="Produce", nth=1).throttle(timedelta(milliseconds=40))
    pauses = []
    client = producer(kafka, throttle_cb=lambda event: pauses.append(round(event.throttle_time * 1000)))
    assert send(client, topic, [b"1"]) == []
    deadline = time.monotonic() + 10
    while not pauses and time.monotonic() < deadline:
        client.poll(0.01)
    assert pauses == [40]


def test_a_condition_in_python_decides_and_what_it_raises_is_reported(kafka, recwarn):
    topic = kafka.topic()
    seen = []

    def large(request):
        seen.append(request)
        return request["request_bytes"] > 1000

    kafka.faults.on(api="Produce", when=large, nth=1).error("MESSAGE_TOO_LARGE")
    assert send(producer(kafka), topic, [b"small", b"x" * 2000]) == ["MSG_SIZE_TOO_LARGE"]
    assert [request["partitions"] for request in seen] == [[(topic, 0)]] * 2
    assert written(kafka, topic) == {0: [b"small"]}


def test_a_plan_is_data(kafka, tmp_path):
    topic = kafka.topic()
    rules = [{"api": "Produce", "topic": topic, "nth": 2, "error": "NOT_ENOUGH_REPLICAS", "name": "second"}]
    toml = tmp_path / "plan.toml"
    toml.write_text(f'[[rules]]\napi = "Produce"\ntopic = "{topic}"\nnth = 2\nerror = "NOT_ENOUGH_REPLICAS"\nname = "second"\n')
    as_json = tmp_path / "plan.json"
    as_json.write_text(json.dumps({"rules": rules}))
    (rule,) = kafka.faults.load(toml)
    assert rule.rule == rules[0]
    assert send(producer(kafka), topic, [b"1", b"2"]) == []
    assert [row.fault for row in kafka.requests(api="Produce")] == [None, "second", None]
    (again,) = kafka.faults.load(as_json)
    again.clear()
    before = len(kafka.faults.rules)
    for wrong, message in [
        ({"rules": [rules[0], {"api": "Produce", "nht": 1, "hold": True}]}, "rule 2: `nht` is unknown"),
        ({"rule": []}, "`rule` is unknown"),
        (tmp_path / "none.toml", "none.toml"),
    ]:
        with pytest.raises((InvalidArgumentError, OSError), match=message):
            kafka.faults.load(wrong)
    broken = tmp_path / "broken.toml"
    broken.write_text("[[rules")
    with pytest.raises(InvalidArgumentError, match=r"broken.toml is no TOML"):
        kafka.faults.load(broken)
    assert len(kafka.faults.rules) == before
    assert kafka.faults.report().splitlines()[0].startswith('rule 1 {"api":"Produce"')


def test_the_same_seed_fails_the_same_requests(kafka_cluster):
    def run(seed):
        kafka = kafka_cluster(nodes=1)
        topic = kafka.topic()
        kafka.faults.random(seed=seed, rate=0.3, api="Produce", kinds=["error", "lose_response"])
        assert send(producer(kafka, **{"enable.idempotence": True}), topic, [str(n).encode() for n in range(10)]) == []
        assert written(kafka, topic) == {0: [str(n).encode() for n in range(10)]}
        assert f"random faults of seed {seed} were this plan: " in kafka.faults.report()
        return kafka.faults.drawn()["rules"], [row.errors for row in kafka.requests(api="Produce")]

    drawn, errors = run(7)
    assert (drawn, errors) == run(7)
    assert drawn != run(8)[0]
    kafka = kafka_cluster(nodes=1)
    topic = kafka.topic()
    # The plan that the seed amounts to does the same by itself; a request that does not come again fails no test.
    assert not [rule for rule in kafka.faults.load({"rules": drawn}) if not rule.is_optional]
    assert send(producer(kafka, **{"enable.idempotence": True}), topic, [str(n).encode() for n in range(10)]) == []
    assert [row.errors for row in kafka.requests(api="Produce")] == errors


def test_recorded_requests_are_rows_and_arrow(kafka):
    topic = kafka.topic()
    send(producer(kafka), topic, [b"1"])
    requests = kafka.requests(topic=topic)
    table = requests.to_pyarrow()
    assert tuple(table.column_names) == Request._fields
    produced = kafka.requests(api="Produce")
    assert [row.api for row in kafka.requests(api=["Produce", "InitProducerId"], client_id="wri*")] == ["Produce"]
    assert table.num_rows == len(requests) >= len(produced) == 1
    assert produced.to_pyarrow()["partitions"].to_pylist() == [[{"topic": topic, "partition": 0}]]
    assert "Produce" in repr(produced)
    assert produced[0].response_bytes > 0
    assert kafka.requests()[0:1][0].api == "ApiVersions"


def test_a_listener_records_from_the_moment_it_is_asked_to():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with broker.listen() as listener:
            faults = listener.faults
            assert isinstance(faults, FaultPlan)
            fl.Cluster(f"kafka://{listener.bootstrap}").topics()
            assert len(faults.requests()) == 0
            faults.record_requests()
            fl.Cluster(f"kafka://{listener.bootstrap}").topics()
            assert "Metadata" in [row.api for row in listener.faults.requests()]
        # The rules of a closed listener can still be read.
        assert faults.report() == "no rules"
