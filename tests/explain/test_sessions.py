"""Sessions of any client: who it is, its groups, its order, what is wrong; as text, as JSON, as a page."""

import asyncio
import json
import re
import subprocess
import sys
import time

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError, KafkaError, StorageError
from fletchlog.explain.session import lag, live
from fletchlog.explain.session.explained import of_facts
from fletchlog.explain.session.facts import Facts, gather
from fletchlog.explain.session.rows import Committed, GroupEvent, Lane
from fletchlog.explain.session.rules import of_fetches
from pytest_fletchlog.kafka import Kafka
from tests.explain.zoo.clients import kafka_python, poll, python_consumer
from tests.support.waiting import until

MARKUP = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def consumer(kafka, **config):
    defaults = {
        "bootstrap.servers": kafka.bootstrap, "client.id": "reader", "group.id": "shop", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50, "fetch.wait.max.ms": 50,
    }  # fmt: skip
    return Consumer(defaults | config)


def values(reader, count):
    """Partitions and offsets in the order in which the program sees them."""
    seen = []

    def step():
        record = reader.poll(0.05)
        if record is not None and not record.error():
            seen.append((Lane(record.topic(), record.partition()), record.offset()))
        return len(seen) >= count

    assert until(step)
    return seen


def arrived(explained, client):
    """The same, from the wire."""
    return [(a.lane, offset) for a in explained.order(client).arrivals for offset in range(a.first, a.last + 1)]


@pytest.fixture
def recorded(tmp_path):
    with Kafka(record=tmp_path / "session.fltrace") as kafka:
        kafka.path = tmp_path / "session.fltrace"
        yield kafka


def test_a_client_is_who_it_says_with_the_settings_that_the_wire_shows(recorded):
    topic = recorded.topic()
    writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "writer", "compression.type": "zstd", "acks": "1"})
    for number in range(20):
        writer.produce(topic, f"a value that repeats {number}")
    writer.flush(10)
    reader = consumer(recorded, **{"isolation.level": "read_uncommitted", "session.timeout.ms": 7000, "max.poll.interval.ms": 8000, "fetch.min.bytes": 2})
    reader.subscribe([topic])
    values(reader, 20)
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert [client.client_id for client in explained.clients] == ["writer", "reader"]
    one, other = explained.clients
    assert one.software == "confluent-kafka-python"
    assert one.settings == {"acks": "1", "enable.idempotence": "false", "compression.type": "zstd"}
    assert (one.records_written, other.records_read) == (20, 20)
    wanted = {
        "isolation.level": "read_uncommitted", "session.timeout.ms": "7000", "max.poll.interval.ms": "8000", "fetch.min.bytes": "2", "fetch.max.wait.ms": "50",
        "auto.offset.reset": "earliest", "group.protocol": "classic", "partition.assignment.strategy": "range, roundrobin",
    }  # fmt: skip
    assert wanted.items() <= other.settings.items()
    assert other.groups == ["shop"]


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_order_of_arrival_is_what_a_program_with_librdkafka_sees(recorded, partitions):
    topic = recorded.topic(partitions=partitions)
    recorded.produce(topic, [(str(i), "x" * 50) for i in range(200)])
    reader = consumer(recorded, **{"max.partition.fetch.bytes": 600})
    reader.subscribe([topic])
    seen = values(reader, 200)
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert arrived(explained, "reader") == seen


def test_what_a_client_discards_and_asks_for_again_has_arrived_once(recorded):
    topic = recorded.topic()
    recorded.produce(topic, ["x"] * 20)
    reader = consumer(recorded)
    reader.subscribe([topic])
    seen = values(reader, 3)
    # librdkafka discards what it has fetched of a partition that is paused
    reader.pause([TopicPartition(topic, 0)])
    reader.resume([TopicPartition(topic, 0)])
    seen += values(reader, 17)
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert sum(got.records for fetch in explained.facts.fetches for got in fetch.got) > 20
    assert arrived(explained, "reader") == seen


