"""Consume, transform, produce: every record once, whatever is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog import errors

from .reading import values

APPLICATION = """
import sys
import fletchlog as fl

with fl.Broker(sys.argv[1], create=True) as broker:
    consumer = fl.Consumer(broker, {
        "group.id": "app", "isolation.level": "read_committed", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "max.poll.records": 5,
    })
    consumer.subscribe(["source"])
    config = {"transactional.id": "app", "batch.size": 50, "retry.backoff.ms": 5, "fletchlog.producer.version": sys.argv[2]}
    producer = fl.Producer(broker, config)
    producer.init_transactions()
    print("ready", flush=True)
    while True:
        records = list(consumer.poll(timeout_ms=100))
        if not records:
            ends = consumer.end_offsets(consumer.assignment())
            if ends and all(consumer.position(tp) == end for tp, end in ends.items()):
                print("done", flush=True)
                break
            continue
        with producer.transaction():
            for record in records:
                producer.send("target", value=b"x" + record.value, partition=record.partition)
            offsets = {}
            for record in records:
                offsets[fl.TopicPartition(record.topic, record.partition)] = record.offset + 1
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        print(len(records), flush=True)
"""


def test_a_pipeline_that_is_killed_again_and_again_transforms_every_record_once(tmp_path: Path) -> None:
    total, kills = 600, 12
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("source", partitions=2)
        broker.create_topic("target", partitions=2)
        with fl.Producer(broker) as producer:
            for i in range(total):
                producer.send("source", value=b"%d" % i, partition=i % 2)
    chance = random.Random(5)
    for run in range(kills + 1):
        # Transactions of version 1 and of version 2 by turns.
        release = ("2.6", "4.4")[run // 2 % 2]
        process = subprocess.Popen([sys.executable, "-c", APPLICATION, str(tmp_path), release], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as out:
            assert out.readline() == "ready\n"
            if run == kills:
                assert out.readlines()[-1] == "done\n"
                break
            # It goes on while the signal is under way: into the middle of a transaction, sooner or later.
            for _ in range(chance.randint(0, 8)):
                out.readline()
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert process.wait() == 0
    with fl.Broker(tmp_path, read_only=True) as reader:
        target = values(reader, topic="target")
    assert target == [[b"x%d" % i for i in range(p, total, 2)] for p in range(2)]


def test_offsets_of_a_transaction_are_the_groups_when_it_commits(broker: fl.Broker) -> None:
    tp = fl.TopicPartition("t", 0)
    with fl.Producer(broker, {"transactional.id": "id"}) as producer, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.assign([tp])
        producer.init_transactions()
        group = consumer.group_metadata()
        assert group is not None
        assert group == fl.types.ConsumerGroupMetadata("", -1, "g", None)
        with producer.transaction():
            producer.send_offsets_to_transaction({tp: 7}, group)
        assert consumer.committed(tp) == fl.types.OffsetAndMetadata(7)
        with pytest.raises(RuntimeError), producer.transaction():
            producer.send_offsets_to_transaction({tp: fl.types.OffsetAndMetadata(9, "m")}, group)
            raise RuntimeError
        assert consumer.committed(tp) == fl.types.OffsetAndMetadata(7)
        with producer.transaction():
            with pytest.raises(TypeError, match="group_metadata"):
                producer.send_offsets_to_transaction({tp: 1}, None)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgumentError, match="negative"):
                producer.send_offsets_to_transaction({tp: -1}, group)


def test_a_member_that_was_replaced_cannot_commit_its_offsets(broker: fl.Broker) -> None:
    with fl.Producer(broker, {"transactional.id": "id"}) as producer, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(timeout_ms=50)
        group = consumer.group_metadata()
        assert group is not None
        producer.init_transactions()
        zombie = group._replace(generation_id=group.generation_id - 1)
        with pytest.raises(errors.CommitFailedError, match="abort"), producer.transaction():
            producer.send_offsets_to_transaction({fl.TopicPartition("t", 0): 1}, zombie)
        with producer.transaction():
            producer.send_offsets_to_transaction({fl.TopicPartition("t", 0): 1}, group)
        assert consumer.committed(("t", 0)) == fl.types.OffsetAndMetadata(1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.sampled_from(["commit", "abort", "restart"]), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("read"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(steps=STEPS)
def test_interleaved_transactions_show_what_the_model_says(steps: list[tuple[str, int, int]]) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)

        def start(name: int) -> fl.Producer:
            release = ("2.6", "4.4")[(name + len(fate)) % 2]
            producer = fl.Producer(broker, {"transactional.id": f"p{name}", "retry.backoff.ms": 1, "fletchlog.producer.version": release})
            producer.init_transactions()
            return producer

        fate: list[str] = []
        producers = [start(name) for name in range(3)]
        open_of: list[int | None] = [None] * 3
        log: list[list[tuple[int, bytes]]] = [[], []]

        def check() -> None:
            for partition, shown in enumerate(values(broker)):
                stable = log[partition]
                for at, (transaction, _) in enumerate(stable):
                    if fate[transaction] == "open":
                        stable = stable[:at]
                        break
                assert shown == [value for transaction, value in stable if fate[transaction] == "commit"]

        for step, name, partition in steps:
            open_transaction = open_of[name]
            if step == "read":
                check()
            elif step == "send":
                if open_transaction is None:
                    producers[name].begin_transaction()
                    open_transaction = open_of[name] = len(fate)
                    fate.append("open")
                value = b"%d.%d" % (open_transaction, len(log[partition]))
                producers[name].send("t", value=value, partition=partition).result(timeout_ms=30_000)
                log[partition].append((open_transaction, value))
            elif step == "restart":
                producers[name] = start(name)
                if open_transaction is not None:
                    fate[open_transaction] = "abort"
                open_of[name] = None
            elif open_transaction is not None:
                getattr(producers[name], f"{step}_transaction")()
                fate[open_transaction] = step
                open_of[name] = None
        check()
