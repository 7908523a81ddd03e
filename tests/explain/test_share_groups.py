"""Share groups in sessions: what was in flight, range by range; who had what for how long; live groups with what is in flight."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.explain.session import Exchange, Session, live
from fletchlog.explain.session.facts import gather
from fletchlog.explain.session.in_flight import Delivery, Ranges
from fletchlog.explain.session.rows import Lane
from pytest_fletchlog.kafka import Kafka

LANE = Lane("t", 0)
EARLIEST = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0}
EXPLICIT = {"share.acknowledgement.mode": "explicit", "client.id": "reader"}


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 10)), max_size=30))
def test_ranges_are_what_each_offset_of_them_is(steps):
    ranges, model = Ranges(), {}
    for number, (adds, first, more) in enumerate(steps):
        last = first + more
        taken = ranges.take(first, last)
        found = {offset: delivery.number for delivery in taken for offset in range(delivery.first, delivery.last + 1)}
        assert found == {offset: model.pop(offset) for offset in range(first, last + 1) if offset in model}
        if adds:
            ranges.add(Delivery(LANE, first, last, 1, "m", 0, 1, 0, number, 0))
            model |= dict.fromkeys(range(first, last + 1), number)
        assert ranges.records == len(model)
        assert {o: d.number for d in ranges.every() for o in range(d.first, d.last + 1)} == model
        if model:
            assert ranges.lowest.first == min(model)


@pytest.fixture
def recorded(tmp_path):
    with Kafka(record=tmp_path / "session.fltrace") as kafka:
        kafka.broker.alter_group_config("billing", EARLIEST)
        yield kafka


def test_a_session_shows_how_each_delivery_ended(recorded):
    topic = recorded.topic()
    recorded.produce(topic, ["0", "1", "2", "3"])
    with fl.ShareConsumer(f"kafka://{recorded.bootstrap}", EXPLICIT | {"max.poll.records": 4}, group="billing", topics=[topic]) as reader:
        records = reader.poll(5000)
        while len(records) < 4:
            reader.acknowledge(records, "release")
            records = reader.poll(5000)
        for record, kind in zip(records, ("accept", "release", "reject", "renew"), strict=True):
            reader.acknowledge(record, kind)
        (renewed,) = reader.poll(5000)
        reader.acknowledge(renewed)
        (released,) = reader.poll(5000)
        reader.acknowledge(released)
        reader.commit()
    recorded.close()
    explained = fl.explain.clients(recorded.session)
    assert not explained.findings, explained.text()
    group = explained.share_groups["billing"]
    assert not explained.groups
    last = {delivery.first: delivery for delivery in group.deliveries}
    assert {offset: (d.how, d.last) for offset, d in last.items()} == {0: ("accepted", 0), 1: ("accepted", 1), 2: ("rejected", 2), 3: ("accepted", 3)}
    assert last[3].renewed == 1
    before = [delivery for delivery in group.deliveries if delivery.first <= 1 <= delivery.last][-2]
    assert (before.how, before.count + 1) == ("released", last[1].count)
    (work,) = group.work().values()
    assert work.ended["accepted"] == 3
    assert work.ended["rejected"] == work.renewed == 1
    assert not work.held
    (member,) = group.members.values()
    assert (member.how, member.assigned) == ("left", (Lane(topic, 0),))
    (client,) = explained.clients
    assert client.groups == ["billing"]
    assert client.settings["share.acquire.mode"] == "batch_optimized"
    text = explained.text()
    assert "billing: 1 member" in text
    assert f"{topic}-0 at 2 of {member.id}: rejected after" in text
    assert f"{member.id} (reader) joined" in text
    assert f"{member.id} has {topic}-0" in text
    values = json.loads(json.dumps(explained.as_dict()))["groups"]
    assert [(found["id"], found["group_protocol"], found["held"]) for found in values] == [("billing", "share", [])]
    assert "for the " in json.dumps(values[0]["moments"])
    assert "billing" in explained.page()


def test_what_a_member_has_at_the_end_is_held(recorded):
    topic = recorded.topic()
    recorded.produce(topic, ["0"])
    reader = fl.ShareConsumer(f"kafka://{recorded.bootstrap}", EXPLICIT, group="billing", topics=[topic])
    reader.poll(5000)
    recorded.broker.close()
    explained = fl.explain.clients(recorded.session)
    assert [delivery.records for delivery in explained.share_groups["billing"].deliveries] == [1]
    assert explained.share_groups["billing"].deliveries[0].lock_ms == 30_000
    reader.close(0)


def test_a_live_broker_shows_what_is_in_flight():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders")
        broker.alter_group_config("billing", EARLIEST)
        with fl.Producer(broker) as producer:
            producer.send("orders", value=b"0")
        with fl.ShareConsumer(broker, EXPLICIT, group="billing", topics=["orders"]) as reader:
            for _ in range(3):
                record = next(iter(reader.poll(5000)))
                text, _ = live(broker, "x")
                reader.acknowledge(record, "release")
            found = live(broker, "x")[1]
        assert "orders-0 at 0: acquired by reader, 3rd delivery, its lock ends in" in text
        assert [finding.code for finding in found] == ["share-record-again"]
        with fl.ShareConsumer(broker, EXPLICIT, group="billing", topics=["orders"]) as reader:
            reader.acknowledge(reader.poll(5000))
            reader.commit()
        with fl.Producer(broker) as producer:
            producer.send("orders", value=b"1")
        text, found = live(broker, "x")
        assert [finding.code for finding in found] == ["share-group-unread"]
        assert "billing: share group, Empty, 0 members" in text


def test_rows_say_what_the_messages_say(recorded):
    topics = [recorded.topic(partitions=2) for _ in range(2)]
    for topic in topics:
        recorded.produce(topic, [(str(number), "x") for number in range(20)])
    with fl.ShareConsumer(f"kafka://{recorded.bootstrap}", EXPLICIT | {"max.poll.records": 7}, group="billing", topics=topics) as reader:
        done = 0
        while done < 40:
            for number, record in enumerate(reader.poll(5000)):
                kind = "release" if number == 3 and record.delivery_count == 1 else "accept"
                reader.acknowledge(record, kind)
                done += kind == "accept"
        # another session without the first topic
        reader.subscribe(topics[1:])
        reader.poll(300)
    recorded.close()
    session = Session(recorded.session)
    names = session.topic_names
    wanted: dict[int, dict[Lane, None]] = {}
    rows = gather(session).shared
    exchanges = [item for item in session if isinstance(item, Exchange) and item.api in {"ShareFetch", "ShareAcknowledge"}]
    assert [row.number for row in rows] == [one.number for one in exchanges]
    for row, one in zip(rows, exchanges, strict=True):
        asks, responds = one.request, one.response
        named = [(Lane(names[t["topic_id"]], p["partition_index"]), p) for t in asks["topics"] for p in t["partitions"]]
        got = [(Lane(names[t["topic_id"]], p["partition_index"]), p) for t in responds["responses"] for p in t["partitions"]]
        assert (row.group, row.member, row.epoch, row.lock_ms) == (
            asks["group_id"], asks["member_id"], asks["share_session_epoch"], responds["acquisition_lock_timeout_ms"]
        )  # fmt: skip
        assert row.acknowledged == [
            (lane, b["first_offset"], b["last_offset"], tuple(b["acknowledge_types"]), None) for lane, p in named for b in p["acknowledgement_batches"]
        ]
        if one.api == "ShareAcknowledge":
            assert (row.wanted, row.acquired) == ((), [])
            continue
        assert (row.max_records, row.max_wait_ms, row.max_bytes) == (asks["max_records"], asks["max_wait_ms"], asks["max_bytes"])
        lanes = {} if row.epoch == 0 else wanted.setdefault(one.connection, {})
        for forgotten in asks["forgotten_topics_data"]:
            for number in forgotten["partitions"]:
                lanes.pop(Lane(names[forgotten["topic_id"]], number), None)
        wanted[one.connection] = lanes | dict.fromkeys(lane for lane, _ in named)
        assert row.wanted == tuple(wanted[one.connection])
        assert [a[:4] for a in row.acquired] == [
            (lane, a["first_offset"], a["last_offset"], a["delivery_count"]) for lane, p in got for a in p["acquired_records"]
        ]
        for acquired in row.acquired:
            batches = [b for lane, p in got if lane == acquired.lane for b in p["records"]]
            times = [b["max_timestamp"] for b in batches if b["base_offset"] <= acquired.last and acquired.first <= b["last_offset"]]
            assert acquired.written_ms == max(times) > 0
        assert row.size == sum(b["size"] for _, p in got for b in p["records"] or ())
    assert any(row.acquired for row in rows)
    assert any(row.acknowledged for row in rows)