def test_the_order_of_arrival_is_what_a_program_with_aiokafka_sees(recorded):
    topic = recorded.topic(partitions=4)
    recorded.produce(topic, [(str(i), "x" * 50) for i in range(200)])

    async def run():
        reader = AIOKafkaConsumer(
            topic, bootstrap_servers=recorded.bootstrap, client_id="async", group_id="shop", auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        await reader.start()
        seen = []
        while len(seen) < 200:
            record = await reader.getone()
            seen.append((Lane(record.topic, record.partition), record.offset))
        await reader.stop()
        return seen

    seen = asyncio.run(run())
    recorded.close()
    assert arrived(fl.explain.clients(recorded.path), "async") == seen


def test_the_order_of_arrival_is_what_a_program_with_kafka_python_sees(recorded):
    topic = recorded.topic(partitions=4)
    recorded.produce(topic, [(str(i), "x" * 50) for i in range(200)])
    partitions = [kafka_python.TopicPartition(topic, number) for number in range(4)]
    with python_consumer(recorded.bootstrap, group_id=None, enable_auto_commit=False) as reader:
        reader.assign(partitions)
        seen = [(Lane(record.topic, record.partition), record.offset) for record in poll(reader, 200)]
    recorded.close()
    assert arrived(fl.explain.clients(recorded.path), "reader") == seen


def test_a_rebalance_has_its_trigger_and_its_phases(recorded):
    topic = recorded.topic(partitions=2)
    recorded.produce(topic, [(str(i), "x") for i in range(10)])
    one, two = consumer(recorded, **{"client.id": "one"}), consumer(recorded, **{"client.id": "two"})
    one.subscribe([topic])
    values(one, 10)
    two.subscribe([topic])
    assert until(lambda: one.poll(0.01) or two.poll(0.01) or (len(one.assignment()), len(two.assignment())) == (1, 1))
    two.close()
    assert until(lambda: one.poll(0.01) or len(one.assignment()) == 2)
    one.close()
    recorded.close()
    group = fl.explain.clients(recorded.path).groups["shop"]
    assert [rebalance.kind for rebalance in group.rebalances] == ["first", "joined", "left"]
    names = {member.id: member for member in group.members.values()}
    assert names[group.rebalances[1].member].id.startswith("two")
    assert group.rebalances[1].slowest.startswith("one")
    assert all(r.began_us <= r.joined_us <= r.ended_us for r in group.rebalances)
    assert [member.how for member in group.members.values()] == ["left", "left"]


def test_a_static_member_that_is_restarted_is_no_finding(recorded):
    topic = recorded.topic(partitions=2)
    recorded.produce(topic, [(str(i), "x") for i in range(10)])
    other = consumer(recorded, **{"client.id": "other", "group.instance.id": "other"})
    other.subscribe([topic])
    values(other, 10)
    for turn in range(2):
        reader = consumer(recorded, **{"group.instance.id": "worker-1"})
        reader.subscribe([topic])
        assert until(lambda reader=reader: other.poll(0.01) or reader.poll(0.01) or reader.assignment())
        if turn:
            other.close()
            assert until(lambda reader=reader: reader.poll(0.01) or len(reader.assignment()))
        reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert not explained.findings, explained.text()


def test_groups_of_the_consumer_protocol_are_on_the_time_line(tmp_path):
    fast = {"group.consumer.min.heartbeat.interval.ms": "50", "group.consumer.heartbeat.interval.ms": "50"}
    with Kafka(config=fast, record=tmp_path / "session.fltrace") as recorded:
        _two_members_of_the_consumer_protocol(recorded)
    explained = fl.explain.clients(tmp_path / "session.fltrace")
    assert not explained.findings, explained.text()
    group = explained.groups["shop"]
    assert group.is_consumer_protocol
    assert [(member.how, len(member.assigned or ())) for member in group.members.values()] == [("left", 1), ("left", 1)]
    assert [rebalance.kind for rebalance in group.rebalances][:2] == ["first", "joined"]
    assert group.rebalances[1].member == list(group.members)[1]
    assert {name for name, _, _ in group.rebalances[1].joins} == set(group.members)
    assert explained.clients[0].settings["group.protocol"] == "consumer"


def _two_members_of_the_consumer_protocol(recorded):
    topic = recorded.topic(partitions=2)
    recorded.produce(topic, [(str(i), "x") for i in range(10)])
    settings = {"group.protocol": "consumer"}
    readers = []
    for name in ("one", "two"):
        config = {"bootstrap.servers": recorded.bootstrap, "client.id": name, "group.id": "shop", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        readers.append(Consumer(config | settings))
        readers[-1].subscribe([topic])
        assert until(lambda: [reader.poll(0.01) for reader in readers] and readers[-1].assignment())
    assert until(lambda: [reader.poll(0.01) for reader in readers] and [len(reader.assignment()) for reader in readers] == [1, 1])
    for reader in readers:
        reader.close()


def test_a_session_of_a_proxy_says_the_same(kafka, tmp_path):
    topic = kafka.topic(name="orders")
    path = tmp_path / "proxy.fltrace"
    with fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster, cluster.proxy("127.0.0.1:0", record=path) as proxy:
        writer = Producer({"bootstrap.servers": proxy.bootstrap, "client.id": "writer", "acks": "0"})
        writer.produce(topic, "1")
        writer.flush(10)
        time.sleep(0.2)
    explained = fl.explain.clients(path)
    assert [finding.code for finding in explained.findings] == ["acks-0"]
    assert explained.clients[0].client_id == "writer"


def test_lag_says_what_holds_a_group_back(recorded):
    topic = recorded.topic()
    writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "writer", "transactional.id": "shop-1"})
    writer.init_transactions(10)
    writer.begin_transaction()
    writer.produce(topic, "1")
    writer.flush(10)
    reader = consumer(recorded)
    reader.subscribe([topic])
    assert until(lambda: reader.poll(0.05) or reader.assignment())
    for _ in range(4):
        reader.poll(0.1)
    reader.close()
    recorded.close()
    (behind,) = fl.explain.clients(recorded.path).lag
    assert (behind.group, behind.lane, behind.lag, behind.clears_s) == ("shop", Lane(topic, 0), 1, None)
    assert "an open transaction" in behind.held_by


