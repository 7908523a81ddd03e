"""Recorded sessions: what a listener writes is what its clients asked for and got, without records and secrets."""

import json
import subprocess
import sys
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import fletchlog as fl
from fletchlog.errors import DamagedFileError, InvalidArgumentError, StorageError
from fletchlog.explain.session import Connection, Exchange, Session, follow, frames
from pytest_fletchlog.kafka import Kafka

SECRET = b"do-not-keep-this"


@pytest.fixture
def recorded(tmp_path):
    with Kafka(record=tmp_path / "session.fltrace") as kafka:
        yield kafka


def finished(kafka):
    """The session, once the listener is closed."""
    kafka.listener.close()
    assert kafka.listener.recording == {"path": kafka.session, "dropped": 0, "failure": None}
    return Session(kafka.session)


def exchanges(session, api=None):
    return [item for item in session if isinstance(item, Exchange) and api in (None, item.api)]


def produce(kafka, topic, values, **config):
    client = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer"} | config)
    for value in values:
        client.produce(topic, value, key=SECRET, headers={"header": SECRET}, partition=0)
    assert client.flush(20) == 0


def consume(kafka, topic, count, **config):
    given = {"bootstrap.servers": kafka.bootstrap, "client.id": "reader", "group.id": "group", "auto.offset.reset": "earliest"} | config
    client = confluent_kafka.Consumer(given)
    try:
        client.subscribe([topic])
        values = []
        deadline = time.monotonic() + 20
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() for message in client.consume(100, 0.2) if not message.error()]
        return values
    finally:
        client.close()


def test_a_session_has_what_the_record_of_requests_has(recorded):
    topic = recorded.topic(partitions=2)
    recorded.faults.on(api="Produce", nth=1, times=1, name="refused").error("NOT_ENOUGH_REPLICAS")
    produce(recorded, topic, [SECRET] * 20, **{"compression.type": "lz4"})
    assert consume(recorded, topic, 20) == [SECRET] * 20
    produce(recorded, topic, [SECRET], acks=0)
    session = finished(recorded)

    rows = recorded.requests()
    found = exchanges(session)
    assert [
        (one.number, one.api, one.version, one.client_id, one.correlation_id, one.connection, one.node, one.request_bytes, one.response_bytes, one.fault)
        for one in found
    ] == [
        (row.number, row.api, row.version, row.client_id, row.correlation_id, row.connection, row.node, row.request_bytes, row.response_bytes, row.fault)
        for row in rows
    ]
    assert [one.outcome for one in found] == [row.outcome for row in rows]
    assert {"refused", None} == {one.fault for one in found}
    assert {"answered", "without response"} <= {one.outcome for one in found}
    for one, row in zip(found, rows, strict=True):
        assert one.request is not None, one
        assert (one.response is not None) == (one.response_bytes is not None), one
        assert abs(one.arrived_us / 1000 - row.time_ms) < 1000, one
        assert one.answered_us is None or one.arrived_us <= one.answered_us
    assert SECRET not in b"".join(frame for _, frame in frames(session))
    assert (session.has_ended, session.is_cut, session.dropped, session.has_values) == (True, False, 0, False)
    assert session.cluster_id == recorded.broker.cluster_id


def test_batches_are_there_with_their_headers_and_true_sizes(recorded):
    topic = recorded.topic()
    produce(recorded, topic, [b"x" * 1000] * 50, **{"enable.idempotence": True, "linger.ms": 100})
    assert len(consume(recorded, topic, 50)) == 50
    session = finished(recorded)

    asked = [batch for one in exchanges(session, "Produce") for t in one.request["topic_data"] for p in t["partition_data"] for batch in p["records"]]
    assert sum(batch["records"] for batch in asked) == 50
    assert sum(batch["size"] for batch in asked) > 50_000
    assert {batch["producer_id"] for batch in asked} != {-1}
    assert asked[0]["base_sequence"] == 0
    got = [
        batch for one in exchanges(session, "Fetch") if one.response for t in one.response["responses"] for p in t["partitions"] for batch in p["records"] or []
    ]
    assert min(batch["base_offset"] for batch in got) == 0
    assert sum(batch["records"] for batch in got) == 50
    assert {batch["codec"] for batch in got} == {"none"}
    assert "bytes" not in got[0]
    named = {t.get("topic") for one in exchanges(session, "Fetch") for t in one.request["topics"]}
    assert named == {topic}


