"""Consumer groups (KIP-848) behave as recorded with a real Kafka 4.4.0, and so do their records. tests/golden/README.md explains the recordings."""

import json
import re
import subprocess
import sys

import pytest

SETTINGS = {
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "10",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "5",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "300",
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
    "offsets-028": "TxnOffsetCommit 5 is not served",
    "offsets-031": "TxnOffsetCommit 5 is not served",
}


def run(golden, bootstrap, recording):
    """The ids of the scripts that run otherwise, and what was printed."""
    folder = golden / "kip-848" / "scripts"
    command = [sys.executable, "run_scripts.py", bootstrap, recording, "--threads", "8", "--show", "500"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert "equal" in done.stdout, done.stdout + done.stderr
    return sorted(re.findall(r"^  ([a-z\d-]+-\d+) ", done.stdout, re.MULTILINE)), done.stdout


@pytest.mark.timeout(240)
def test_every_recorded_script_of_groups_runs_as_with_kafka(golden, kafka_cluster):
    cluster = kafka_cluster(nodes=1, config=SETTINGS | AT_ONCE | {"group.consumer.max.size": "8"})
    found, printed = run(golden, cluster.bootstrap, golden / "kip-848" / "groups.jsonl")
    assert found == sorted(DIFFERENT), printed


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