def test_a_partition_that_nobody_asks_for_is_behind_by_what_was_written(recorded, monkeypatch):
    for module in (lag, of_fetches):
        monkeypatch.setattr(module, "STOPPED_US", 300_000)
    topic = recorded.topic()
    writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "writer", "linger.ms": 0})
    recorded.produce(topic, ["first"])
    reader = consumer(recorded, **{"auto.commit.interval.ms": 20})
    reader.subscribe([topic])
    values(reader, 1)
    reader.pause(reader.assignment())
    began = time.monotonic()
    while time.monotonic() - began < 0.8:
        writer.produce(topic, "x" * 10)
        writer.flush(10)
        reader.poll(0.04)
    written = writer.list_topics(topic) and reader.get_watermark_offsets(TopicPartition(topic, 0))[1]
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert [finding.code for finding in explained.findings if finding.code != "tiny-batches"] == ["reading-stopped"]
    (behind,) = explained.lag
    assert behind.end == written
    assert behind.lag == written - 1
    assert "has not asked for it" in behind.held_by


def test_clients_that_share_an_id_are_separated_where_the_wire_shows_them(recorded):
    topic = recorded.topic(partitions=3)
    recorded.produce(topic, ["x"] * 30)
    careless, careful = (Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "shop", "linger.ms": 0, "acks": acks}) for acks in ("0", "all"))
    readers = [consumer(recorded, **{"client.id": "worker"}) for _ in range(3)]
    for reader in readers:
        reader.subscribe([topic])
    assert until(lambda: [reader.poll(0.01) for reader in readers] and [len(reader.assignment()) for reader in readers] == [1, 1, 1])
    for _ in range(12):
        for producer in (careless, careful):
            producer.produce(topic, "x")
            producer.flush(10)
        for reader in readers:
            reader.poll(0.02)
    for reader in readers:
        reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    by = {name: [client for client in explained.clients if client.client_id == name] for name in ("shop", "worker")}
    assert sorted(client.settings["acks"] for client in by["shop"]) == ["0", "all"]
    assert [finding.about for finding in explained.findings if finding.code == "acks-0"] == [f"shop at {by['shop'][0].address}"]
    assert len({client.address for client in by["shop"] + by["worker"]}) == 5
    members = explained.groups["shop"].members.values()
    assert sorted(member.client for member in members) == [client.number for client in by["worker"]]
    for member in members:
        fetched = {lane for fetch in explained.facts.fetches if fetch.client == member.client for lane in fetch.wanted}
        assert set(member.assigned or ()) <= fetched
    assert [line.client for line in explained.facts.lines if line.api == "Heartbeat"]
    assert sum(sum(client.requests.values()) for client in explained.clients) == len(explained.facts.lines)


