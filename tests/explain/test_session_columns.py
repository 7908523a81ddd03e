"""The columns of a session: what they say is what its messages say, and rows are made of few requests."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import fletchlog as fl
from fletchlog.explain.session import Exchange, Session
from fletchlog.explain.session.columns import Batches, Fetches, Lines, distinct, np, repeated, split
from fletchlog.explain.session.facts import gather
from fletchlog.explain.session.rows import Lane
from pytest_fletchlog.kafka import Kafka
from tests.explain.zoo.clients import read
from tests.support.waiting import until


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A producer and two readers of two topics, one of them with fetch sessions, and a fetch that fails."""
    path = tmp_path_factory.mktemp("columns") / "session.fltrace"
    with Kafka(record=path) as kafka:
        topics = [kafka.topic(partitions=3) for _ in range(2)]
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.size": 200, "enable.idempotence": True})
        for number in range(240):
            producer.produce(topics[number % 2], b"x" * 20, partition=number % 3)
        producer.flush(10)
        config = {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "client.id": "reader",
            "max.partition.fetch.bytes": 500,
            "heartbeat.interval.ms": 20,
        }
        with closing(Consumer(config)) as reader:
            reader.subscribe(topics)
            assert len(read(reader, 240, limit=50)) == 240
        # their threads end with them
        del producer, reader
        config = {"client.id": "other", "group.id": "h", "auto.offset.reset": "earliest", "max.partition.fetch.bytes": 300}
        with fl.Consumer(f"kafka://{kafka.bootstrap}", config) as other:
            other.subscribe(topics[:1])
            records: list[Any] = []
            assert until(lambda: records.extend(other.poll(100)) or len(records) >= 20, limit=50)
    return Session(path)


def batches_of(exchange: Exchange) -> list[tuple[Any, ...]]:
    """What a Produce and its response say, by their fields."""
    request, response = exchange.request or {}, exchange.response or {}
    bases = {(topic["name"], p["index"]): p["base_offset"] for topic in response.get("responses", ()) for p in topic["partition_responses"]}
    return [
        (
            exchange.number,
            topic["name"],
            partition["index"],
            batch["records"],
            batch["size"],
            batch["producer_id"],
            batch["base_sequence"],
            batch["codec"],
            base,
        )
        for topic in request["topic_data"]
        for partition in topic["partition_data"]
        for base in [bases[topic["name"], partition["index"]]]
        for batch in partition["records"]
    ]


def test_columns_say_what_the_messages_say(session: Session) -> None:
    facts = gather(session)
    exchanges = [item for item in session if isinstance(item, Exchange)]
    assert [(line.number, line.api, line.version, line.arrived_us, line.answered_us, line.outcome) for line in facts.lines] == [
        (one.number, one.api, one.version, one.arrived_us, one.answered_us, one.outcome) for one in exchanges
    ]
    assert [(b.number, b.lane.topic, b.lane.partition, b.records, b.size, b.producer_id, b.sequence, b.codec, b.base_offset) for b in facts.produced] == [
        batch for one in exchanges if one.api == "Produce" for batch in batches_of(one)
    ]
    fetches = [one for one in exchanges if one.api == "Fetch"]
    assert [fetch.number for fetch in facts.fetches] == [one.number for one in fetches]
    names = session.topic_names
    for fetch, one in zip(facts.fetches, fetches, strict=True):
        request, response = one.request or {}, one.response or {}
        topics = [(t.get("topic") or names[t["topic_id"]], p) for t in request["topics"] for p in t["partitions"]]
        assert [(*lane, offset) for lane, offset in fetch.named.items()] == [(topic, p["partition"], p["fetch_offset"]) for topic, p in topics]
        assert (fetch.max_wait_ms, fetch.min_bytes) == (request["max_wait_ms"], request["min_bytes"])
        got = [(t.get("topic") or names[t["topic_id"]], p) for t in response.get("responses", ()) for p in t["partitions"]]
        assert [(*g.lane, g.high_watermark, g.error) for g in fetch.got] == [(topic, p["partition_index"], p["high_watermark"], None) for topic, p in got]
        for mine, (_, p) in zip(fetch.got, got, strict=True):
            # the last batch may be a part
            whole = [batch for batch in p["records"] or () if batch["last_offset"] <= mine.last]
            assert (mine.records, mine.size) == (sum(b["records"] for b in whole), sum(b["size"] for b in whole))
            assert len(whole) >= len(p["records"] or ()) - 1
    beats = [one for one in exchanges if one.api == "Heartbeat"]
    assert [(e.number, e.group, e.member, e.generation, e.instance, e.error) for e in facts.group_events if e.kind == "heartbeat"] == [
        (one.number, asks["group_id"], asks["member_id"], asks["generation_id"], asks.get("group_instance_id"), None)
        for one in beats
        for asks in [one.request or {}]
    ]
    assert beats
    commits = [one for one in exchanges if one.api == "OffsetCommit"]
    assert [(c.number, c.group, c.member, *c.lane, c.offset, c.error) for c in facts.committed] == [
        (one.number, asks["group_id"], asks["member_id"], topic.get("name") or names[topic["topic_id"]], p["partition_index"], p["committed_offset"], None)
        for one in commits
        for asks in [one.request or {}]
        for topic in asks["topics"]
        for p in topic["partitions"]
    ]
    assert commits
    assert sum(got.records for fetch in facts.fetches for got in fetch.got if facts.clients[fetch.client][0] == "reader") >= 240


