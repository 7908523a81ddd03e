"""The pytest plugin: a fresh Kafka for each test, and its state in the report of a failed one."""

import re
import subprocess
import sys

import pytest

from fletchlog.explain.session import Exchange, Session

TESTS = """
import pytest
from confluent_kafka import Consumer, Producer

def test_fresh(kafka):
    assert kafka.broker.topics() == []
    assert kafka.topic(partitions=2) == "topic-1"

def test_fresh_again(kafka, kafka_session):
    assert kafka.broker.topics() == []
    kafka.produce(kafka.topic(name="orders"), ["one", ("key", b"two")])
    rows = kafka.records("orders").to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(None, b"one"), (b"key", b"two")]
    kafka_session.topic(name="shared")

def test_cluster(kafka_cluster, kafka_session):
    assert len(kafka_cluster(nodes=2).bootstrap.split(",")) == 2
    assert kafka_session.broker.topics() == ["shared"]

def test_what_the_log_refuses_is_raised(kafka):
    small = kafka.topic(config={"max.message.bytes": 100})
    with pytest.raises(Exception, match="larger than max.message.bytes"):
        kafka.produce(small, ["short", "long" * 100])
    assert kafka.records(small)["value"].to_pylist() == [b"short"]
    with pytest.raises(TypeError, match=r"write \\['one'\\]"):
        kafka.produce(small, "one")
    with pytest.raises(TypeError, match=r"list\\(values.items\\(\\)\\)"):
        kafka.produce(small, {"key": "one"})
    with pytest.raises(TypeError, match="a pair of key and value, got"):
        kafka.produce(small, [("key", "one", 0)])

def test_wrong_arguments_are_named(kafka, kafka_cluster):
    with pytest.raises(TypeError, match="partitions: expected a number, got str '3'"):
        kafka.topic("orders", "3")
    with pytest.raises(TypeError, match="name: expected text, got int 4"):
        kafka.topic(3, 4)
    with pytest.raises(TypeError, match="two values for name: 'orders' and 'bills'"):
        kafka.topic("orders", name="bills")
    with pytest.raises(TypeError, match="not partition=3"):
        kafka.topic("orders", partition=3)
    with pytest.raises(TypeError, match="got 4 arguments"):
        kafka.topic("orders", 3, {}, None)
    assert kafka.broker.topics() == []
    with pytest.raises(TypeError, match="nodes: expected a number, .* got str '3'"):
        kafka_cluster(nodes="3")
    with pytest.raises(ValueError, match="state is 'stable'; a group is one of Stable, Empty"):
        kafka.wait_for_group("readers", state="stable")
    with pytest.raises(TypeError, match="members: expected a number, got str '1'"):
        kafka.wait_for_group("readers", members="1")
    with pytest.raises(ValueError, match="members is -1; a group has 0 or more"):
        kafka.wait_for_group("readers", members=-1)

def test_a_topic_takes_name_and_partitions_in_any_order(kafka):
    assert kafka.topic("a", partitions=3) == "a"
    assert kafka.topic("b", 3, {"retention.ms": 5}) == "b"
    assert kafka.topic(3, "c") == "c"
    assert kafka.topic(partitions=3, name="d") == "d"
    assert [len(kafka.broker.describe_topic(name).partitions) for name in "abcd"] == [3] * 4
    assert kafka.broker.describe_topic("b").config == {"retention.ms": "5"}
    assert len(kafka.broker.describe_topic(kafka.topic(2)).partitions) == 2
    assert len(kafka.broker.describe_topic(kafka.topic("e")).partitions) == 1

def test_fails(kafka):
    kafka.faults.on(api="Produce", nth=1, name="first").error("NOT_LEADER_OR_FOLLOWER")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(kafka.topic(name="orders"), b"v")
    assert producer.flush(10) == 0
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    assert reader.poll(10).value() == b"v"
    assert [m.client_id for m in kafka.wait_for_group("readers", members=1).members] == ["rdkafka"]
    reader.close()
    kafka.wait_for_group("readers", members=0, state="Empty")
    kafka.wait_for_group("readers", members=0)
    kafka.wait_for_group("nobody", timeout=0.01)

def test_rule_that_never_applied(kafka):
    kafka.faults.on(api="Produce", topic="nothing").lose_response()
    kafka.faults.on(api="Fetch", optional=True).lose_response()
    Producer({"bootstrap.servers": kafka.bootstrap}).list_topics("something", timeout=10)
    kafka.faults.on(api=["Produce", "Metadata"], topic="some").close()

@pytest.mark.xfail
def test_rule_of_an_expected_failure(kafka):
    kafka.faults.on(api="Produce").close()

def test_rule_that_begins_later(kafka):
    kafka.faults.on(api="Metadata", topic="once", nth=1000).close()
    Producer({"bootstrap.servers": kafka.bootstrap}).list_topics("once", timeout=10)

def test_selector_without_action(kafka):
    kafka.faults.on(api="Produce", nth=3)

def test_rule_on_a_shared_broker(kafka_session):
    kafka_session.faults.on(api="Produce", nth=1).error("NOT_ENOUGH_REPLICAS")
    kafka_session.topic(name="faulty")
    producer = Producer({"bootstrap.servers": kafka_session.bootstrap})
    producer.produce("faulty", b"v")
    assert producer.flush(10) == 0
    kafka_session.faults.random(seed=11, rate=0)
    kafka_session.faults.on(api="Fetch", optional=True).lose_response()

def test_after_it(kafka_session):
    assert all(kafka_session.faults._rules.report()[number][-1] for number in range(2))

def test_closes_its_broker(kafka):
    kafka.broker.close()
    raise AssertionError("after the end")
"""

