"""Programs whose groups are sick."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import time
import uuid
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException

from tests.explain.zoo import program
from tests.explain.zoo.clients import asked, consumer, in_background, polled, read

if TYPE_CHECKING:
    from pytest_fletchlog.kafka import Kafka


def _records(kafka: Kafka, count: int = 12, partitions: int = 1, name: str | None = None) -> str:
    topic = kafka.topic(partitions=partitions, name=name)
    kafka.produce(topic, [(str(i), str(i)) for i in range(count)])
    return topic


@program("poll-interval", slow=True)
def slow_handler(kafka: Kafka, at: str, sick: bool) -> None:
    """A record takes longer than max.poll.interval.ms."""
    topic = _records(kafka)
    with consumer(at, [topic], max_poll_interval_ms=600, session_timeout_ms=600, heartbeat_interval_ms=50, enable_auto_commit=False) as reader:
        for number in range(3):
            read(reader, 1)
            if sick and number == 1:
                time.sleep(1.3)
            with contextlib.suppress(KafkaException):
                reader.commit(asynchronous=False)


@program("poll-interval", slow=True)
def slow_handler_with_kip_848(kafka: Kafka, at: str, sick: bool) -> None:
    """The same with group.protocol=consumer: a client gives no reason, and joins again under its own member id."""
    topic = _records(kafka)
    reader = Consumer({
        "bootstrap.servers": at, "client.id": "reader", "group.id": "shop", "auto.offset.reset": "earliest", "group.protocol": "consumer",
        "max.poll.interval.ms": 900, "enable.auto.commit": False,
    })  # fmt: skip
    reader.subscribe([topic])
    with contextlib.closing(reader):
        for number in range(3):
            read(reader, 1)
            if sick and number == 1:
                time.sleep(2)
            with contextlib.suppress(KafkaException):
                reader.commit(asynchronous=False)


@program("commit-before-work", slow=True)
def commits_what_it_has_not_done(kafka: Kafka, at: str, sick: bool) -> None:
    """Auto-commit stores an offset when a record is handed out, and the record's work takes long."""
    topic = _records(kafka)
    own = {"enable_auto_offset_store": sick, "auto_commit_interval_ms": 900}
    with consumer(at, [topic], max_poll_interval_ms=1800, session_timeout_ms=900, **own) as reader:
        record = read(reader, 1)[0]
        if sick:
            time.sleep(2.8)
        else:
            reader.store_offsets(record)
        for record in read(reader, 2):
            if not sick:
                reader.store_offsets(record)


def _is_shared(kafka: Kafka) -> bool:
    """Whether the group has two members with an assignment each, which may be empty."""
    group = kafka.broker.describe_group("shop")
    return group.state == "Stable" and len(group.members) == 2


async def _aio(at: str, topic: str, pause: float, *, commits: bool, blocks: bool, session_timeout_ms: int = 300, heartbeat_interval_ms: int = 50) -> None:
    reader = AIOKafkaConsumer(
        topic, bootstrap_servers=at, client_id="async-reader", group_id="shop", auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=session_timeout_ms, heartbeat_interval_ms=heartbeat_interval_ms, fetch_max_wait_ms=50, retry_backoff_ms=20,
    )  # fmt: skip
    await reader.start()
    try:
        await reader.getone()
        if blocks:
            time.sleep(pause)
        else:
            await asyncio.sleep(pause)
        if commits:
            with contextlib.suppress(Exception):
                await reader.commit()
        await asyncio.sleep(0.2)
        if not commits:
            with contextlib.suppress(Exception):
                await reader.commit()
    finally:
        await reader.stop()


