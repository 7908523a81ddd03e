"""Seed 002 with real threads: three machines with six streams each and six partitions."""

from __future__ import annotations

import itertools
import logging
import re
import threading

import pytest

import fletchlog as fl

TOPIC = "my-topic"


@pytest.fixture
def topic(broker: fl.Broker) -> fl.Broker:
    broker.create_topic(TOPIC, partitions=6)
    with fl.Producer(broker) as producer:
        for i in range(60):
            producer.send(TOPIC, value=b"%d" % i, partition=i % 6)
    return broker


def machine(broker: fl.Broker, name: str, **config: object) -> fl.legacy.LegacyConsumer:
    settings = {"group.id": "g", "consumer.id": name, "auto.offset.reset": "smallest"}
    return fl.legacy.LegacyConsumer(broker, {**settings, **{key.replace("_", "."): value for key, value in config.items()}})


def test_one_machine_reads_all_and_the_others_name_twelve_idle_threads(topic: fl.Broker, caplog: pytest.LogCaptureFixture) -> None:
    machines = [machine(topic, name) for name in ("a", "b", "c")]
    streams = [stream for m in machines for stream in m.create_message_streams({TOPIC: 6})[TOPIC]]
    assert [s.thread_id for s in streams] == [f"g_{m}-{i}" for m in "abc" for i in range(6)]
    assert machines[2].owners() == {TOPIC: {p: f"g_a-{p}" for p in range(6)}}

    read: dict[str, list[int]] = {}

    def run(stream: fl.legacy.LegacyStream) -> None:
        records = stream.poll(timeout_ms=500)
        read[stream.thread_id] = [int(r.value or b"") for r in records]

    with caplog.at_level(logging.WARNING):
        # the last rebalance of the group: every machine warns about its own idle threads
        caplog.clear()
        extra = machine(topic, "d")
        extra.create_message_streams({TOPIC: 1})
        machines[0].owners()
    idle = {
        match.group(1)
        for record in caplog.records
        if (match := re.fullmatch(r"No broker partitions consumed by consumer thread (\S+) for topic my-topic", record.message))
    }
    assert {thread for thread in idle if not thread.startswith("g_d")} == {f"g_{m}-{i}" for m in "bc" for i in range(6)}
    assert all(record.name.startswith("fletchlog.client") for record in caplog.records)

    threads = [threading.Thread(target=run, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name for name, values in read.items() if values} == {f"g_a-{i}" for i in range(6)}
    assert sorted(v for values in read.values() for v in values) == list(range(60))
    for i in range(6):
        assert read[f"g_a-{i}"] == list(range(i, 60, 6))
    for consumer in (*machines, extra):
        consumer.shutdown()


def test_when_a_machine_leaves_the_next_one_takes_over_where_it_committed(topic: fl.Broker) -> None:
    first, second = machine(topic, "a"), machine(topic, "b")
    streams = first.create_message_streams({TOPIC: 6})[TOPIC]
    others = second.create_message_streams({TOPIC: 6})[TOPIC]
    for stream in streams[:3]:
        assert len(stream.poll(timeout_ms=500)) == 10
    first.shutdown()
    assert second.owners() == {TOPIC: {p: f"g_b-{p}" for p in range(6)}}
    rest = [int(r.value or b"") for stream in others for r in stream.poll(timeout_ms=500)]
    assert sorted(rest) == sorted(i for i in range(60) if i % 6 >= 3)
    second.shutdown()


def test_a_closed_stream_says_so(topic: fl.Broker) -> None:
    consumer = machine(topic, "a")
    stream = consumer.create_message_streams({TOPIC: 1})[TOPIC][0]
    consumer.close()
    consumer.close()
    with pytest.raises(fl.errors.ClosedError):
        stream.poll(timeout_ms=10)
    with pytest.raises(fl.errors.ClosedError):
        consumer.owners()


def test_streams_are_created_once_and_at_least_one(topic: fl.Broker) -> None:
    with pytest.raises(fl.errors.InvalidGroupIdError):
        fl.legacy.LegacyConsumer(topic, {})
    with machine(topic, "a") as consumer:
        with pytest.raises(fl.errors.InvalidArgumentError):
            consumer.create_message_streams({TOPIC: 0})
        consumer.create_message_streams({TOPIC: 1})
        with pytest.raises(fl.errors.IllegalStateError):
            consumer.create_message_streams({TOPIC: 1})


def test_iterating_a_stream_hands_out_one_record_at_a_time_and_commits_no_more(topic: fl.Broker) -> None:
    with machine(topic, "a") as first:
        stream = first.create_message_streams({TOPIC: 1})[TOPIC][0]
        taken = [int(record.value or b"") for record in itertools.islice(stream, 5)]
        first.commit_offsets()
    with machine(topic, "b", consumer_timeout_ms=1000) as second:
        (stream,) = second.create_message_streams({TOPIC: 1})[TOPIC]
        rest = []
        with pytest.raises(fl.errors.KafkaTimeoutError, match=r"no record of my-topic came to g_b-0 within 1000 ms \(consumer.timeout.ms\)"):
            rest.extend(int(record.value or b"") for record in stream)
        assert sorted(taken + rest) == list(range(60))
        with pytest.raises(fl.errors.KafkaTimeoutError):
            next(stream)
        with fl.Producer(topic) as producer:
            producer.send(TOPIC, value=b"60", partition=0)
        assert next(stream).value == b"60"


def test_a_stream_that_waits_for_ever_ends_with_its_consumer(topic: fl.Broker) -> None:
    consumer = machine(topic, "a")
    (stream,) = consumer.create_message_streams({TOPIC: 1})[TOPIC]
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(int(record.value or b"") for record in stream))
    thread.start()
    while len(seen) < 60:
        thread.join(timeout=0.01)
    consumer.shutdown()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert sorted(seen) == list(range(60))