FRESH = """
import pytest

@pytest.mark.parametrize("number", range(200))
def test_one_of_many(kafka, number):
    assert kafka.broker.topics() == []
    kafka.produce(kafka.topic(), [str(number)])
    assert [row["value"] for row in kafka.records("topic-1").to_pylist()] == [str(number).encode()]
"""

FORGOTTEN = """
import gc
from pytest_fletchlog.kafka import Kafka

def test_one(kafka):
    pass

def test_cluster(kafka_cluster):
    kafka_cluster(), kafka_cluster()

def test_only_its_own_is_there(kafka):
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, Kafka)] == [kafka]
"""


def run(folder, tests, *options):
    """What a run of these tests prints."""
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_broker_goes_with_its_test(tmp_path):
    printed = run(tmp_path, FORGOTTEN)
    assert "3 passed" in printed, printed


def test_fixtures_are_fresh_and_a_failed_test_shows_topics_and_requests(tmp_path):
    printed = run(tmp_path, TESTS)
    assert "5 failed, 8 passed, 1 xfailed" in printed, printed
    assert "rules for faults never applied to a request (a rule may with optional=True):" in printed
    assert "{'api': 'Produce', 'lose_response': True, 'topic': 'nothing'}: 0 requests matched of 0 Produce\n" in printed, printed
    assert re.search("'topic': 'some'}: 0 requests matched of [1-9]+ Produce or Metadata, for something\n", printed), printed
    assert re.search("'topic': 'once'}: [1-9] requests? matched, and it begins with number 1000\n", printed), printed
    assert "selections of requests without an action, which change nothing:\n" in printed
    assert "FaultSelector {'api': 'Produce', 'nth': 3}> has no action" in printed, printed
    assert "topic orders, offsets by partition 0: 0..1" in printed
    assert "TimeoutError: group nobody does not exist after 0.01 s; wanted Stable" in printed
    assert "group readers is Empty with 0 members, lag orders-0: 0" in printed
    assert "1 x Produce version 10 by confluent-kafka-python" in printed
    assert re.search(r"\d\.\d{3} s ago: LeaveGroup by client id rdkafka on connection \d+\n", printed)
    # The broker has not seen a request that a rule answers.
    assert re.search(r"s ago: Produce by client id rdkafka on connection \d+: answered, NOT_LEADER_OR_FOLLOWER, rule first\n", printed), printed
    # A test that has closed its broker fails for its own reason.
    assert "AssertionError: after the end" in printed
    assert re.search(r"its state cannot be shown: .*Closed", printed)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["in one process", "under xdist"])
def test_two_hundred_tests_have_a_fresh_broker_each(tmp_path, options):
    printed = run(tmp_path, FRESH, *options)
    assert re.search(r"\b200 passed\b", printed), printed


RECORDED = """
def test_of_one(kafka):
    kafka.produce(kafka.topic(name="orders"), ["one"])
    assert kafka.session.parent.name == "sessions"

def test_fails(kafka, kafka_cluster, kafka_session):
    cluster = kafka_cluster(nodes=2)
    assert len({kafka.session, cluster.session, kafka_session.session}) == 3
    import confluent_kafka
    confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20)
    raise AssertionError("look at the session")
"""


def test_a_failed_test_names_the_sessions_of_its_brokers(tmp_path):
    printed = run(tmp_path, RECORDED, f"--fletchlog-record={tmp_path / 'sessions'}")
    assert "1 failed, 1 passed" in printed, printed
    named = re.findall(r"Session of [\d.:,]+ -+\n(\S+)\n", printed)
    assert len(named) == 3, printed
    assert any(item.api == "Metadata" for path in named for item in Session(path) if isinstance(item, Exchange)), named
    assert len(list((tmp_path / "sessions").glob("*.fltrace"))) == 4
