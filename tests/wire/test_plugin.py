"""The pytest plugin: a fresh Kafka for each test, and its state in the report of a failed one."""

import re
import subprocess
import sys

TESTS = """
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

def test_fails(kafka):
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(kafka.topic(name="orders"), b"v")
    assert producer.flush(10) == 0
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    assert reader.poll(10).value() == b"v"
    assert [m.client_id for m in kafka.wait_for_group("readers", members=1).members] == ["rdkafka"]
    reader.close()
    kafka.wait_for_group("readers", members=0, state="Empty")
    kafka.wait_for_group("nobody", timeout_s=0.01)
"""


def test_fixtures_are_fresh_and_a_failed_test_shows_topics_and_requests(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path], capture_output=True, text=True, timeout=25, check=False)
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "topic orders, offsets by partition 0: 0..1" in done.stdout
    assert "TimeoutError: group nobody does not exist after 0.01 s; wanted Stable" in done.stdout
    assert "group readers is Empty with 0 members, lag orders-0: 0" in done.stdout
    assert "1 x Produce version 10 by confluent-kafka-python" in done.stdout
    assert re.search(r"\d\.\d{3} s ago: LeaveGroup by client id rdkafka at 127.0.0.1:\d+", done.stdout)