def test_a_session_names_clients_their_software_and_what_groups_say(recorded):
    topic = recorded.topic(partitions=3)
    produce(recorded, topic, [b"one"])
    consume(recorded, topic, 1)
    session = finished(recorded)

    by_client = {connection.client_id: connection for connection in session.connections}
    assert {"writer", "reader"} <= set(by_client)
    assert by_client["reader"].software_name == "confluent-kafka-python" or "librdkafka" in by_client["reader"].software_name
    assert by_client["reader"].software_version
    assert all(connection.peer.startswith("127.0.0.1:") and connection.listener == recorded.bootstrap for connection in session.connections)
    assert all(connection.closed_us is not None for connection in session.connections)
    joined = exchanges(session, "JoinGroup")[-1]
    assert joined.request["protocols"][0]["metadata"]["topics"] == [topic]
    synced = exchanges(session, "SyncGroup")[-1]
    assert synced.response["assignment"]["assigned_partitions"] == {topic: [0, 1, 2]}
    items = list(session)
    seen = set()
    for item in items:
        if isinstance(item, Connection):
            seen.add(item.number)
        else:
            assert item.connection in seen, "a connection is in front of its requests"
    assert len(items) == len(session) + len(session.connections)
    assert session[-1].number == session[len(session) - 1].number == exchanges(session)[-1].number
    assert session.exchange(2).number == 2
    with pytest.raises(KeyError):
        session.exchange(0)
    with pytest.raises(IndexError):
        session[len(session)]


def test_records_are_kept_on_request(tmp_path):
    path = tmp_path / "with-values.fltrace"
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with broker.listen(record=path, record_values=True) as listener, fl.Producer(f"kafka://{listener.bootstrap}") as producer:
            producer.send("t", value=SECRET)
        with pytest.raises(InvalidArgumentError, match="record=FILE"):
            broker.listen(record_values=True)
        with pytest.raises(StorageError, match=r"nowhere/x\.fltrace.*directory that exists"):
            broker.listen(record=tmp_path / "nowhere" / "x.fltrace")
    session = Session(path)
    assert session.has_values
    (asked,) = exchanges(session, "Produce")
    (batch,) = asked.request["topic_data"][0]["partition_data"][0]["records"]
    assert SECRET in batch["bytes"]
    assert SECRET in asked.frame()


def test_secrets_are_left_out(tmp_path):
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "plain.sasl.jaas.config": _users(alice=SECRET.decode())}
    path = tmp_path / "session.fltrace"
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with broker.listen(config=config, record=path, record_values=True) as listener:
            client = {
                "bootstrap.servers": listener.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": SECRET.decode(),
            }
            admin = AdminClient(client)
            admin.list_topics(timeout=10)
            entries = [
                ConfigEntry("ssl.key.password", SECRET.decode(), incremental_operation=AlterConfigOpType.SET),
                ConfigEntry("a.property.of.a.plugin", SECRET.decode(), incremental_operation=AlterConfigOpType.SET),
            ]
            for future in admin.incremental_alter_configs([ConfigResource("broker", "1", incremental_configs=entries)]).values():
                future.exception(10)
            public = [ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)]
            for future in admin.incremental_alter_configs([ConfigResource("topic", "t", incremental_configs=public)]).values():
                future.result(10)
    session = Session(path)
    asked = exchanges(session)
    everything = repr([(one.request, one.response, one.frame()) for one in asked])
    assert SECRET.decode() not in everything
    authenticated = [one for one in asked if one.api == "SaslAuthenticate"]
    assert authenticated
    assert {one.request["auth_bytes"] for one in authenticated} == {b""}
    assert {connection.principal for connection in session.connections} == {"alice"}
    altered = {
        entry["name"]: entry["value"] for one in exchanges(session, "IncrementalAlterConfigs") for r in one.request["resources"] for entry in r["configs"]
    }
    assert altered == {"ssl.key.password": None, "a.property.of.a.plugin": None, "retention.ms": "12345"}


def _users(**users):
    given = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {given};"