def test_a_client_that_connects_again_is_one(recorded):
    topic = recorded.topic()
    for _ in range(3):
        writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "shop", "linger.ms": 0})
        for _ in range(10):
            writer.produce(topic, "x")
            writer.flush(10)
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert [(client.client_id, client.address) for client in explained.clients] == [("shop", "")]


def test_one_finding_is_made_for_clients_that_share_an_id(recorded):
    topic = recorded.topic()
    writers = [Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "shop", "linger.ms": 0, "acks": "0"}) for _ in range(3)]
    for _ in range(12):
        for writer in writers:
            writer.produce(topic, "x")
            writer.flush(10)
    # without acknowledgements a record is sent when it is in the socket
    assert until(lambda: recorded.broker.end_offsets([(topic, 0)])[topic, 0] == 36)
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    (finding,) = explained.findings
    assert finding.count == 36
    assert all(f"shop at {client.address}" in finding.text for client in explained.clients)


def test_large_records_are_no_tiny_batches(recorded):
    topic = recorded.topic()
    writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": "shop"})
    for _ in range(45):
        writer.produce(topic, b"x" * 20_000)
        writer.flush(10)
    recorded.close()
    assert not fl.explain.clients(recorded.path).findings


def test_a_consumer_that_looks_up_its_lag_does_not_begin_at_the_end(recorded):
    topic = recorded.topic()
    recorded.produce(topic, ["1"] * 10)
    reader = consumer(recorded)
    reader.subscribe([topic])
    values(reader, 5)
    assert reader.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 10)
    values(reader, 5)
    recorded.produce(topic, ["2"])
    values(reader, 1)
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert not explained.findings, explained.text()
    assert {client.client_id: client.settings.get("auto.offset.reset") for client in explained.clients} == {"reader": "earliest"}


def test_text_json_and_page_say_the_same(recorded):
    topic = recorded.topic()
    recorded.produce(topic, ["1"] * 12)
    reader = consumer(recorded, **{"enable.auto.commit": False})
    reader.subscribe([topic])
    values(reader, 12)
    reader.close()
    recorded.close()
    explained = fl.explain.clients(recorded.path)
    assert explained.findings[0].code == "never-commits"
    text = explained.text()
    assert "1. ERROR never-commits: Group shop read 12 records" in text
    assert "reader (confluent-kafka-python" in text
    found = json.loads(json.dumps(explained.as_dict()))
    assert [finding["code"] for finding in found["findings"]] == [finding.code for finding in explained.findings]
    assert found["groups"][0]["members"][0]["assigned"] == [f"{topic}-0"]
    page = explained.page()
    story = json.loads(re.search(r'<script type="application/json" id="story">(.*?)</script>', page, re.DOTALL)[1])
    assert story["requests"] == len(explained.facts.lines)
    assert not re.search(r"<(link|img|iframe)|@import|url\(|fetch\(|import\(", page)
    assert explained.failing("error") == explained.findings
    with pytest.raises(InvalidArgumentError, match="no level 'note'"):
        explained.failing("note")
    with pytest.raises(InvalidArgumentError, match="no client 'nobody'"):
        explained.order("nobody")


