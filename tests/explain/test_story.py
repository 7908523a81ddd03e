"""The story that `explain` tells agrees with what the consumer does."""

import re
from dataclasses import replace

import pytest

import fletchlog as fl
from fletchlog.explain import Story, java_hash, parting, title
from fletchlog.explain import polls as explain
from fletchlog.explain.compare import titles
from fletchlog.explain.run import VERSION
from fletchlog.explain.words import counted, decision


@pytest.fixture
def broker():
    with fl.Broker.in_memory(nodes=2) as broker:
        for topic, partitions in (("orders", 3), ("payments", 3), ("test", 24)):
            broker.create_topic(topic, partitions=partitions)
            with fl.Producer(broker, {"linger.ms": 10_000}) as producer:
                for partition in range(partitions):
                    for _ in range(30):
                        producer.send(topic, value=b"x", partition=partition)
        yield broker


def test_hashes_are_those_that_java_computes():
    assert java_hash("test", 0) == 3557459
    assert [java_hash(f"t{i}", 0) for i in range(4)] == [4605, 4606, 4607, 4608]
    assert java_hash("orders", 0) == -1008769370


@pytest.mark.parametrize("subscribe", [False, True])
@pytest.mark.parametrize("topics", [["test"], ["payments", "orders"], ["orders", "test", "payments"]])
def test_the_buckets_shown_lead_to_the_order_of_the_consumer(broker, topics, subscribe):
    explained = explain(broker, topics, {"max.poll.records": 5}, polls=3, subscribe=subscribe)
    assert explained.buckets is not None
    assert all(place.bucket is not None for place in explained.places)
    assert len(explained.places) == sum(len(broker.describe_topic(topic).partitions) for topic in topics)


def test_known_orders():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("test", partitions=6)
        with fl.Producer(broker) as producer:
            producer.send("test", value=b"v", partition=0)
        for subscribe, version, order in (
            (False, "2.6", [1, 0, 3, 2, 5, 4]),
            (True, "2.6", [5, 4, 1, 0, 3, 2]),
            (True, "4.2", [0, 1, 2, 3, 4, 5]),
        ):
            explained = explain(broker, ["test"], {"fletchlog.consumer.version": version}, polls=1, subscribe=subscribe, timeout_ms=10_000)
            assert [place.partition for place in explained.places] == order
            assert (explained.buckets is None) == (version == "4.2")


def test_every_record_taken_is_in_the_story(broker):
    explained = explain(broker, ["orders", "payments"], {"max.poll.records": 7}, polls=40)
    taken = [(run.topic, run.partition, run.first_offset, run.last_offset) for runs in explained.polls for run in runs]
    events = [(e["topic"], e["partition"], e["offset"], e["last_offset"]) for e in explained.events if e["kind"] == "take"]
    assert events == taken
    assert sum(last - first + 1 for _, _, first, last in taken) == 180
    text = explained.text(full=True)
    for number in range(1, len(explained.polls) + 1):
        assert f"poll {number}:" in text or "the same" in text
    assert "goes behind all others" in text


def test_the_order_by_timestamp_is_in_the_story_with_its_late_records():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker, {"linger.ms": 10_000}) as producer:
            for i in range(20):
                producer.send("t", value=b"x", partition=i % 2, timestamp_ms=1_700_000_000_000 + (i if i != 7 else 0))
        explained = explain(broker, ["t"], {"fletchlog.fetch.order": "timestamp"}, polls=3)
        assert "by timestamp" in explained.text(full=True)
        assert sum(run.count for runs in explained.polls for run in runs) == 20
        late = [step for steps in explained.story.polls for step in steps if step[0] == "late"]
        assert [explained.story.lanes[lane] for _, lane, _ in late] == [("t", 1)]
        assert "1 record of t-1 is late" in explained.text(full=True)
        assert fl.explain.replay(explained.trace, broker).same


def test_the_short_story_tells_what_was_asked_what_came_and_why_this_one_is_next(broker):
    lines = explain(broker, ["orders"], {"max.poll.records": 10}, polls=20, title="memory").text().splitlines()
    assert lines[0] == "Java client 2.6 (as 2.4 - 2.6) reads 3 partitions of orders (memory)"
    assert sum(" asked " in line for line in lines) >= 2
    assert any("to the end of the queue, in this order:" in line for line in lines)
    runs = [line for line in lines if " returned " in line and line.startswith("  poll")]
    assert len(runs) == 3
    first, second, _ = runs
    assert "30 records of orders-" in first
    assert first.endswith("first in the queue")
    assert "is used up, this is next" in second
    assert "9 polls returned 90 records in 3 runs" in "\n".join(lines[-2:])


def test_every_run_has_a_line_of_the_short_story_and_a_long_run_is_cut(broker):
    explained = explain(broker, ["test"], {"max.poll.records": 7, "fletchlog.fetch.order": "kip-387"}, polls=1000)
    lines = explained.text().splitlines()
    assert len(lines) < 50
    assert f"  and so on, to poll {len(explained.polls)}" in lines
    assert len(explained.text(full=True).splitlines()) > 200


def test_the_short_story_tells_what_the_program_did(broker):
    with fl.Consumer(broker, {"fletchlog.trace": True, "auto.offset.reset": "earliest", "max.poll.records": 5}) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        consumer.poll()
        first = consumer.explain().polls[0][0]
        consumer.pause([(first.topic, first.partition)])
        consumer.poll()
        consumer.seek((first.topic, first.partition), 20)
        said = consumer.explain().text()
    assert f"pause(orders-{first.partition}) by the program" in said
    assert f"seek(orders-{first.partition} at 20) by the program" in said
    assert f"orders-{first.partition} is paused, this is next" in said