@program("zombie", slow=True)
def commits_after_it_was_removed(kafka: Kafka, at: str, sick: bool) -> None:
    """A blocked process comes back and commits, while another member has its partition."""
    topic = _records(kafka)
    if not sick:
        asyncio.run(_aio(at, topic, 0.1, commits=True, blocks=False))
        return
    code = f"""
        import sys; sys.path.insert(0, {sys.path[0]!r})
        import asyncio
        from tests.explain.zoo.groups import _aio
        asyncio.run(_aio({at!r}, {topic!r}, 1.5, commits=True, blocks=True))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]):
        kafka.wait_for_group("shop", members=1, timeout=40)
        with consumer(at, [topic], client_id="second", enable_auto_commit=False) as second:
            read(second, 12)
            second.commit(asynchronous=False)
            read(second, 1, limit=1.5)


@program("session-expired")
def blocks_its_event_loop(kafka: Kafka, at: str, sick: bool) -> None:
    """A coroutine that blocks keeps the heartbeats from being sent."""
    topic = _records(kafka)
    asyncio.run(_aio(at, topic, 0.6 if sick else 0.05, commits=False, blocks=sick))


@program("heartbeat-interval", slow=True)
def heartbeats_are_rare(kafka: Kafka, at: str, sick: bool) -> None:
    """heartbeat.interval.ms is almost session.timeout.ms."""
    topic = _records(kafka)
    asyncio.run(_aio(at, topic, 1.5, commits=True, blocks=False, session_timeout_ms=500, heartbeat_interval_ms=300 if sick else 50))


@program("instance-id-shared", slow=True)
def two_processes_have_one_instance_id(kafka: Kafka, at: str, sick: bool) -> None:
    """A group.instance.id in a configuration that is deployed twice."""
    topic = _records(kafka, partitions=2)
    with consumer(at, [topic], group_instance_id="worker-1", client_id="first") as first:
        read(first, 12)
        with consumer(at, [topic], group_instance_id="worker-1" if sick else "worker-2", client_id="second") as second:
            if not sick:
                polled(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
                return
            polled(second.assignment, first, second)
            # the next heartbeat of the first one is refused
            beats = asked(kafka, "Heartbeat", "first")
            polled(lambda: asked(kafka, "Heartbeat", "first") > beats, first, second, limit=2)


@program("assignors-differ", slow=True)
def assignors_have_none_in_common(kafka: Kafka, at: str, sick: bool) -> None:
    """An upgrade changes the assignor in one step."""
    topic = _records(kafka, partitions=2)
    with consumer(at, [topic], partition_assignment_strategy="cooperative-sticky", client_id="new") as new:
        read(new, 12)
        strategy = "range" if sick else "cooperative-sticky"
        with consumer(at, [topic], partition_assignment_strategy=strategy, client_id="old") as old:
            polled(lambda: asked(kafka, "JoinGroup", "old") if sick else new.assignment() and old.assignment(), new, old)
            kafka.wait_for_group("shop")


@program("session-timeout-refused")
def session_timeout_is_out_of_bounds(kafka: Kafka, at: str, sick: bool) -> None:
    """session.timeout.ms is longer than the broker allows."""
    topic = _records(kafka)
    long = {"session_timeout_ms": 3_000_000, "max_poll_interval_ms": 3_600_000} if sick else {}
    with consumer(at, [topic], **long) as reader:
        if sick:
            polled(lambda: asked(kafka, "JoinGroup"), reader)
        else:
            read(reader, 12)


@program("group-full", group_max_size="1")
def more_members_than_allowed(kafka: Kafka, at: str, sick: bool) -> None:
    """group.max.size is reached."""
    topic = _records(kafka, partitions=2)
    with consumer(at, [topic], client_id="first") as first:
        read(first, 12)
        if sick:
            with consumer(at, [topic], client_id="second") as second:
                polled(lambda: asked(kafka, "JoinGroup", "second"), second, first)


@program("rebalance-storm")
def subscribes_again_and_again(kafka: Kafka, at: str, sick: bool) -> None:
    """A program changes its subscription in a loop."""
    topics = [_records(kafka, name="orders"), _records(kafka, name="refunds")]
    with consumer(at, topics) as reader:
        read(reader, 24)
        for turn in range(9 if sick else 1):
            reader.subscribe(topics if turn % 2 else topics[:1])
            polled(lambda wanted=1 + turn % 2: len(reader.assignment()) == wanted, reader)  # type: ignore[misc]
        reader.commit()


@program("consumer-per-poll")
def a_consumer_for_each_record(kafka: Kafka, at: str, sick: bool) -> None:
    """A web handler makes a consumer, reads a record and closes it."""
    topic = _records(kafka)
    for _ in range(5 if sick else 1):
        with consumer(at, [topic]) as reader:
            read(reader, 1 if sick else 12)


@program("group-of-several-programs")
def two_programs_with_one_group(kafka: Kafka, at: str, sick: bool) -> None:
    """A group.id was copied from another service, which reads another topic."""
    orders, refunds = _records(kafka, name="orders"), _records(kafka, name="refunds")
    with consumer(at, [orders], client_id="shipping") as one:
        read(one, 12)
        with consumer(at, [refunds], client_id="billing", group_id="shop" if sick else "bills") as other:
            polled(other.assignment, one, other)
            read(other, 1 if sick else 12)


@program("group-of-several-programs")
def two_clients_share_records(kafka: Kafka, at: str, sick: bool) -> None:
    """A second program, in another language, reads half of the records because it has the same group.id."""
    topic = _records(kafka, partitions=2)
    with consumer(at, [topic], client_id="shipping") as one, in_background(one):
        kafka.wait_for_group("shop", members=1)
        asyncio.run(_audit(at, topic, "shop" if sick else "audit"))


async def _audit(at: str, topic: str, group: str) -> None:
    reader = AIOKafkaConsumer(
        topic,
        bootstrap_servers=at,
        client_id="audit",
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        fetch_max_wait_ms=50,
        retry_backoff_ms=20,
    )
    await reader.start()
    while not reader.assignment():
        await reader.getmany(timeout_ms=20)
    await reader.getmany(timeout_ms=100)
    await reader.stop()


@program("assignment-uneven", slow=True)
def range_gives_all_to_one(kafka: Kafka, at: str, sick: bool) -> None:
    """Many topics with one partition each, and the assignor range."""
    topics = [_records(kafka, name=f"orders-{i}") for i in range(4)]
    strategy = "range" if sick else "roundrobin"
    with consumer(at, topics, partition_assignment_strategy=strategy, client_id="first") as one:
        read(one, 48)
        with consumer(at, topics, partition_assignment_strategy=strategy, client_id="second") as two:
            polled(lambda: _is_shared(kafka) and (sick or two.assignment()), one, two)


@program("idle-members", slow=True)
def more_members_than_partitions(kafka: Kafka, at: str, sick: bool) -> None:
    """A deployment is scaled beyond the partitions of its topic."""
    topic = _records(kafka, partitions=1 if sick else 2)
    with consumer(at, [topic], client_id="first") as one:
        read(one, 12)
        with consumer(at, [topic], client_id="second") as two:
            polled(lambda: _is_shared(kafka), one, two)


@program("slow-member", slow=True)
def one_member_stops_the_group(kafka: Kafka, at: str, sick: bool) -> None:
    """A rebalance waits for a member that is at work."""
    topic = _records(kafka, partitions=2)
    with consumer(at, [topic], client_id="slow") as slow, consumer(at, client_id="new") as new:
        read(slow, 12)
        new.subscribe([topic])
        with in_background(new):
            if sick:
                time.sleep(1.8)
            polled(lambda: _is_shared(kafka) and len(slow.assignment()) == 1, slow)


@program("group-per-run", slow=True)
def a_new_group_for_each_run(kafka: Kafka, at: str, sick: bool) -> None:
    """group.id has a random part."""
    topic = _records(kafka)
    for number in range(3):
        with consumer(at, [topic], group_id=f"shop-{uuid.uuid4()}" if sick else "shop") as reader:
            read(reader, 12 if sick or number == 0 else 0)
            polled(reader.assignment, reader)


@program("died-without-leaving", slow=True)
def killed_without_close(kafka: Kafka, at: str, sick: bool) -> None:
    """A process ends without close(): its partitions are read by nobody until its session ends."""
    topic = _records(kafka)
    code = f"""
        import os
        import confluent_kafka
        reader = confluent_kafka.Consumer({{"bootstrap.servers": {at!r}, "client.id": "first", "group.id": "shop", "auto.offset.reset": "earliest",
                                            "session.timeout.ms": 500, "heartbeat.interval.ms": 50}})
        reader.subscribe([{topic!r}])
        record = None
        while record is None or record.error():
            record = reader.poll(0.05)
        reader.commit(asynchronous=False)
        {"os._exit(1)" if sick else "reader.close()"}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=20)
    with consumer(at, [topic], client_id="second") as second:
        polled(second.assignment, second)
        kafka.produce(topic, ["after"])
        read(second, 1)


@program("crash-loop", slow=True)
def crashes_and_is_started_again(kafka: Kafka, at: str, sick: bool) -> None:
    """A process crashes at its first record, before it commits, and a supervisor starts it again and again."""
    topic = _records(kafka)
    code = f"""
        import os
        import confluent_kafka
        reader = confluent_kafka.Consumer({{"bootstrap.servers": {at!r}, "client.id": "worker", "group.id": "shop", "auto.offset.reset": "earliest",
                                            "session.timeout.ms": 300, "heartbeat.interval.ms": 50}})
        reader.subscribe([{topic!r}])
        record = None
        while record is None or record.error():
            record = reader.poll(0.05)
        {"os._exit(1)" if sick else "reader.commit(asynchronous=False)"}
        reader.close()
    """
    for _ in range(4 if sick else 1):
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=20)
