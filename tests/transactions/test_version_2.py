"""Producers of transaction.version 2: embedded and over a socket, with groups, the cleaner, audit and traces."""

from __future__ import annotations

import pytest

import fletchlog as fl
from fletchlog.audit import run as audit

from .reading import values

NEW = {"transactional.id": "id", "fletchlog.producer.version": "4.4", "retry.backoff.ms": 5}


def epoch(producer: fl.Producer) -> int:
    at = producer.producer_id
    assert at is not None
    return at[1]


def test_each_transaction_has_its_epoch_and_an_empty_one_sends_nothing(broker: fl.Broker, peer: fl.Broker | str) -> None:
    with fl.Producer(peer, NEW) as producer:
        producer.init_transactions()
        for number in range(4):
            assert epoch(producer) == number
            producer.begin_transaction()
            producer.send("t", value=b"%d" % number, partition=0)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        with producer.transaction():
            pass
        assert epoch(producer) == 4
    assert values(broker)[0] == [b"0", b"2"]
    (known,) = broker.transactions()
    assert (known.state, known.producer_epoch) == ("CompleteAbort", 4)


def test_offsets_of_members_of_both_kinds_of_groups_are_part_of_it(broker: fl.Broker, peer: fl.Broker | str) -> None:
    for protocol in ("classic", "consumer"):
        config = {"group.id": protocol, "group.protocol": protocol, "fletchlog.consumer.version": "4.4"}
        with fl.Producer(peer, NEW) as producer, fl.Consumer(peer, config) as consumer:
            producer.init_transactions()
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(timeout_ms=50)
            with producer.transaction():
                producer.send_offsets_to_transaction({("t", 0): 7}, consumer.group_metadata())
            with pytest.raises(ZeroDivisionError), producer.transaction():
                producer.send_offsets_to_transaction({("t", 0): 9}, consumer.group_metadata())
                raise ZeroDivisionError
            member = consumer.group_metadata()
            assert member is not None
            with pytest.raises(fl.errors.CommitFailedError, match="abort"), producer.transaction():
                producer.send_offsets_to_transaction({("t", 0): 11}, member._replace(generation_id=member.generation_id + 1))
            assert broker.group_offsets(protocol)["t", 0].offset == 7


def test_a_newer_producer_ends_the_transaction_of_an_older_one(broker: fl.Broker, peer: fl.Broker | str) -> None:
    with fl.Producer(peer, NEW) as old, fl.Producer(peer, NEW) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send("t", value=b"old", partition=0)
        old.flush()
        new.init_transactions()
        with pytest.raises(fl.errors.ProducerFencedError):
            old.commit_transaction()
        with new.transaction():
            new.send("t", value=b"new", partition=0)
    assert values(broker)[0] == [b"new"]


def test_the_cleaner_and_the_audit_know_its_markers(broker: fl.Broker) -> None:
    broker.create_topic("c", config={"cleanup.policy": "compact", "segment.bytes": 1024})
    with fl.Producer(broker, NEW) as producer:
        producer.init_transactions()
        for number in range(40):
            producer.begin_transaction()
            for topic in ("c", "t"):
                producer.send(topic, value=b"%d" % number, key=b"%d" % (number % 4), partition=0)
            producer.flush()
            if number % 5 == 4:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    before = {record.key: record.value for record in fl.scan(broker, "c", isolation_level="read_committed").records()}
    (cleaned,) = broker.clean_topic("c", force=True)
    assert cleaned.messages_read > cleaned.messages_written
    after = [(record.key, record.value) for record in fl.scan(broker, "c", isolation_level="read_committed").records()]
    assert dict(after) == before
    assert len(after) == len(before)
    (found,) = (part for part in audit(broker, ["t"]).partitions if part.partition == 0)
    assert (found.gaps_markers, found.gaps_unexplained, found.duplicate_sequences) == (39, 0, 0)


def test_its_trace_shows_the_epoch_of_each_transaction(broker: fl.Broker) -> None:
    with fl.Producer(broker, NEW | {"fletchlog.trace": True}) as producer:
        producer.init_transactions()
        for _ in range(3):
            with producer.transaction():
                producer.send("t", value=b"v", partition=0)
        trace = producer.trace().to_pyarrow().to_pylist()
    acknowledged = [(step["producer_epoch"], step["base_sequence"]) for step in trace if step["kind"] == "acknowledged"]
    assert acknowledged == [(0, 0), (1, 0), (2, 0)]
    assert [step["producer_epoch"] for step in trace if step["kind"] == "epoch-bump"] == [1, 2, 3]
