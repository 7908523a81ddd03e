"""How long calls of a consumer block that are given no timeout: `default.api.timeout.ms` (Kafka: `KafkaConsumer`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import fletchlog as fl

# Calls about a partition that is not there wait for it as long as they may, and say how long that was.
MISSING = fl.TopicPartition("missing", 0)
WAITING: dict[str, Callable[..., object]] = {
    "position": lambda consumer, **timeout: consumer.position(MISSING, **timeout),
    "beginning_offsets": lambda consumer, **timeout: consumer.beginning_offsets([MISSING], **timeout),
    "end_offsets": lambda consumer, **timeout: consumer.end_offsets([MISSING], **timeout),
    "offsets_for_times": lambda consumer, **timeout: consumer.offsets_for_times({MISSING: 0}, **timeout),
}
# Calls that the group's coordinator answers at once: without any time they cannot have its answer.
ANSWERED: dict[str, Callable[..., object]] = {
    "commit": lambda consumer, **timeout: consumer.commit({("t", 0): 0}, **timeout),
    "committed": lambda consumer, **timeout: consumer.committed(("t", 0), **timeout),
}


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        yield broker


def consumer(broker: fl.Broker, default_ms: int) -> fl.Consumer:
    consumer = fl.Consumer(broker, {"group.id": "g", "default.api.timeout.ms": default_ms, "allow.auto.create.topics": False})
    consumer.assign([MISSING])
    return consumer


@pytest.mark.parametrize("call", WAITING.values(), ids=list(WAITING))
def test_without_a_timeout_the_default_one_ends_the_wait_and_a_given_one_wins(broker: fl.Broker, call: Callable[..., object]) -> None:
    with consumer(broker, 60) as waiting:
        with pytest.raises(fl.errors.KafkaTimeoutError, match="after 60 ms"):
            call(waiting)
        with pytest.raises(fl.errors.KafkaTimeoutError, match="after 90 ms"):
            call(waiting, timeout_ms=90)
        with pytest.raises(fl.errors.KafkaTimeoutError, match="after 0 ms"):
            call(waiting, timeout_ms=0)


@pytest.mark.parametrize("call", ANSWERED.values(), ids=list(ANSWERED))
def test_commit_and_committed_have_the_default_timeout_too(broker: fl.Broker, call: Callable[..., object]) -> None:
    with consumer(broker, 0) as hurried:
        with pytest.raises(fl.errors.KafkaTimeoutError):
            call(hurried)
        call(hurried, timeout_ms=30_000)
    with consumer(broker, 30_000) as patient:
        with pytest.raises(fl.errors.KafkaTimeoutError):
            call(patient, timeout_ms=0)
        call(patient)


def test_the_commit_and_the_leave_of_a_close_share_its_time(broker: fl.Broker) -> None:
    with fl.Producer(broker) as producer:
        producer.send("t", b"v")
    with broker.listen() as listener:
        consumer = fl.Consumer(f"kafka://{listener.bootstrap}", {"auto.offset.reset": "earliest"}, group="g", topics=["t"])
        while not consumer.poll(timeout_ms=1000):
            pass
        for api in ("OffsetCommit", "LeaveGroup"):
            listener.faults.on(api=api, optional=True).black_hole()
        began = time.monotonic()
        consumer.close(timeout_ms=2000)
        assert 1.9 < time.monotonic() - began < 3.8