def test_exchanges_are_explained_as_their_session_is(session: Session) -> None:
    whole, of_items = fl.explain.clients(session), fl.explain.clients(list(session))
    assert of_items.text() == whole.text().removeprefix(f"{session.path}: ")
    assert of_items.as_dict() == whole.as_dict() | {"source": ""}


def test_a_session_that_grows_is_read_from_its_columns_again(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        path = tmp_path / "s.fltrace"
        with broker.listen(record=path) as listener, fl.Producer(f"kafka://{listener.bootstrap}") as producer:
            producer.send("t", value=b"1").result(10)
            session = Session(path)

            def batches(least: int) -> bool:
                session.read_on()
                return len(gather(session).produced) >= least

            assert until(lambda: batches(1))
            producer.send("t", value=b"2").result(10)
            assert until(lambda: batches(2))


def test_rows_are_made_of_few_requests(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    for table in (Lines, Fetches, Batches):
        rows = table.rows

        def counted(self: Any, at: Any, rows: Any = rows) -> Any:
            nonlocal made
            found = rows(self, at)
            made += len(found)
            return found

        monkeypatch.setattr(table, "rows", counted)
    explained = fl.explain.clients(session)
    explained.text()
    explained.page()
    assert len(explained.facts.lines) > 50
    assert made == 0
    assert len(list(explained.facts.fetches)) == made > 0


def test_equal_rows_are_counted_in_their_order() -> None:
    for large in (0, 2**40):
        one, other = np.array([5, 3, 5, 5, 3, -7]) + large, np.array([1, 1, 2, 1, 1, 1])
        first, counts, kind = distinct(one, other)
        assert (first.tolist(), counts.tolist(), kind.tolist()) == ([0, 1, 2, 5], [2, 2, 1, 1], [0, 1, 2, 0, 1, 3])
        assert [(value - large, rows.tolist()) for value, rows in split(one)] == [(-7, [5]), (3, [1, 4]), (5, [0, 2, 3])]
        assert repeated(one, 3).tolist() == [0, 2, 3]
        assert repeated(one, 4).tolist() == []
    nothing = np.zeros(0, np.int64)
    assert [len(part) for part in distinct(nothing, nothing)] == [0, 0, 0]
    assert list(split(nothing)) == []
    assert repeated(nothing, 2).tolist() == []


def test_lookups_of_every_version_are_positions(tmp_path: Path) -> None:
    """Before version 8 an OffsetFetch is about one group, whose id its response does not repeat."""
    path = tmp_path / "s.fltrace"
    with Kafka(record=path) as kafka:
        topic = kafka.topic()
        host, port = kafka.bootstrap.rsplit(":", 1)
        name = len(topic).to_bytes(2, "big") + topic.encode()
        head = [b"\0\x09\0\x01", b"\0\x02\0\x01"]
        bodies = [
            b"\0\x01g" + b"\0\0\0\x01" + name + b"\0\0\0\x01" + bytes(4),
            b"\xff\xff\xff\xff" + b"\0\0\0\x01" + name + b"\0\0\0\x01" + bytes(4) + b"\xff" * 8,
        ]
        with socket.create_connection((host, int(port))) as peer:
            for api, body in zip(head, bodies, strict=True):
                request = api + bytes(4) + b"\xff\xff" + body
                peer.sendall(len(request).to_bytes(4, "big") + request)
                assert peer.recv(1000)
    lane = Lane(topic, 0)
    found = [(p.group, p.lane, p.timestamp, p.offset, p.error) for p in gather(Session(path)).positions]
    assert found == [("g", lane, None, -1, None), (None, lane, -1, 0, None)]