def test_what_clients_send_is_text_on_the_page(recorded):
    topic = recorded.topic()
    writer = Producer({"bootstrap.servers": recorded.bootstrap, "client.id": f"@STORY@{MARKUP}"})
    writer.produce(topic, "1")
    writer.flush(10)
    recorded.close()
    page = fl.explain.clients(recorded.path).page()
    assert MARKUP not in page
    assert page.count("</script>") == 2
    assert "\\u003cimg src=x" in page


def test_a_file_that_is_no_session_is_refused(tmp_path):
    with pytest.raises(StorageError):
        fl.explain.clients(tmp_path / "missing.fltrace")
    (tmp_path / "other.fltrace").write_bytes(b"something else")
    with pytest.raises(KafkaError):
        fl.explain.clients(tmp_path / "other.fltrace")


def test_no_requests_are_no_findings():
    explained = fl.explain.clients([])
    assert explained.findings == []
    assert "0 requests of 0 clients" in explained.text()
    assert "<html" in explained.page()
    assert list(gather([]).lines) == []


def test_a_live_cluster_shows_groups_and_lag_and_what_a_recording_adds(kafka):
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [(str(i), "x") for i in range(10)])
    reader = consumer(kafka, **{"enable.auto.commit": False})
    reader.subscribe([topic])
    record = None
    while record is None:
        record = reader.poll(0.1)
    reader.commit(record, asynchronous=False)
    reader.close()
    with fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
        text, findings = live(cluster, "kafka://here")
    assert [finding.code for finding in findings] == ["partition-unread"]
    assert "shop: Empty, 0 members" in text
    assert "fletchlog proxy kafka://here --record" in text


SERVICE = """
import pytest
from confluent_kafka import Producer

def send(kafka, acks):
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer", "acks": acks})
    writer.produce(kafka.topic(), "1")
    writer.flush(10)

@pytest.mark.fletchlog_fail_on("warning")
def test_sick(kafka):
    send(kafka, "0")

@pytest.mark.fletchlog_fail_on("warning")
def test_healthy(kafka_cluster):
    send(kafka_cluster(nodes=2), "all")

def test_not_asked(kafka):
    send(kafka, "0")
"""


@pytest.mark.slow
def test_a_test_fails_for_what_its_clients_do(tmp_path):
    (tmp_path / "test_service.py").write_text(SERVICE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*words):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "test_service.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    out = run()
    assert "3 passed, 1 error" in out, out
    assert "WARNING acks-0: writer sends 1 record" in out
    assert "3 passed, 2 errors" in run("--fletchlog-fail-on=warning")


def test_a_commit_after_leaving_is_no_zombie():
    facts = Facts()
    facts.clients = [("reader", "librdkafka", "2"), ("other", "librdkafka", "2")]
    lane = Lane("orders", 0)
    lost = Committed(7, 0, 1, 1000, "shop", "", 2, lane, 12, "UNKNOWN_MEMBER_ID", False)
    facts.committed = [lost, lost._replace(number=9, client=1, member="m", offset=10, error=None)]
    facts.group_events = [
        GroupEvent(1, 0, 1, 0, 1, "shop", "join", "m", None, 1, None, None, ("orders",), ("range",), "range", 6000, 6000, None, "m"),
    ]
    assert [finding.code for finding in of_facts(facts).findings] == ["commit-lost-in-rebalance"]
    # it works on with its id
    facts.committed = [lost._replace(member="m")]
    assert "zombie" in [finding.code for finding in of_facts(facts).findings]
    # somebody else has committed it
    facts.committed = [lost, lost._replace(number=9, client=1, member="m", offset=12, error=None)]
    assert not of_facts(facts).findings
