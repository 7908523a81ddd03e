"""What every node answers once it has settled after an event, as a real 4.4.0 did: reassignments, a killed node before and after it is noticed, too few
replicas in sync, an unclean election. `golden/cluster-events/phases.json.gz` has the answers."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.cluster_probes import Probes, agrees

PHASES = json.loads(gzip.decompress((Path(__file__).resolve().parents[1] / "golden" / "cluster-events" / "phases.json.gz").read_bytes()))
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture
def started(kafka_cluster):
    """Three nodes, and probes of them."""
    kafka = kafka_cluster(nodes=3)
    kafka.clock.freeze()
    probes = Probes(kafka.bootstrap)
    yield kafka, probes
    probes.close()


def check(probes, scenario, phase):
    """Every node answers every probe as recorded."""
    for topic, names in PHASES[scenario][phase].items():
        for name, by_node in names.items():
            for node in probes.nodes:
                wanted = by_node.get("all", by_node.get(str(node)))
                if wanted is not None:
                    found = probes.probe(node, name, topic)
                    assert agrees(wanted, found), (phase, topic, name, node, wanted, found)


def reassign(kafka, probes, check):
    probes.create("ra1", [[2, 3], [1, 2], [3, 1]], min_insync_replicas="2")
    for partition, leader in enumerate([2, 1, 3]):
        probes.write(leader, "ra1", partition, count=60)
    check("before")
    probes.reassign("ra1", 0, [1, 3])
    check("the leader is no replica")
    probes.reassign("ra1", 1, [1, 2, 3])
    check("one more replica")
    probes.reassign("ra1", 2, [2])
    check("one other replica")


def kill(kafka, probes, check):
    probes.create("ev", REPLICAS, min_insync_replicas="2")
    for partition, (leader, *_) in enumerate(REPLICAS):
        probes.write(leader, "ev", partition)
    kafka.stop_node(2)
    kafka.start_node(2)
    probes.elect()
    probes.epochs["ev"] = [0, 2, 0]
    check("before")
    kafka.kill_node(2, detected_after_ms=9000)
    check("unnoticed")
    kafka.clock.advance(seconds=9)
    check("fenced")
    kafka.start_node(2)
    check("returned")
    probes.elect()
    check("elected")


def two_down(kafka, probes, check):
    probes.create("d1", REPLICAS, min_insync_replicas="2")
    probes.create("dr2x1", [[2, 3]], min_insync_replicas="2")
    probes.create("dr1x1", [[3]], min_insync_replicas="2")
    for topic, leaders in {"d1": [1, 2, 3], "dr2x1": [2], "dr1x1": [3]}.items():
        for partition, leader in enumerate(leaders):
            probes.write(leader, topic, partition)
    check("before")
    kafka.kill_node(3)
    check("one down")
    kafka.kill_node(2)
    check("two down")
    kafka.start_node(2)
    check("one returned")
    kafka.start_node(3)
    check("both returned")


def unclean(kafka, probes, check):
    probes.create("un1elect", [[2, 3]], min_insync_replicas="1")
    probes.write(2, "un1elect", 0, count=10)
    check("before")
    kafka.kill_node(3)
    probes.write(2, "un1elect", 0, count=20)
    check("one is behind")
    kafka.kill_node(2)
    check("no leader")
    kafka.start_node(3)
    check("the one behind returned")
    probes.elect("un1elect", kind=1)
    probes.write(3, "un1elect", 0, acks=1, count=8)
    check("elected")
    kafka.start_node(2)
    check("both returned")
    probes.elect("un1elect")
    check("the preferred one leads")


@pytest.mark.parametrize("scenario", [reassign, kill, two_down, unclean])
def test_nodes_answer_as_recorded_after_events(started, scenario):
    kafka, probes = started
    scenario(kafka, probes, lambda phase: check(probes, scenario.__name__, phase))