def test_a_session_can_be_read_while_it_is_written(recorded):
    topic = recorded.topic()
    produce(recorded, topic, [b"one"])
    deadline = time.monotonic() + 10
    while not exchanges(session := Session(recorded.session), "Produce"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not session.has_ended
    known = len(session)
    produce(recorded, topic, [b"two"])
    recorded.listener.close()
    items = list(follow(session, poll_s=0.01))
    assert len(session) > known
    assert session.has_ended
    numbers = [item.number for item in items if isinstance(item, Exchange)]
    assert set(numbers) == set(range(1, len(session) + 1))
    assert {item.client_id for item in items if isinstance(item, Connection) and item.closed_us is not None} >= {"writer"}


def test_what_a_killed_server_had_recorded_can_be_read(tmp_path):
    path = tmp_path / "session.fltrace"
    command = [
        sys.executable,
        "-m",
        "fletchlog",
        "serve",
        "--memory",
        "--listen",
        "127.0.0.1:0",
        "--auto-create",
        "1",
        "--print-address",
        "--record",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        bootstrap = json.loads(server.stdout.readline())["bootstrap"]
        with fl.Producer(f"kafka://{bootstrap}") as producer:
            producer.send("t", value=b"one").result(20)
            # a flush is due in a second
            deadline = time.monotonic() + 10
            while not exchanges(Session(path), "Produce"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.kill()
    session = Session(path)
    assert not session.has_ended
    assert [one.outcome for one in exchanges(session, "Produce")] == ["answered"]


def test_bytes_that_are_no_session_have_a_named_error(recorded, tmp_path):
    topic = recorded.topic()
    produce(recorded, topic, [b"one"] * 10)
    session = finished(recorded)
    whole = recorded.session.read_bytes()
    copy = tmp_path / "copy.fltrace"
    with pytest.raises(DamagedFileError, match="no session: it does not begin with"):
        Session(__file__)
    with pytest.raises(StorageError, match="cannot read the session"):
        Session(tmp_path / "missing")
    copy.write_bytes(whole[:-1])
    cut = Session(copy)
    assert cut.is_cut
    assert len(cut) <= len(session)
    copy.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    with pytest.raises(DamagedFileError, match="damaged at byte"):
        Session(copy)


def test_a_rule_that_lets_a_request_hang_is_seen(recorded):
    topic = recorded.topic()
    recorded.faults.on(api="Produce", nth=1, times=1).black_hole()
    client = confluent_kafka.Producer({"bootstrap.servers": recorded.bootstrap, "socket.timeout.ms": 500, "message.timeout.ms": 20_000})
    client.produce(topic, b"one")
    assert client.flush(20) == 0
    session = finished(recorded)
    first, *later = exchanges(session, "Produce")
    assert (first.outcome, first.answered_us, first.response) == ("black hole", None, None)
    assert "black_hole" in first.fault
    assert later[-1].outcome == "answered"


def test_a_proxy_records_what_passes_and_its_clients_see(tmp_path):
    path = tmp_path / "proxy.fltrace"
    with Kafka(nodes=3, record=tmp_path / "listener.fltrace") as kafka:
        topic = kafka.topic(partitions=3)
        with fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster, cluster.proxy(record=path) as proxy:
            produce(proxy, topic, [SECRET * 100] * 500, **{"compression.type": "none"})
            assert len(consume(proxy, topic, 500)) == 500
            produce(proxy, topic, [SECRET], acks=0)
            assert proxy.recording == {"path": path, "dropped": 0, "failure": None}
        behind = finished(kafka)
    session = Session(path)
    found = exchanges(session)
    assert session.has_ended
    assert session.cluster_id == behind.cluster_id
    assert SECRET not in path.read_bytes()
    assert SECRET not in b"".join(frame for _, frame in frames(session))
    # a waiting fetch may have been given up by the client
    assert all(one.response is not None or one.outcome in {"without response", "client gone", "closed"} for one in found)
    assert {"without response", "answered"} <= {one.outcome for one in found}
    kinds = {(one.api, one.version, one.correlation_id, one.request_bytes, one.client_id) for one in exchanges(behind)}
    # a client that closes may leave a request that the proxy has not passed on
    passed = [one for one in found if one.response is not None]
    assert {(one.api, one.version, one.correlation_id, one.request_bytes, one.client_id) for one in passed} <= kinds
    got = [
        batch for one in exchanges(session, "Fetch") if one.response for t in one.response["responses"] for p in t["partitions"] for batch in p["records"] or []
    ]
    assert sum(batch["records"] for batch in got) >= 500
    addresses = {(node["host"], node["port"]) for one in exchanges(session, "Metadata") if one.response for node in one.response["brokers"]}
    assert addresses
    assert not addresses & {("127.0.0.1", int(server.rpartition(":")[2])) for server in kafka.bootstrap.split(",")}


def test_a_proxy_records_what_rules_do(tmp_path):
    path = tmp_path / "proxy.fltrace"
    with Kafka() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
        topic = kafka.topic()
        with cluster.proxy(record=path) as proxy:
            proxy.faults.record_requests()
            proxy.faults.on(api="Produce", nth=1, times=1, name="refused").error("NOT_ENOUGH_REPLICAS")
            proxy.faults.on(api="Produce", nth=2, times=1).lose_response()
            produce(proxy, topic, [b"one"], **{"retry.backoff.ms": 5})
            rows = proxy.faults.requests()
    found = exchanges(Session(path))
    assert [(one.number, one.api, one.outcome, one.fault, one.response_bytes) for one in found[: len(rows)]] == [
        (row.number, row.api, row.outcome, row.fault, row.response_bytes) for row in rows
    ]
    assert [one.outcome for one in found if one.api == "Produce"] == ["answered", "response lost", "answered"]
