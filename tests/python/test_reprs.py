"""What an object says of itself: its state, and never a secret."""

from __future__ import annotations

import pathlib

import pytest

import fletchlog as fl

SECRET = "hush-hush"


def test_a_broker_names_its_place_its_topics_and_whether_it_is_open(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "data"
    with fl.Broker(path, create=True) as broker:
        assert repr(broker) == f"<fletchlog.Broker '{path}': 0 topics, open>"
        broker.create_topic("t")
        assert repr(broker) == f"<fletchlog.Broker '{path}': 1 topic, open>"
        with fl.Broker(path, read_only=True) as reader:
            assert repr(reader) == f"<fletchlog.Broker '{path}': 1 topic, open for reading only>"
    assert repr(broker) == f"<fletchlog.Broker '{path}': closed>"
    with fl.Broker.in_memory() as broker:
        assert repr(broker) == "<fletchlog.Broker in memory: 0 topics, open>"


def test_the_error_for_a_second_positional_argument_of_a_broker_says_its_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match=r"takes the path first and the rest by name, Broker\(PATH, nodes=3, config=\{...\}\), got dict \{'log.retention"):
        fl.Broker(tmp_path, {"log.retention.ms": 1})  # type: ignore[call-arg]


def test_clients_name_who_they_are_and_what_they_read() -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=5)
        with fl.Consumer(broker, {"client.id": "c", "group.id": "g"}) as consumer:
            assert repr(consumer) == "<fletchlog.Consumer client.id=c group.id=g: reads nothing yet>"
            consumer.subscribe(["t", "u"])
            assert repr(consumer) == "<fletchlog.Consumer client.id=c group.id=g: subscribed to t, u, has no partition now>"
            consumer.unsubscribe()
            consumer.assign([("t", p) for p in range(5)])
            assert repr(consumer).endswith(": reads t-0, t-1, t-2 and 2 more>")
        assert repr(consumer) == "<fletchlog.Consumer client.id=c group.id=g: closed>"
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            assert repr(producer) == "<fletchlog.Producer client.id=producer-x transactional.id=x: open>"
            assert repr(producer.transaction()) == "<fletchlog.types.Transaction of <fletchlog.Producer client.id=producer-x transactional.id=x: open>>"
        assert repr(producer) == "<fletchlog.Producer client.id=producer-x transactional.id=x: closed>"
        with fl.legacy.LegacyConsumer(broker, {"group.id": "g", "consumer.id": "me"}) as legacy:
            assert repr(legacy) == "<fletchlog.legacy.LegacyConsumer: g_me>"


def test_a_future_says_its_outcome() -> None:
    with fl.Broker.in_memory() as broker, fl.Producer(broker, {"linger.ms": 60_000}) as producer:
        broker.create_topic("t")
        future = producer.send("t", b"v", partition=0)
        assert repr(future) == "<fletchlog.types.RecordFuture: undecided>"
        producer.flush()
        assert repr(future) == "<fletchlog.types.RecordFuture: t-0 at offset 0>"
        assert repr(producer.send("t", bytes(2_000_000))).startswith("<fletchlog.types.RecordFuture: failed: ")


def test_faults_say_what_goes_wrong() -> None:
    plan = fl.testing.FaultPlan()
    assert repr(plan) == "<fletchlog.testing.FaultPlan: no rules>"
    plan.on(api="Produce", nth=2).lose_response()
    assert repr(plan) == '<fletchlog.testing.FaultPlan: rule 1 {"api":"Produce","lose_response":true,"nth":2}: matched 0, applied 0>'


def test_what_was_read_is_shown_in_a_line(tmp_path: pathlib.Path) -> None:
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b"v"] * 3, partition=0)
        with fl.Consumer(broker, {"auto.offset.reset": "earliest", "fletchlog.trace": True}) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            rows = iter(consumer.poll())
            assert repr(rows) == "<fletchlog.types.RecordIterator: 3 records left>"
            next(rows)
            next(rows)
            assert repr(rows) == "<fletchlog.types.RecordIterator: 1 record left>"
            assert list(rows)
            assert repr(rows) == "<fletchlog.types.RecordIterator: 0 records left>"
            assert repr(consumer.explain()) == "<fletchlog.explain.Explanation: Java client 2.6 (as 2.4 - 2.6), 2 partitions, 1 poll>"
            same = "the same: 1 poll, every request, answer and record range"
            assert repr(fl.explain.replay(consumer.trace(), broker)) == f"<fletchlog.explain.Replay: {same}>"
        audited = fl.audit.run(broker)
        assert repr(audited) == f"<fletchlog.audit.AuditReport of {audited.source}: 2 partitions, 3 records>"
        assert "1 topic on 1 node" in broker._repr_html_()
    assert broker._repr_html_() == f"<pre>&lt;fletchlog.Broker &#x27;{tmp_path / 'data'}&#x27;: closed&gt;</pre>"


def test_no_repr_has_a_secret() -> None:
    config = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";',
    }
    with fl.Consumer(config) as consumer, fl.Producer(config) as producer, fl.Cluster("kafka://127.0.0.1:9", dict(list(config.items())[1:])) as cluster:
        assert repr(cluster) == "<fletchlog.Cluster kafka://127.0.0.1:9: open>"
        for one in (consumer, producer, cluster):
            assert SECRET not in repr(one)
            assert " object at 0x" not in repr(one)
    assert repr(cluster) == "<fletchlog.Cluster kafka://127.0.0.1:9: closed>"
