"""Part 43: sessions of clients of other makes, recorded at a listener and at a proxy before it: every message of theirs is decoded, and both tell the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.explain.session import Exchange, Session
from pytest_fletchlog.kafka import Kafka

from .programs import LIBRDKAFKA, Client, Peer, Place, java, kafka_python

PART = "43 sessions"
PEERS: dict[str, Callable[[Path], Peer]] = {
    "java-2.6.3": lambda scratch: java("2.6.3", scratch),
    "java-3.9.1": lambda scratch: java("3.9.1", scratch),
    "java-4.4.0": lambda scratch: java("4.4.0", scratch),
    "kafka-python": kafka_python,
}


def run(client: Client, place: Place, broker: fl.Broker) -> None:
    """Its programs, each with a topic."""
    for kind in ("sends", "transacts", "consumes"):
        topic = f"{kind}-{place.bootstrap.rpartition(':')[2]}"
        broker.create_topic(topic)
        if kind == "consumes":
            with fl.Producer(broker) as producer:
                for number in range(5):
                    producer.send(topic, value=str(number).encode())
        assert getattr(client, kind)(place, topic)


def exchanges(path: Path) -> list[Exchange]:
    """The requests of a session, all of which are decoded."""
    found = [item for item in Session(path) if isinstance(item, Exchange)]
    unread = [one for one in found if one.request is None or (one.response_bytes is not None and one.response is None)]
    assert not unread, unread
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["librdkafka", *PEERS])
def test_every_message_is_decoded(name: str, tmp_path: Path) -> None:
    """Requests and responses of each API that the client used, also of those that a proxy changed."""
    with contextlib.ExitStack() as stack:
        client = LIBRDKAFKA
        if name in PEERS:
            peer = PEERS[name](tmp_path)
            stack.callback(peer.close)
            client = peer.client()
        kafka = stack.enter_context(Kafka(record=tmp_path / "listener.fltrace"))
        run(client, Place(kafka.bootstrap, kafka.faults), kafka.broker)
        direct = {(one.api, one.version) for one in kafka.requests()}
        cluster = stack.enter_context(fl.Cluster(f"kafka://{kafka.bootstrap}"))
        proxy = stack.enter_context(cluster.proxy(record=tmp_path / "proxy.fltrace"))
        run(client, Place(proxy.bootstrap, proxy.faults), kafka.broker)
        proxy.close()
        kafka.listener.close()
        assert kafka.listener.recording == {"path": kafka.session, "dropped": 0, "failure": None}
    at_listener, at_proxy = exchanges(tmp_path / "listener.fltrace"), exchanges(tmp_path / "proxy.fltrace")
    assert direct <= {(one.api, one.version) for one in at_proxy}
    assert {"Produce", "Fetch", "EndTxn", "JoinGroup", "OffsetCommit"} <= {one.api for one in at_proxy}
    sizes = {(one.api, one.version, one.correlation_id, one.request_bytes) for one in at_listener}
    assert {(one.api, one.version, one.correlation_id, one.request_bytes) for one in at_proxy} <= sizes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["librdkafka", *PEERS])
def test_a_healthy_client_has_no_finding_and_is_known(name: str, tmp_path: Path) -> None:
    """Its software, its group, its transactions; nothing that is wrong."""
    with contextlib.ExitStack() as stack:
        client = LIBRDKAFKA
        if name in PEERS:
            peer = PEERS[name](tmp_path)
            stack.callback(peer.close)
            client = peer.client()
        with Kafka(record=tmp_path / "session.fltrace") as kafka:
            run(client, Place(kafka.bootstrap, kafka.faults), kafka.broker)
    explained = fl.explain.clients(tmp_path / "session.fltrace")
    assert not explained.findings, explained.text()
    makes = {"librdkafka": "confluent-kafka-python", "kafka-python": "kafka-python"}
    assert makes.get(name, "apache-kafka-java") in {one.software for one in explained.clients}, explained.text()
    assert any(transaction.how == "commit" for transaction in explained.transactions), explained.text()