@pytest.mark.parametrize("order", ["partition", "kip-387"])
@pytest.mark.parametrize("most", [5, 10, 17, 45, 500])
def test_what_is_taken_comes_before_the_fetch_is_used_up_and_in_the_order_of_the_trace(broker, order, most):
    explained = explain(broker, ["orders", "payments"], {"max.poll.records": most, "fletchlog.fetch.order": order}, polls=60)
    rows = [(e["topic"], e["partition"], e["offset"]) for e in explained.events if e["kind"] == "take"]
    assert [(run.topic, run.partition, run.first_offset) for runs in explained.polls for run in runs] == rows
    left = {}
    for steps in explained.story.polls:
        for step in steps:
            if step[0] == "answer":
                left |= {part[0]: part[2] for part in step[3]}
            elif step[0] == "take":
                left[step[1]] -= step[4]
            elif step[0] == "drained":
                assert left[step[1]] == 0
    counts = sorted(step[0] for steps in explained.story.polls for step in steps if step[0] in {"take", "drained"})
    assert counts.count("take") == len(rows)
    assert counts.count("drained") == sum(e["kind"] == "drained" for e in explained.events)


def test_every_decision_is_a_sentence_and_never_a_tuple(broker):
    explained = [
        explain(broker, ["orders", "payments"], {"max.poll.records": 7, VERSION: release, "fletchlog.fetch.order": order}, polls=40)
        for release, order in (("2.6", "partition"), ("4.3", "partition"), ("2.6", "kip-387"), ("2.6", "timestamp"))
    ]
    kinds = set()
    for item in explained:
        left_out = {}
        for steps in item.story.polls:
            for step in steps:
                kinds.add(step[0])
                said = decision(item.story, step, left_out)
                assert " " in said, step
                assert not re.search(r"[\[\]']|\(\d+,| -1\b", said), said
    assert {"call", "order", "ask", "answer", "skip", "take", "drained", "rotate", "place", "return"} <= kinds


@pytest.mark.parametrize("came", [[], [1]])
@pytest.mark.parametrize("went", [[], [0]])
def test_a_partition_that_is_no_longer_left_out_is_in_the_sentence(came, went):
    story = Story([fl.TopicPartition("t", 0), fl.TopicPartition("t", 1)], [1, 1], [[]])
    one, other = ([[("skip", "the last fetch is still buffered", came, went)]], [[("ask", 1, 1, [(0, 5)], [])]])
    found = parting(replace(story, polls=one), replace(story, polls=other))
    assert found.second == "asks node 1 (a full fetch) for t-0 from 5"
    assert ("asks nothing about t-1" in found.first) == bool(came)
    assert ("may ask about t-0 again" in found.first) == bool(went)
    assert "[" not in found.first


def test_what_is_missing_is_in_both_stories_and_drawn(broker):
    with fl.Consumer(broker, {"fletchlog.trace": True, "allow.auto.create.topics": False, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0), ("orders", 9), ("nowhere", 0)])
        for _ in range(4):
            consumer.poll(timeout_ms=100)
        explained = consumer.explain()
    for text in (" ".join(explained.text(full=full).split()) for full in (False, True)):
        assert text.count("there is no topic nowhere: polls return nothing of it") == 1
        assert text.count("there is no partition 9, topic orders has 3 partitions: polls return nothing of it") == 1
    assert "there is no topic nowhere" in fl.explain.page([explained])


def test_one_of_a_thing_is_written_in_the_singular():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v")
        explained = explain(broker, ["t"], polls=1)
        assert "reads 1 partition of t" in explained.text()
        with fl.Consumer(broker, {"fletchlog.trace": True, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("t", 0)])
            assert repr(consumer.poll()) == "<fletchlog.Records: 1 record of 1 partition>"
    assert "1 buckets" not in explained.text(full=True)
    assert counted(1, "bucket") == "1 bucket"


def test_where_nothing_is_read_no_order_is_explained():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        broker.create_topic("u", partitions=2)
        one, two = explain(broker, ["t"], polls=1).text(), explain(broker, ["u"], polls=1).text()
    assert "Why this partition next" in two
    assert "order" not in one
    for text in (one, two):
        assert text.endswith("\n\nNo poll returned a record.")


def test_runs_with_the_same_title_are_distinguished_by_their_files(broker):
    one = explain(broker, ["orders"], polls=1, title="days/monday.arrow")
    assert titles([one, replace(one, source="days/tuesday.arrow")]) == [f"{title(one)}: monday.arrow", f"{title(one)}: tuesday.arrow"]
    assert titles([one]) == [title(one)]


def test_a_directory_is_explained_as_its_broker_is(tmp_path):
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", 2)
        with fl.Producer(broker) as producer:
            for number in range(10):
                producer.send("t", value=b"v", partition=number % 2)
        story = str(fl.explain.polls(broker, ["t"], title="here"))
    for place in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        assert str(fl.explain.polls(place, ["t"], title="here")) == story
    with pytest.raises(fl.errors.DirectoryError, match="does not exist"):
        fl.explain.polls(tmp_path / "typo", ["t"])
    with pytest.raises(fl.errors.InvalidArgumentError, match="expected a Broker"):
        fl.explain.polls(5, ["t"])  # type: ignore[arg-type]
