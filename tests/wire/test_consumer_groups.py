"""Consumer groups (KIP-848) behave as recorded with a real Kafka 4.4.0, and so do their records. tests/golden/README.md explains the recordings."""

import itertools
import json
import re
import time

import confluent_kafka
import pytest

import fletchlog as fl
from tests.support.members import Member, until
from tests.support.recordings import OF_4_4, different, replay
from tests.support.recordings import SETTINGS as RECORDED

SETTINGS = RECORDED | {
    "group.max.size": "5",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
}
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
PROFILES = {
    "policy-disabled": {"group.consumer.migration.policy": "disabled", "group.consumer.assignors": "range,uniform", "group.consumer.max.size": "2"},
    "policy-upgrade": AT_ONCE | {"group.consumer.migration.policy": "upgrade"},
    "policy-downgrade": AT_ONCE | {"group.consumer.migration.policy": "downgrade", "group.consumer.assignors": "range"},
    "protocols-classic": {"group.coordinator.rebalance.protocols": "classic"},
}
# ids of scripts, and why they run otherwise
DIFFERENT = {
    "join-031": "Kafka's epochs grow without end while two assignors have as many votes",
}


# group and note of a recorded request, and why it is answered otherwise
VECTORS = {"fetch-member-v10 (no member, an epoch)": "an epoch of no member is UNKNOWN_SERVER_ERROR in Kafka"}


def run(golden, bootstrap, recording):
    """The ids of the scripts that run otherwise, and what was printed. Their waits were recorded with eight threads."""
    return different(golden, "wire/coordinators", bootstrap, recording, ["--threads", "8"])


@pytest.mark.timeout(120)
def test_every_recorded_request_of_groups_and_transactions_is_answered_as_kafka_answered_it(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS | AT_ONCE | {"auto.create.topics.enable": "true", "group.consumer.max.size": "8"})
    lines = replay(golden, "wire/vectors", "replay.py", cluster.bootstrap, golden / "kip-848" / "vectors.jsonl", OF_4_4)
    printed = "\n".join(lines)
    assert "wire-vectors" in lines[0], printed
    assert re.findall(r"^  step \d+ (.*?\)): ", printed, re.MULTILINE) == list(VECTORS), printed


@pytest.mark.timeout(240)
def test_every_recorded_script_of_groups_runs_as_with_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS | AT_ONCE | {"group.consumer.max.size": "8"})
    found, printed = run(golden, cluster.bootstrap, golden / "kip-848" / "groups.jsonl")
    assert set(found) <= set(DIFFERENT), printed


@pytest.mark.timeout(240)
@pytest.mark.parametrize("profile", PROFILES)
def test_other_settings_of_groups_do_what_kafkas_do(golden, kafka_cluster, tmp_path, profile):
    scripts = (golden / "kip-848" / "profiles.jsonl").read_text().splitlines()
    chosen = [line for line in scripts if json.loads(line)["area"] == profile]
    assert chosen
    recording = tmp_path / "profile.jsonl"
    recording.write_text("\n".join(chosen))
    found, printed = run(golden, kafka_cluster(nodes=1, config=SETTINGS | PROFILES[profile]).bootstrap, recording)
    assert found == [], printed


def polled(consumers, wanted):
    """The partitions of each consumer, once they are as wanted; what they read before."""
    rows = [[] for _ in consumers]
    deadline = time.monotonic() + 30
    while True:
        for consumer, read in zip(consumers, rows, strict=True):
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                read.append(message.value())
        assigned = [sorted(tp.partition for tp in consumer.assignment()) for consumer in consumers]
        if wanted(assigned, rows):
            return assigned, rows
        assert time.monotonic() < deadline, (assigned, [len(read) for read in rows])


@pytest.mark.timeout(120)
def test_members_of_librdkafka_share_a_topic_and_take_over(kafka_cluster):
    times = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
    kafka = kafka_cluster(nodes=1, config=AT_ONCE | times)
    kafka.broker.create_topic("t", partitions=4)
    with fl.Producer(kafka.broker) as producer:
        for row in range(40):
            producer.send("t", value=b"%d" % row, partition=row % 4)
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    first, second = confluent_kafka.Consumer(conf), confluent_kafka.Consumer(conf | {"group.instance.id": "i"})
    first.subscribe(["t"])
    _, rows = polled([first], lambda _, rows: len(rows[0]) == 40)
    assert len(set(rows[0])) == 40
    first.commit(asynchronous=False)
    # a static member with an expression
    second.subscribe(["^t$"])
    _, rows = polled([first, second], lambda assigned, _: sorted(assigned[0] + assigned[1]) == [0, 1, 2, 3] and len(assigned[1]) == 2)
    assert rows == [[], []], "what was committed is not read again"
    first.close()
    _, rows = polled([second], lambda assigned, _: assigned == [[0, 1, 2, 3]])
    assert rows == [[]]
    second.close()
    (group,) = kafka.broker.groups()
    # a static member is away, and may come back
    assert (group.group_type, group.state) == ("consumer", "Reconciling")
    assert sorted(offset.offset for offset in kafka.broker.group_offsets("g").values()) == [10, 10, 10, 10]


@pytest.mark.timeout(120)
def test_partitions_of_killed_members_move_when_their_sessions_are_over(kafka_cluster, tmp_path):
    session = {"group.consumer.session.timeout.ms": "1500", "group.consumer.min.session.timeout.ms": "100"}
    beats = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
    kafka = kafka_cluster(nodes=1, config=AT_ONCE | session | beats)
    kafka.broker.create_topic("t", partitions=6)
    samples = []

    def offsets():
        samples.append({tp.partition: at.offset for tp, at in kafka.broker.group_offsets("g").items()} if kafka.broker.groups() else {})
        return samples[-1]

    def send(begin, end):
        with fl.Producer(kafka.broker) as producer:
            for row in range(begin, end):
                producer.send("t", value=b"%d" % row, partition=row % 6)

    send(0, 300)
    of = {"bootstrap_servers": kafka.bootstrap, "group_id": "g"}
    conf = {"lasting": ("t", {}), "dynamic": ("t", {}), "static": ("^t$", {"group_instance_id": "i"})}
    started = {name: Member(topic, tmp_path / name, **of, **more) for name, (topic, more) in conf.items()}
    lasting, dynamic, static = started.values()
    try:
        until(lambda: [len(member.owns()) for member in started.values()] == [2, 2, 2])
        send(300, 600)
        until(lambda: offsets() and dynamic.notes("committed") and static.notes("committed"))
        dynamic.kill()
        static.kill()
        send(600, 900)
        until(lambda: offsets() and lasting.owns() == [0, 1, 2, 3, 4, 5])
        # its successor comes back by its instance id
        heir = started["heir"] = Member("^t$", tmp_path / "heir", **of, group_instance_id="i")
        until(lambda: len(heir.owns()) == 3)
        send(900, 1200)
        until(lambda: sum(offsets().values()) == 1200)
    finally:
        for member in started.values():
            member.kill()
    for before, after in itertools.pairwise(samples):
        assert all(after.get(partition, -1) >= offset for partition, offset in before.items()), "an offset went back"
    last = samples[-1]
    for member in started.values():
        assert all(last[int(partition)] >= offset for note in member.notes("committed") for partition, offset in note.items()), "a commit is lost"
    assert {value for member in started.values() for value in member.read()} == set(range(1200)), "every record is read"
    assert len(heir.read()) >= 150, "half of what was sent last"
