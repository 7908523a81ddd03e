"""Requests recorded with a real Kafka 4.3.1 and 4.4.0 are answered as they answered them. tests/golden/README.md explains the recordings."""

import re

import pytest

import fletchlog as fl
from pytest_fletchlog.kafka import DEFAULTS
from tests.support.recordings import OF_4_4, SETTINGS, different, replay

# group and note of a step (regular expressions), and why the answer differs
VECTORS = {
    r"(setup|api-versions-v\d+) \((first words|ordinary)\)": "fewer APIs: KIP-848, share groups, telemetry, and what brokers ask each other; transaction.version 2, not 1",
    r"add-partitions-v4 \(nothing\)": "Kafka never answers an empty list",
    r"describe-configs-v4 \(topic, three, synonyms and documentation\)": "documentation of our own",
    r"alter-configs-v2 \(the same topic twice\)": "Kafka never answers",
}
OF_MEMORY = {r"log-dirs-v5 .*": "memory has no size of a device"}
# of vectors-4.4.jsonl
NEW_REQUESTS = {
    r"setup \(first words\)": "fewer APIs and features",
    r"api-versions-v5 \((ordinary.*|software 'a\.b-c' '1\.0'|right cluster, right node)\)": "fewer APIs and features",
}
# what 4.4 lists besides the properties of 4.3
ADDED = [
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "streams.assignor.name",
    "streams.rack.aware.assignment.tags",
]
AS_OF_4_3 = ["--added", *ADDED]
SCRIPTS = {
    "transactions-031": "of transaction.version 2: the producer's own epoch before a fence counts as a retry",
    "transactions-079": "of transaction.version 2: the producer's own epoch before a time-out counts as a retry",
    "admin-028": "Kafka never answers a batch that is null",
}


def check_vectors(golden, bootstrap, exceptions, recording=None, options=()):
    """Every answer is Kafka's but these, and these are not."""
    first, *lines = replay(golden, "wire/vectors", "replay.py", bootstrap, recording, options)
    steps = [re.match(r"step \d+ (.*?\)): (.*)", line.strip()) for line in lines if line.strip().startswith("step ")]
    unexpected = [step[0] for step in steps if not any(re.fullmatch(known, step[1]) for known in exceptions)]
    stale = [known for known in exceptions if not any(re.fullmatch(known, step[1]) for step in steps)]
    assert (unexpected, stale) == ([], []), first


@pytest.mark.timeout(240)
def test_every_recorded_request_is_answered_as_kafka_answered_it(golden, kafka_cluster):
    check_vectors(golden, kafka_cluster(nodes=1, config=SETTINGS).bootstrap, VECTORS | OF_MEMORY, options=AS_OF_4_3)


@pytest.mark.timeout(120)
def test_requests_that_are_new_in_4_4_are_answered_as_it_answered_them(golden, kafka_cluster):
    recording = golden / "wire" / "vectors-4.4.jsonl"
    check_vectors(golden, kafka_cluster(nodes=1, config=SETTINGS).bootstrap, NEW_REQUESTS, recording, OF_4_4)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_broker_of_a_directory_answers_them_too(golden, tmp_path):
    config = {name: value for name, value in (DEFAULTS | SETTINGS).items() if value is not None}
    with fl.Broker(tmp_path / "data", create=True, config=config) as broker, broker.listen() as listener:
        check_vectors(golden, listener.bootstrap, VECTORS, options=AS_OF_4_3)


@pytest.mark.timeout(120)
def test_what_no_ordinary_client_sends_is_answered_as_kafka_answered_it(golden, kafka_cluster):
    recording = golden / "wire" / "odd-vectors.jsonl"
    lines = replay(golden, "wire/vectors", "replay.py", kafka_cluster(nodes=1, config=SETTINGS).bootstrap, recording, AS_OF_4_3)
    different = [line for line in lines if line.strip().startswith("step ")]
    # its share groups were off
    assert [line.split(":")[0].strip() for line in different] == ["step 0 setup (first words)", "step 1546 odd-coord-v6 (share)"], "\n".join(lines)


@pytest.mark.timeout(240)
def test_every_recorded_script_of_several_connections_runs_as_with_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS | {"group.max.size": "5"})
    found, printed = different(golden, "wire/coordinators", cluster.bootstrap, golden / "wire" / "scripts.jsonl", ["--schemas", "schemas-4.3.json"])
    assert found == sorted(SCRIPTS), printed


@pytest.mark.timeout(240)
def test_every_recorded_script_of_transactions_of_version_2_runs_as_with_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS)
    found, printed = different(golden, "wire/coordinators", cluster.bootstrap, golden / "kip-848" / "transactions.jsonl")
    assert found == [], printed


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_producer_id_whose_epochs_are_used_up_is_replaced_as_by_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS)
    found, printed = different(golden, "wire/coordinators", cluster.bootstrap, golden / "kip-848" / "last-epochs.jsonl")
    assert found == [], printed
